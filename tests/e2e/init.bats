#!/usr/bin/env bats
# The socket of process 1: who may speak on it, and what a flood does.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start
	BOX=$(sbx_create --writable-root)
	export BOX
}

teardown_file() {
	sbx_stop
}

@test "a second sandbox-init started inside does not take over" {
	# The impostor dials the same socket from another pid; the worker must drop it and keep serving through process 1.
	timeout 20 sandbox exec --detach "$BOX" -- /.sandbox/init --socket /.sandbox/io/worker.sock --deadline-us 0 --grace-ms 1000
	sleep 1
	local round
	for round in 1 2 3 4 5; do
		run -0 timeout 10 sandbox exec "$BOX" -- echo "right $round"
		[ "$output" = "right $round" ] || { echo "$output"; tail -n 20 "$SBX_DIR/log"; false; }
	done
	grep -qi 'refused.*pid\|pid.*refused\|peer' "$SBX_DIR/log"
}

@test "thousands of connections to the socket do no harm" {
	local fds
	fds=$(daemon_fds)
	timeout 60 sandbox exec "$BOX" -- sh -c 'i=0; while [ $i -lt 2000 ]; do nc local:/.sandbox/io/worker.sock </dev/null >/dev/null 2>&1 & i=$((i+1)); [ $((i % 50)) -ne 0 ] || wait; done; wait; true' || true
	run -0 timeout 10 sandbox exec "$BOX" -- echo fine
	[ "$output" = fine ]
	sleep 1
	[ "$(daemon_fds)" -le $((fds + 2)) ]
}

@test "the socket's directory is out of reach for other users of the host" {
	local id=$BOX
	[ "$(stat -c %a "$SBX_DIR/state/sandboxes")" = 700 ] || [ "$(stat -c %a "$SBX_DIR/state/sandboxes/$id")" = 700 ] || [ "$(stat -c %a "$SBX_DIR/state")" = 700 ]
	[ "$(stat -c %a "$SBX_DIR/state/sandboxes/$id/io")" = 711 ]
	[ "$(stat -c %a "$SBX_DIR/state/sandboxes/$id/io/worker.sock")" = 666 ]
}

@test "process 1 stays under 2 MB resident" {
	local pid
	pid=$(docker inspect -f '{{.State.Pid}}' "sandbox-$BOX")
	local kb
	kb=$(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status")
	[ "$kb" -lt 2048 ]
}

@test "zombies are reaped, whoever left them" {
	local round
	for i in $(seq 30); do
		timeout 10 sandbox exec "$BOX" -- sh -c '(sleep 0 &) ; (setsid sleep 0.01 &)'
	done
	sleep 1
	run timeout 10 sandbox exec "$BOX" -- sh -c 'grep -l "^State:.Z" /proc/[0-9]*/status | wc -l'
	[ "$output" -eq 0 ]
}

@test "stopping process 1 from outside: the delete is bounded" {
	local box pid start
	box=$(sbx_create)
	pid=$(docker inspect -f '{{.State.Pid}}' "sandbox-$box")
	kill -STOP "$pid"
	start=$SECONDS
	run -0 timeout 60 sandbox delete "$box"
	[ $((SECONDS - start)) -lt 20 ]
}

@test "killing process 1 from outside: the record says the sandbox ended, and the exec is not invented" {
	local box pid
	box=$(sbx_create)
	pid=$(docker inspect -f '{{.State.Pid}}' "sandbox-$box")
	(sleep 1; kill -KILL "$pid") &
	run timeout 60 sandbox exec "$box" -- sleep 50
	[ "$status" -eq 125 ]
	until_ok 20 sh -c "sandbox inspect --json $box | jq -e '.state == \"failed\"'"
	sandbox delete "$box"
}
