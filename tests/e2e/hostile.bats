#!/usr/bin/env bats
# Hostile and unlucky use of a daemon: it answers on, gives back what it took, and loses nothing.
bats_require_minimum_version 1.5.0

setup_file() {
	load ../lib/helpers
	need_engine
	sbx_start
	BOX=$(sbx_create)
	STOPPED=$(sbx_create)
	export BOX STOPPED
	# For the last test, which takes its time: a command that process 1 is then kept from ending.
	local first
	first=$(docker inspect -f '{{.State.Pid}}' "$(docker ps -q --filter "label=io.sandbox.id=$STOPPED")")
	timeout 60 sandbox exec --timeout 5s "$STOPPED" -- sh -c 'echo first; sleep 100' >"$SBX_DIR/lost" 2>&1 3>&- &
	until_ok 10 grep -q first "$SBX_DIR/lost"
	kill -STOP "$first"
}

teardown_file() {
	load ../lib/helpers
	sbx_stop
}

setup() {
	load ../lib/helpers
}

few_fds() {
	[ "$(daemon_fds)" -le "$1" ]
}

@test "broken requests, hostile frames and crowds of connections leave the daemon answering, with its descriptors" {
	timeout 10 sandbox exec "$BOX" -- true
	before=$(daemon_fds)
	timeout 60 python3 "$TOP/tests/lib/hostile.py" "$SBX_DIR/d.sock" "$BOX"
	run -0 timeout 30 sandbox exec "$BOX" -- echo alive
	[ "$output" = alive ]
	until_ok 20 few_fds $((before + 8))
}

# Create, three commands, an extension, a copy and two deletes at once.
crowded_life() {
	local id
	id=$(sbx_create) || return 1
	for k in 1 2 3; do
		timeout 20 sandbox exec "$id" -- sh -c "echo $k; sleep 0.1" >/dev/null 2>&1 &
	done
	timeout 20 sandbox extend "$id" --ttl 300 >/dev/null 2>&1 &
	timeout 20 sandbox cp /etc/passwd "$id:/workspace/" >/dev/null 2>&1 &
	timeout 30 sandbox delete "$id" >/dev/null 2>&1 &
	timeout 30 sandbox delete "$id" >/dev/null 2>&1
	wait
}

@test "everything at once to many sandboxes, under a storm of reloads, leaves nothing behind" {
	for _ in $(seq 100); do
		kill -HUP "$(sbx_pid)"
		sleep 0.02
	done &
	pids=
	for _ in 1 2 3 4 5 6; do
		crowded_life 3>&- &
		pids="$pids $!"
	done
	for p in $pids; do
		wait "$p"
	done
	wait
	timeout 20 sandbox list -q | grep -vxF -e "$BOX" -e "$STOPPED" >"$SBX_DIR/left" || true
	[ ! -s "$SBX_DIR/left" ]
	[ "$(docker ps -aq --filter "label=io.sandbox.node=$(cat "$SBX_DIR/state/node-id")" | wc -l)" -le 2 ]
	run -0 timeout 30 sandbox exec "$BOX" -- echo alive
}

@test "a process 1 that is stopped from outside: the command is lost, the sandbox is ended" {
	until_ok 60 grep -q lost "$SBX_DIR/lost"
	grep -q "did not end the command" "$SBX_DIR/lost"
	until_ok 10 sh -c "! docker ps -aq --filter label=io.sandbox.id=$STOPPED | grep -q ."
	sandbox list --all | grep -q failed
}
