#!/usr/bin/env bats
# A machine that gives too little or behaves oddly: no descriptors, a clock that is set, a disk that takes its time, signals all the time.

load ../lib/helpers.bash

setup() {
	need_engine
	sbx_prepare
	export FAULTS=$SBX_DIR/faults
}

teardown() {
	unset SANDBOX_TEST_STORM_US
	sbx_stop
}

# daemon_with NAME=VALUE…: a daemon that has the calls of tests/faults.
daemon_with() {
	mkdir "$SBX_DIR/bin"
	printf '#!/bin/sh\nexec env LD_PRELOAD=%s SANDBOX_TEST_FAULTS=%s %s %s "$@"\n' "$BUILD/tools/faults.so" "$FAULTS" "$*" "$BUILD/sandboxd" >"$SBX_DIR/bin/sandboxd"
	chmod 755 "$SBX_DIR/bin/sandboxd"
	ln -s "$BUILD/sandbox-init" "$SBX_DIR/bin/"
	local build=$BUILD
	BUILD=$SBX_DIR/bin
	sbx_daemon
	BUILD=$build
}

# page OFFSET NUMBER: a field of the page, see fault.h.
page() {
	python3 -c 'import mmap, struct, sys
with open(sys.argv[1], "r+b") as f:
    struct.pack_into("=q", mmap.mmap(f.fileno(), 4096), int(sys.argv[2]), int(sys.argv[3]))' "$FAULTS" "$1" "$2"
}
CLOCK=64 DELAY=72 SIGNALS=80

@test "without descriptors requests are refused with the reason, and served again afterwards" {
	sbx_daemon
	local box before i limit refused=0
	box=$(sbx_create)
	timeout 30 sandbox exec "$box" -- true
	before=$(daemon_fds)
	limit=$(prlimit --pid "$(sbx_pid)" --nofile --noheadings --output SOFT)
	prlimit --pid "$(sbx_pid)" --nofile=$((before + 8)):
	for i in $(seq 30); do
		(
			rc=0
			timeout 100 sandbox exec --no-stdin "$box" -- sh -c 'echo right; sleep 0.3' >"$SBX_DIR/out.$i" 2>"$SBX_DIR/err.$i" || rc=$?
			echo $rc >"$SBX_DIR/rc.$i"
		) 3>&- &
	done
	for i in $(seq 30); do
		until_ok 120 test -s "$SBX_DIR/rc.$i"
		if [ "$(cat "$SBX_DIR/rc.$i")" -eq 0 ]; then
			[ "$(cat "$SBX_DIR/out.$i")" = right ]
		else
			[ "$(cat "$SBX_DIR/rc.$i")" -eq 125 ]
			[ -s "$SBX_DIR/err.$i" ]
			refused=$((refused + 1))
		fi
	done
	[ "$refused" -gt 0 ] # or nothing was short
	! grep -q 'busy waiting' "$SBX_DIR/log" || grep -q 'no descriptor is left for a connection' "$SBX_DIR/log"
	prlimit --pid "$(sbx_pid)" --nofile="$limit":
	[ "$(timeout 60 sandbox exec --no-stdin "$box" -- echo again)" = again ]
	until_ok 60 sh -c "[ \$(find /proc/$(sbx_pid)/fd -mindepth 1 | wc -l) -le $((before + 4)) ]"
	timeout 60 sandbox delete "$box" --wait
	run -0 until_ok 60 sandbox gc --verify
}

@test "a clock that is set forward and back ends nothing and keeps nothing" {
	daemon_with
	local box
	box=$(sbx_create --ttl 30m)
	page $CLOCK 7200000000
	[ "$(timeout 30 sandbox exec --no-stdin "$box" -- echo later)" = later ]
	timeout 60 sandbox delete "$(sbx_create --ttl 30m)" --wait
	page $CLOCK -7200000000
	[ "$(timeout 30 sandbox exec --no-stdin "$box" -- echo earlier)" = earlier ]
	timeout 60 sandbox delete "$(sbx_create --ttl 30m)" --wait
	[ "$(sandbox inspect --json "$box" | jq -r .state)" = running ]
	local short
	short=$(sbx_create --ttl 5s)
	until_ok 90 sh -c "sandbox list -q | grep -q $short && exit 1; exit 0"
	timeout 60 sandbox delete "$box" --wait
	run -0 until_ok 60 sandbox gc --verify
}

@test "a disk that takes half a second for each sync delays creates, not commands" {
	daemon_with
	local box i
	box=$(sbx_create)
	page $DELAY 500000
	for i in 1 2 3 4; do
		(sbx_create --name "slow$i" >"$SBX_DIR/slow.$i" 2>&1 || echo failed >>"$SBX_DIR/slow.$i") 3>&- &
	done
	for i in $(seq 20); do
		[ "$(timeout 60 sandbox exec --no-stdin "$box" -- echo "$i")" = "$i" ]
	done
	for i in 1 2 3 4; do
		until_ok 120 test -s "$SBX_DIR/slow.$i"
		[[ "$(cat "$SBX_DIR/slow.$i")" != *failed* ]]
		timeout 120 sandbox delete "slow$i" --wait
	done
	page $DELAY 0
	timeout 60 sandbox delete "$box" --wait
	run -0 until_ok 60 sandbox gc --verify
}

@test "signals all the time change no byte" {
	daemon_with SANDBOX_TEST_STORM_US=2000
	local box stormy=(timeout 120 env "LD_PRELOAD=$BUILD/tools/faults.so" "SANDBOX_TEST_FAULTS=$FAULTS" SANDBOX_TEST_STORM_US=2000)
	box=$("${stormy[@]}" sandbox create -q --image "$IMAGE" --disk-mib 64 --memory-mib 256)
	head -c 8000000 /dev/urandom >"$SBX_DIR/bytes"
	"${stormy[@]}" sandbox exec "$box" -- cat <"$SBX_DIR/bytes" >"$SBX_DIR/said"
	cmp "$SBX_DIR/said" "$SBX_DIR/bytes"
	"${stormy[@]}" sandbox cp "$SBX_DIR/bytes" "$box:/workspace/bytes"
	"${stormy[@]}" sandbox cp "$box:/workspace/bytes" "$SBX_DIR/back"
	cmp "$SBX_DIR/bytes" "$SBX_DIR/back"
	[ "$(od -A n -t d8 -j $SIGNALS -N 8 "$FAULTS")" -gt 20 ]
	"${stormy[@]}" sandbox delete "$box" --wait
	run -0 until_ok 60 sandbox gc --verify
}
