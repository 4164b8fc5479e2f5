#!/usr/bin/env bats
# Connections on which nothing is said for twenty minutes, by the clock: tunnels' WebSockets and event streams, directly and behind Caddy,
# forwards, and a command whose connection a front would cut after a minute. They go on as if nothing had been.

load ../lib/helpers
load ../lib/tls

QUIET=${SANDBOX_TEST_QUIET_SECONDS:-1200}
export QUIET

setup_file() {
	need_engine
	EDGE=$(free_port)
	API=$(free_port)
	FRONT=$(free_port)
	export EDGE API FRONT
	sbx_start --set "edge.listen=127.0.0.1:$EDGE" --set edge.trusted_proxies=127.0.0.1 --set edge.share=true --set "daemon.listen=127.0.0.1:$API" --set "daemon.hosts=127.0.0.1"
	sbx_create --name quiet --expose 8080=quiet --ttl 3h >/dev/null
	(inside_net quiet python3 "$TOP/tests/lib/edge_origin.py" 8080 quiet) >/dev/null 2>>"$SBX_DIR/servers.log" </dev/null 3>&- &
	echo $! >"$SBX_DIR/origin.server"
	until_ok 60 eval '[ "$(curl -sS -m 20 --resolve "quiet.localhost:$EDGE:127.0.0.1" "http://quiet.localhost:$EDGE/")" = quiet ]'
}

teardown_file() {
	local pid
	# shellcheck disable=SC2013
	for pid in $(cat "$SBX_DIR"/*.server 2>/dev/null); do
		kill "$pid" 2>/dev/null || true
	done
	sbx_stop
}

# caddy_start TLS_PORT: the tunnels' domain over https.
caddy_start() {
	printf '{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n}\nhttps://*.localhost:%s {\n\ttls internal\n\treverse_proxy 127.0.0.1:%s {\n\t\tflush_interval -1\n\t}\n}\n' \
		"$1" "$EDGE" >"$SBX_DIR/Caddyfile"
	env HOME="$SBX_DIR/caddy" XDG_DATA_HOME="$SBX_DIR/caddy" XDG_CONFIG_HOME="$SBX_DIR/caddy" caddy run --config "$SBX_DIR/Caddyfile" --adapter caddyfile >"$SBX_DIR/caddy.log" 2>&1 3>&- &
	echo $! >"$SBX_DIR/caddy.server"
	until_ok 60 curl -fsSk -m 5 --resolve "quiet.localhost:$1:127.0.0.1" -o /dev/null "https://quiet.localhost:$1/"
}

# What was said before and after the silence, by a command whose connection leads through a front that cuts silent ones.
command_idles() {
	python3 "$TOP/tests/lib/idle.py" front "$FRONT" "$API" 60 3>&- &
	echo $! >"$SBX_DIR/front.server"
	until_ok 20 curl -s -m 5 -o /dev/null "http://127.0.0.1:$FRONT/healthz"
	{
		echo before
		sleep "$QUIET"
		echo after
	} | SANDBOX_TOKEN=$(cat "$SBX_DIR/state/api-token") SANDBOX_URL="http://127.0.0.1:$FRONT" timeout $((QUIET + 120)) sandbox exec quiet -- cat
}

@test "tunnels, forwards and commands outlive their silence" {
	command -v caddy >/dev/null || skip "no caddy"
	local tls forwarded host
	tls=$(free_port)
	caddy_start "$tls"
	sandbox forward -d --json quiet 0:8080 >"$SBX_DIR/forward.json" 3>&-
	jq -r .pid "$SBX_DIR/forward.json" >"$SBX_DIR/forward.server"
	forwarded=$(jq -r '.forwards[0].local_port' "$SBX_DIR/forward.json")
	sandbox http "$forwarded" >"$SBX_DIR/share.out" 2>"$SBX_DIR/share.err" </dev/null 3>&- &
	echo $! >"$SBX_DIR/share.server"
	until_ok 30 grep -q http:// "$SBX_DIR/share.out"
	host=$(sed 's|http://||' "$SBX_DIR/share.out")
	command_idles >"$SBX_DIR/said" &
	local pid=$!
	timeout $((QUIET + 300)) python3 "$TOP/tests/lib/idle.py" "$QUIET" "websocket@127.0.0.1:$EDGE/quiet.localhost:$EDGE" "sse@127.0.0.1:$EDGE/quiet.localhost:$EDGE" \
		"wss@127.0.0.1:$tls/quiet.localhost:$tls" "ssse@127.0.0.1:$tls/quiet.localhost:$tls" "raw@127.0.0.1:$forwarded" "websocket@127.0.0.1:$EDGE/$host"
	wait "$pid"
	[ "$(cat "$SBX_DIR/said")" = before$'\n'after ]
}
