#!/usr/bin/env bats
# The CLI against a server over https: the same verbs, addresses as people spell them, and servers that are something else.

load ../lib/helpers.bash
load ../lib/tls.bash

setup_file() {
	need_engine
	CA=$(mktemp -d "${TMPDIR:-/tmp}/sbxca.XXXXXX")
	make_ca "$CA"
	make_cert "$CA" server DNS:localhost,IP:127.0.0.1
	PORT=$(free_port)
	FAKE=$(free_port)
	export CA PORT FAKE
	sbx_start --set "daemon.listen=127.0.0.1:$PORT" --set "daemon.tls_cert=$CA/server.pem" --set "daemon.tls_key=$CA/server.key"
	export LOCAL_URL=$SANDBOX_URL
	BOX=$(sbx_create -q)
	export BOX
	mkdir "$CA/fake"
	python3 "$TOP/tests/lib/raw_server.py" "$FAKE" "$CA/fake" >"$CA/fake/out" 2>&1 3>&- &
	export FAKE_PID=$!
	until_ok 10 grep -q ready "$CA/fake/out"
}

teardown_file() {
	kill "$FAKE_PID"
	export SANDBOX_URL=$LOCAL_URL
	sbx_stop
	rm -rf "${CA:?}"
}

setup() {
	unset https_proxy http_proxy all_proxy no_proxy HTTPS_PROXY ALL_PROXY NO_PROXY
	export SANDBOX_URL=https://localhost:$PORT SANDBOX_CA_FILE=$CA/ca.pem
	SANDBOX_TOKEN=$(cat "$SBX_DIR/state/api-token")
	export SANDBOX_TOKEN
	rm -f "$CA/fake/requests" "$CA/fake/proxy"
}

# fake STATUS-LINE [BODY] [HEADER]...: what the fake server answers.
fake() {
	local status=$1 body=${2:-}
	shift
	shift || true
	{
		printf 'HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n' "$status" "${#body}"
		[ $# -eq 0 ] || printf '%s\r\n' "$@"
		printf '\r\n%s' "$body"
	} >"$CA/fake/answer"
}

@test "the verbs work over https as they do on the socket" {
	[ "$(sandbox list -q)" = "$BOX" ]
	[ "$(sandbox inspect "$BOX" --json | jq -r .id)" = "$BOX" ]
	local id
	id=$(sbx_create -q --name remote-one)
	run -0 sandbox exec remote-one -- echo hello
	[ "$output" = hello ]
	run -0 sandbox delete "$id" --wait
	[ "$(sandbox inspect "$id" --json | jq -r .state)" = stopped ]
	run -3 --separate-stderr sandbox run --image "$IMAGE" --disk-mib 64 --memory-mib 256 -- sh -c 'echo ran; exit 3'
	[ "$output" = ran ]
}

@test "exec: input, output, status, signals, large data" {
	head -c 5000000 /dev/urandom >"$BATS_TEST_TMPDIR/data"
	[ "$(sandbox exec "$BOX" -- cat <"$BATS_TEST_TMPDIR/data" | sha256sum)" = "$(sha256sum <"$BATS_TEST_TMPDIR/data")" ]
	run -7 --separate-stderr sandbox exec "$BOX" -- sh -c 'echo out; echo err >&2; exit 7'
	[ "$output" = out ]
	[ "$stderr" = err ]
	run -137 sandbox exec "$BOX" -- sh -c 'kill -9 $$'
	run -127 sandbox exec "$BOX" -- no-such-program
	run -125 sandbox exec no-such-box -- true
	run -0 bash -c 'sandbox exec "$BOX" -- yes | head -n 1'
	[ "$output" = y ]
	sandbox exec "$BOX" -- sh -c 'trap "echo caught; exit 5" TERM; echo up; while :; do sleep 0.1; done' >"$BATS_TEST_TMPDIR/out" 2>&1 &
	local pid=$! rc=0
	until_ok 10 grep -q up "$BATS_TEST_TMPDIR/out"
	kill -TERM "$pid"
	wait "$pid" || rc=$?
	[ "$rc" -eq 5 ]
	grep -q caught "$BATS_TEST_TMPDIR/out"
}

@test "cp, detached commands, attach, logs and a terminal" {
	mkdir -p "$BATS_TEST_TMPDIR/tree/sub"
	head -c 300000 /dev/urandom >"$BATS_TEST_TMPDIR/tree/sub/file"
	sandbox cp "$BATS_TEST_TMPDIR/tree" "$BOX:/tmp/"
	sandbox cp "$BOX:/tmp/tree" "$BATS_TEST_TMPDIR/back"
	diff -r "$BATS_TEST_TMPDIR/tree" "$BATS_TEST_TMPDIR/back"
	local op
	op=$(sandbox exec -d "$BOX" -- sh -c 'for i in 1 2 3; do echo $i; sleep 0.1; done')
	run -0 --separate-stderr sandbox attach "$op"
	[ "$output" = $'1\n2\n3' ]
	run -0 --separate-stderr sandbox logs "$op"
	[ "$output" = $'1\n2\n3' ]
	run -0 timeout 20 script -qec "sandbox exec -t $BOX -- sh -c 'test -t 0 && echo terminal'" /dev/null
	[[ "$output" == *terminal* ]]
}

@test "a broken connection is resumed without losing a byte" {
	local via=$CA/relay.log port
	port=$(free_port)
	socat "TCP-LISTEN:$port,fork,reuseaddr,bind=127.0.0.1" "TCP:127.0.0.1:$PORT" 2>"$via" 3>&- &
	local relay=$!
	up() { (exec 9<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
	until_ok 10 up
	SANDBOX_URL=https://localhost:$port sandbox exec "$BOX" -- sh -c 'i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); sleep 0.1; done' >"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/err" &
	local pid=$!
	until_ok 10 grep -q 'line 5' "$BATS_TEST_TMPDIR/out"
	pkill -P "$relay"
	wait "$pid"
	kill "$relay"
	diff <(seq -f 'line %g' 0 29) "$BATS_TEST_TMPDIR/out"
}

@test "addresses are taken as people spell them, or refused with the reason" {
	local url
	for url in "https://localhost:$PORT" "https://localhost:$PORT/" "HTTPS://LOCALHOST:$PORT//" "https://127.0.0.1:$PORT"; do
		[ "$(sandbox --server "$url" list -q)" = "$BOX" ]
	done
	refused() {
		run -2 --separate-stderr sandbox --server "$1" list
		[ -z "$output" ]
		[[ "$stderr" == *"$2"* ]] || { echo "$1: $stderr"; return 1; }
	}
	refused 'https://h?x' query
	refused 'https://h#x' fragment
	refused ' https://h ' blank
	[ "$(sandbox --server "localhost:$PORT" list -q)" = "$BOX" ]
	refused https://h:99999 65535
	refused https://é.example xn--
	refused https:// host
	refused 'https://user:secret@h' password
	[[ "$stderr" != *secret* ]]
	run -4 --separate-stderr sandbox --server http://sandbox.example list
	[[ "$stderr" == *"no TLS"*--insecure-http* ]]
	SANDBOX_TOKEN='' run -8 sandbox --server "http://[::1]:1" list
}

@test "a path prefix is kept in front of every call" {
	fake '200 OK' '{"sandboxes":[]}' 'Content-Type: application/json'
	sandbox --server "http://127.0.0.1:$FAKE/pre/fix/" list
	grep -q '^GET /pre/fix/v1/sandboxes' "$CA/fake/requests"
	SANDBOX_URL=http://127.0.0.1:$FAKE/pre run -125 sandbox exec "$BOX" -- true
	grep -q '^GET /pre/v1/mux ' "$CA/fake/requests"
	grep -qi '^Upgrade: websocket' "$CA/fake/requests"
}

@test "wrong tokens, certificates and authorities are told apart" {
	SANDBOX_TOKEN=sbx_wrong run -4 sandbox list
	SANDBOX_TOKEN='' run -4 sandbox list
	SANDBOX_TOKEN=sbx_wrong run -125 sandbox exec "$BOX" -- true
	[[ "$output" == *token* ]]
	SANDBOX_CA_FILE='' run -8 sandbox list
	[[ "$output" == *certificate*--ca-file* ]]
	make_ca "$CA/foreign"
	run -8 sandbox --ca-file "$CA/foreign/ca.pem" list
	[[ "$output" == *certificate* ]]
	run -8 sandbox --server "https://127.0.0.2:$PORT" list
	run -2 sandbox --ca-file "$CA/none.pem" list
	[[ "$output" == *none.pem* ]]
	SANDBOX_TOKEN=$'sbx_x\ny' run -2 sandbox list
	SANDBOX_TOKEN='' run -0 sandbox login --token-stdin <"$SBX_DIR/state/api-token"
	[ "$(SANDBOX_TOKEN='' sandbox list -q)" = "$BOX" ]
}

@test "answers that are not this API are named, with --json as an object" {
	local url=http://127.0.0.1:$FAKE
	fake '502 Bad Gateway' '<html>no</html>' 'Content-Type: text/html'
	run -1 --separate-stderr sandbox --server "$url" list
	[[ "$stderr" == *"answered 502 Bad Gateway with HTML: it is not the sandbox API"* ]]
	[[ "$stderr" != *'<html>'* ]]
	run -1 --separate-stderr sandbox --server "$url" list --json
	jq -e '.error.code and .error.message' <<<"$output"
	run -125 sandbox --server "$url" exec "$BOX" -- true
	[[ "$output" == *502*HTML* ]]
	fake '502 Bad Gateway'
	run -1 sandbox --server "$url" list
	[[ "$output" == *502*"without a body"* ]]
	fake '200 OK' '<html>log in</html>' 'Content-Type: text/html'
	run -1 sandbox --server "$url" list
	[[ "$output" == *HTML* ]]
	fake '200 OK' '{"sandboxes":['
	run -1 sandbox --server "$url" list
	printf 'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"sandboxes":[' >"$CA/fake/answer"
	run -1 sandbox --server "$url" list
	fake '204 No Content'
	run -1 sandbox --server "$url" list
	printf 'SSH-2.0-OpenSSH\r\n' >"$CA/fake/answer"
	run -1 sandbox --server "$url" list
	[[ "$output" == *HTTP* ]]
}

@test "no credential follows a redirect, neither of requests nor of streams" {
	local url=http://127.0.0.1:$FAKE
	for code in '301 Moved Permanently' '302 Found' '307 Temporary Redirect'; do
		fake "$code" '' "Location: https://localhost:$PORT/v1/sandboxes"
		run -1 sandbox --server "$url" list
		[[ "$output" == *"redirects to https://localhost:$PORT"* ]]
	done
	run -125 sandbox --server "$url" exec "$BOX" -- true
	[[ "$output" == *redirects* ]]
}

@test "proxies are those of libcurl, for requests and streams, never for loopback" {
	export https_proxy=http://127.0.0.1:$FAKE
	sandbox list -q >/dev/null
	[ ! -e "$CA/fake/requests" ]
	# A name that is not loopback: only the proxy knows the way.
	make_cert "$CA" named DNS:sandbox.invalid
	local port
	port=$(free_port)
	sandboxd --set "daemon.state_dir=$BATS_TEST_TMPDIR/state" --set "daemon.socket=$BATS_TEST_TMPDIR/d.sock" --set "worker.docker_socket=$DOCKER_SOCKET" \
		--set "daemon.init_path=$BUILD/sandbox-init" --set "daemon.listen=127.0.0.1:$port" --set "daemon.tls_cert=$CA/named.pem" \
		--set "daemon.tls_key=$CA/named.key" >"$BATS_TEST_TMPDIR/log" 2>&1 3>&- &
	local pid=$! rc=0
	until_ok 20 grep -q 'serving https' "$BATS_TEST_TMPDIR/log"
	SANDBOX_TOKEN=$(cat "$BATS_TEST_TMPDIR/state/api-token")
	{
		sandbox --server "https://sandbox.invalid:$port" list -q && grep -q "^CONNECT sandbox.invalid:$port" "$CA/fake/requests" &&
			! grep -q Authorization "$CA/fake/requests" && rm "$CA/fake/requests" || rc=1
		run -125 sandbox --server "https://sandbox.invalid:$port" exec none -- true
		[[ "$output" == *none* ]] && grep -q "^CONNECT sandbox.invalid:$port" "$CA/fake/requests"
	} || rc=1
	printf 'HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n' >"$CA/fake/proxy"
	run sandbox --server "https://sandbox.invalid:$port" list
	kill "$pid"
	wait "$pid" || true
	[ "$rc" -eq 0 ]
	[ "$status" -eq 8 ]
	[[ "$output" == *proxy*407* ]]
	no_proxy=sandbox.invalid run -8 sandbox --server "https://sandbox.invalid:$port" list
	[[ "$output" == *"resolve host: sandbox.invalid"* ]]
}

@test "the local path loads none of it" {
	run -0 bash -c 'strace -f -e trace=openat -o "$1" sandbox --server "$2" list -q; grep -cE "libcurl|libssl|sandbox-remote" "$1" || true' _ "$BATS_TEST_TMPDIR/trace" "$LOCAL_URL"
	[ "${lines[-1]}" = 0 ]
}
