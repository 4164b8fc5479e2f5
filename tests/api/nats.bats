#!/usr/bin/env bats
# Events to NATS: at least once, in order, with their ids; an outage is caught up, and nothing else notices it.

load ../lib/helpers.bash

setup_file() {
	need_engine
	command -v nats-server >/dev/null 2>&1 || skip "no nats-server"
	export NATS_DIR=$BATS_FILE_TMPDIR NATS_PORT
	NATS_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	# A stream that is there whenever the server is: made on another port, before anybody publishes.
	local port
	port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	nats_run "$port"
	until_ok 10 "$TOP/tests/lib/nats_stream.py" "$port" create 'test.events.>'
	nats_stop TERM
	# The daemon is first: NATS may come later.
	sbx_start --set policy.max_host_pressure=1 --set "events.nats_url=nats://127.0.0.1:$NATS_PORT" --set events.nats_subject=test.events
}

teardown_file() {
	nats_stop
	sbx_stop
}

nats_run() {
	nats-server -a 127.0.0.1 -p "$1" -js -sd "$NATS_DIR/js" >>"$NATS_DIR/nats.log" 2>&1 3>&- 4>&- &
	echo $! >"$NATS_DIR/nats.pid"
	until_ok 10 nats_up "$1"
}

nats_up() {
	(: >"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

nats_start() {
	nats_run "$NATS_PORT"
}

nats_stop() {
	[ -f "$NATS_DIR/nats.pid" ] || return 0
	kill -"${1:-KILL}" "$(cat "$NATS_DIR/nats.pid")" 2>/dev/null || true
	sbx_gone "$(cat "$NATS_DIR/nats.pid")"
	rm -f "$NATS_DIR/nats.pid"
}

got() {
	"$TOP/tests/lib/nats_stream.py" "$NATS_PORT" read
}

# What the stream has is what the store has, in the same order.
same_as_stored() {
	[ "$(got 2>/dev/null | jq -r .id)" = "$(sandbox events -q)" ]
}

@test "without NATS everything works; when it comes it gets all there is, in order" {
	local id
	id=$(sbx_create --name one | tail -n 1)
	[ "$(sandbox exec one -- echo yes)" = yes ]
	grep -q 'not publishing: no connection to NATS' "$SBX_DIR/log"
	nats_start
	until_ok 15 same_as_stored
	[ "$(jq -r "select(.type == \"sandbox.running\") | .sandbox_id" <<<"$(got)")" = "$id" ]
	# The subject ends with the type, the message id is the event's.
	[ "$(got | jq -r .subject | head -n 1)" = test.events.sandbox.scheduled ]
	[ "$(got | jq -r 'select(.msg_id != .id) | .id' | wc -l)" -eq 0 ]
	until_ok 5 grep -q 'publishing again' "$SBX_DIR/log"
}

@test "events come at once while it is there" {
	sandbox exec one -- true
	until_ok 2 same_as_stored
}

@test "killed and restarted NATS is caught up with, each time" {
	local i
	for i in 1 2 3; do
		nats_stop
		[ "$(sandbox exec one -- echo "yes $i")" = "yes $i" ]
		sandbox exec one -- true
		nats_start
		until_ok 15 same_as_stored
	done
}

@test "a restarted daemon goes on where it was" {
	sbx_kill TERM
	sbx_daemon
	sandbox exec one -- true
	until_ok 10 same_as_stored
	[ "$(got | jq -r .id | sort | uniq -d | wc -l)" -eq 0 ]
}

@test "a subject that is none is refused" {
	run "$BUILD/sandboxd" --check-config --set 'events.nats_subject=a.*'
	[ "$status" -ne 0 ]
	[[ "$output" == *"events.nats_subject: 'a.*' is not a subject"* ]]
}
