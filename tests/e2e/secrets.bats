#!/usr/bin/env bats
# Secrets reach the commands of the sandbox that asked for them, and show nowhere else.

load ../lib/helpers.bash

ENV_VALUE=env-4f1d9c-value
FILE_VALUE=file-77ab02-value

setup_file() {
	need_engine
	sbx_start
	printf '%s\n' "$ENV_VALUE" | sandbox secret set API_TOKEN --stdin
	printf '%s' "$FILE_VALUE" | sandbox secret set key.pem --stdin
	BOX=$(sbx_create --name holder --secret API_TOKEN --secret API_TOKEN=OTHER --secret key.pem:/run/secrets/key --)
	export BOX
}

teardown_file() {
	sbx_stop
}

# The sandbox compares, so that the value is in no output that is kept.
inside() {
	timeout 20 sandbox exec -e "WANT_SUM=$1" "$BOX" -- sh -c "[ \"\$($2 | md5sum | cut -c1-32)\" = \"\$WANT_SUM\" ]"
}

sum_of() {
	printf '%s' "$1" | md5sum | cut -c1-32
}

@test "commands get variables and a file that only their user may read" {
	# shellcheck disable=SC2016
	inside "$(sum_of "$ENV_VALUE")" 'printf %s "$API_TOKEN"'
	# shellcheck disable=SC2016
	inside "$(sum_of "$ENV_VALUE")" 'printf %s "$OTHER"'
	inside "$(sum_of "$FILE_VALUE")" 'cat /run/secrets/key'
	run -0 timeout 20 sandbox exec "$BOX" -- stat -c '%a %u' /run/secrets/key
	[ "$output" = "400 0" ]
	run timeout 20 sandbox exec --user 1000 "$BOX" -- cat /run/secrets/key
	[ "$status" -ne 0 ]
}

@test "a command's own variable wins" {
	run -0 timeout 20 sandbox exec -e API_TOKEN=mine "$BOX" -- sh -c 'echo "$API_TOKEN"'
	[ "$output" = mine ]
}

@test "needing one sets the risk signal" {
	run -0 timeout 20 sandbox inspect --json "$BOX"
	[ "$(jq -r '"\(.risk_score) \(.spec.signals.needs_secrets)"' <<<"$output")" = "25 true" ]
}

@test "values show in no record, file, log, list, process or engine configuration" {
	local container
	container=$(docker ps -q --filter "label=io.sandbox.id=$BOX")
	[ -n "$container" ]
	docker inspect "$container" >"$BATS_TEST_TMPDIR/engine"
	grep -q Entrypoint "$BATS_TEST_TMPDIR/engine"
	{ sandbox inspect --json "$BOX"; sandbox events --since oldest --json; sandbox audit --json; sandbox secret list --json; sandbox operation list --json; } \
		>"$BATS_TEST_TMPDIR/shown" 2>&1
	grep -q API_TOKEN "$BATS_TEST_TMPDIR/shown"
	cat /proc/[0-9]*/cmdline >"$BATS_TEST_TMPDIR/argv" 2>/dev/null || true
	local v
	for v in "$ENV_VALUE" "$FILE_VALUE"; do
		! grep -rqaF "$v" "$SBX_DIR" "$BATS_TEST_TMPDIR" "/dev/shm" || { grep -rlaF "$v" "$SBX_DIR" "$BATS_TEST_TMPDIR" /dev/shm; false; }
		! grep -rqaF "$(printf %s "$v" | base64)" "$SBX_DIR" || false
	done
	[ "$(stat -c %a "$SBX_DIR/state/secret.key")" = 600 ]
}

locked_kib() {
	awk '/^VmLck:/ {print $2}' "/proc/$(sbx_pid)/status"
}

@test "the daemon keeps them in memory that is not swapped, for as long as the sandbox lives" {
	local before box
	before=$(locked_kib)
	box=$(sbx_create --secret API_TOKEN --secret key.pem:/run/secrets/key)
	[ "$(locked_kib)" -gt "$before" ]
	sandbox delete "$box" >/dev/null
	until_ok 20 eval '[ "$(locked_kib)" -le "$before" ]'
}

@test "after a kill of the daemon they are fetched again; files stay" {
	sbx_kill KILL
	sbx_daemon
	# shellcheck disable=SC2016
	inside "$(sum_of "$ENV_VALUE")" 'printf %s "$API_TOKEN"'
	inside "$(sum_of "$FILE_VALUE")" 'cat /run/secrets/key'
}

@test "a start command has them" {
	local box
	box=$(sbx_create --secret API_TOKEN -- sh -c 'printf %s "$API_TOKEN" | md5sum | cut -c1-32; sleep 1000')
	started() { [ "$(timeout 20 sandbox logs "$box")" = "$(sum_of "$ENV_VALUE")" ]; }
	until_ok 15 started
	timeout 60 sandbox delete "$box"
}

@test "what is not there, or cannot be meant, is refused before anything is made" {
	run timeout 20 sandbox create --image "$IMAGE" --secret NOPE
	[ "$status" -eq 3 ]
	[[ "$output" == *"no secret 'NOPE'"* ]]
	run timeout 20 sandbox create --image "$IMAGE" --secret key.pem
	[ "$status" -eq 2 ]
	[[ "$output" == *"key.pem=VARIABLE"* ]]
	run timeout 20 sandbox create --image "$IMAGE" --secret API_TOKEN:/etc/passwd
	[ "$status" -eq 2 ]
	run timeout 20 sandbox secret set X --stdin </dev/null
	[ "$status" -eq 2 ]
	run timeout 20 sandbox secret set X value
	[ "$status" -eq 2 ]
	[ "$(sandbox list -q | wc -l)" -eq 1 ]
}

@test "once deleted, a restarted worker cannot have it, and says so" {
	timeout 20 sandbox secret delete API_TOKEN
	# shellcheck disable=SC2016
	inside "$(sum_of "$ENV_VALUE")" 'printf %s "$API_TOKEN"'
	sbx_kill TERM
	sbx_daemon
	run timeout 20 sandbox exec "$BOX" -- true
	[ "$status" -eq 125 ]
	[[ "$output" == *"secrets are not here"* ]]
	grep -q "no secret 'API_TOKEN'" "$SBX_DIR/log"
}
