#!/usr/bin/env bats
# Quiet visitors: they stay however long nothing is said, and one whose cable is pulled is noticed and freed. The edge asks by TCP each second
# here instead of each 25.

load ../lib/helpers
load ../lib/tls

setup_file() {
	need_engine
	[ "$(id -u)" -eq 0 ] || skip "not root: no cable can be made"
	EDGE=$(free_port)
	export EDGE
	sbx_prepare
	unshare -n sleep infinity 3>&- 4>&- &
	echo $! >"$SBX_DIR/away.pid"
	until_ok 20 eval '[ "$(readlink "/proc/$(cat "$SBX_DIR/away.pid")/ns/net")" != "$(readlink /proc/self/ns/net)" ]'
	ip link add sbxidle type veth peer name w0 netns "$(cat "$SBX_DIR/away.pid")"
	ip addr add 10.251.97.1/30 dev sbxidle
	ip link set sbxidle up
	away ip addr add 10.251.97.2/30 dev w0
	away ip link set lo up
	away ip link set w0 up
	sbx_daemon --set "edge.listen=127.0.0.1:$EDGE,10.251.97.1:$EDGE" --set edge.keepalive=1s
	sbx_create --name quiet --expose 8080=quiet >/dev/null
	(inside_net quiet python3 "$TOP/tests/lib/edge_origin.py" 8080 quiet) >/dev/null 2>>"$SBX_DIR/servers.log" </dev/null 3>&- &
	echo $! >"$SBX_DIR/origin.server"
	until_ok 60 answers
}

teardown_file() {
	local f
	for f in "$SBX_DIR"/*.server "$SBX_DIR/away.pid"; do
		[ ! -f "$f" ] || kill "$(cat "$f")" 2>/dev/null || true
	done
	ip link del sbxidle 2>/dev/null || true
	sbx_stop
}

away() {
	nsenter "--net=/proc/$(cat "$SBX_DIR/away.pid")/ns/net" "$@"
}

answers() {
	[ "$(curl -sS -m 20 --resolve "quiet.localhost:$EDGE:127.0.0.1" "http://quiet.localhost:$EDGE/" 2>/dev/null)" = quiet ]
}

# Of visitors that are away, as the kernel sees them.
connections() {
	ss -Htn state established "src 10.251.97.1" | wc -l
}

metric() {
	curl -sS --max-time 10 --unix-socket "$SBX_DIR/d.sock" http://sandbox/metrics | awk -v name="$1" '$1 == name { print $2 }'
}

@test "a WebSocket and an event stream outlive their silence" {
	away timeout 60 python3 "$TOP/tests/lib/idle.py" 6 "websocket@10.251.97.1:$EDGE/quiet.localhost:$EDGE" "sse@10.251.97.1:$EDGE/quiet.localhost:$EDGE"
}

@test "a visitor whose cable is pulled is freed, and its connection to the server with it" {
	local before
	until_ok 60 eval '[ "$(metric sandbox_edge_connections)" = 0 ]'
	before=$(connections)
	nsenter "--net=/proc/$(cat "$SBX_DIR/away.pid")/ns/net" \
		python3 "$TOP/tests/lib/idle.py" 600 "websocket@10.251.97.1:$EDGE/quiet.localhost:$EDGE" >/dev/null 2>&1 3>&- 4>&- &
	echo $! >"$SBX_DIR/visitor.server"
	until_ok 30 eval '[ "$(metric sandbox_edge_connections)" = 1 ]'
	[ "$(connections)" -eq $((before + 1)) ]
	away ip link set w0 down
	until_ok 60 eval '[ "$(metric sandbox_edge_connections)" = 0 ]'
	[ "$(connections)" -eq "$before" ]
	until_ok 30 eval '! (inside_net quiet ss -Htn state established "sport = :8080") | grep -q .'
	answers
}
