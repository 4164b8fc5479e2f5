#!/bin/sh
# A runtime driver in sh, to read and to start from: docs/runtime-driver.md. It has NO isolation: its "sandboxes" are directories,
# their commands plain processes of this machine. Needs jq. Never name it in a configuration that matters.
set -u
state=/run/sandbox-example-driver
keep=1000000 # bytes of each output channel

answer() { # RESULT: a JSON object
	printf '{"success": true, "result": %s, "error": null}\n' "$1"
	exit 0
}

refuse() {
	jq -n --arg text "$1" '{success: false, result: null, error: $text}'
	exit 0
}

request=$(cat)
id=$(printf '%s' "$request" | jq -er '.sandbox_id | select(test("^[0-9a-f-]{36}$"))') || refuse "the request has no sandbox_id"
[ "$(printf '%s' "$request" | jq -r .protocol_version)" = sandbox.runtime.v1 ] || refuse "another protocol than sandbox.runtime.v1"
box=$state/$id

# A list of the payload as shell words.
words() {
	printf '%s' "$request" | jq -r "$1 | @sh"
}

run_command() {
	[ -d "$box" ] || refuse "no such sandbox"
	out=$(mktemp "$box/out.XXXXXX") err=$(mktemp "$box/err.XXXXXX")
	seconds=$(printf '%s' "$request" | jq -r '.payload.timeout_seconds // 3600')
	cwd=$(printf '%s' "$request" | jq -r '.payload.cwd // "/workspace"')
	[ "$cwd" != /workspace ] || cwd=$box
	eval "set -- $(words '[.payload.env // {} | to_entries[] | "\(.key)=\(.value)"]') $(words .payload.argv)"
	(cd "$cwd" && exec timeout -k 1 "$seconds" env -i "$@") >"$out" 2>"$err" </dev/null
	code=$?
	cut=false
	if [ "$(wc -c <"$out")" -gt $keep ] || [ "$(wc -c <"$err")" -gt $keep ]; then cut=true; fi
	head -c $keep "$out" >"$out.cut"
	head -c $keep "$err" >"$err.cut"
	result=$(jq -n --argjson code "$code" --argjson cut $cut --rawfile out "$out.cut" --rawfile err "$err.cut" \
		'{exit_code: $code, stdout: $out, stderr: $err, truncated: $cut}')
	rm -f "$out" "$err" "$out.cut" "$err.cut"
	answer "$result"
}

case ${1:-} in
probe) answer '{"name": "example", "version": "1", "tiers": ["microvm"], "actions": ["inspect"], "commands": "driver", "images": "driver"}' ;;
create)
	{ mkdir -p "$state" && chmod 0700 "$state" && mkdir -p "$box"; } || refuse "cannot make $box"
	answer '{}'
	;;
exec) run_command ;;
inspect)
	if [ -d "$box" ]; then answer '{"state": "running"}'; fi
	answer '{"state": "absent"}'
	;;
delete)
	rm -rf "$box"
	answer '{}'
	;;
*) refuse "unknown action" ;;
esac
