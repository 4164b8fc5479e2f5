#!/usr/bin/env bats
# Public routes: who gets one, what passes through it byte for byte, what is refused, and when it ends.

load ../lib/helpers
load ../lib/tls

setup_file() {
	need_engine
	EDGE=$(free_port)
	export EDGE
	sbx_start --set "edge.listen=127.0.0.1:$EDGE" --set "edge.per_sandbox=4"
	sbx_create --name one --expose 8080=one >/dev/null
	sbx_create --name two >/dev/null
	sandbox tunnel create two --port 8080 --subdomain two >/dev/null
	origin one 8080 one
	origin two 8080 two
	until_ok 20 answers one
	until_ok 20 answers two
	# Takes its time; its test is the last but some.
	{ raw drip one.localhost && echo ended; } >"$SBX_DIR/drip" 2>&1 3>&- 4>&- &
	DRIP=$!
	export DRIP
}

teardown_file() {
	local pid
	# shellcheck disable=SC2013
	for pid in $(cat "$SBX_DIR"/*.server 2>/dev/null); do
		kill "$pid" 2>/dev/null || true
	done
	sbx_stop
}

# origin SANDBOX PORT NAME: a server of this machine on the sandbox's loopback.
origin() {
	(inside_net "$1" python3 "$TOP/tests/lib/edge_origin.py" "$2" "$3") >/dev/null 2>>"$SBX_DIR/servers.log" </dev/null 3>&- &
	echo $! >"$SBX_DIR/$1-$2.server"
}

visit() {
	local host=$1 path=${2:-/}
	shift 2 || shift
	curl -sS -m 30 --resolve "$host:$EDGE:127.0.0.1" "$@" "http://$host:$EDGE$path"
}

status_of() {
	visit "$1" "${2:-/}" -o /dev/null -w '%{http_code}' "${@:3}"
}

answers() {
	[ "$(visit "$1.localhost" /)" = "$1" ]
}

raw() {
	timeout 150 python3 "$TOP/tests/lib/edge_client.py" "$EDGE" "$@"
}

@test "an exposed port answers under its address, in the shape the original's clients read" {
	sandbox inspect one --json | jq -e --arg url "http://one.localhost:$EDGE" '.tunnels | length == 1 and (.[0] | .container_port == 8080 and .protocol == "http" and
		.subdomain == "one" and .hostname == "one.localhost" and .public_url == $url and .authenticated == false and .state == "active" and .failure == null)'
	sandbox list --json | jq -e '[.[] | .tunnels[].subdomain] | sort == ["one", "two"]'
	sandbox tunnel list two --json | jq -e 'length == 1 and .[0].state == "active"'
	sandbox api /healthz | jq -e '.tunnels == {"enabled":true,"base_domain":"localhost","public_scheme":"http","protocols":["http"],"local_relay_enabled":false,"local_relay_url":null}'
	local made id
	made=$(sandbox tunnel create two --port 9000 --json)
	jq -e '.operation.state == "succeeded" and .operation.kind == "expose" and (.tunnel.subdomain | length == 20)' <<<"$made"
	id=$(jq -r .tunnel.id <<<"$made")
	sandbox wait "$(jq -r .operation.id <<<"$made")"
	sandbox tunnel delete two "$id" --no-wait --json | jq -e '.tunnel.state == "removing" and .operation.state == "succeeded"'
	[ "$(status_of "$(jq -r .tunnel.hostname <<<"$made")")" = 404 ]
}

@test "names, limits and data that are refused" {
	local bad
	for bad in UPPER -dash dash- a.b under_score xn--abc "$(printf 'a%.0s' {1..64})"; do
		run --separate-stderr sandbox tunnel create two --port 1 --subdomain="$bad"
		[ "$status" -eq 2 ] || { echo "$bad: $status $stderr"; false; }
	done
	run --separate-stderr sandbox tunnel create two --port 1 --subdomain one
	[ "$status" -eq 5 ]
	[[ $stderr == *"'one' is taken"* ]]
	sandbox tunnel create two --port 1 >/dev/null
	sandbox tunnel create two --port 2 >/dev/null
	sandbox tunnel create two --port 3 >/dev/null
	run --separate-stderr sandbox tunnel create two --port 4
	[ "$status" -eq 6 ]
	[[ $stderr == *"edge.per_sandbox"* ]]
	for bad in $(sandbox tunnel list two --json | jq -r '.[] | select(.subdomain != "two") | .id'); do
		sandbox tunnel delete two "${bad: -8}"
	done
	sbx_create --name secret --sensitivity confidential >/dev/null
	run --separate-stderr sandbox tunnel create secret --port 80
	[ "$status" -eq 4 ]
	run --separate-stderr sandbox create --image "$IMAGE" --disk-mib 64 --expose 80 --sensitivity restricted
	[ "$status" -eq 4 ]
	sandbox delete secret
	run "$BUILD/sandboxd" --check-config --set daemon.hosts=api.boxes.example --set edge.domain=boxes.example
	[ "$status" -ne 0 ]
	[[ $output == *"a domain of their own"* ]]
}

@test "a chosen name stays with its tenant" {
	sandbox tunnel create two --port 80 --subdomain mine >/dev/null
	sandbox tunnel delete two mine
	run --separate-stderr sandbox --tenant other create -q --image "$IMAGE" --disk-mib 64 --memory-mib 64 --expose 80=mine
	[ "$status" -eq 5 ]
	[[ $stderr == *"'mine' is taken"* ]]
	sandbox tunnel create two --port 80 --subdomain mine >/dev/null
	sandbox tunnel delete two mine
	# Until 30 days after that; then it is anybody's.
	python3 - "$SBX_DIR/state/store.db" <<'PY'
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=30)
(until,), = db.execute("SELECT until_us FROM tunnel_names WHERE label = 'mine'")
days = (until / 1e6 - time.time()) / 86400
assert 29.9 < days <= 30, days
with db:
    db.execute("UPDATE tunnel_names SET until_us = ? WHERE label = 'mine'", (int(time.time() * 1e6) - 1,))
PY
	sandbox --tenant other create -q --image "$IMAGE" --disk-mib 64 --memory-mib 64 --name heir --expose 80=mine >/dev/null
	sandbox --tenant other delete heir >/dev/null
}

@test "a sandbox that failed takes its tunnels with it: failed, and nobody's" {
	local id
	id=$(sbx_create --name frail --expose 8080=frail)
	origin frail 8080 frail
	until_ok 30 answers frail
	docker kill "sandbox-$id" >/dev/null
	until_ok 60 eval 'sandbox inspect frail --json | jq -e ".state == \"failed\" and .tunnels[0].state == \"failed\" and (.tunnels[0].failure | length > 0)"'
	[ "$(status_of frail.localhost)" = 404 ]
	sandbox delete frail >/dev/null
}

@test "a server on either loopback or on all addresses is reached" {
	local at port=8100 name
	for at in 127.0.0.1 ::1 0.0.0.0 ::; do
		port=$((port + 1))
		name=on$port
		(inside_net two python3 -m http.server --bind "$at" --directory "$XDG_RUNTIME_DIR" "$port") >/dev/null 2>&1 </dev/null 3>&- 4>&- &
		echo $! >"$SBX_DIR/$name.server"
		sandbox tunnel create two --port "$port" --subdomain "$name" >/dev/null
		until_ok 30 eval '[ "$(status_of "$name.localhost" 2>/dev/null)" = 200 ]'
		sandbox tunnel delete two "$name"
	done
}

@test "what a visitor says of itself is replaced; what belongs to a connection stays on it" {
	raw forwarded one.localhost 8080
	raw cookies one.localhost
	raw hosts one.localhost
	raw big_head one.localhost
}

@test "requests that two readers could read differently are refused" {
	raw smuggling one.localhost
	raw listed one.localhost 8080
	raw long_line one.localhost
}

@test "each request of a connection goes where its own Host says" {
	raw reroute one.localhost two.localhost
}

@test "event streams come piece by piece, whatever the method or coding" {
	raw sse one.localhost
}

@test "after an upgrade bytes pass untouched, and each end by itself" {
	raw upgraded one.localhost
	raw frames one.localhost
	raw ahead one.localhost
	raw not_asked one.localhost
}

@test "HTTP/1.0, HEAD, chunks, answers without a length, 100-continue" {
	raw old one.localhost
	raw bodies one.localhost
	raw expect one.localhost
}

@test "who visits a new tunnel before its server listens waits for it" {
	local pid
	sandbox tunnel create two --port 7979 --subdomain early >/dev/null
	visit early.localhost / >"$SBX_DIR/early" &
	pid=$!
	sleep 0.5
	origin two 7979 early
	wait "$pid"
	[ "$(cat "$SBX_DIR/early")" = early ]
	sandbox tunnel delete two early
}

@test "an answer that breaks off or lies about its length is told apart" {
	raw broken one.localhost
	raw early one.localhost
	sandbox tunnel create two --port 7777 --subdomain down >/dev/null
	[ "$(status_of down.localhost)" = 502 ]
	sandbox tunnel delete two down
}

@test "large bodies both ways are whole" {
	head -c 60000000 /dev/zero >"$SBX_DIR/big"
	[ "$(visit one.localhost /echo -T "$SBX_DIR/big" -X POST)" = 60000000 ]
	[ "$(visit one.localhost /echo -T - -X POST -H 'Expect:' <<<"chunked upload")" = "chunked upload" ]
	[ "$(visit one.localhost /big/60000000 | wc -c)" = 60000000 ]
	rm "$SBX_DIR/big"
}

@test "visitors show a token before a byte reaches the sandbox" {
	local made token jar=$SBX_DIR/jar
	made=$(sandbox tunnel create one --port 8080 --subdomain tok --auth token --json)
	token=$(jq -r .secret <<<"$made")
	[ "${#token}" -eq 40 ]
	[ "$(status_of tok.localhost)" = 401 ]
	[ "$(status_of tok.localhost / -H 'Authorization: Bearer wrong')" = 401 ]
	[ "$(visit tok.localhost / -H "Authorization: Bearer $token")" = one ]
	visit tok.localhost /dump -H "Authorization: Bearer $token" -H "Cookie: a=b" >"$SBX_DIR/dump"
	! grep -qi "$token\|authorization" "$SBX_DIR/dump" || false
	grep -q "Cookie: a=b" "$SBX_DIR/dump"
	# In a browser: once in the address, then a cookie of this host alone.
	visit tok.localhost "/dump?a=1&sandbox_token=$token&b=2" -c "$jar" -D "$SBX_DIR/head" -o /dev/null
	grep -q '303' "$SBX_DIR/head"
	grep -qi '^location: /dump?a=1&b=2' "$SBX_DIR/head"
	! grep -qi 'domain=' "$SBX_DIR/head" || false
	grep -qi 'HttpOnly' "$SBX_DIR/head"
	local cookie
	cookie=$(sed -n 's/^[Ss]et-[Cc]ookie: \([^;]*\);.*/\1/p' "$SBX_DIR/head")
	visit tok.localhost /dump -H "Cookie: x=y; $cookie; z=1" >"$SBX_DIR/dump"
	grep -q "Cookie: x=y; z=1" "$SBX_DIR/dump"
	# Nobody else's: not for another tunnel, not when a digit differs, not after another secret was made.
	sandbox tunnel create two --port 8080 --subdomain tok2 --auth token >/dev/null
	[ "$(status_of tok2.localhost / -H "Cookie: $cookie")" = 401 ]
	[ "$(status_of tok.localhost / -H "Cookie: ${cookie%?}0")" = 401 ] || [ "$(status_of tok.localhost / -H "Cookie: ${cookie%?}1")" = 401 ]
	sandbox tunnel secret one tok -q >/dev/null
	[ "$(status_of tok.localhost / -H "Cookie: $cookie")" = 401 ]
	[ "$(status_of tok.localhost / -H "Authorization: Bearer $token")" = 401 ]
	sandbox tunnel delete two tok2
	sandbox tunnel delete one tok
	! grep -q "$token" "$SBX_DIR/log" || false
	! sandbox api /v1/events?follow=false\&since=oldest | grep -q "$token" || false
}

@test "a password: Basic, or a form in a browser" {
	local password
	password=$(sandbox tunnel create one --port 8080 --subdomain pw --auth password | sed -n 2p)
	[ "$(status_of pw.localhost)" = 401 ]
	[ "$(visit pw.localhost / -u "anybody:$password")" = one ]
	[ "$(status_of pw.localhost / -u "anybody:wrong")" = 401 ]
	visit pw.localhost '/dump?x=<b>' -g -H 'Accept: text/html' >"$SBX_DIR/form" || true
	visit pw.localhost '/dump?x=1' -H 'Accept: text/html' >"$SBX_DIR/form"
	grep -q 'type=password' "$SBX_DIR/form"
	[ "$(status_of pw.localhost /.sandbox/login -d 'password=wrong&next=/dump')" = 403 ]
	visit pw.localhost /.sandbox/login -d "password=$password&next=/dump?x=1" -D "$SBX_DIR/head" -o /dev/null
	grep -qi '^location: /dump?x=1' "$SBX_DIR/head"
	visit pw.localhost /.sandbox/login -d "password=$password&next=//evil.example/" -D "$SBX_DIR/head" -o /dev/null
	grep -qi '^location: /.$' "$SBX_DIR/head"
	local i
	for ((i = 0; i < 32; i++)); do
		visit pw.localhost / -u "a:$i" -o /dev/null
	done
	[ "$(status_of pw.localhost / -u "a:$password")" = 429 ]
	sandbox tunnel delete one pw
}

@test "exposures with a token tell it once, at the create" {
	local made
	made=$(sandbox api POST /v1/sandboxes -F 'spec={"image":"'"$IMAGE"'","resources":{"disk_mib":64,"memory_mib":64},"exposures":[{"container_port":80,"authenticated":true}]}' 2>/dev/null ||
		echo '{"spec":{"image":"'"$IMAGE"'","resources":{"disk_mib":64,"memory_mib":64},"exposures":[{"container_port":80,"authenticated":true}]}}' | sandbox api POST /v1/sandboxes --input -)
	jq -e '(.secrets | length == 1 and (.[0].secret | length == 40)) and .sandbox.tunnels[0].auth == "token" and .sandbox.tunnels[0].state == "pending"' <<<"$made"
	sandbox delete "$(jq -r .sandbox.id <<<"$made")"
}

@test "half-open connections and slow senders are bounded while others are served" {
	ulimit -n 20000
	raw half_open one.localhost 3000
	until_ok 10 answers one
}

@test "a TLS front is told which names there are" {
	[ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$EDGE/v1/tunnels/authorize?domain=one.localhost")" = 204 ]
	[ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$EDGE/v1/tunnels/authorize?domain=nosuch.localhost")" = 404 ]
	[ "$(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$SBX_DIR/d.sock" "http://x/v1/tunnels/authorize?domain=ONE.localhost")" = 204 ]
	[ "$(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$SBX_DIR/d.sock" "http://x/v1/tunnels/authorize?domain=x.one.localhost")" = 404 ]
}

@test "a tunnel ends with its time, its removal, its sandbox; open connections with it" {
	sandbox tunnel create two --port 8080 --subdomain short --ttl 2s >/dev/null
	[ "$(visit short.localhost)" = two ]
	until_ok 10 eval '[ "$(status_of short.localhost)" = 404 ]'
	sbx_create --name three --expose 8080=three >/dev/null
	origin three 8080 three
	until_ok 20 answers three
	visit three.localhost /big/60000000 --limit-rate 1k --no-buffer >"$SBX_DIR/part" 2>/dev/null &
	local pid=$! rc=0
	until_ok 10 test -s "$SBX_DIR/part"
	sandbox delete three >/dev/null
	[ "$(status_of three.localhost)" = 404 ]
	wait $pid || rc=$?
	echo "the download ended with $rc"
	[ "$rc" -ne 0 ]
	# The name's next owner is another sandbox, and the old one's requests never reached it.
	sbx_create --name four --expose 8080=three >/dev/null
	[ "$(status_of three.localhost)" = 502 ]
	sandbox delete four >/dev/null
}

@test "a thousand WebSockets at once cost the daemon less than 64 MB" {
	ulimit -n 20000
	local before after
	answers one
	before=$(awk '/VmRSS/ {print $2}' "/proc/$(sbx_pid)/status")
	coproc WS { python3 "$TOP/tests/lib/edge_client.py" "$EDGE" websockets one.localhost 1000; }
	local line=
	read -r -t 60 line <&"${WS[0]}"
	[ "$line" = open ]
	after=$(awk '/VmRSS/ {print $2}' "/proc/$(sbx_pid)/status")
	echo "$before -> $after KiB"
	# An instrumented daemon begins with more than that: then what they add.
	[ "$after" -lt 65536 ] || [ "$before" -gt 65536 ]
	[ $((after - before)) -lt 32768 ]
	answers two
	echo >&"${WS[1]}"
	wait "$WS_PID"
}

@test "who sends a head for ever is ended by the clock" {
	until_ok 120 eval '! kill -0 "$DRIP" 2>/dev/null'
	[ "$(cat "$SBX_DIR/drip")" = ended ]
}

@test "killed and started again: exactly the active tunnels answer" {
	sandbox tunnel create one --port 8080 --subdomain removed >/dev/null
	[ "$(visit removed.localhost)" = one ]
	sandbox tunnel delete one removed
	sbx_kill KILL
	sbx_daemon
	until_ok 30 answers one
	until_ok 30 answers two
	[ "$(status_of removed.localhost)" = 404 ]
	[ "$(sandbox tunnel list --json | jq -c '[.[].subdomain] | sort')" = '["one","two"]' ]
}

@test "behind Caddy with the installer's file: a certificate for each tunnel, none for other names" {
	command -v caddy >/dev/null || skip "no caddy"
	local tls front
	tls=$(free_port)
	front=$(free_port)
	sbx_kill TERM
	sbx_daemon --set "edge.listen=127.0.0.1:$EDGE" --set edge.domain=tunnels.localhost --set edge.scheme=https --set "edge.public_port=$tls" \
		--set edge.trusted_proxies=127.0.0.1
	env HOME="$SBX_DIR/caddy" XDG_DATA_HOME="$SBX_DIR/caddy" XDG_CONFIG_HOME="$SBX_DIR/caddy" SANDBOX_DOMAIN="localhost:$tls" SANDBOX_TUNNELS="tunnels.localhost:$tls" \
		SANDBOX_TUNNELS_TLS="issuer internal" SANDBOX_EDGE="127.0.0.1:$EDGE" SANDBOX_HTTP_PORT="$front" caddy run --config "$TOP/installer/Caddyfile" --adapter caddyfile >"$SBX_DIR/caddy.log" 2>&1 3>&- &
	echo $! >"$SBX_DIR/caddy.server"
	[ "$(sandbox tunnel list one --json | jq -r '.[0].public_url')" = "https://one.tunnels.localhost:$tls" ]
	until_ok 30 curl -fsSk -m 5 --resolve "one.tunnels.localhost:$tls:127.0.0.1" -o /dev/null "https://one.tunnels.localhost:$tls/"
	curl -fsSk -m 5 --resolve "one.tunnels.localhost:$tls:127.0.0.1" -H "X-Forwarded-For: 6.6.6.6" "https://one.tunnels.localhost:$tls/dump" >"$SBX_DIR/dump"
	grep -q "X-Forwarded-For: 127.0.0.1" "$SBX_DIR/dump"
	grep -q "X-Forwarded-Proto: https" "$SBX_DIR/dump"
	grep -q "X-Forwarded-Host: one.tunnels.localhost:$tls" "$SBX_DIR/dump"
	[ "$(curl -fsSk -m 5 --resolve "one.tunnels.localhost:$tls:127.0.0.1" "https://one.tunnels.localhost:$tls/big/3000000" | wc -c)" = 3000000 ]
	sandbox doctor --json | jq -e '.checks[] | select(.part == "edge") | .status == "ok" and (.detail | test("certificates asked for by a TLS front: [1-9]"))'
	# No certificate, so no handshake.
	run -35 curl -sk -m 5 --resolve "nosuch.tunnels.localhost:$tls:127.0.0.1" "https://nosuch.tunnels.localhost:$tls/"
}

@test "an agent's tools give a port a public address and take it away" {
	PYTHONPATH=$TOP/tests/lib PYTHONDONTWRITEBYTECODE=1 timeout 30 python3 - <<'PY'
from mcp import *
b = Bridge()
made = b.ok("sandbox_tunnel_create", sandbox_id="two", container_port=8090, subdomain="by-an-agent", auth="token", ttl_seconds=600)
t = made["tunnel"]
check("://by-an-agent." in t["public_url"] and t["state"] == "active" and t["auth"] == "token" and len(made["secret"]) >= 20, made)
check(b.ok("sandbox_tunnel_delete", sandbox_id="two", tunnel_id=t["id"])["tunnel"]["id"] == t["id"])
check(b.error("sandbox_tunnel_delete", sandbox_id="two", tunnel_id=t["id"])["code"] == "not_found")
check(b.error("sandbox_tunnel_create", sandbox_id="two", container_port=80, auth="maybe")["code"] == "invalid_request")
PY
}
