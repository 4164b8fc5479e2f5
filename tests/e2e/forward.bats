#!/usr/bin/env bats
# Ports inside a sandbox reached from this machine's loopback: every TCP behaviour carried as it is.

load ../lib/helpers
load ../lib/tls

setup_file() {
	need_engine
	sbx_start
	sbx_create --name web >/dev/null
	serve echo 127.0.0.1 7001
	serve echo ::1 7002
	serve who 0.0.0.0 7003
	serve who :: 7004
	serve late 127.0.0.1 7005
	serve reset 127.0.0.1 7006
	serve slow 127.0.0.1 7007
	until_ok 20 listening 7007
}

teardown_file() {
	local pid
	# shellcheck disable=SC2013
	for pid in $(cat "$SBX_DIR"/*.server "$SBX_DIR"/*.forward 2>/dev/null); do
		kill "$pid" 2>/dev/null || true
	done
	sbx_stop
}

# Servers are python of this machine on the sandbox's loopback.
serve() {
	(inside_net web python3 "$TOP/tests/lib/tcp_servers.py" serve "$@") >/dev/null 2>>"$SBX_DIR/servers.log" </dev/null 3>&- &
	echo $! >"$SBX_DIR/$3.server"
}

listening() {
	sandbox exec web -- sh -c "netstat -ltn | grep -q ':$1 '"
}

# A forward in the background; its JSON in $SBX_DIR/NAME.json.
forward() {
	local name=$1
	shift
	sandbox forward -d --json "$@" >"$SBX_DIR/$name.json"
	jq -r .pid "$SBX_DIR/$name.json" >"$SBX_DIR/$name.forward"
}

port_of() {
	jq -r ".forwards[] | select(.port == $2) | .local_port" "$SBX_DIR/$1.json"
}

end_forward() {
	kill "$(cat "$SBX_DIR/$1.forward")"
	until_ok 10 forward_gone "$1"
}

forward_gone() {
	! kill -0 "$(cat "$SBX_DIR/$1.forward")" 2>/dev/null
}

ask() {
	python3 -c 'import socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
c.sendall(b"?")
print(c.recv(100).decode())' "$@"
}

@test "servers on either loopback, on all addresses, reached by either local one" {
	forward both web 0:7001 0:7002 0:7003 0:7004
	local p
	for p in 7001 7002 7003 7004; do
		ask 127.0.0.1 "$(port_of both $p)"
		ask ::1 "$(port_of both $p)"
		ask localhost "$(port_of both $p)"
	done
	# Never anything but loopback.
	! ss -ltnH "sport = :$(port_of both 7001)" | awk '{print $4}' | grep -Ev '^(127\.0\.0\.1|\[::1\]):' || false
	end_forward both
}

@test "half-close: what comes after the client's end of sending is whole" {
	forward late web 0:7005
	[ "$(printf hi | timeout 20 python3 -c 'import socket, sys
c = socket.create_connection(("localhost", int(sys.argv[1])), 15)
c.sendall(sys.stdin.buffer.read())
c.shutdown(socket.SHUT_WR)
n = 0
while True:
    d = c.recv(65536)
    if not d:
        break
    n += len(d)
print(n)' "$(port_of late 7005)")" = 10485760 ]
	end_forward late
}

@test "a reset stays one, and touches no other connection" {
	forward reset web 0:7006 0:7001
	local base i
	base=$(ls "/proc/$(cat "$SBX_DIR/reset.forward")/fd" | wc -l)
	timeout 10 python3 "$TOP/tests/lib/tcp_servers.py" reset "$(port_of reset 7006)"
	for ((i = 0; i < 60; i++)); do
		curl -s -m 0.1 "http://127.0.0.1:$(port_of reset 7006)/" >/dev/null &
	done
	wait
	ask 127.0.0.1 "$(port_of reset 7001)"
	until_ok 10 eval '[ "$(ls "/proc/$(cat "$SBX_DIR/reset.forward")/fd" | wc -l)" -le '"$base"' ]'
	end_forward reset
}

@test "bulk both ways at once is whole; who does not read stops its own sender" {
	forward bulk web 0:7001 0:7007
	[ "$(timeout 60 python3 "$TOP/tests/lib/tcp_servers.py" bulk "$(port_of bulk 7001)" 50000000)" = 50000000 ]
	local slow
	slow=$(port_of bulk 7007)
	timeout 20 python3 -c 'import socket, sys, time, os
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10)
end = time.time() + 15
while not os.path.exists(sys.argv[2]) and time.time() < end:
    time.sleep(0.1)' "$slow" "$SBX_DIR/sent"
	# Windows and socket buffers on the way; not without bound.
	[ "$(cat "$SBX_DIR/sent")" -lt 40000000 ]
	ask 127.0.0.1 "$(port_of bulk 7001)"
	local rss
	rss=$(awk '/VmRSS/ {print $2}' "/proc/$(cat "$SBX_DIR/bulk.forward")/status")
	[ "$rss" -lt 40000 ]
	end_forward bulk
}

# curl's 56 is a connection reset while it waits for an answer, 7 one that was reset before it had looked.
is_reset() {
	run curl -s -m 60 "http://127.0.0.1:$(port_of down 7010)/"
	[ "$status" -eq 56 ] || [ "$status" -eq 7 ]
}

@test "a server that is down is refused at once, and reached again when it is back" {
	forward down web 0:7010
	is_reset
	serve who 127.0.0.1 7010
	until_ok 10 listening 7010
	[ "$(ask 127.0.0.1 "$(port_of down 7010)")" = 127.0.0.1 ]
	kill "$(cat "$SBX_DIR/7010.server")"
	until_ok 10 eval '! listening 7010'
	is_reset
	serve who 127.0.0.1 7010
	until_ok 10 listening 7010
	[ "$(ask 127.0.0.1 "$(port_of down 7010)")" = 127.0.0.1 ]
	end_forward down
}

@test "a taken local port is named with the way out; nothing is left behind" {
	forward taken web 0:7001
	run --separate-stderr sandbox forward web "$(port_of taken 7001):7002"
	[ "$status" -eq 5 ]
	[[ $stderr == *"taken by another program"*"0:7002"* ]]
	run --separate-stderr sandbox forward -d web "0:7003" "$(port_of taken 7001):7002"
	[ "$status" -eq 5 ]
	[[ $stderr == *"taken by another program"* ]]
	run sandbox forward web 0
	[ "$status" -eq 2 ]
	run sandbox forward web 1:2:3
	[ "$status" -eq 2 ]
	run sandbox forward nosuch 0:80
	[ "$status" -eq 3 ]
	end_forward taken
}

@test "the background process holds nothing of its caller's" {
	local out
	out=$(timeout 10 bash -c 'sandbox forward -d --json=pid web 0:7001 | cat')
	local pid
	pid=$(jq -r .pid <<<"$out")
	[ "$(readlink "/proc/$pid/fd/0")" = /dev/null ]
	[ "$(readlink "/proc/$pid/fd/1")" = /dev/null ]
	[ "$(readlink "/proc/$pid/fd/2")" = /dev/null ]
	kill "$pid"
}

@test "the daemon restarts: connections are reset, new ones work without user action" {
	forward again web 0:7001
	sbx_kill KILL
	sbx_daemon
	until_ok 30 ask 127.0.0.1 "$(port_of again 7001)"
	end_forward again
}

@test "--stdio carries one port, and the audit log names it" {
	[ "$(printf hello | timeout 10 sandbox forward --stdio web 7001)" = hello ]
	[ "$(printf hello | timeout 10 sandbox forward --stdio web 7002)" = hello ]
	run --separate-stderr timeout 10 sandbox forward --stdio web 7999 </dev/null
	[ "$status" -eq 8 ]
	sandbox audit --json | jq -e '[.[] | select(.action == "stream.dial" and .detail == "port 7001")] | length > 0'
}

@test "it ends with an error when the sandbox does, and never reaches another of that name" {
	sbx_create --name gone >/dev/null
	sandbox forward gone 0:7001 >"$SBX_DIR/gone.out" 2>"$SBX_DIR/gone.err" 3>&- &
	local pid=$! rc=0
	until_ok 10 grep -q 'gone:7001' "$SBX_DIR/gone.out"
	sandbox delete gone >/dev/null
	wait "$pid" || rc=$?
	[ "$rc" -eq 3 ]
	grep -q 'deleted' "$SBX_DIR/gone.err"
}

@test "INT ends it with status 0" {
	sandbox forward web 0:7001 >"$SBX_DIR/int.out" 2>&1 3>&- &
	local pid=$!
	until_ok 10 grep -q 'web:7001' "$SBX_DIR/int.out"
	kill -INT "$pid"
	wait "$pid"
}

@test "over HTTPS it is the same" {
	local port
	port=$(free_port)
	make_ca "$SBX_DIR/ca"
	make_cert "$SBX_DIR/ca" server "DNS:localhost,IP:127.0.0.1"
	sbx_kill TERM
	sbx_daemon --set "daemon.listen=127.0.0.1:$port" --set "daemon.tls_cert=$SBX_DIR/ca/server.pem" --set "daemon.tls_key=$SBX_DIR/ca/server.key"
	SANDBOX_TOKEN=$(cat "$SBX_DIR/state/api-token")
	export SANDBOX_TOKEN SANDBOX_CA_FILE=$SBX_DIR/ca/ca.pem
	export SANDBOX_URL=https://localhost:$port
	timeout 20 sandbox exec web -- true # a command waits until process 1 has found the new daemon; a port is refused until then
	forward remote web 0:7001 0:7005
	[ "$(timeout 60 python3 "$TOP/tests/lib/tcp_servers.py" bulk "$(port_of remote 7001)" 20000000)" = 20000000 ]
	end_forward remote
	[ "$(printf hello | timeout 10 sandbox forward --stdio web 7001)" = hello ]
}
