# bash completion for sandbox
# Generated from the command table: edit cli/, then `make generate`.
# shellcheck shell=bash

_sandbox_verbs='run exec shell attach logs kill cp diff collect agent create list inspect wait extend delete tunnel forward ssh ssh-config ps top network operation events context use config login logout auth gc image pool secret token node quota audit daemon doctor http api mcp console version help'
_sandbox_globals='--help --version --json --quiet -q --server --ca-file --insecure-http --context --tenant --format --dry-run --debug'

_sandbox_options() {
	case $1 in
	'run') echo ' --image --env -e --cwd -w --user -u --timeout --tty -t --no-stdin --upload --download --keep --name -n --cpus -c --memory -m --ttl --network --untrusted-repo --generated-code --disk --pids --label -l --tier --isolation --sensitivity --needs-secrets --allow --secret --writable-root --expose --idempotency-key --wait-timeout --wait-capacity --env-file --interactive -i --status-fd --escape' ;;
	'exec') echo ' --env -e --cwd -w --user -u --timeout --tty -t --no-stdin --detach -d --env-file --interactive -i --status-fd --escape' ;;
	'shell') echo ' --env -e --env-file --cwd -w --user -u --escape --status-fd' ;;
	'attach') echo ' --since' ;;
	'logs') echo ' --follow -f --tail -n --since --timestamps -t' ;;
	'kill') echo ' --signal -s' ;;
	'cp' | 'copy') echo ' --dry-run -n --verify' ;;
	'diff') echo ' --stat --base --max-size' ;;
	'collect') echo ' --output -o --base --max-size' ;;
	'agent') echo '' ;;
	'agent run') echo ' --image -i --name -n --ttl --network --upload --env -e --allow --secret --cpus -c --memory -m --disk --pids --sensitivity --untrusted-repo --no-untrusted-repo --needs-secrets --no-needs-secrets --wait-timeout' ;;
	'agent build') echo ' --base --agent-version --tag -t' ;;
	'agent list') echo '' ;;
	'create') echo ' --image -i --name -n --cpus -c --memory -m --ttl --network --untrusted-repo --generated-code --env -e --wait --no-wait -w --explain --upload --env-file --disk --pids --label -l --tier --isolation --sensitivity --needs-secrets --allow --secret --writable-root --expose --idempotency-key --wait-timeout --wait-capacity' ;;
	'list' | 'ls') echo ' --all -a --label -l' ;;
	'inspect' | 'show') echo '' ;;
	'wait') echo ' --timeout -t' ;;
	'extend') echo ' --ttl' ;;
	'delete' | 'rm') echo ' --all -a --label -l --yes -y --wait --no-wait -w --missing-ok --wait-timeout' ;;
	'tunnel') echo '' ;;
	'tunnel create') echo ' --port -p --subdomain --auth --ttl --host-header' ;;
	'tunnel list') echo '' ;;
	'tunnel secret') echo '' ;;
	'tunnel delete') echo '' ;;
	'forward') echo ' --detach -d --stdio' ;;
	'ssh') echo ' --stdio --port -p --user -u' ;;
	'ssh-config') echo '' ;;
	'ps') echo '' ;;
	'top' | 'stats') echo ' --once -1 --interval -n' ;;
	'network') echo '' ;;
	'network log') echo '' ;;
	'network rules') echo '' ;;
	'network check') echo '' ;;
	'network set') echo ' --allow --none --default' ;;
	'network tenant') echo ' --allow --none --default' ;;
	'operation' | 'op') echo '' ;;
	'operation list') echo ' --limit -n' ;;
	'operation inspect') echo '' ;;
	'operation cancel') echo ' --signal -s' ;;
	'events') echo ' --follow -f --since' ;;
	'context' | 'ctx') echo '' ;;
	'context list') echo '' ;;
	'context show') echo '' ;;
	'context create') echo ' --url --token-helper --allow-http --use' ;;
	'context use') echo '' ;;
	'context rename') echo '' ;;
	'context delete') echo '' ;;
	'use') echo ' --clear' ;;
	'config') echo '' ;;
	'config list') echo '' ;;
	'config set') echo '' ;;
	'config unset') echo '' ;;
	'config set-server') echo '' ;;
	'login') echo ' --token-stdin --passphrase' ;;
	'logout') echo '' ;;
	'auth') echo '' ;;
	'auth status') echo ' --check' ;;
	'gc') echo ' --verify' ;;
	'image') echo '' ;;
	'image list') echo ' --node' ;;
	'image pull') echo ' --node' ;;
	'image import') echo ' --node' ;;
	'image push') echo ' --all -a --from' ;;
	'image remove') echo ' --node' ;;
	'image login') echo ' --username -u --password-stdin' ;;
	'image logout') echo '' ;;
	'image logins') echo '' ;;
	'pool') echo '' ;;
	'pool list') echo '' ;;
	'secret') echo '' ;;
	'secret set') echo ' --stdin --exact' ;;
	'secret list') echo '' ;;
	'secret delete') echo '' ;;
	'token') echo '' ;;
	'token create') echo ' --role --for --expires' ;;
	'token list') echo '' ;;
	'token revoke') echo '' ;;
	'node') echo '' ;;
	'node list') echo '' ;;
	'node inspect') echo '' ;;
	'node add') echo ' --name -n --runtime --label -l --controller --install-docker --identity -i --jump -J --host-key --password-file --archive --canary-image --no-canary --wait' ;;
	'node upgrade') echo ' --archive --identity -i --jump -J --host-key --password-file --wait' ;;
	'node rotate') echo ' --identity -i --jump -J --host-key --password-file --wait' ;;
	'node token') echo ' --pin --no-pin --expires' ;;
	'node drain') echo '' ;;
	'node undrain') echo '' ;;
	'node remove') echo ' --force --purge --identity -i --jump -J --host-key --password-file' ;;
	'quota') echo '' ;;
	'quota show') echo '' ;;
	'quota set') echo ' --sandboxes --cpu-millis --memory --ttl' ;;
	'audit') echo ' --limit -n --who --action --target' ;;
	'daemon') echo '' ;;
	'daemon start') echo '' ;;
	'daemon stop') echo ' --timeout -t' ;;
	'daemon restart') echo ' --timeout -t' ;;
	'daemon status') echo '' ;;
	'daemon logs') echo ' --follow -f --lines -n' ;;
	'doctor') echo '' ;;
	'http') echo ' --subdomain --host-header' ;;
	'api') echo ' --field -f --json-field -F --input -d --idempotency-key' ;;
	'mcp') echo '' ;;
	'mcp install') echo ' --client --all --dry-run' ;;
	'mcp uninstall') echo ' --client --all --dry-run' ;;
	'mcp config') echo '' ;;
	'mcp serve') echo ' --wait' ;;
	'console') echo '' ;;
	'version') echo '' ;;
	'help') echo '' ;;
	esac
}

_sandbox_value() {
	case "$1 $2" in
	'run --image') echo ':image' ;;
	'run --env' | 'run -e') echo ':none' ;;
	'run --cwd' | 'run -w') echo ':file' ;;
	'run --user' | 'run -u') echo ':none' ;;
	'run --timeout') echo ':none' ;;
	'run --upload') echo ':file' ;;
	'run --download') echo ':none' ;;
	'run --name' | 'run -n') echo ':none' ;;
	'run --cpus' | 'run -c') echo ':none' ;;
	'run --memory' | 'run -m') echo ':none' ;;
	'run --ttl') echo ':none' ;;
	'run --network') echo 'deny restricted open' ;;
	'run --disk') echo ':none' ;;
	'run --pids') echo ':none' ;;
	'run --label' | 'run -l') echo ':none' ;;
	'run --tier') echo 'container gvisor microvm' ;;
	'run --isolation') echo 'auto container microvm' ;;
	'run --sensitivity') echo 'public internal confidential restricted' ;;
	'run --allow') echo ':none' ;;
	'run --secret') echo ':secret' ;;
	'run --expose') echo ':none' ;;
	'run --idempotency-key') echo ':none' ;;
	'run --wait-timeout') echo ':none' ;;
	'run --wait-capacity') echo ':none' ;;
	'run --env-file') echo ':file' ;;
	'run --status-fd') echo ':none' ;;
	'run --escape') echo ':none' ;;
	'exec --env' | 'exec -e') echo ':none' ;;
	'exec --cwd' | 'exec -w') echo ':file' ;;
	'exec --user' | 'exec -u') echo ':none' ;;
	'exec --timeout') echo ':none' ;;
	'exec --env-file') echo ':file' ;;
	'exec --status-fd') echo ':none' ;;
	'exec --escape') echo ':none' ;;
	'shell --env' | 'shell -e') echo ':none' ;;
	'shell --env-file') echo ':file' ;;
	'shell --cwd' | 'shell -w') echo ':file' ;;
	'shell --user' | 'shell -u') echo ':none' ;;
	'shell --escape') echo ':none' ;;
	'shell --status-fd') echo ':none' ;;
	'attach --since') echo ':none' ;;
	'logs --tail' | 'logs -n') echo ':none' ;;
	'logs --since') echo ':none' ;;
	'kill --signal' | 'kill -s') echo ':signal' ;;
	'diff --base') echo ':file' ;;
	'diff --max-size') echo ':none' ;;
	'collect --output' | 'collect -o') echo ':file' ;;
	'collect --base') echo ':file' ;;
	'collect --max-size') echo ':none' ;;
	'agent run --image' | 'agent run -i') echo ':image' ;;
	'agent run --name' | 'agent run -n') echo ':none' ;;
	'agent run --ttl') echo ':none' ;;
	'agent run --network') echo 'deny restricted open' ;;
	'agent run --upload') echo ':file' ;;
	'agent run --env' | 'agent run -e') echo ':none' ;;
	'agent run --allow') echo ':none' ;;
	'agent run --secret') echo ':secret' ;;
	'agent run --cpus' | 'agent run -c') echo ':none' ;;
	'agent run --memory' | 'agent run -m') echo ':none' ;;
	'agent run --disk') echo ':none' ;;
	'agent run --pids') echo ':none' ;;
	'agent run --sensitivity') echo 'public internal confidential restricted' ;;
	'agent run --wait-timeout') echo ':none' ;;
	'agent build --base') echo ':image' ;;
	'agent build --agent-version') echo ':none' ;;
	'agent build --tag' | 'agent build -t') echo ':none' ;;
	'create --image' | 'create -i') echo ':image' ;;
	'create --name' | 'create -n') echo ':none' ;;
	'create --cpus' | 'create -c') echo ':none' ;;
	'create --memory' | 'create -m') echo ':none' ;;
	'create --ttl') echo ':none' ;;
	'create --network') echo 'deny restricted open' ;;
	'create --env' | 'create -e') echo ':none' ;;
	'create --upload') echo ':file' ;;
	'create --env-file') echo ':file' ;;
	'create --disk') echo ':none' ;;
	'create --pids') echo ':none' ;;
	'create --label' | 'create -l') echo ':none' ;;
	'create --tier') echo 'container gvisor microvm' ;;
	'create --isolation') echo 'auto container microvm' ;;
	'create --sensitivity') echo 'public internal confidential restricted' ;;
	'create --allow') echo ':none' ;;
	'create --secret') echo ':secret' ;;
	'create --expose') echo ':none' ;;
	'create --idempotency-key') echo ':none' ;;
	'create --wait-timeout') echo ':none' ;;
	'create --wait-capacity') echo ':none' ;;
	'list --label' | 'list -l') echo ':none' ;;
	'wait --timeout' | 'wait -t') echo ':none' ;;
	'extend --ttl') echo ':none' ;;
	'delete --label' | 'delete -l') echo ':none' ;;
	'delete --wait-timeout') echo ':none' ;;
	'tunnel create --port' | 'tunnel create -p') echo ':none' ;;
	'tunnel create --subdomain') echo ':none' ;;
	'tunnel create --auth') echo 'none token password' ;;
	'tunnel create --ttl') echo ':none' ;;
	'tunnel create --host-header') echo 'rewrite keep' ;;
	'ssh --port' | 'ssh -p') echo ':none' ;;
	'ssh --user' | 'ssh -u') echo ':none' ;;
	'top --interval' | 'top -n') echo ':none' ;;
	'network set --allow') echo ':none' ;;
	'network tenant --allow') echo ':none' ;;
	'operation list --limit' | 'operation list -n') echo ':none' ;;
	'operation cancel --signal' | 'operation cancel -s') echo ':signal' ;;
	'events --since') echo ':none' ;;
	'context create --url') echo ':none' ;;
	'context create --token-helper') echo ':none' ;;
	'image list --node') echo ':none' ;;
	'image pull --node') echo ':none' ;;
	'image import --node') echo ':none' ;;
	'image push --from') echo ':none' ;;
	'image remove --node') echo ':none' ;;
	'image login --username' | 'image login -u') echo ':none' ;;
	'token create --role') echo 'viewer operator admin' ;;
	'token create --for') echo ':tenant' ;;
	'token create --expires') echo ':none' ;;
	'node add --name' | 'node add -n') echo ':none' ;;
	'node add --runtime') echo 'docker gvisor qemu' ;;
	'node add --label' | 'node add -l') echo ':none' ;;
	'node add --controller') echo ':none' ;;
	'node add --identity' | 'node add -i') echo ':file' ;;
	'node add --jump' | 'node add -J') echo ':none' ;;
	'node add --host-key') echo ':none' ;;
	'node add --password-file') echo ':file' ;;
	'node add --archive') echo ':file' ;;
	'node add --canary-image') echo ':image' ;;
	'node add --wait') echo ':none' ;;
	'node upgrade --archive') echo ':file' ;;
	'node upgrade --identity' | 'node upgrade -i') echo ':file' ;;
	'node upgrade --jump' | 'node upgrade -J') echo ':none' ;;
	'node upgrade --host-key') echo ':none' ;;
	'node upgrade --password-file') echo ':file' ;;
	'node upgrade --wait') echo ':none' ;;
	'node rotate --identity' | 'node rotate -i') echo ':file' ;;
	'node rotate --jump' | 'node rotate -J') echo ':none' ;;
	'node rotate --host-key') echo ':none' ;;
	'node rotate --password-file') echo ':file' ;;
	'node rotate --wait') echo ':none' ;;
	'node token --pin') echo ':none' ;;
	'node token --expires') echo ':none' ;;
	'node remove --purge') echo ':none' ;;
	'node remove --identity' | 'node remove -i') echo ':file' ;;
	'node remove --jump' | 'node remove -J') echo ':none' ;;
	'node remove --host-key') echo ':none' ;;
	'node remove --password-file') echo ':file' ;;
	'quota set --sandboxes') echo ':none' ;;
	'quota set --cpu-millis') echo ':none' ;;
	'quota set --memory') echo ':none' ;;
	'quota set --ttl') echo ':none' ;;
	'audit --limit' | 'audit -n') echo ':none' ;;
	'audit --who') echo ':none' ;;
	'audit --action') echo ':none' ;;
	'audit --target') echo ':none' ;;
	'daemon stop --timeout' | 'daemon stop -t') echo ':none' ;;
	'daemon restart --timeout' | 'daemon restart -t') echo ':none' ;;
	'daemon logs --lines' | 'daemon logs -n') echo ':none' ;;
	'http --subdomain') echo ':none' ;;
	'http --host-header') echo 'rewrite keep' ;;
	'api --field' | 'api -f') echo ':none' ;;
	'api --json-field' | 'api -F') echo ':none' ;;
	'api --input' | 'api -d') echo ':file' ;;
	'api --idempotency-key') echo ':none' ;;
	'mcp install --client') echo ':client' ;;
	'mcp uninstall --client') echo ':client' ;;
	'mcp serve --wait') echo ':none' ;;
	*' --server') echo ':none' ;;
	*' --ca-file') echo ':file' ;;
	*' --context') echo ':context' ;;
	*' --tenant') echo ':tenant' ;;
	*' --format') echo ':none' ;;
	esac
}

_sandbox_what() {
	case $1 in
	'run') echo 'none*' ;;
	'exec') echo 'sandbox none*' ;;
	'shell') echo 'sandbox none*' ;;
	'attach') echo 'operation' ;;
	'logs') echo 'sandbox' ;;
	'kill') echo 'operation*' ;;
	'cp' | 'copy') echo 'path path' ;;
	'diff') echo 'sandbox' ;;
	'collect') echo 'sandbox' ;;
	'agent') echo 'sub' ;;
	'agent run') echo 'agent none*' ;;
	'agent build') echo 'none' ;;
	'agent list') echo '' ;;
	'create') echo 'none*' ;;
	'list' | 'ls') echo '' ;;
	'inspect' | 'show') echo 'sandbox' ;;
	'wait') echo 'operation' ;;
	'extend') echo 'sandbox' ;;
	'delete' | 'rm') echo 'sandbox*' ;;
	'tunnel') echo 'sub' ;;
	'tunnel create') echo 'sandbox' ;;
	'tunnel list') echo 'sandbox' ;;
	'tunnel secret') echo 'sandbox tunnel' ;;
	'tunnel delete') echo 'sandbox tunnel' ;;
	'forward') echo 'sandbox none*' ;;
	'ssh') echo 'sandbox none*' ;;
	'ssh-config') echo '' ;;
	'ps') echo 'sandbox' ;;
	'top' | 'stats') echo 'sandbox' ;;
	'network') echo 'sub' ;;
	'network log') echo 'sandbox' ;;
	'network rules') echo 'sandbox' ;;
	'network check') echo 'sandbox none' ;;
	'network set') echo 'sandbox' ;;
	'network tenant') echo 'tenant' ;;
	'operation' | 'op') echo 'sub' ;;
	'operation list') echo 'sandbox' ;;
	'operation inspect') echo 'operation' ;;
	'operation cancel') echo 'operation' ;;
	'events') echo '' ;;
	'context' | 'ctx') echo 'sub' ;;
	'context list') echo '' ;;
	'context show') echo 'context' ;;
	'context create') echo 'none' ;;
	'context use') echo 'context' ;;
	'context rename') echo 'context none' ;;
	'context delete') echo 'context' ;;
	'use') echo 'sandbox' ;;
	'config') echo 'sub' ;;
	'config list') echo '' ;;
	'config set') echo 'setting none' ;;
	'config unset') echo 'setting' ;;
	'config set-server') echo 'none' ;;
	'login') echo '' ;;
	'logout') echo '' ;;
	'auth') echo 'sub' ;;
	'auth status') echo '' ;;
	'gc') echo '' ;;
	'image') echo 'sub' ;;
	'image list') echo '' ;;
	'image pull') echo 'none' ;;
	'image import') echo 'file image' ;;
	'image push') echo 'image node*' ;;
	'image remove') echo 'image*' ;;
	'image login') echo 'none' ;;
	'image logout') echo 'none*' ;;
	'image logins') echo '' ;;
	'pool') echo 'sub' ;;
	'pool list') echo '' ;;
	'secret') echo 'sub' ;;
	'secret set') echo 'secret' ;;
	'secret list') echo '' ;;
	'secret delete') echo 'secret*' ;;
	'token') echo 'sub' ;;
	'token create') echo 'none' ;;
	'token list') echo '' ;;
	'token revoke') echo 'token' ;;
	'node') echo 'sub' ;;
	'node list') echo '' ;;
	'node inspect') echo 'node' ;;
	'node add') echo 'none' ;;
	'node upgrade') echo 'none' ;;
	'node rotate') echo 'none' ;;
	'node token') echo 'none' ;;
	'node drain') echo 'node' ;;
	'node undrain') echo 'node' ;;
	'node remove') echo 'node' ;;
	'quota') echo 'sub' ;;
	'quota show') echo 'tenant' ;;
	'quota set') echo 'tenant' ;;
	'audit') echo '' ;;
	'daemon') echo 'sub' ;;
	'daemon start') echo '' ;;
	'daemon stop') echo '' ;;
	'daemon restart') echo '' ;;
	'daemon status') echo '' ;;
	'daemon logs') echo '' ;;
	'doctor') echo '' ;;
	'http') echo 'none' ;;
	'api') echo 'none none' ;;
	'mcp') echo 'sub' ;;
	'mcp install') echo '' ;;
	'mcp uninstall') echo '' ;;
	'mcp config') echo 'client' ;;
	'mcp serve') echo '' ;;
	'console') echo '' ;;
	'version') echo '' ;;
	'help') echo 'verb*' ;;
	esac
}

_sandbox_subs() {
	case $1 in
	'agent') echo 'run build list' ;;
	'tunnel') echo 'create list secret delete' ;;
	'network') echo 'log rules check set tenant' ;;
	'operation' | 'op') echo 'list inspect cancel' ;;
	'context' | 'ctx') echo 'list show create use rename delete' ;;
	'config') echo 'list set unset set-server' ;;
	'auth') echo 'status' ;;
	'image') echo 'list pull import push remove login logout logins' ;;
	'pool') echo 'list' ;;
	'secret') echo 'set list delete' ;;
	'token') echo 'create list revoke' ;;
	'node') echo 'list inspect add upgrade rotate token drain undrain remove' ;;
	'quota') echo 'show set' ;;
	'daemon') echo 'start stop restart status logs' ;;
	'mcp') echo 'install uninstall config serve' ;;
	esac
}

# The words of the line up to the cursor; those that the shell cut at : or = are put together again.
_sandbox_words() {
	local line=${COMP_LINE-} i w
	words=("${COMP_WORDS[0]}")
	line=${line#"${COMP_WORDS[0]}"}
	for ((i = 1; i <= COMP_CWORD; i++)); do
		w=${COMP_WORDS[i]}
		case $line in
		[[:blank:]]* | '')
			line=${line#"${line%%[![:blank:]]*}"}
			words+=("$w")
			;;
		*) words[${#words[@]}-1]+=$w ;;
		esac
		line=${line#"$w"}
	done
}

# Those lines of standard input that begin with the present word. What stands before its last colon is there already.
_sandbox_reply() {
	local w head=''
	case ${COMP_WORDBREAKS-} in *:*) case $cur in *:*) head=${cur%"${cur##*:}"} ;; esac ;; esac
	while IFS= read -r w; do
		case $w in "$cur"*) COMPREPLY+=("${w#"$head"}") ;; esac
	done
}

_sandbox_list() {
	local w
	for w in $1; do echo "$w"; done
}

# Completes the present word with what $1 names.
_sandbox_offer() {
	local nospace=''
	case $1 in
	file | path)
		case $1:$cur in
		path:*:*) nospace=1 ;;
		*)
			compopt -o filenames 2>/dev/null
			_sandbox_reply < <(compgen -f -- "$cur")
			[ "$1" = path ] || return 0
			;;
		esac
		;;
	sub) _sandbox_reply < <(_sandbox_list "$(_sandbox_subs "$verb")") ;;
	verb) _sandbox_reply < <(_sandbox_list "$_sandbox_verbs") ;;
	esac
	case $1 in
	'' | none | file | sub | verb) ;;
	*)
		_sandbox_reply < <("${words[0]}" __complete "$1" "$cur" 2>/dev/null </dev/null)
		case "${COMPREPLY[*]-}" in *[:/]) nospace=1 ;; esac
		[ -z "$nospace" ] || compopt -o nospace 2>/dev/null
		;;
	esac
	return 0
}

_sandbox() {
	local cur prev='' verb='' sub='' word what i n=0 skip='' words
	COMPREPLY=()
	_sandbox_words
	cur=${words[${#words[@]}-1]}
	for ((i = 1; i < ${#words[@]} - 1; i++)); do
		word=${words[i]}
		prev=$word
		if [ -n "$skip" ]; then
			skip=''
			continue
		fi
		case $word in
		--) return 0 ;;
		-*)
			[ -z "$(_sandbox_value "${verb:-globals}${sub:+ $sub}" "$word")" ] || skip=1
			continue
			;;
		esac
		if [ -z "$verb" ]; then
			verb=$word
		elif [ -z "$sub" ] && [ "$(_sandbox_what "$verb")" = sub ]; then
			sub=$word
		else
			n=$((n + 1))
		fi
	done
	if [ -n "$skip" ]; then
		what=$(_sandbox_value "${verb:-globals}${sub:+ $sub}" "$prev")
		case $what in
		:*) _sandbox_offer "${what#:}" ;;
		*) _sandbox_reply < <(_sandbox_list "$what") ;;
		esac
		return 0
	fi
	case $cur in
	-*)
		_sandbox_reply < <(_sandbox_list "$_sandbox_globals${verb:+ $(_sandbox_options "$verb${sub:+ $sub}")}")
		return 0
		;;
	esac
	if [ -z "$verb" ]; then
		_sandbox_offer verb
		return 0
	fi
	what=
	for word in $(_sandbox_what "$verb${sub:+ $sub}" | tr -d '*'); do
		[ "$n" -gt 0 ] || { what=$word; break; }
		n=$((n - 1))
	done
	if [ -z "$what" ]; then
		case $(_sandbox_what "$verb${sub:+ $sub}") in *\*) what=${word-} ;; esac
	fi
	_sandbox_offer "$what"
}

complete -F _sandbox sandbox
