#!/usr/bin/env bats
# The daemon, the way to the engine, clients, processes 1 and shims killed at random, for some seconds. CRASH_SECONDS and CRASH_SEED
# (of an earlier run's output) make it longer and the same again; check-full has minutes of it.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_prepare
}

teardown_file() {
	sbx_stop
}

@test "whatever is killed: what was told is so, no command runs twice, nothing is left, the books balance, nothing grows" {
	local seconds=10
	[ -z "${FULL:-}" ] || seconds=300
	run python3 "$TOP/tests/faults/crashes.py" "${CRASH_SECONDS:-$seconds}" ${CRASH_SEED:+"$CRASH_SEED"}
	echo "$output"
	[ "$status" -eq 0 ] || { tail -n 60 "$SBX_DIR/log"; false; }
}
