#!/usr/bin/env bats
# The console's prompt, on a terminal. No daemon takes part.

load ../lib/helpers

setup() {
	[ -x "$BUILD/tools/pty" ] || skip "tools are not built"
	[ -x "$BUILD/sandbox-console" ] || skip "built without readline"
	D=$(mktemp -d "${TMPDIR:-/tmp}/sbx-console.XXXXXX")
	export HOME=$D XDG_STATE_HOME=$D/s XDG_RUNTIME_DIR=$D/r TERM=xterm
	unset XDG_CONFIG_HOME SANDBOX_URL
	sandbox context create work --url unix:///nowhere --use
}

teardown() {
	rm -rf "$D"
}

# console: plays the script on standard input.
console() {
	set -o pipefail
	timeout 40 "$BUILD/tools/pty" 24x100 "$BUILD/sandbox" "$@" console 2>&1 | tr -d '\r'
}

@test "commands run without sandbox in front, and the prompt names the context" {
	run console <<-'EOF'
		expect work> 
		send version -q\r
		expect work> 
		send sandbox --version\r
		expect work> 
		send nosuch\r
		expect not a command
		send 'open\r
		expect not closed
		send context create other --url unix:///x --use\r
		expect other> 
		send exit\r
		end
	EOF
	[ "$status" -eq 0 ]
	[[ $output == *"sandbox $(cat "$TOP/VERSION")"* ]]
	[[ $output == *"status 0"* ]]
	[[ $output == *"settings same"* ]]
}

@test "the tab key completes verbs, subverbs, options and contexts" {
	run console <<-'EOF'
		expect work> 
		send conte\tsh\two\t --for\t '{{.name}}-{{.url}}'\r
		expect work-unix:///nowhere
		expect work> 
		send \x04
		end
	EOF
	[ "$status" -eq 0 ]
}

@test "an interrupt ends the command, not the console; lines are kept for the next time" {
	run console <<-'EOF'
		expect work> 
		send help wait\r
		expect Usage: sandbox wait
		expect work> 
		send \x04
		end
	EOF
	[ "$status" -eq 0 ]
	grep -qx 'help wait' "$D/s/sandbox/console_history"
	[ "$(stat -c %a "$D/s/sandbox/console_history")" = 600 ]
	run console <<-'EOF'
		expect work> 
		send \x10\r
		expect Usage: sandbox wait
		send exit\r
		end
	EOF
	[ "$status" -eq 0 ]
}

@test "without a terminal it says so at once" {
	run timeout 5 sandbox console </dev/null
	[ "$status" -eq 2 ]
	[[ $output == *"needs a terminal"* ]]
}

@test "the program itself does not load readline" {
	run ldd "$BUILD/sandbox"
	[[ $output != *readline* ]]
}
