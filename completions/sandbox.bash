# bash completion for sandbox
# Generated from the command table: edit cli/, then `make generate`.
# shellcheck shell=bash

_sandbox_verbs='run exec shell attach logs kill cp create list inspect wait extend delete ps top operation image daemon doctor version help'
_sandbox_globals='--help --version --json --quiet -q --server --tenant --debug'

_sandbox_options() {
	case $1 in
	'run') echo ' --image --env -e --cwd -w --user -u --timeout --tty -t --no-stdin --upload --download --keep --name -n --cpus -c --memory -m --ttl --network --untrusted-repo --generated-code --disk --pids --label -l --tier --isolation --sensitivity --needs-secrets --writable-root --expose --idempotency-key --wait-timeout --cpu-millis --memory-mib --disk-mib --env-file --interactive -i --status-fd --escape' ;;
	'exec') echo ' --env -e --cwd -w --user -u --timeout --tty -t --no-stdin --detach -d --env-file --interactive -i --status-fd --escape' ;;
	'shell') echo ' --env -e --env-file --cwd -w --user -u --escape --status-fd' ;;
	'attach') echo ' --since' ;;
	'logs') echo ' --follow -f --tail -n --since' ;;
	'kill') echo ' --signal -s' ;;
	'cp' | 'copy') echo ' --dry-run -n --verify' ;;
	'create') echo ' --image -i --name -n --cpus -c --memory -m --ttl --network --untrusted-repo --generated-code --env -e --wait --no-wait -w --explain --env-file --disk --pids --label -l --tier --isolation --sensitivity --needs-secrets --writable-root --expose --idempotency-key --wait-timeout --cpu-millis --memory-mib --disk-mib' ;;
	'list' | 'ls') echo ' --all -a --label -l' ;;
	'inspect' | 'show') echo '' ;;
	'wait') echo ' --timeout -t' ;;
	'extend') echo ' --ttl' ;;
	'delete' | 'rm') echo ' --wait --no-wait -w --missing-ok --wait-timeout' ;;
	'ps') echo '' ;;
	'top' | 'stats') echo ' --once -1 --interval -n' ;;
	'operation' | 'op') echo '' ;;
	'operation list') echo ' --limit -n' ;;
	'operation inspect') echo '' ;;
	'operation cancel') echo ' --signal -s' ;;
	'image' | 'images') echo '' ;;
	'image list') echo '' ;;
	'image pull') echo '' ;;
	'image import') echo '' ;;
	'image remove') echo '' ;;
	'daemon') echo '' ;;
	'daemon start') echo '' ;;
	'daemon stop') echo ' --timeout -t' ;;
	'daemon status') echo '' ;;
	'daemon logs') echo ' --follow -f --lines -n' ;;
	'doctor') echo '' ;;
	'version') echo '' ;;
	'help') echo '' ;;
	esac
}

_sandbox_value() {
	case $1 in
	'run:--image') echo ':image' ;;
	'run:--env' | 'run:-e') echo ':none' ;;
	'run:--cwd' | 'run:-w') echo ':file' ;;
	'run:--user' | 'run:-u') echo ':none' ;;
	'run:--timeout') echo ':none' ;;
	'run:--upload') echo ':file' ;;
	'run:--download') echo ':none' ;;
	'run:--name' | 'run:-n') echo ':none' ;;
	'run:--cpus' | 'run:-c') echo ':none' ;;
	'run:--memory' | 'run:-m') echo ':none' ;;
	'run:--ttl') echo ':none' ;;
	'run:--network') echo 'deny restricted open' ;;
	'run:--disk') echo ':none' ;;
	'run:--pids') echo ':none' ;;
	'run:--label' | 'run:-l') echo ':none' ;;
	'run:--tier') echo 'container gvisor microvm' ;;
	'run:--isolation') echo 'auto container microvm' ;;
	'run:--sensitivity') echo 'public internal confidential restricted' ;;
	'run:--expose') echo ':none' ;;
	'run:--idempotency-key') echo ':none' ;;
	'run:--wait-timeout') echo ':none' ;;
	'run:--cpu-millis') echo ':none' ;;
	'run:--memory-mib') echo ':none' ;;
	'run:--disk-mib') echo ':none' ;;
	'run:--env-file') echo ':file' ;;
	'run:--status-fd') echo ':none' ;;
	'run:--escape') echo ':none' ;;
	'exec:--env' | 'exec:-e') echo ':none' ;;
	'exec:--cwd' | 'exec:-w') echo ':file' ;;
	'exec:--user' | 'exec:-u') echo ':none' ;;
	'exec:--timeout') echo ':none' ;;
	'exec:--env-file') echo ':file' ;;
	'exec:--status-fd') echo ':none' ;;
	'exec:--escape') echo ':none' ;;
	'shell:--env' | 'shell:-e') echo ':none' ;;
	'shell:--env-file') echo ':file' ;;
	'shell:--cwd' | 'shell:-w') echo ':file' ;;
	'shell:--user' | 'shell:-u') echo ':none' ;;
	'shell:--escape') echo ':none' ;;
	'shell:--status-fd') echo ':none' ;;
	'attach:--since') echo ':none' ;;
	'logs:--tail' | 'logs:-n') echo ':none' ;;
	'logs:--since') echo ':none' ;;
	'kill:--signal' | 'kill:-s') echo ':none' ;;
	'create:--image' | 'create:-i') echo ':image' ;;
	'create:--name' | 'create:-n') echo ':none' ;;
	'create:--cpus' | 'create:-c') echo ':none' ;;
	'create:--memory' | 'create:-m') echo ':none' ;;
	'create:--ttl') echo ':none' ;;
	'create:--network') echo 'deny restricted open' ;;
	'create:--env' | 'create:-e') echo ':none' ;;
	'create:--env-file') echo ':file' ;;
	'create:--disk') echo ':none' ;;
	'create:--pids') echo ':none' ;;
	'create:--label' | 'create:-l') echo ':none' ;;
	'create:--tier') echo 'container gvisor microvm' ;;
	'create:--isolation') echo 'auto container microvm' ;;
	'create:--sensitivity') echo 'public internal confidential restricted' ;;
	'create:--expose') echo ':none' ;;
	'create:--idempotency-key') echo ':none' ;;
	'create:--wait-timeout') echo ':none' ;;
	'create:--cpu-millis') echo ':none' ;;
	'create:--memory-mib') echo ':none' ;;
	'create:--disk-mib') echo ':none' ;;
	'list:--label' | 'list:-l') echo ':none' ;;
	'wait:--timeout' | 'wait:-t') echo ':none' ;;
	'extend:--ttl') echo ':none' ;;
	'delete:--wait-timeout') echo ':none' ;;
	'top:--interval' | 'top:-n') echo ':none' ;;
	'operation list:--limit' | 'operation list:-n') echo ':none' ;;
	'operation cancel:--signal' | 'operation cancel:-s') echo ':none' ;;
	'daemon stop:--timeout' | 'daemon stop:-t') echo ':none' ;;
	'daemon logs:--lines' | 'daemon logs:-n') echo ':none' ;;
	esac
}

_sandbox_what() {
	case $1 in
	'run') echo 'none' ;;
	'exec') echo 'sandbox' ;;
	'shell') echo 'sandbox' ;;
	'attach') echo 'operation' ;;
	'logs') echo 'sandbox' ;;
	'kill') echo 'operation' ;;
	'cp' | 'copy') echo 'file' ;;
	'create') echo 'none' ;;
	'list' | 'ls') echo 'none' ;;
	'inspect' | 'show') echo 'sandbox' ;;
	'wait') echo 'operation' ;;
	'extend') echo 'sandbox' ;;
	'delete' | 'rm') echo 'sandbox' ;;
	'ps') echo 'sandbox' ;;
	'top' | 'stats') echo 'sandbox' ;;
	'operation' | 'op') echo 'sub' ;;
	'operation list') echo 'sandbox' ;;
	'operation inspect') echo 'operation' ;;
	'operation cancel') echo 'operation' ;;
	'image' | 'images') echo 'sub' ;;
	'image list') echo 'none' ;;
	'image pull') echo 'none' ;;
	'image import') echo 'file' ;;
	'image remove') echo 'image' ;;
	'daemon') echo 'sub' ;;
	'daemon start') echo 'none' ;;
	'daemon stop') echo 'none' ;;
	'daemon status') echo 'none' ;;
	'daemon logs') echo 'none' ;;
	'doctor') echo 'none' ;;
	'version') echo 'none' ;;
	'help') echo 'verb' ;;
	esac
}

_sandbox_subs() {
	case $1 in
	'operation' | 'op') echo 'list inspect cancel' ;;
	'image' | 'images') echo 'list pull import remove' ;;
	'daemon') echo 'start stop status logs' ;;
	esac
}

_sandbox() {
	local cur=${COMP_WORDS[COMP_CWORD]} verb='' sub='' prev=${COMP_WORDS[COMP_CWORD - 1]} word what i
	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		[ "$word" = -- ] && { compopt -o default; return; }
		case $word in -*) continue ;; esac
		if [ -z "$verb" ]; then
			verb=$word
		elif [ -z "$sub" ] && [ "$(_sandbox_what "$verb")" = sub ]; then
			sub=$word
		fi
	done
	if [ -z "$verb" ]; then
		case $cur in
		-*) mapfile -t COMPREPLY < <(compgen -W "$_sandbox_globals" -- "$cur") ;;
		*) mapfile -t COMPREPLY < <(compgen -W "$_sandbox_verbs" -- "$cur") ;;
		esac
		return
	fi
	what=$(_sandbox_value "$verb${sub:+ $sub}:$prev")
	if [ -z "$what" ]; then
		case $cur in
		-*)
			mapfile -t COMPREPLY < <(compgen -W "$(_sandbox_options "$verb${sub:+ $sub}") $_sandbox_globals" -- "$cur")
			return
			;;
		esac
		what=:$(_sandbox_what "$verb${sub:+ $sub}")
	fi
	case $what in
	:file) compopt -o default ;;
	:sub) mapfile -t COMPREPLY < <(compgen -W "$(_sandbox_subs "$verb")" -- "$cur") ;;
	:verb) mapfile -t COMPREPLY < <(compgen -W "$_sandbox_verbs" -- "$cur") ;;
	:sandbox | :operation | :image)
		mapfile -t COMPREPLY < <(compgen -W "$(sandbox __complete "${what#:}" 2>/dev/null)" -- "$cur")
		;;
	:*) ;;
	*) mapfile -t COMPREPLY < <(compgen -W "$what" -- "$cur") ;;
	esac
}

complete -F _sandbox sandbox
