#!/usr/bin/env bats
# Events to NATS: at least once, in order, with their ids; an outage is caught up, and nothing else notices it.

load ../lib/helpers.bash
load ../lib/tls
load ../lib/nats

setup_file() {
	need_engine
	need_nats
	nats_prepare "$BATS_FILE_TMPDIR"
	# The daemon is first: NATS may come later.
	sbx_start --set policy.max_host_pressure=1 --set "events.nats_url=nats://127.0.0.1:$NATS_PORT" --set events.nats_subject=test.events
}

teardown_file() {
	nats_stop
	sbx_stop
}

@test "without NATS everything works; when it comes it gets all there is, in order" {
	local id
	id=$(sbx_create --name one | tail -n 1)
	[ "$(sandbox exec one -- echo yes)" = yes ]
	grep -q 'not publishing: no connection to NATS' "$SBX_DIR/log"
	nats_start
	until_ok 15 same_as_stored
	[ "$(jq -r "select(.type == \"sandbox.running\") | .sandbox_id" <<<"$(nats_got)")" = "$id" ]
	# The subject ends with the type, the message id is the event's.
	[ "$(nats_got | jq -r .subject | head -n 1)" = test.events.sandbox.scheduled ]
	[ "$(nats_got | jq -r 'select(.msg_id != .id) | .id' | wc -l)" -eq 0 ]
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
	[ "$(nats_got | jq -r .id | sort | uniq -d | wc -l)" -eq 0 ]
}

@test "a subject that is none is refused" {
	run "$BUILD/sandboxd" --check-config --set 'events.nats_subject=a.*'
	[ "$status" -ne 0 ]
	[[ "$output" == *"events.nats_subject: 'a.*' is not a subject"* ]]
}
