#!/usr/bin/env bats
# Restricted egress: real programs reach what rules allow, through the proxy they find in their environment, and nothing else gets out.
# The Internet is played by servers on a loopback address that the test's daemon opens.

load ../lib/helpers.bash
load ../lib/tls.bash
load ../lib/tools_image.bash
load ../lib/egress_world.bash

setup_file() {
	egress_setup
}

teardown_file() {
	egress_teardown
}

# What the proxy answers to these bytes.
says() {
	printf '%b' "$1" | timeout 20 sandbox exec "$BOX" -- nc -w 5 127.0.0.1 61080
}

@test "curl over http and https, as it is" {
	run -0 inside curl -fsS http://ok.test/hello
	[ "$output" = hello-from-origin ]
	run -0 inside curl -fsS --cacert /ca.pem https://ok.test/hello
	[ "$output" = hello-from-origin ]
	run -0 inside curl -fsS --cacert /ca.pem https://www.deep.test/hello
	[ "$output" = hello-from-origin ]
	grep -q '^443 ok.test ok.test GET /hello$' "$W/requests"
	grep -q '^80 - ok.test GET /hello$' "$W/requests"
}

@test "git clones" {
	run -0 inside sh -c 'rm -rf r && GIT_SSL_CAINFO=/ca.pem git clone -q --template= https://git.test/repo.git r && git -C r log --format=%s'
	[ "${lines[-1]}" = first ]
}

@test "pip downloads" {
	run -0 inside python3 /pip.whl/pip -q --cert /ca.pem --disable-pip-version-check --no-cache-dir download --no-deps -i https://pypi.test/simple sandboxdemo
	inside test -f /tmp/sandboxdemo-1.0-py3-none-any.whl
}

@test "apt, where the root is writable; a read-only one is said to be the reason" {
	[ -x /usr/bin/apt-get ] || skip "no apt on this machine"
	local box
	box=$(sandbox create -q --image "$TOOLS" --disk-mib 64 --memory-mib 256 --network restricted --allow apt.test:80 --writable-root)
	run -0 timeout 100 sandbox exec "$box" -- sh -c 'apt-get -q update && cd /tmp && apt-get -q download demo && ls /tmp/demo_1.0_all.deb'
	[ "${lines[-1]}" = /tmp/demo_1.0_all.deb ]
	sandbox delete "$box" >/dev/null
	box=$(sandbox create -q --image "$TOOLS" --disk-mib 64 --memory-mib 256 --network restricted --allow apt.test:80)
	run --separate-stderr timeout 100 sandbox exec "$box" -- apt-get -q update
	[ "$status" -ne 0 ]
	[[ $stderr == *"Read-only file system"* ]]
	[[ $stderr == *"--writable-root"* ]]
	run --separate-stderr timeout 100 sandbox exec "$box" -- false
	[ -z "$stderr" ]
	sandbox delete "$box" >/dev/null
}

@test "what no rule allows is denied with the reason, in the log and as an event" {
	run inside curl -sS -D - http://other.test/hello
	[[ "$output" == *"403 Forbidden"*"X-Sandbox-Egress: denied"*"other.test:80 is not allowed: no rule of the sandbox's rules allows it (--allow other.test:80)"* ]]
	run inside curl -sS --cacert /ca.pem https://other.test/
	[ "$status" -eq 56 ]
	run inside curl -sS http://bad.deep.test/
	[[ "$output" == *"refused by '!bad.deep.test:*'"* ]]
	run inside curl -sS http://forbidden.test/
	[[ "$output" == *"the server's egress.rules"* ]]
	! grep -q 'other.test\|bad.deep\|forbidden' "$W/requests" || false
	run -0 timeout 20 sandbox network log --json "$BOX"
	[ "$(jq -r '[.[] | select(.target == "other.test:80")][0].allowed' <<<"$output")" = false ]
	noted() { timeout 20 sandbox events --since oldest --json | grep -q '"egress.denied".*other.test:80'; }
	until_ok 10 noted
}

@test "names of addresses that are not public are refused, whatever the rules" {
	local name
	for name in private meta loop mapped nat64 six; do
		run inside curl -sS --max-time 10 "http://$name.test/"
		[[ "$output" == *"is not public"* ]] || { echo "$name: $output"; false; }
	done
}

@test "addresses by number: private, metadata, this machine's own, and other notations" {
	local a own
	own=$(hostname -I | tr ' ' '\n' | grep -v : | head -n 1)
	for a in 10.0.0.1 172.17.0.1 192.168.0.1 100.64.0.1 127.0.0.1 169.254.169.254 0.0.0.0 '[::1]' '[::]' '[::ffff:10.0.0.1]' '[64:ff9b::a00:1]' '[2002:a00:1::]' '[fe80::1]' \
		'[fd00::1]' ${own:+"$own"}; do
		run says "CONNECT $a:80 HTTP/1.1\r\n\r\n"
		[[ "$output" == "HTTP/1.1 403"* ]] || { echo "$a: $output"; false; }
	done
	for a in 2130706433 0x7f000001 0x7f.1 127.1 0177.0.0.1 127.0.0.1. ok.test:80:80 '[ok.test]' u@ok.test 'ok.test ' '[::1%25lo]' %6fk.test; do
		run says "CONNECT $a:80 HTTP/1.1\r\n\r\n"
		[[ "$output" == "HTTP/1.1 400"* ]] || { echo "$a: $output"; false; }
	done
}

@test "a redirect is judged like any other request" {
	run inside curl -sSL 'http://ok.test/redirect?to=http://other.test/hello'
	[[ "$output" == *"other.test:80 is not allowed"* ]]
	run inside curl -sSL --max-time 10 'http://ok.test/redirect?to=http://10.0.0.1/'
	[[ "$output" == *"10.0.0.1:80 is not allowed"* ]]
}

@test "on 443 the TLS name must be CONNECT's, and TLS it must be" {
	run inside curl -sS --cacert /ca.pem --connect-to other.test:443:ok.test:443 https://other.test/hello
	[ "$status" -ne 0 ]
	# By TLS name or by Host; the redirect above holds the name in its path.
	! grep -q '^443 other.test \|^[0-9]* [^ ]* other.test ' "$W/requests" || false
	run says 'CONNECT ok.test:443 HTTP/1.1\r\n\r\nGET /hello HTTP/1.0\r\n\r\n'
	[[ "$output" != *hello-from-origin* ]]
	run -0 timeout 20 sandbox network log --json "$BOX"
	[[ "$output" == *"the TLS server name is another than CONNECT's"* ]]
	[[ "$output" == *"only TLS may be spoken"* ]]
}

@test "one plain request per connection: what follows it reaches nobody" {
	run says 'GET http://ok.test/hello HTTP/1.1\r\nHost: other.test\r\n\r\nGET /hello HTTP/1.1\r\nHost: smuggled.test\r\n\r\n'
	[[ "$output" == *hello-from-origin* ]]
	run says 'POST http://ok.test/count HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPOST /count HTTP/1.1\r\nHost: smuggled.test\r\nContent-Length: 0\r\n\r\n'
	[[ "$output" == *3* ]]
	run says 'POST http://ok.test/count HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /hello HTTP/1.1\r\nHost: smuggled.test\r\n\r\n'
	[[ "$output" == *3* ]]
	! grep -q smuggled "$W/requests" || false
	grep -q '^80 - ok.test GET /hello$' "$W/requests"
}

@test "large bodies pass both ways, whole" {
	head -c 20000000 /dev/urandom >"$WWW/large"
	run -0 inside sh -c 'curl -fsS --cacert /ca.pem https://ok.test/large | tee big | sha256sum; curl -fsS --cacert /ca.pem -T big -X POST https://ok.test/count; curl -fsS -H "Transfer-Encoding: chunked" -T big -X POST http://ok.test/count; rm big'
	[ "$output" = "$(sha256sum <"$WWW/large")"$'\n'20000000$'\n'20000000 ]
}

@test "nothing goes around the proxy: no address, name, datagram or raw socket" {
	local a
	run -0 inside ls /sys/class/net
	[ "$output" = lo ]
	for a in 1.1.1.1 "$ORIGIN" 169.254.169.254 172.17.0.1; do
		run inside curl -sS --noproxy '*' --max-time 3 "http://$a/"
		[ "$status" -ne 0 ]
	done
	run inside curl -sS --noproxy '*' --max-time 3 http://ok.test/
	[ "$status" -eq 6 ]
	run inside python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("1.1.1.1", 53))'
	[[ "$output" == *nreachable* ]]
	run inside python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'
	[[ "$output" == *"not permitted"* ]]
	run inside python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)'
	[[ "$output" == *"not permitted"* ]]
	run inside python3 -c 'import socket; socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, 80))'
	[ "$status" -ne 0 ]
}

@test "check tells what a connection would meet" {
	run -0 timeout 20 sandbox network check "$BOX" ok.test:80
	[[ "$output" == "allowed ok.test:80: allowed by 'ok.test:*' of the sandbox's rules" ]]
	run -1 timeout 20 sandbox network check "$BOX" other.test
	[[ "$output" == "denied other.test:443: no rule"* ]]
	run -1 timeout 20 sandbox network check "$BOX" private.test
	[[ "$output" == *"10.9.8.7 is not public"* ]]
	run -2 timeout 20 sandbox network check "$BOX" 'a b'
	run -0 timeout 20 sandbox network rules "$BOX"
	[[ "$output" == *"(none matched)"* ]]
	# How often each rule decided: curl's requests above at least.
	sandbox network rules --json "$BOX" | jq -e '([.rules[] | select(.rule == "ok.test:*") | .allowed] | add) >= 2 and
		([.rules[] | select(.rule == "!bad.deep.test:*") | .denied] | add) >= 1 and ([.rules[] | select(.rule == "!forbidden.test:*") | .denied] | add) >= 1'
}

@test "rules change on a running sandbox: what they no longer allow is closed" {
	timeout 30 sandbox exec "$BOX" -- curl -sSN http://ok.test/slow >"$W/slow" 2>&1 3>&- &
	local pid=$!
	flows() { grep -q tick "$W/slow"; }
	until_ok 15 flows
	timeout 20 sandbox network set "$BOX" --none
	run -1 timeout 20 sandbox network check "$BOX" ok.test:80
	wait "$pid" || true
	[ "$(grep -c tick "$W/slow")" -lt 500 ]
	run inside curl -sS http://ok.test/hello
	[[ "$output" == *"refused by '!*'"* ]]
	timeout 20 sandbox network set "$BOX" --allow ok.test:80
	run -0 inside curl -fsS http://ok.test/hello
	[ "$(sandbox inspect --json "$BOX" | jq -c .spec.egress)" = '["ok.test:80"]' ]
}

@test "a tenant's rules narrow all its sandboxes, at once" {
	timeout 20 sandbox network tenant default --allow git.test
	run -1 timeout 20 sandbox network check "$BOX" ok.test:80
	[[ "$output" == *"the tenant's rules"* ]]
	run inside curl -sS http://ok.test/hello
	[[ "$output" == *"the tenant's rules"* ]]
	timeout 20 sandbox network tenant default --default
	run -0 inside curl -fsS http://ok.test/hello
}

@test "after a kill of the daemon the way out works again, with its rules" {
	sbx_kill KILL
	sbx_daemon
	again() { inside curl -fsS http://ok.test/hello; }
	until_ok 20 again
	run inside curl -sS http://other.test/
	[[ "$output" == *"other.test:80 is not allowed"* ]]
}

@test "without rules nothing may be reached, and only restricted takes some" {
	local box
	box=$(sbx_create --network restricted)
	run -1 timeout 20 sandbox network check "$box" ok.test:80
	[[ "$output" == *"egress.default"* ]]
	timeout 60 sandbox delete "$box"
	run -2 timeout 20 sandbox create --image "$IMAGE" --allow ok.test
	run -2 timeout 20 sandbox create --image "$IMAGE" --network restricted --allow 'http://ok.test'
	box=$(sbx_create)
	run -1 timeout 20 sandbox network check "$box" ok.test:80
	[[ "$output" == *"network deny"* ]]
	run -5 timeout 20 sandbox network set "$box" --allow ok.test
	run timeout 20 sandbox exec "$box" -- sh -c 'env | grep -ic proxy'
	[ "$output" = 0 ]
	run timeout 20 sandbox exec "$box" -- nc -w 2 127.0.0.1 61080
	[ "$status" -ne 0 ]
	timeout 60 sandbox delete "$box"
}

@test "under gVisor it is the same" {
	docker info 2>/dev/null | grep -q runsc || skip "the engine has no runsc runtime"
	local box args="$SBX_ARGS --set worker.gvisor_runtime=runsc"
	# The tier's probe is made once for a daemon, and a busy machine may fail it.
	once_more() {
		sbx_kill TERM
		# shellcheck disable=SC2086
		sbx_daemon $args && box=$(sandbox create -q --tier gvisor --image "$TOOLS" --disk-mib 64 --memory-mib 512 --network restricted --allow 'ok.test:*')
	}
	until_ok 60 once_more
	run -0 timeout 60 sandbox exec "$box" -- curl -fsS --cacert /ca.pem https://ok.test/hello
	[ "$output" = hello-from-origin ]
	run timeout 60 sandbox exec "$box" -- curl -sS http://other.test/
	[[ "$output" == *"other.test:80 is not allowed"* ]]
	run timeout 60 sandbox exec "$box" -- curl -sS --noproxy '*' --max-time 3 "http://$ORIGIN/hello"
	[ "$status" -ne 0 ]
	timeout 60 sandbox delete "$box"
}
