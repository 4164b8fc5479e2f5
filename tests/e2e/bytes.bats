#!/usr/bin/env bats
# Bytes are exact: random content of many sizes around every limit of the way, in both directions, and out of many commands at once.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start
	BOX=$(sbx_create)
	export BOX
}

teardown_file() {
	sbx_stop
}

@test "1000 rounds of random bytes around the frame and window limits come back as they went in" {
	run timeout 400 python3 "$TOP/tests/lib/byte_rounds.py" "$BOX" 1000
	[ "$status" -eq 0 ] || { echo "$output"; false; }
}

@test "both output channels at once, each exact and in its order" {
	local i
	for i in 1 2 3; do
		timeout 60 sandbox exec "$BOX" -- sh -c 'seq 1 100000 & seq 100001 200000 >&2; wait' >"$SBX_DIR/out" 2>"$SBX_DIR/err"
		[ "$(md5sum <"$SBX_DIR/out")" = "$(seq 1 100000 | md5sum)" ]
		[ "$(md5sum <"$SBX_DIR/err")" = "$(seq 100001 200000 | md5sum)" ]
	done
}

@test "a daemon killed in the middle: the command goes on, every byte comes once, the status is the real one" {
	timeout 120 sandbox exec "$BOX" -- sh -c 'i=0; while [ $i -lt 40 ]; do seq $((i * 5000 + 1)) $((i * 5000 + 5000)); i=$((i + 1)); sleep 0.1; done; exit 9' >"$SBX_DIR/long" &
	local client=$! status=0 cut
	for cut in 1 2; do
		sleep 1
		sbx_kill KILL
		sbx_daemon
	done
	wait "$client" || status=$?
	[ "$status" -eq 9 ]
	[ "$(md5sum <"$SBX_DIR/long")" = "$(seq 1 200000 | md5sum)" ]
}
