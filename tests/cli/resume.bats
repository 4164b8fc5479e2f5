#!/usr/bin/env bats
# A daemon that dies and comes back in the middle of a command: nothing is lost, nothing is repeated, the status is the real one.
load ../lib/helpers

setup_file() {
	sbx_start
	ID=$(sbx_create)
	export ID
}

teardown_file() {
	sbx_stop
}

setup() {
	W=$BATS_TEST_TMPDIR
}

restart_after() {
	sleep "$1"
	sbx_kill "$2"
	sleep "${3:-0}"
	sbx_daemon
}

@test "output goes on where it was, over restarts of both kinds" {
	for how in KILL TERM; do
		timeout 60 sandbox exec --no-stdin "$ID" -- sh -c 'i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo line $i; echo err $i >&2; sleep 0.1; done; exit 9' \
			>"$W/out" 2>"$W/err" 3>&- &
		pid=$!
		restart_after 1 "$how"
		restart_after 1 "$how"
		rc=0
		wait "$pid" || rc=$?
		[ "$rc" -eq 9 ]
		seq -f 'line %g' 60 | cmp - "$W/out"
		seq -f 'err %g' 60 | cmp - <(grep -v '^sandbox: ' "$W/err")
	done
}

@test "a stream of both directions under load keeps every byte" {
	head -c 40000000 /dev/urandom >"$W/f"
	# Slowed down on its way in, so that the restarts fall into it.
	{ for _ in $(seq 40); do head -c 1000000; sleep 0.1; done; } <"$W/f" | timeout 100 sandbox exec "$ID" -- cat >"$W/out" 3>&- &
	pid=$!
	restart_after 0.7 KILL
	restart_after 0.7 KILL
	wait "$pid"
	cmp "$W/f" "$W/out"
}

@test "a command that ended while the daemon was away reports its real status" {
	timeout 60 sandbox exec --no-stdin "$ID" -- sh -c 'echo begun; sleep 1; echo ended; exit 11' >"$W/out" 3>&- &
	pid=$!
	restart_after 0.3 KILL 2
	rc=0
	wait "$pid" || rc=$?
	[ "$rc" -eq 11 ]
	[ "$(cat "$W/out")" = $'begun\nended' ]
}

@test "a break longer than a moment is said; one that does not end is outcome unknown" {
	timeout 60 sandbox exec --no-stdin "$ID" -- sleep 6 >"$W/out" 2>"$W/err" 3>&- &
	pid=$!
	restart_after 0.5 KILL 3
	wait "$pid"
	grep -q 'connection to the server was lost' "$W/err"
	grep -q resumed "$W/err"

	timeout 60 sandbox exec --no-stdin "$ID" -- sleep 60 2>"$W/err" 3>&- &
	pid=$!
	sleep 0.5
	sbx_kill KILL
	rc=0
	wait "$pid" || rc=$?
	[ "$rc" -eq 125 ]
	grep -q 'outcome unknown: lost' "$W/err"
	sbx_daemon
	gone() { [ "$(timeout 10 sandbox exec --no-stdin "$ID" -- sh -c 'ps | grep -c "[s]leep 60"')" -eq 0 ]; }
	until_ok 25 gone
}

@test "an interrupt while the server is away leaves at once" {
	sandbox exec --no-stdin "$ID" -- sleep 62 >/dev/null 2>&1 3>&- &
	pid=$!
	sleep 0.5
	sbx_kill KILL
	sleep 0.5
	start=$SECONDS
	kill -INT "$pid"
	rc=0
	wait "$pid" || rc=$?
	[ "$rc" -eq 130 ]
	[ $((SECONDS - start)) -le 2 ]
	sbx_daemon
}

@test "detached commands go on over a restart, and attach follows over one" {
	op=$(timeout 5 sandbox exec -d "$ID" -- sh -c 'for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done; exit 4')
	timeout 30 sandbox attach "$op" >"$W/out" 3>&- &
	pid=$!
	restart_after 1 KILL
	rc=0
	wait "$pid" || rc=$?
	[ "$rc" -eq 4 ]
	seq 6 | diff - "$W/out"
}

@test "copies, process lists and forwards that come before the sandbox has dialled again wait for it" {
	local init rc=0 pids=() pid
	timeout 20 sandbox exec -d "$ID" -- httpd -f -p 127.0.0.1:7070 -h /etc >/dev/null
	until_ok 20 sandbox exec --no-stdin "$ID" -- wget -q -O /dev/null http://127.0.0.1:7070/hostname
	init=$(docker inspect -f '{{.State.Pid}}' "sandbox-$ID")
	kill -STOP "$init"
	sbx_kill KILL
	sbx_daemon
	timeout 60 sandbox ps "$ID" >"$W/ps" 2>&1 3>&- &
	pids+=($!)
	timeout 60 sandbox cp "$ID:/etc/hostname" "$W/name" >"$W/cp" 2>&1 3>&- &
	pids+=($!)
	printf 'GET /hostname HTTP/1.0\r\n\r\n' | timeout 60 sandbox forward --stdio "$ID" 7070 >"$W/page" 2>&1 3>&- &
	pids+=($!)
	sleep 0.5
	kill -CONT "$init"
	for pid in "${pids[@]}"; do wait "$pid" || rc=$?; done
	[ "$rc" -eq 0 ] || { cat "$W"/{ps,cp,page}; false; }
	grep -q httpd "$W/ps"
	[ -s "$W/name" ]
	grep -q '^HTTP/1.* 200' "$W/page"
}
