#!/usr/bin/env bats
# A port of the user's machine under a public name: off unless enabled, bounded, reconnecting, gone with its command.

load ../lib/helpers
load ../lib/tls

setup_file() {
	EDGE=$(free_port)
	PORT=$(free_port)
	export EDGE PORT
	export SANDBOX_TEST_RUNTIME=fake
	sbx_start --set "edge.listen=127.0.0.1:$EDGE" --set edge.share=true --set edge.share_per_client=2
	python3 "$TOP/tests/lib/edge_origin.py" "$PORT" mine >/dev/null 2>>"$SBX_DIR/servers.log" </dev/null 3>&- &
	echo $! >"$SBX_DIR/origin.server"
	until_ok 10 curl -s -o /dev/null "http://127.0.0.1:$PORT/"
}

teardown_file() {
	local pid
	# shellcheck disable=SC2013
	for pid in $(cat "$SBX_DIR"/*.server "$SBX_DIR"/*.share 2>/dev/null); do
		kill "$pid" 2>/dev/null || true
	done
	sbx_stop
}

# share NAME ARGUMENT…: in the background until it has an address.
share() {
	local name=$1
	shift
	sandbox http "$@" >"$SBX_DIR/$name.out" 2>"$SBX_DIR/$name.err" </dev/null 3>&- &
	echo $! >"$SBX_DIR/$name.share"
	until_ok 10 grep -q http:// "$SBX_DIR/$name.out"
}

end_share() {
	local pid
	pid=$(cat "$SBX_DIR/$1.share")
	kill -INT "$pid"
	until_ok 10 eval '! kill -0 '"$pid"' 2>/dev/null'
	rm "$SBX_DIR/$1.share"
}

raw() {
	timeout 60 python3 "$TOP/tests/lib/edge_client.py" "$EDGE" "$@"
}

visit() {
	curl -sS -m 10 --resolve "$1:$EDGE:127.0.0.1" "${@:3}" "http://$1:$EDGE$2"
}

@test "the port answers under its address; upgrades, events and bodies pass" {
	share a "$PORT" --subdomain mine
	[ "$(cat "$SBX_DIR/a.out")" = "http://mine.localhost:$EDGE" ]
	grep -q 'anybody with this address' "$SBX_DIR/a.err"
	[ "$(visit mine.localhost /)" = mine ]
	raw upgraded mine.localhost
	raw sse mine.localhost
	raw bodies mine.localhost
	raw broken mine.localhost
	[ "$(visit mine.localhost /big/30000000 | wc -c)" = 30000000 ]
	visit mine.localhost /dump | grep -q "Host: localhost:$PORT"
	sandbox api /healthz | jq -e '.tunnels.local_relay_enabled'
	end_share a
	[ "$(visit mine.localhost / -o /dev/null -w '%{http_code}')" = 404 ]
}

@test "a server on ::1 alone is reached" {
	local port host
	port=$(free_port)
	python3 -m http.server --bind ::1 --directory "$XDG_RUNTIME_DIR" "$port" >/dev/null 2>&1 </dev/null 3>&- &
	echo $! >"$SBX_DIR/six.server"
	share six "$port"
	host=$(sed 's|http://||; s|:.*||' "$SBX_DIR/six.out")
	until_ok 30 eval '[ "$(visit '"$host"' / -o /dev/null -w "%{http_code}")" = 200 ]'
	end_share six
}

@test "the public name is kept where that is asked" {
	share k "$PORT" --host-header keep
	local host
	host=$(sed 's|http://||; s|:.*||' "$SBX_DIR/k.out")
	[ "${#host}" -eq 30 ]
	visit "$host" /dump | grep -q "Host: $host:$EDGE"
	end_share k
}

@test "a killed daemon is found again, under the same address" {
	share r "$PORT"
	local host
	host=$(sed 's|http://||; s|:.*||' "$SBX_DIR/r.out")
	[ "$(visit "$host" /)" = mine ]
	sbx_kill KILL
	sbx_daemon
	until_ok 20 eval '[ "$(visit '"$host"' / 2>/dev/null)" = mine ]'
	grep -q 'connected again' "$SBX_DIR/r.err"
	end_share r
}

@test "limits: so many of one caller, no taken name, a hard end; a port that is down is told" {
	share one "$PORT" --subdomain first
	share two "$(free_port)"
	local host
	host=$(sed 's|http://||; s|:.*||' "$SBX_DIR/two.out")
	[ "$(visit "$host" / -o /dev/null -w '%{http_code}')" = 502 ]
	grep -q 'nothing listens on port' "$SBX_DIR/two.err"
	run --separate-stderr timeout 10 sandbox http "$PORT"
	[ "$status" -eq 6 ]
	[[ $stderr == *"edge.share_per_client"* ]]
	run --separate-stderr timeout 10 sandbox create --image x --disk-mib 64 --memory-mib 64 --expose 80=first
	[ "$status" -eq 5 ]
	[[ $stderr == *"'first' is taken"* ]]
	run --separate-stderr timeout 10 sandbox http 0
	[ "$status" -eq 2 ]
	end_share two
	# The same caller's next one of that name takes it over.
	local pid=$(cat "$SBX_DIR/one.share") rc=0
	share three "$PORT" --subdomain first
	wait "$pid" || rc=$?
	[ "$rc" -eq 5 ]
	[ "$(visit first.localhost /)" = mine ]
	end_share three
	sbx_kill TERM
	sbx_daemon --set "edge.listen=127.0.0.1:$EDGE" --set edge.share=true --set edge.share_ttl=2s
	share short "$PORT"
	pid=$(cat "$SBX_DIR/short.share") rc=0
	wait "$pid" || rc=$?
	[ "$rc" -eq 3 ]
	grep -q 'edge.share_ttl' "$SBX_DIR/short.err"
}

@test "a connection made again gets no more time than was left" {
	sbx_kill TERM
	sbx_daemon --set "edge.listen=127.0.0.1:$EDGE" --set edge.share=true --set edge.share_ttl=5s
	share again "$PORT"
	sbx_kill KILL
	sleep 5.2
	sbx_daemon --set "edge.listen=127.0.0.1:$EDGE" --set edge.share=true --set edge.share_ttl=1h
	local pid=$(cat "$SBX_DIR/again.share") rc=0
	wait "$pid" || rc=$?
	[ "$rc" -eq 3 ]
	grep -q 'edge.share_ttl' "$SBX_DIR/again.err"
}

@test "off unless the server enables it" {
	sbx_kill TERM
	sbx_daemon --set "edge.listen=127.0.0.1:$EDGE"
	run --separate-stderr timeout 10 sandbox http "$PORT"
	[ "$status" -eq 8 ]
	[[ $stderr == *"edge.share is not set"* ]]
}
