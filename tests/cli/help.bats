#!/usr/bin/env bats
# Help, usage errors, versions and completions: what a person meets before anything runs.

load ../lib/helpers

setup() {
	HELP_DIR=$(mktemp -d "${TMPDIR:-/tmp}/sbx-help.XXXXXX")
	export HOME=$HELP_DIR XDG_STATE_HOME=$HELP_DIR/s XDG_RUNTIME_DIR=$HELP_DIR/r
	export SANDBOX_URL=unix://$HELP_DIR/none
}

teardown() {
	rm -rf "$HELP_DIR"
}

verbs() {
	sed -n 's/^VERB(\(.*\))$/\1/p' "$TOP/cli/commands.def" | grep -vE '^(generate|complete|images)$' | tr _ - | grep -vx mcp-config
}

@test "every verb's help fits one screen and is the same both ways" {
	local v
	for v in $(verbs); do
		run timeout 5 sandbox "$v" --help
		[ "$status" -eq 0 ]
		[ "${#lines[@]}" -le 24 ] || { echo "$v: ${#lines[@]} lines"; false; }
		! grep -E '.{80}' <<<"$output" || { echo "$v is too wide"; false; }
		! awk '/^More, / { on = 1 } on && !NF { if (last !~ /[.]$/) print last; on = 0 } { last = $0 }' <<<"$output" | grep . || {
			echo "$v: a list has no end"
			false
		}
		[ "$(timeout 5 sandbox help "$v")" = "$output" ]
	done
	run timeout 5 sandbox image pull --help
	[[ ${lines[0]} == "Usage: sandbox image pull [OPTIONS] IMAGE" ]]
}

@test "the guide names every verb" {
	local v
	run --separate-stderr timeout 5 sandbox
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -le 24 ]
	for v in $(verbs); do grep -qw "$v" <<<"$output" || { echo "$v is missing"; false; }; done
}

@test "usage errors are one line and a hint, exit 2, nothing on standard output" {
	local args
	for args in nosuch "--nosuch" "list --nosuch" "inspect" "inspect a b" "create x" "create --ttl" "create --ttl 0" "image nosuch" \
		"wait x --timeout no" "help nosuch" "operation cancel"; do
		run --separate-stderr eval "timeout 5 sandbox $args"
		[ "$status" -eq 2 ] || { echo "$args: $status"; false; }
		[ -z "$output" ]
		[ "$(grep -c . <<<"$stderr")" -le 2 ] || { echo "$stderr"; false; }
	done
}

@test "for verbs that pass on a command's status a usage error is 125" {
	run timeout 5 sandbox exec
	[ "$status" -eq 125 ]
	run timeout 5 sandbox run --nosuch
	[ "$status" -eq 125 ]
}

@test "a usage error with --json is an error object" {
	run --separate-stderr timeout 5 sandbox list --nosuch --json
	[ "$status" -eq 2 ]
	jq -e '.error.code == "invalid_request" and (.error.message | contains("nosuch"))' <<<"$output"
}

@test "typos are answered with what was meant" {
	run timeout 5 sandbox crate
	[[ $output == *"did you mean 'create'"* ]]
	run timeout 5 sandbox delte x
	[[ $output == *"did you mean 'delete'"* ]]
	run timeout 5 sandbox create --memroy 1g
	[[ $output == *"did you mean --memory"* ]]
}

@test "--version asks nobody" {
	[ "$(timeout 5 sandbox --version)" = "sandbox $(cat "$TOP/VERSION")" ]
	[ "$(timeout 5 sandbox -V)" = "sandbox $(cat "$TOP/VERSION")" ]
}

@test "bash completion offers verbs, subverbs, options and their words" {
	# shellcheck disable=SC2317
	complete_bash() {
		bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sandbox 2>/dev/null; echo "${COMPREPLY[*]}"' - "$TOP/completions/sandbox.bash" "$@"
	}
	[[ $(complete_bash sandbox cr) == create ]]
	[[ $(complete_bash sandbox image '') == *pull* ]]
	[[ $(complete_bash sandbox create --net) == --network ]]
	[[ $(complete_bash sandbox create --network '') == "deny restricted open" ]]
	[[ $(complete_bash sandbox delete --no-w) == --no-wait ]]
	[ -z "$(complete_bash sandbox inspect '')" ]
}

@test "completions are accepted by their shells" {
	bash -n "$TOP/completions/sandbox.bash"
	if command -v zsh >/dev/null; then zsh -n "$TOP/completions/_sandbox"; fi
	if command -v fish >/dev/null; then fish -n "$TOP/completions/sandbox.fish"; fi
}

@test "completion words are bounded in time and quiet without a daemon" {
	run --separate-stderr timeout 5 sandbox __complete sandbox
	[ "$status" -eq 0 ]
	[ -z "$output$stderr" ]
}

@test "habits from other tools are answered with what it is called here" {
	while IFS='|' read -r words hint; do
		# shellcheck disable=SC2086
		run --separate-stderr timeout 10 sandbox $words </dev/null
		[ "$status" -eq 2 ] || [ "$status" -eq 125 ]
		[ -z "$output" ]
		[[ $stderr == *"$hint"* ]] || {
			echo "$words: $stderr"
			false
		}
	done <<-'END'
		exec --workdir /tmp web -- ls|--cwd
		cp -r src web:/tmp|without it
		run --rm -- true|always deletes
		run -v /a:/b -- true|nothing of this machine is mounted
		operation 01890000-0000-7000-8000-00000000abcd|operation inspect 01890000
		extend web 2h|--ttl
		stop web|sandbox delete
		pull alpine|sandbox image pull
		run --memory 32m -- true|--memory: 32m is out of range
		run --memory 512 -- true|a number alone is bytes
		run -d -- true|sandbox create
		create alpine|an image goes behind --image
		ps|sandbox list
		exec web|sandbox shell
		rm -f web|without it
		shell -it web|a terminal is what it gives anyway
		stats --no-stream|prints once
		-v|--version
		tunnel web 8080|there are create, list, secret, delete
		wait|create --no-wait
	END
}
