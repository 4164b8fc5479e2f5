#!/usr/bin/env bats
# External runtime drivers: the example one in use, one that knows only the four oldest actions, and bad ones.

load ../lib/helpers.bash

setup_file() {
	need_engine
	[ "$(id -u)" -eq 0 ] || skip "not root: no control groups for drivers"
	command -v jq >/dev/null || skip "no jq"
	DRIVERS=$(mktemp -d "${TMPDIR:-/tmp}/sbx-drivers.XXXXXX")
	export DRIVERS
	cp "$TOP/daemon/runtime/drivers/example.sh" "$DRIVERS/example"
	sbx_start --set "worker.driver=$DRIVERS/example"
	BOX=$(sandbox create --image some/machine:1 --tier microvm)
	export BOX
}

teardown_file() {
	[ -n "${DRIVERS:-}" ] || return 0
	sbx_stop
	rm -rf "$DRIVERS"
}

# A driver whose actions are the functions of stdin's text.
driver() {
	{
		printf '#!/bin/sh\nrequest=$(cat)\nyes() { printf "{\\"success\\":true,\\"result\\":%%s,\\"error\\":null}" "$1"; }\n'
		cat
	} >"$DRIVERS/$1"
	chmod 755 "$DRIVERS/$1"
}

check() {
	run timeout 60 sandboxd driver-check "$DRIVERS/$1"
	echo "$output"
}

groups() {
	find /sys/fs/cgroup -mindepth 3 -maxdepth 4 -type d -path '*/sandbox/*' | sort
}

# Other daemons of this machine have theirs, for a while.
none_new() {
	[ -z "$(comm -13 <(echo "$1") <(groups | grep -v "$(cat "$SBX_DIR/state/node-id")"))" ]
}

@test "the example driver does what a driver must" {
	local before
	before=$(groups)
	check example
	local checked=$status
	until_ok 30 none_new "$before"
	[ "$checked" -eq 0 ]
	[[ "$output" == *"20 ok, 0 failed"* ]]
}

@test "its tier is offered as its own claim, and sandboxes are made by it" {
	run -0 sandbox doctor --json
	echo "$output" | jq -e '.checks[] | select(.part == "tier microvm") | .detail | test("the driver example 1 says so")'
	run -0 sandbox inspect --json "$BOX"
	echo "$output" | jq -e '.tier == "microvm" and .isolation == "microvm" and .state == "running"'
	[ -d "/run/sandbox-example-driver/$BOX" ]
}

@test "a high-risk request is placed on it" {
	local box
	box=$(sandbox create --image some/machine:1 --sensitivity restricted --untrusted-repo)
	[ "$(sandbox inspect --json "$box" | jq -r .tier)" = microvm ]
	sandbox delete "$box"
}

@test "commands: output, status, arguments, environment, directory, time limit" {
	run --separate-stderr -7 timeout 20 sandbox exec --env 'LD_PRELOAD=/nowhere.so' --env GREETING='a "b"' --cwd /tmp "$BOX" -- sh -c 'echo "$GREETING|$1|$PWD|$LD_PRELOAD"; echo wrong >&2; exit 7' sh 'x  y*'
	[ "$output" = 'a "b"|x  y*|/tmp|/nowhere.so' ]
	[[ "$stderr" == *wrong* ]]
	# The variable was the command's alone: the loader of no program on the way obeyed it.
	[ "$(echo "$stderr" | grep -c 'nowhere.so')" -le 1 ]
	run -127 timeout 20 sandbox exec "$BOX" -- no-such-program
	local start=$SECONDS
	run timeout 30 sandbox exec --timeout 1s "$BOX" -- sleep 60
	[ "$status" -eq 124 ]
	[ $((SECONDS - start)) -lt 12 ]
	run -0 timeout 20 sandbox exec --json "$BOX" -- echo kept
	echo "$output" | jq -e '.outcome == "exited" and .output.stdout == "kept\n"'
}

@test "what the driver cannot do is refused: nothing of the host is shown instead" {
	run timeout 20 sandbox cp "$BOX:/etc/hostname" "$BATS_TEST_TMPDIR/got"
	[ "$status" -ne 0 ]
	[[ "$output" == *"runtime driver"* ]]
	[ ! -s "$BATS_TEST_TMPDIR/got" ]
	echo x >"$BATS_TEST_TMPDIR/in"
	run timeout 20 sandbox cp "$BATS_TEST_TMPDIR/in" "$BOX:/sandbox-driver-test"
	[ "$status" -ne 0 ]
	[ ! -e /sandbox-driver-test ]
	run timeout 20 sandbox ps "$BOX"
	[ "$status" -ne 0 ]
	run timeout 20 sandbox exec --tty "$BOX" -- true
	[ "$status" -ne 0 ]
}

@test "a killed daemon finds its sandboxes again" {
	sbx_kill KILL
	sbx_daemon
	until_ok 20 timeout 10 sandbox exec "$BOX" -- true
	[ "$(sandbox inspect --json "$BOX" | jq -r .state)" = running ]
}

@test "a sandbox that is gone for the driver is noticed, and its delete succeeds" {
	local box
	box=$(sandbox create --image some/machine:1 --tier microvm)
	rm -rf "/run/sandbox-example-driver/$box"
	run -125 timeout 20 sandbox exec "$box" -- true
	[[ "$output" == *"no such sandbox"* ]]
	run -0 timeout 30 sandbox delete "$box"
}

@test "delete takes everything: the driver's part, the stand-in, the control group, the record" {
	local box
	box=$(sandbox create --image some/machine:1 --tier microvm)
	timeout 20 sandbox exec --detach "$box" -- sleep 4321 >/dev/null
	run -0 timeout 30 sandbox delete "$box"
	[ ! -e "/run/sandbox-example-driver/$box" ]
	[ -z "$(find /sys/fs/cgroup -type d -name "$box" 2>/dev/null)" ]
	[ ! -e "$SBX_DIR/state/driver/$box" ]
	run ! pgrep -f "sleep 4321"
}

@test "a driver of the four oldest actions works" {
	driver old <<'D'
case $1 in
probe) yes '{"name":"old","version":"0","tiers":["microvm"]}' ;;
create) yes '{}' ;;
exec) yes "$(printf '%s' "$request" | jq -c '{exit_code: 3, stdout: (.payload.argv | join(" ")), stderr: "", truncated: false}')" ;;
delete) yes '{}' ;;
*) exit 2 ;;
esac
D
	sbx_kill TERM
	sbx_daemon --set "worker.driver=$DRIVERS/old"
	local box
	box=$(sandbox create --image some/machine:1 --tier microvm)
	run -3 timeout 20 sandbox exec "$box" -- a b
	[ "$output" = "a b" ]
	run -0 timeout 30 sandbox delete "$box"
	run -0 timeout 30 sandbox delete "$BOX"
}

@test "a driver that starts sandbox-init inside: input, statuses, restarts, its end" {
	driver inner <<'D'
box=$(dirname "$0")/inner-$(printf '%s' "$request" | jq -r .sandbox_id)
part() { printf '%s' "$request" | jq -r ".payload.init.$1"; }
case $1 in
probe) yes '{"name":"inner","version":"0","tiers":["microvm"],"actions":["inspect"],"commands":"init"}' ;;
create)
	if ! [ -e "$box" ]; then
		setsid "$(part path)" --socket "$(part socket_dir)/worker.sock" --deadline-us "$(part deadline_us)" --grace-ms "$(part grace_ms)" >/dev/null 2>&1 &
		echo $! >"$box"
	fi
	yes '{}'
	;;
inspect)
	if [ -e "$box" ] && [ -e "/proc/$(cat "$box")/exe" ]; then yes "{\"state\":\"running\",\"pid\":$(cat "$box")}"; elif [ -e "$box" ]; then yes '{"state":"exited","exit_code":1}'; else yes '{"state":"absent"}'; fi
	;;
delete)
	[ ! -e "$box" ] || kill -9 "$(cat "$box")"
	rm -f "$box"
	yes '{}'
	;;
*) exit 2 ;;
esac
D
	check inner
	[ "$status" -eq 0 ]
	[[ "$output" == *"sandbox-init dials the socket"* ]]
	sbx_kill TERM
	sbx_daemon --set "worker.driver=$DRIVERS/inner"
	local box
	box=$(sandbox create --image some/machine:1 --tier microvm)
	[ "$(echo in | timeout 20 sandbox exec --cwd / "$box" -- cat)" = in ]
	run -9 timeout 20 sandbox exec --cwd / "$box" -- sh -c 'exit 9'
	sbx_kill KILL
	sbx_daemon
	until_ok 20 timeout 10 sandbox exec --cwd / "$box" -- true
	kill -9 "$(cat "$DRIVERS/inner-$box")"
	until_ok 20 sh -c "sandbox inspect --json $box | jq -e '.state == \"failed\"'"
	run -0 timeout 30 sandbox delete "$box"
	[ ! -e "$DRIVERS/inner-$box" ]
}

@test "drivers that answer nonsense are told what is wrong with them" {
	driver silent <<<'exit 0'
	driver no-json <<<'echo hello'
	driver wrong-version <<<'echo "{\"protocol_version\":\"sandbox.runtime.v9\",\"success\":true,\"result\":{},\"error\":null}"'
	driver early <<<'echo "the disk is on fire" >&2; exit 9'
	driver no-result <<<'echo "{\"success\":true,\"result\":null,\"error\":null}"'
	driver flood <<<'yes_please=y; while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done | cat'
	driver trailing <<<'yes "{}"; echo "{}"'
	check silent
	[ "$status" -eq 1 ]
	[[ "$output" == *"no JSON object"* ]]
	check no-json
	[[ "$output" == *"no JSON object"* ]]
	check wrong-version
	[[ "$output" == *"another protocol"* ]]
	check early
	[[ "$output" == *"status 9: the disk is on fire"* ]]
	check no-result
	[[ "$output" == *"no result object"* ]]
	check flood
	[[ "$output" == *"over 4194304 bytes"* ]]
	check trailing
	[[ "$output" == *"no JSON object"* ]]
	run ! pgrep -f "$DRIVERS/flood"
}

@test "a driver that hangs is ended with its children, at its deadline" {
	local start=$SECONDS
	driver slow <<<'sleep 5432 & sleep 5432'
	run timeout 60 sandboxd driver-check --deadline 3s "$DRIVERS/slow"
	[ "$status" -eq 1 ]
	[[ "$output" == *"did not answer probe within 3 s"* ]]
	[ $((SECONDS - start)) -lt 20 ]
	run ! pgrep -f "sleep 5432"
}

@test "a driver that leaves children behind does not hold up its caller, and they end" {
	local start=$SECONDS
	driver litter <<'D'
sleep 6543 &
case $1 in
probe) yes '{"name":"litter","version":"0","tiers":["microvm"]}' ;;
exec) yes '{"exit_code":0,"stdout":"","stderr":"","truncated":false}' ;;
create | delete) yes '{}' ;;
*) exit 2 ;;
esac
D
	check litter
	[ $((SECONDS - start)) -lt 30 ]
	run ! pgrep -f "sleep 6543"
}

@test "a bad driver takes nothing away from the engine, and doctor names its fault" {
	local box
	driver broken <<<'exit 4'
	sbx_kill TERM
	sbx_daemon --set "worker.driver=$DRIVERS/broken"
	run -0 sandbox doctor --json
	echo "$output" | jq -e '.checks[] | select(.part == "tier microvm") | .detail | test("ended with status 4")'
	run -6 timeout 20 sandbox create --image "$IMAGE" --tier microvm
	[[ "$output" == *"status 4"* ]]
	box=$(sbx_create)
	run -0 timeout 20 sandbox exec "$box" -- echo fine
	sandbox delete "$box"
}

@test "a create that the driver refuses leaves a failed record with its words, and nothing else" {
	driver refusing <<'D'
case $1 in
probe) yes '{"name":"refusing","version":"0","tiers":["microvm"]}' ;;
delete) yes '{}' ;;
*) echo '{"success":false,"result":null,"error":"no room on the moon"}' ;;
esac
D
	sbx_kill TERM
	sbx_daemon --set "worker.driver=$DRIVERS/refusing"
	local before
	before=$(ls "$SBX_DIR/state/driver")
	run timeout 30 sandbox create --image some/machine:1 --tier microvm
	[ "$status" -ne 0 ]
	[[ "$output" == *"no room on the moon"* ]]
	[ "$(ls "$SBX_DIR/state/driver")" = "$before" ]
}

@test "a driver that others may change is not run" {
	driver loose <<<'exit 0'
	chmod 777 "$DRIVERS/loose"
	run -1 timeout 10 sandboxd driver-check "$DRIVERS/loose"
	[[ "$output" == *"can be changed by others"* ]]
	run timeout 10 sandboxd --set "daemon.state_dir=$BATS_TEST_TMPDIR/s" --set "daemon.socket=$BATS_TEST_TMPDIR/x.sock" --set "worker.driver=$DRIVERS/loose"
	[ "$status" -ne 0 ]
	[[ "$output" == *"worker.driver"*"can be changed by others"* ]]
	run -1 timeout 10 sandboxd driver-check relative/path
	[[ "$output" == *"absolute path"* ]]
}
