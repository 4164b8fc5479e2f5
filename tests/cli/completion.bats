#!/usr/bin/env bats
# Completion as people meet it: in real shells on a terminal, against a real daemon; quick and silent without one.

load ../lib/helpers

setup_file() {
	need_engine
	sbx_start
	sbx_create --name web >/dev/null
	sandbox exec web -- sh -c 'mkdir -p /workspace/dir && touch /workspace/dir/file-one /workspace/dir/file-two "/workspace/dir/with space" /workspace/dir/.hidden'
	sandbox context create work --url unix:///x
	# A name with colons, which bash takes for several words.
	TAGGED=localhost:5000/sbx-completion:1
	export TAGGED
	docker tag "$IMAGE" "$TAGGED"
	mkdir "$SBX_DIR/here"
	touch "$SBX_DIR/here/local-file"
}

teardown_file() {
	docker rmi "${TAGGED:-}" >/dev/null 2>&1 || true
	sbx_stop
}

setup() {
	[ -x "$BUILD/tools/pty" ] || skip "tools are not built"
	cd "$SBX_DIR/here"
}

# typed SHELL TEXT...: types each TEXT and a tab at the shell's prompt, and turns the line into an echo of itself, which it prints.
typed() {
	local shell=$1 start text
	shift
	{
		case $shell in
		bash) start=". $TOP/completions/sandbox.bash; set -u; . $TOP/completions/sandbox.bash; set +u; PS1=rea'dy> '" ;;
		zsh) start="fpath=($TOP/completions \$fpath); autoload -Uz compinit; compinit -D -u; compdef _sandbox sandbox; PS1=rea'dy> '" ;;
		fish) start="source $TOP/completions/sandbox.fish; function fish_prompt; echo -n rea'dy> '; end" ;;
		esac
		printf 'send %s\\r\nexpect ready> \n' "$start"
		for text; do
			printf 'send %s\\t\npause 800\nsend \\x01echo got=\\x05=\\r\npause 100\nexpect ready> \n' "$text"
		done
		printf 'send exit\\r\nend\n'
	} >"$BATS_TEST_TMPDIR/script"
	case $shell in
	bash) set -- bash --norc --noprofile -i ;;
	zsh) set -- zsh -f -i ;;
	fish) set -- fish --no-config ;;
	esac
	TERM=xterm timeout 40 "$BUILD/tools/pty" 24x100 "$@" <"$BATS_TEST_TMPDIR/script" 2>&1 | tr -d '\r' |
		sed 's/\x1b\][^\x07]*\x07//g; s/\x1b\[[0-9;?]*[a-zA-Z]//g; s/\x1b[()>=][B0]*//g'
}

shell_or_skip() {
	command -v "$1" >/dev/null || skip "no $1 here"
}

# Every shell: verbs, options, sandboxes, contexts, and paths inside that end up on the line as one right word.
all_of_it() {
	local out wanted
	shell_or_skip "$1"
	out=$(typed "$1" 'sandbox contex' 'sandbox inspect w' 'sandbox context use wo' 'sandbox cp web:/workspace/di' \
		'sandbox cp web:/workspace/dir/file-t' 'sandbox cp loc' 'sandbox run --image localhost:5000/sbx-c')
	for wanted in 'sandbox context' 'sandbox inspect web' 'sandbox context use work' 'sandbox cp web:/workspace/dir/' \
		'sandbox cp web:/workspace/dir/file-two' 'sandbox cp local-file' "sandbox run --image $TAGGED"; do
		grep -qE "^got=$wanted ?=" <<<"$out" || { echo "no '$wanted' in: $out"; return 1; }
	done
}

@test "bash completes verbs, sandboxes, contexts and paths inside" {
	all_of_it bash
}

@test "zsh completes verbs, sandboxes, contexts and paths inside" {
	all_of_it zsh
}

@test "fish completes verbs, sandboxes, contexts and paths inside" {
	all_of_it fish
}

@test "paths inside: directories go on, hidden files wait for a dot, names a shell would split are left out" {
	run --separate-stderr sandbox __complete path web:/workspace/dir/
	[ "$output" = $'web:/workspace/dir/file-one\nweb:/workspace/dir/file-two' ]
	[ -z "$stderr" ]
	[ "$(sandbox __complete path web:/workspace/dir/.h)" = web:/workspace/dir/.hidden ]
	[ "$(sandbox __complete path web:dir)" = web:dir/ ]
	sandbox __complete path we | grep -qx web:
	[ -z "$(sandbox __complete path web:/nosuch/ 2>&1)" ]
	[ -z "$(sandbox __complete path nosuch:/ 2>&1)" ]
	# One directory is read, however much is below it.
	sandbox __complete path web:/ | grep -qx web:/workspace/
}

@test "options with values complete those; what follows -- is the command's" {
	complete_bash() {
		bash -c '. "$1"; shift; COMP_LINE=$*; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sandbox 2>&1; echo "${COMPREPLY[*]}"' - "$TOP/completions/sandbox.bash" "$@"
	}
	[ "$(complete_bash sandbox --context w)" = work ]
	[ "$(complete_bash sandbox create --network '')" = "deny restricted open" ]
	[ "$(complete_bash sandbox --tenant x list --a)" = --all ]
	[ -z "$(complete_bash sandbox exec web -- l)" ]
	[ "$(complete_bash sandbox exec --user root w)" = web ]
	[ "$(complete_bash sandbox delete web w)" = web ]
	[ -z "$(complete_bash sandbox inspect web w)" ]
	[[ $(complete_bash sandbox image '') == *pull* ]]
}

@test "whatever has a name is completed: nodes, secrets, tokens, tenants, settings, signals, agents and their clients" {
	complete_bash() {
		bash -c '. "$1"; shift; COMP_LINE=$*; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sandbox 2>&1; echo "${COMPREPLY[*]}"' - "$TOP/completions/sandbox.bash" "$@"
	}
	echo hidden | sandbox secret set db-password --stdin
	sandbox token create --role viewer ci >/dev/null
	[ "$(complete_bash sandbox node inspect '')" = local ]
	[ "$(complete_bash sandbox secret delete '')" = db-password ]
	[ "$(complete_bash sandbox run --secret d)" = db-password ]
	[ "$(complete_bash sandbox token revoke '')" = ci ]
	[ "$(complete_bash sandbox quota show '')" = default ]
	[ "$(complete_bash sandbox network tenant '')" = default ]
	[ "$(complete_bash sandbox token create --for '')" = default ]
	[ "$(complete_bash sandbox config set t)" = "tenant token-helper" ]
	[ "$(complete_bash sandbox kill --signal K)" = KILL ]
	[[ $(complete_bash sandbox agent run '') == *claude* ]]
	[[ $(complete_bash sandbox mcp install --client '') == *codex* ]]
	[[ $(complete_bash sandbox mcp config '') == *cursor* ]]
	[[ $(complete_bash sandbox kill '') != *hidden* ]]
	sandbox secret delete db-password
	sandbox token revoke ci
}

@test "sourcing twice and under set -u is quiet and leaves COMP_WORDBREAKS alone" {
	run bash --norc -c 'set -u; before=${COMP_WORDBREAKS-}; . "$1"; . "$1"; [ "$before" = "${COMP_WORDBREAKS-}" ]' - "$TOP/completions/sandbox.bash"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
}

@test "no server, a silent one or a broken configuration: silence within a second or so, and nothing started" {
	local w start
	for w in sandbox operation image tenant node secret token tunnel "path web:/" "path w" context; do
		start=$(date +%s%N)
		# shellcheck disable=SC2086
		run env SANDBOX_URL=unix:///nowhere XDG_CONFIG_HOME="$SBX_DIR/none" timeout 5 sandbox __complete $w
		[ "$status" -eq 0 ]
		[ -z "$output" ]
		[ $(($(date +%s%N) - start)) -lt 1500000000 ]
	done
	socat "UNIX-LISTEN:$SBX_DIR/mute.sock,fork" EXEC:'sleep 20' 3>&- &
	local mute=$!
	until_ok 5 test -S "$SBX_DIR/mute.sock"
	for w in sandbox "path web:/"; do
		start=$(date +%s%N)
		# shellcheck disable=SC2086
		run env SANDBOX_URL="unix://$SBX_DIR/mute.sock" timeout 5 sandbox __complete $w
		[ "$status" -eq 0 ]
		[ -z "$output" ]
		[ $(($(date +%s%N) - start)) -lt 2500000000 ]
	done
	kill "$mute"
	env -u SANDBOX_URL XDG_RUNTIME_DIR="$SBX_DIR/norun" XDG_STATE_HOME="$SBX_DIR/nostate" timeout 5 sandbox __complete sandbox >/dev/null
	[ ! -e "$SBX_DIR/norun" ]
	[ ! -e "$SBX_DIR/nostate" ]
}

@test "a directory's sandbox stands in where one is left out" {
	sandbox use web
	[ "$(sandbox exec -- echo hi)" = hi ]
	mkdir -p below
	cd below
	[ "$(sandbox inspect --format '{{.name}}')" = web ]
	[ "$(sandbox use -q)" = "$(sandbox inspect web -q)" ]
	run sandbox delete
	[ "$status" -eq 2 ]
	cd "$SBX_DIR"
	run sandbox use
	[ "$status" -eq 3 ]
	run sandbox inspect
	[ "$status" -eq 2 ]
	cd "$SBX_DIR/here"
	sandbox use --clear
	run sandbox exec -- true
	[ "$status" -eq 125 ]
	run sandbox use nosuch
	[ "$status" -eq 3 ]
}

@test "a chosen sandbox that is gone is named in the hint" {
	sbx_create --name gone >/dev/null
	sandbox use gone
	sandbox delete gone
	run sandbox exec -- true
	[ "$status" -eq 125 ]
	[[ $output == *"use --clear"* ]]
	sandbox use --clear
}

@test "delete takes labels and, asked for expressly, everything" {
	sbx_create -l job=1 >/dev/null
	sbx_create -l job=2 >/dev/null
	run sandbox rm --all </dev/null
	[ "$status" -eq 2 ]
	[[ $output == *--yes* ]]
	run sandbox rm -l job=1 web
	[ "$status" -eq 2 ]
	[ "$(sandbox rm --all -l job=1 --dry-run | wc -l)" -eq 1 ]
	sandbox rm --all -l job=1
	[ "$(sandbox list -q -l job=1 | wc -l)" -eq 0 ]
	[ "$(sandbox list -q -l job=2 | wc -l)" -eq 1 ]
	sandbox rm -l job=2
	sandbox rm -l job=2
}

@test "upload copies a directory to /workspace before anything runs, from beside the project file too" {
	mkdir -p up/sub project/src
	echo one >up/a
	echo two >up/sub/b
	[ "$(sandbox run -q --upload up --image "$IMAGE" --memory-mib 256 --disk-mib 64 -- cat /workspace/a /workspace/sub/b | xargs)" = "one two" ]
	echo three >project/src/c
	printf '[defaults]\nupload = src\nimage = %s\nmemory = 256m\ndisk = 64m\n' "$IMAGE" >project/.sandbox.conf
	cd project/src
	[ "$(sandbox run -q -- cat /workspace/c)" = three ]
	id=$(sandbox create -q)
	[ "$(sandbox exec "$id" -- cat /workspace/c)" = three ]
	run sandbox create --no-wait
	[ "$status" -eq 2 ]
	run sandbox run --upload "$SBX_DIR/nosuch" -- true
	[ "$status" -eq 125 ]
	[ "$(sandbox list -q | wc -l)" -eq 2 ]
	sandbox delete "$id"
}
