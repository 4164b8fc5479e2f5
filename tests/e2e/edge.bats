#!/usr/bin/env bats
# The edge in a process of its own: unprivileged, told the routes by the daemon, and never behind it; whichever of the two is killed,
# exactly the active tunnels answer.

load ../lib/helpers
load ../lib/tls

setup_file() {
	need_engine
	[ "$(id -u)" -eq 0 ] || skip "not root: the edge is to run as another user"
	EDGE=$(free_port)
	export EDGE
	sbx_prepare
	# The edge's user passes through to its socket, and reads nothing on the way.
	chmod 711 "$SBX_DIR"
	install -m 755 "$BUILD/sandboxd" "$SBX_DIR/edged"
	install -m 644 /dev/null "$SBX_DIR/edge.conf"
	sbx_daemon --set "edge.listen=127.0.0.1:$EDGE" --set "edge.link=$SBX_DIR/edge.sock" --set edge.group=nogroup
	edge_start
	sbx_create --name one --expose 8080=one >/dev/null
	origin one 8080 one
	until_ok 60 answers one 2>/dev/null
}

teardown_file() {
	local f
	for f in "$SBX_DIR"/*.server "$SBX_DIR/edge.pid"; do
		[ ! -f "$f" ] || kill "$(cat "$f")" 2>/dev/null || true
	done
	sbx_stop
}

# edge_start [VARIABLE=VALUE…]
edge_start() {
	rm -f "$SBX_DIR/edge.ready"
	mkfifo "$SBX_DIR/edge.ready"
	setpriv --reuid=nobody --regid=nogroup --clear-groups --no-new-privs --bounding-set=-all env HOME=/nonexistent "$@" "$SBX_DIR/edged" --config "$SBX_DIR/edge.conf" --set daemon.role=edge \
		--set "edge.listen=127.0.0.1:$EDGE" --set "edge.link=$SBX_DIR/edge.sock" --ready-fd 9 9<>"$SBX_DIR/edge.ready" >>"$SBX_DIR/edge.log" 2>&1 </dev/null 3>&- 4>&- &
	echo $! >"$SBX_DIR/edge.pid"
}

edge_end() {
	local pid
	pid=$(cat "$SBX_DIR/edge.pid")
	kill "-$1" "$pid" 2>/dev/null || true
	sbx_gone "$pid"
}

# origin SANDBOX PORT NAME: a server of this machine on the sandbox's loopback.
origin() {
	(inside_net "$1" python3 "$TOP/tests/lib/edge_origin.py" "$2" "$3") >/dev/null 2>>"$SBX_DIR/servers.log" </dev/null 3>&- &
	echo $! >"$SBX_DIR/$1-$2.server"
}

visit() {
	curl -sS -m 20 --resolve "$1.localhost:$EDGE:127.0.0.1" "${@:3}" "http://$1.localhost:$EDGE${2:-/}"
}

status_of() {
	visit "$1" / -o /dev/null -w '%{http_code}' || true
}

answers() {
	[ "$(visit "$1")" = "$1" ]
}

@test "another user's process serves the tunnels, and the daemon does not listen for visitors" {
	local pid
	pid=$(cat "$SBX_DIR/edge.pid")
	[ "$(awk '/^Uid:/ {print $2}' "/proc/$pid/status")" = "$(id -u nobody)" ]
	[ "$(awk '/^CapEff:/ {print $2}' "/proc/$pid/status")" = 0000000000000000 ]
	answers one
	sandbox inspect one --json | jq -e --arg url "http://one.localhost:$EDGE" '.tunnels[0].public_url == $url'
	[ "$(visit one /echo -X POST -H 'Expect:' -d 'whole and unchanged')" = "whole and unchanged" ]
	[ "$(visit one /big/3000000 | wc -c)" = 3000000 ]
	timeout 60 python3 "$TOP/tests/lib/edge_client.py" "$EDGE" upgraded one.localhost
	timeout 60 python3 "$TOP/tests/lib/edge_client.py" "$EDGE" sse one.localhost
	# Nothing of the daemon's is open to it.
	run ! setpriv --reuid=nobody --regid=nogroup --clear-groups cat "$SBX_DIR/state/store.db"
	run -0 setpriv --reuid=nobody --regid=nogroup --clear-groups curl -sS -m 20 -o /dev/null -w '%{http_code}' --unix-socket "$SBX_DIR/d.sock" http://d/v1/sandboxes
	[ "$output" = 403 ]
}

# doctor's row of the edge, as JSON.
edge_row() {
	sandbox doctor --json | jq '.checks[] | select(.part == "edge")'
}

metric() {
	curl -sS --max-time 10 --unix-socket "$SBX_DIR/d.sock" http://sandbox/metrics | awk -v name="$1" '$1 == name { print $2 }'
}

@test "doctor and the metrics tell of it" {
	local routed
	until_ok 20 eval 'edge_row | jq -e --arg pid "pid $(cat "$SBX_DIR/edge.pid") of version $(sandboxd --version | cut -d" " -f2)" ".status == \"ok\" and (.detail | contains(\$pid))"'
	[ "$(metric sandbox_edge_up)" = 1 ]
	routed=$(metric 'sandbox_edge_requests_total{result="routed"}')
	answers one
	[ "$(status_of nobody)" = 404 ]
	[ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$EDGE/v1/tunnels/authorize?domain=one.localhost")" = 204 ]
	until_ok 20 eval '[ "$(metric "sandbox_edge_requests_total{result=\"routed\"}")" -gt "$routed" ]'
	until_ok 20 eval '[ "$(metric "sandbox_edge_requests_total{result=\"refused\"}")" -ge 1 ]'
	until_ok 20 eval '[ "$(metric "sandbox_edge_certificates_total{answer=\"yes\"}")" = 1 ]'
	edge_end KILL
	until_ok 20 eval 'edge_row | jq -e ".status == \"fail\" and (.remedy | contains(\"sandboxd-edge\"))"'
	[ "$(metric sandbox_edge_up)" = 0 ]
	edge_start
	until_ok 60 answers one 2>/dev/null
	until_ok 20 eval 'edge_row | jq -e ".status == \"ok\""'
}

@test "who is not of the group gets no routes" {
	# 7: no connection; 52: an empty answer, as a stranger to the protocol gets who may connect.
	run -7 setpriv --reuid=daemon --regid=daemon --clear-groups curl -sS -m 20 --unix-socket "$SBX_DIR/edge.sock" http://x/
	run -52 setpriv --reuid=nobody --regid=nogroup --clear-groups curl -sS -m 20 --unix-socket "$SBX_DIR/edge.sock" http://x/
	# Streams without routes, lines without end.
	timeout 20 python3 - "$SBX_DIR/edge.sock" <<'PY'
import socket, sys
for first in (b"GET / HTTP/1.1\r\n\r\n", b"streams 1\n", b"x" * 4096):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(15)
    s.connect(sys.argv[1])
    s.sendall(first)
    try:
        assert s.recv(1) == b"", first
    except ConnectionResetError:
        pass
PY
	answers one
}

@test "what the answer to a delete says is true at the edge" {
	local i
	for i in 1 2 3 4 5; do
		sandbox tunnel create one --port 8080 --subdomain "brief$i" >/dev/null
		[ "$(status_of "brief$i")" = 200 ]
		sandbox tunnel delete one "brief$i" >/dev/null
		[ "$(status_of "brief$i")" = 404 ]
	done
	sandbox tunnel create one --port 8080 --subdomain guarded --auth token >/dev/null
	[ "$(status_of guarded)" = 401 ]
	sandbox tunnel delete one guarded >/dev/null
}

@test "an edge that hangs does not keep a removed route: it is cut off, and served again" {
	sandbox tunnel create one --port 8080 --subdomain stuck >/dev/null
	visit stuck /big/60000000 --limit-rate 1k --no-buffer >"$SBX_DIR/part" 2>/dev/null &
	local pid=$! rc=0
	until_ok 30 test -s "$SBX_DIR/part"
	kill -STOP "$(cat "$SBX_DIR/edge.pid")"
	sandbox tunnel delete one stuck >/dev/null
	kill -CONT "$(cat "$SBX_DIR/edge.pid")"
	wait $pid || rc=$?
	[ "$rc" -ne 0 ]
	until_ok 60 answers one 2>/dev/null
	[ "$(status_of stuck)" = 404 ]
}

@test "a visitor's cookie ends after twelve hours, by the edge's own clock" {
	local token cookie faketime
	faketime=$(find /usr/lib -name libfaketime.so.1 | head -n 1)
	[ -n "$faketime" ] || skip "no libfaketime"
	token=$(sandbox tunnel create one --port 8080 --subdomain timed --auth token --json | jq -r .secret)
	visit timed "/?sandbox_token=$token" -D "$SBX_DIR/head" -o /dev/null
	cookie=$(sed -n 's/^[Ss]et-[Cc]ookie: \([^;]*\);.*/\1/p' "$SBX_DIR/head")
	[ "$(visit timed / -H "Cookie: $cookie")" = one ]
	local ahead want
	for ahead in 11 13; do
		edge_end TERM
		edge_start "LD_PRELOAD=$faketime" "FAKETIME=+${ahead}h" FAKETIME_DONT_FAKE_MONOTONIC=1
		until_ok 60 answers one 2>/dev/null
		want=$([ "$ahead" = 11 ] && echo 200 || echo 401)
		[ "$(visit timed / -o /dev/null -w '%{http_code}' -H "Cookie: $cookie")" = "$want" ]
		[ "$(visit timed / -H "Authorization: Bearer $token")" = one ]
	done
	edge_end TERM
	edge_start
	until_ok 60 answers one 2>/dev/null
	sandbox tunnel delete one timed >/dev/null
}

@test "a killed edge: exactly the active tunnels answer" {
	sandbox tunnel create one --port 8080 --subdomain early >/dev/null
	edge_end KILL
	sandbox tunnel delete one early >/dev/null
	sandbox tunnel create one --port 8080 --subdomain late >/dev/null
	edge_start
	until_ok 60 answers one 2>/dev/null
	[ "$(visit late)" = one ]
	[ "$(status_of early)" = 404 ]
	sandbox tunnel delete one late >/dev/null
}

@test "a killed daemon: 503 while it is away, then exactly the active tunnels answer" {
	sandbox tunnel create one --port 8080 --subdomain gone >/dev/null
	[ "$(status_of gone)" = 200 ]
	sandbox tunnel delete one gone >/dev/null
	sbx_kill KILL
	until_ok 30 eval '[ "$(status_of one)" = 503 ]'
	sbx_daemon
	until_ok 60 answers one 2>/dev/null
	[ "$(status_of gone)" = 404 ]
	[ "$(status_of never)" = 404 ]
	# A sandbox's end is the end of its address here too.
	sbx_create --name two --expose 8081=two >/dev/null
	origin two 8081 two
	until_ok 60 answers two
	sandbox delete two >/dev/null
	[ "$(status_of two)" = 404 ]
}

@test "it needs to be told where, and an orderly stop is one" {
	run -2 "$BUILD/sandboxd" --check-config --set daemon.role=edge --set edge.listen=127.0.0.1:1
	[[ $output == *edge.link* ]]
	run -2 "$BUILD/sandboxd" --check-config --set daemon.role=edge --set edge.link=/run/x
	[[ $output == *edge.listen* ]]
	edge_end TERM
	run ! visit one
	edge_start
	until_ok 60 answers one 2>/dev/null
}
