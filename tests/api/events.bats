#!/usr/bin/env bats
# Events: server-sent, resumed, followed by the CLI; nothing is left out and nothing is out of order.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start --set policy.max_host_pressure=1
}

teardown_file() {
	sbx_stop
}

sse() {
	curl -sSN --max-time "${SECONDS_MAX:-10}" --unix-socket "$SBX_DIR/d.sock" "$@"
}

types() {
	sandbox events --json | jq -r "select(.sandbox_id == \"$1\") | .type"
}

@test "a sandbox's life, in order, from the oldest" {
	local id
	id=$(sbx_create --name one | tail -n 1)
	run -3 sandbox exec one -- sh -c 'exit 3'
	sandbox delete one --wait
	run -0 types "$id"
	[ "$(echo "$output" | tr '\n' ' ')" = 'sandbox.scheduled sandbox.creating sandbox.running operation.succeeded operation.failed sandbox.stopping sandbox.stopped operation.succeeded ' ]
	run -0 sandbox events
	[[ "$output" == *"sandbox.running"*"${id: -8}"* ]]
	[[ "$output" == *"operation.failed"*exited* ]]
	run -0 sandbox events -q
	[ "$(echo "$output" | sort -u | wc -l)" -eq "$(echo "$output" | wc -l)" ]
}

@test "server-sent events: id, event, data, and Last-Event-ID goes on behind it" {
	run -0 sse -i 'http://x/v1/events?follow=false&since=oldest'
	[[ "$output" == *"Content-Type: text/event-stream"* ]]
	[[ "$output" == *"retry: 1000"* ]]
	local all rest mid
	all=$(echo "$output" | sed -n 's/^id: //p')
	[ "$(echo "$all" | wc -l)" -ge 8 ]
	[ "$(echo "$output" | sed -n 's/^data: //p' | jq -r .id)" = "$all" ]
	[ "$(echo "$output" | sed -n 's/^data: //p' | jq -r .type)" = "$(echo "$output" | sed -n 's/^event: //p')" ]
	mid=$(echo "$all" | sed -n 3p)
	rest=$(sse -H "Last-Event-ID: $mid" 'http://x/v1/events?follow=false' | sed -n 's/^id: //p')
	[ "$rest" = "$(echo "$all" | tail -n +4)" ]
	run -0 sse -w '%{http_code}' 'http://x/v1/events?since=nonsense'
	[[ "$output" == *"not an event's id"*400 ]]
	run -0 sse -w '%{http_code}' 'http://x/v1/events?format=xml'
	[[ "$output" == *400 ]]
}

@test "followers hear of what happens, at once, and only of that" {
	curl -sSN --max-time 60 --unix-socket "$SBX_DIR/d.sock" 'http://x/v1/events' >"$BATS_TEST_TMPDIR/sse" 3>&- &
	local curl_pid=$! cli_pid
	sandbox events -f --json >"$BATS_TEST_TMPDIR/cli" 3>&- &
	cli_pid=$!
	until_ok 5 grep -q retry "$BATS_TEST_TMPDIR/sse"
	sleep 0.5
	sbx_create --name two >/dev/null
	until_ok 10 grep -q '^event: sandbox.running' "$BATS_TEST_TMPDIR/sse"
	until_ok 5 grep -q 'sandbox.running' "$BATS_TEST_TMPDIR/cli"
	[ "$(jq -r .type "$BATS_TEST_TMPDIR/cli" | head -n 1)" = sandbox.scheduled ]
	[ "$(jq -r .actor "$BATS_TEST_TMPDIR/cli" | head -n 1)" != null ]
	kill "$curl_pid"
	# A restarted daemon is not the end: nothing is missed, nothing shown twice.
	sbx_kill TERM
	sbx_daemon
	sandbox delete two --wait
	until_ok 15 grep -q 'sandbox.stopped' "$BATS_TEST_TMPDIR/cli"
	[ "$(jq -r .id "$BATS_TEST_TMPDIR/cli" | sort | uniq -d | wc -l)" -eq 0 ]
	[ "$(jq -r .type "$BATS_TEST_TMPDIR/cli" | grep -c 'sandbox\.')" -eq 5 ]
	kill -TERM "$cli_pid"
	wait "$cli_pid" || true
}

@test "many followers cost little and leave nothing behind" {
	local i fds pids=()
	fds=$(daemon_fds)
	for i in $(seq 30); do
		curl -sSN --max-time 60 --unix-socket "$SBX_DIR/d.sock" 'http://x/v1/events' >/dev/null 3>&- &
		pids+=($!)
	done
	until_ok 10 more_fds $((fds + 30))
	kill "${pids[@]}"
	# Those that left are noticed with the next event or sign of life.
	until_ok 25 fewer_fds $((fds + 4))
}

more_fds() {
	[ "$(daemon_fds)" -ge "$1" ]
}

fewer_fds() {
	[ "$(daemon_fds)" -le "$1" ]
}

@test "a daemon with followers stops at once" {
	sse 'http://x/v1/events' >"$BATS_TEST_TMPDIR/out" 3>&- &
	local pid=$! start=$SECONDS
	until_ok 5 grep -q retry "$BATS_TEST_TMPDIR/out"
	sbx_kill TERM
	[ $((SECONDS - start)) -le 5 ]
	wait "$pid" || true
	sbx_daemon
}
