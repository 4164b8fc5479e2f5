#!/usr/bin/env bats
# The API beyond the unix socket: TLS, WebSocket streams, Host names, client addresses, a reverse proxy in front.

load ../lib/helpers.bash
load ../lib/tls.bash

setup_file() {
	need_engine
	CA=$(mktemp -d "${TMPDIR:-/tmp}/sbxca.XXXXXX")
	make_ca "$CA"
	make_cert "$CA" server DNS:localhost,IP:127.0.0.1
	PORT=$(free_port)
	export CA PORT
	sbx_start --set "daemon.listen=127.0.0.1:$PORT" --set "daemon.tls_cert=$CA/server.pem" --set "daemon.tls_key=$CA/server.key"
	TOKEN=$(cat "$SBX_DIR/state/api-token")
	BOX=$(sbx_create -q)
	export TOKEN BOX
}

teardown_file() {
	sbx_stop
	rm -rf "${CA:?}"
}

# api PATH [curl arguments]: over https with the token.
api() {
	local path=$1
	shift
	curl -sS --max-time 20 --cacert "$CA/ca.pem" -H "Authorization: Bearer $TOKEN" "$@" "https://localhost:$PORT$path"
}

ws() {
	timeout 30 python3 "$TOP/tests/lib/ws.py" "https://localhost:$PORT" "$TOKEN" "$CA/ca.pem" "$@"
}

@test "requests over TLS answer as on the socket, a token is always needed" {
	[ "$(api /v1/sandboxes/"$BOX" | jq -r .id)" = "$BOX" ]
	run -0 curl -sS --max-time 20 --cacert "$CA/ca.pem" -w ' %{http_code}' "https://localhost:$PORT/v1/sandboxes"
	[[ "$output" == *unauthorized*401 ]]
	run -0 curl -sS --max-time 20 --cacert "$CA/ca.pem" -H "Authorization: Bearer sbx_wrong" -w ' %{http_code}' "https://localhost:$PORT/v1/sandboxes"
	[[ "$output" == *unauthorized*401 ]]
	run -0 curl -sS --max-time 20 --cacert "$CA/ca.pem" "https://127.0.0.1:$PORT/healthz"
	run -60 curl -sS --max-time 20 "https://localhost:$PORT/healthz"
}

@test "bodies of several pieces cross both ways, on one connection" {
	{ printf '{"command":{"argv":["true"],"pad":"'; head -c 1500000 /dev/zero | tr '\0' x; printf '"}}'; } >"$BATS_TEST_TMPDIR/body"
	run -0 api "/v1/sandboxes/$BOX/exec" -H 'Content-Type: application/json' -d "@$BATS_TEST_TMPDIR/body" -w ' %{http_code}'
	[[ "$output" == *invalid_request*pad*400 ]]
	run -0 curl -sS --max-time 20 --cacert "$CA/ca.pem" -w '%{num_connects} ' -o /dev/null -o /dev/null "https://localhost:$PORT/healthz" "https://localhost:$PORT/readyz"
	[ "$output" = "1 0 " ]
}

@test "old TLS, plain HTTP and silence on the port are refused and leave nothing behind" {
	local before
	before=$(daemon_fds)
	run curl -sS --max-time 10 --cacert "$CA/ca.pem" --tls-max 1.1 --ciphers DEFAULT@SECLEVEL=0 "https://localhost:$PORT/healthz"
	[ "$status" -eq 35 ]
	run curl -sS --max-time 10 "http://localhost:$PORT/healthz"
	[ "$status" -ne 0 ]
	run -0 curl -sS --max-time 10 --cacert "$CA/ca.pem" --tlsv1.2 --tls-max 1.2 "https://localhost:$PORT/healthz"
	run -0 timeout 20 python3 - "$PORT" <<'PY'
import socket, sys, time
s = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(50)]
t = time.time()
s[0].settimeout(15)
assert s[0].recv(1) == b"" and time.time() - t < 14
PY
	fds_back() { [ "$(daemon_fds)" -le "$before" ]; }
	until_ok 15 fds_back
}

@test "a command runs over WebSocket: output, status, refusal" {
	run -3 --separate-stderr ws exec "$BOX" sh -c 'echo out; echo err >&2; exit 3'
	[ "$output" = out ]
	[ "$stderr" = err ]
	[ "$(ws exec "$BOX" head -c 3000000 /dev/zero | wc -c)" -eq 3000000 ]
	run ws exec no-such-box true
	[ "$status" -ne 0 ]
	[[ "$output" == *no-such-box* ]]
}

@test "WebSocket rules are kept: masks, binary only, subprotocol, version, key, no browsers" {
	[ "$(ws unmasked)" = "closed 1002" ]
	[ "$(ws text)" = "closed 1003" ]
	[ "$(ws noprotocol || true)" = "status 400" ]
	[ "$(ws badkey || true)" = "status 400" ]
	[ "$(ws version || true)" = "status 400" ]
	[ "$(ws origin || true)" = "status 403" ]
	[ "$(ws junk)" = "closed 1001" ]
}

@test "messages may be split and pings may come between" {
	[ "$(ws split)" = "hello back" ]
	[ "$(ws ping)" = "closed 1000 pongs 1" ]
}

@test "a certificate is replaced by SIGHUP, a broken one is not taken" {
	local old new
	old=$(shown_serial "localhost:$PORT" "$CA/ca.pem")
	make_cert "$CA" server DNS:localhost,IP:127.0.0.1
	kill -HUP "$(sbx_pid)"
	changed() { new=$(shown_serial "localhost:$PORT" "$CA/ca.pem") && [ "$new" != "$old" ]; }
	until_ok 10 changed
	old=$new
	cp "$CA/server.pem" "$CA/keep.pem"
	echo broken >"$CA/server.pem"
	kill -HUP "$(sbx_pid)"
	said() { grep -q 'not reloaded.*server.pem' "$SBX_DIR/log"; }
	until_ok 10 said
	[ "$(shown_serial "localhost:$PORT" "$CA/ca.pem")" = "$old" ]
	mv "$CA/keep.pem" "$CA/server.pem"
	api /v1/sandboxes >/dev/null
}

@test "listening beyond loopback wants a certificate or the explicit flag; unusable ones are named" {
	local dir=$BATS_TEST_TMPDIR/other
	other() { run timeout 20 sandboxd --set "daemon.state_dir=$dir" --set "daemon.socket=$dir.sock" --set "worker.docker_socket=$DOCKER_SOCKET" "$@"; }
	other --check-config --set daemon.listen=0.0.0.0:1
	[ "$status" -eq 2 ]
	[[ "$output" == *tls_cert*insecure_http* ]]
	other --check-config --set daemon.listen=0.0.0.0:1 --set daemon.insecure_http=true
	[ "$status" -eq 0 ]
	other --check-config --set daemon.listen=0.0.0.0:1 --set daemon.tls_cert=/x
	[ "$status" -eq 2 ]
	[[ "$output" == *tls_key* ]]
	other --check-config --set daemon.trusted_proxies=10.0.0.0/33
	[ "$status" -eq 2 ]
	make_cert "$CA" foreign DNS:localhost
	other --set daemon.listen=127.0.0.1:0 --set "daemon.tls_cert=$CA/server.pem" --set "daemon.tls_key=$CA/foreign.key"
	[ "$status" -ne 0 ]
	[[ "$output" == *foreign.key*"does not belong"* ]]
	other --set daemon.listen=127.0.0.1:0 --set "daemon.tls_cert=$CA/none.pem" --set "daemon.tls_key=$CA/foreign.key"
	[ "$status" -ne 0 ]
	[[ "$output" == *none.pem* ]]
}

@test "behind Caddy: its own authority, WebSocket, the client's address, and names it was told" {
	command -v caddy >/dev/null || skip "no caddy"
	local dir=$BATS_TEST_TMPDIR/caddy up front pid daemon_pid
	up=$(free_port)
	front=$(free_port)
	mkdir -p "$dir"
	sandboxd --set "daemon.state_dir=$dir/state" --set "daemon.socket=$dir/d.sock" --set "worker.docker_socket=$DOCKER_SOCKET" --set worker.gvisor_runtime= \
		--set "daemon.init_path=$BUILD/sandbox-init" --set daemon.log_level=debug --set "daemon.listen=127.0.0.1:$up" \
		--set daemon.hosts=localhost --set daemon.trusted_proxies=127.0.0.1 >"$dir/log" 2>&1 3>&- &
	daemon_pid=$!
	HOME=$dir XDG_DATA_HOME=$dir XDG_CONFIG_HOME=$dir SANDBOX_DOMAIN="https://localhost:$front" SANDBOX_UPSTREAM="127.0.0.1:$up" SANDBOX_TUNNELS="tunnels.localhost:$front" SANDBOX_HTTP_PORT="$(free_port)" \
		caddy run --config "$TOP/installer/Caddyfile" --adapter caddyfile >"$dir/caddy.log" 2>&1 3>&- &
	pid=$!
	local root=$dir/caddy/pki/authorities/local/root.crt ok=0
	get() { curl -sS --max-time 5 --cacert "$root" "$@" "https://localhost:$front/v1/sandboxes"; }
	ready() { curl -fsS --max-time 5 --cacert "$root" -o /dev/null "https://localhost:$front/readyz" 2>/dev/null; }
	{
		until_ok 30 ready &&
			get -H "Authorization: Bearer $(cat "$dir/state/api-token")" -H 'X-Forwarded-For: 203.0.113.7' | jq -e '.sandboxes == []' &&
			grep -q 'GET list.*status=200.*from=127.0.0.1' "$dir/log" &&
			curl -sS --max-time 5 -H "Authorization: Bearer $(cat "$dir/state/api-token")" -H 'X-Forwarded-For: 203.0.113.7, 198.51.100.9' \
				"http://127.0.0.1:$up/v1/sandboxes" | jq -e '.sandboxes == []' &&
			grep -q 'GET list.*status=200.*from=198.51.100.9' "$dir/log" &&
			curl -sS --max-time 5 -H 'Host: evil.example' "http://127.0.0.1:$up/v1/sandboxes" | jq -e '.code == "forbidden"' &&
			[ "$(timeout 20 python3 "$TOP/tests/lib/ws.py" "https://localhost:$front" "$(cat "$dir/state/api-token")" "$root" split)" = "hello back" ] &&
			ok=1
	} || true
	kill "$pid" "$daemon_pid"
	wait "$pid" "$daemon_pid" || true
	[ "$ok" -eq 1 ] || { tail -n 20 "$dir/caddy.log" "$dir/log"; false; }
}
