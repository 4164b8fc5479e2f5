# A NATS server of a test file, with a stream that keeps what the daemon publishes. Needs helpers.bash; $NATS_DIR is its folder, $NATS_PORT
# where it listens, test.events the subject.
# shellcheck shell=bash

need_nats() {
	command -v nats-server >/dev/null 2>&1 || skip "no nats-server"
}

# The stream is made on another port, before anybody publishes; then the server is ended.
nats_prepare() {
	local port
	NATS_PORT=$(free_port)
	export NATS_DIR=$1 NATS_PORT
	mkdir -p "$NATS_DIR"
	port=$(free_port)
	nats_run "$port"
	until_ok 20 "$TOP/tests/lib/nats_stream.py" "$port" create 'test.events.>'
	nats_stop TERM
}

nats_run() {
	nats-server -a 127.0.0.1 -p "$1" -js -sd "$NATS_DIR/js" >>"$NATS_DIR/nats.log" 2>&1 3>&- 4>&- &
	echo $! >"$NATS_DIR/nats.pid"
	until_ok 20 nats_up "$1"
}

nats_up() {
	(: >"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

nats_start() {
	nats_run "$NATS_PORT"
}

nats_stop() {
	[ -f "${NATS_DIR:-/none}/nats.pid" ] || return 0
	kill -"${1:-KILL}" "$(cat "$NATS_DIR/nats.pid")" 2>/dev/null || true
	sbx_gone "$(cat "$NATS_DIR/nats.pid")"
	rm -f "$NATS_DIR/nats.pid"
}

# What the stream has, one JSON object a line.
nats_got() {
	"$TOP/tests/lib/nats_stream.py" "$NATS_PORT" read
}

# What the stream has is what the store has, in the same order.
same_as_stored() {
	[ "$(nats_got 2>/dev/null | jq -r .id)" = "$(sandbox events -q)" ]
}
