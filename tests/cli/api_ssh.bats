#!/usr/bin/env bats
# `sandbox api`, and byte pipes to ports inside: ssh --stdio, ssh-config.

load ../lib/helpers

setup_file() {
	need_engine
	sbx_start
	sbx_create --name web >/dev/null
}

teardown_file() {
	sbx_stop
}

@test "api passes a request on and prints the answer" {
	[ "$(sandbox api GET /v1/sandboxes/web --json=name)" = '{"name":"web"}' ]
	[ "$(sandbox api /v1/sandboxes --format '{{json .sandboxes}}' | jq length)" -eq 1 ]
	run --separate-stderr sandbox api GET /v1/sandboxes/nosuch
	[ "$status" -eq 3 ]
	jq -e '.error.code == "not_found" and (.error.request_id | length > 0)' <<<"$output"
}

@test "api builds a body from fields and files" {
	sandbox api POST /v1/sandboxes/web/extend -F ttl_seconds=7200 | jq -e ".sandbox.expires_at // .expires_at"
	echo '{"ttl_seconds": 60}' | sandbox api POST /v1/sandboxes/web/extend --input - -F ttl_seconds=7000 | jq -e ".sandbox.expires_at // .expires_at"
	[ "$(sandbox api /v1/x -f a=1 -F b=1 -f a=2 --dry-run --json=method,body)" = '{"method":"POST","body":{"a":"2","b":1}}' ]
	run --separate-stderr sandbox api POST /v1/sandboxes/web/extend -f ttl_seconds=soon
	[ "$status" -eq 2 ]
}

@test "api refuses what would not stay one request" {
	local bad
	for bad in "get /v1" "GET v1" "GET"; do
		run sandbox api $bad
		[ "$status" -eq 2 ] || { echo "$bad: $status"; false; }
	done
	run sandbox api GET $'/v1/x HTTP/1.1\r\nX: y'
	[ "$status" -eq 2 ]
	run sandbox api POST /v1/x -F a=nonsense
	[ "$status" -eq 2 ]
	run sandbox api POST /v1/x --input /nosuch
	[ "$status" -eq 3 ]
}

@test "ssh --stdio carries bytes both ways, and each end by itself" {
	op=$(sandbox exec -d web -- nc -l -p 2222 -e cat)
	until_ok 10 sandbox exec web -- sh -c 'netstat -ltn | grep -q :2222'
	head -c 3000000 /dev/urandom >"$SBX_DIR/bytes"
	timeout 30 sandbox ssh --stdio --port 2222 web.sandbox <"$SBX_DIR/bytes" >"$SBX_DIR/back"
	cmp "$SBX_DIR/bytes" "$SBX_DIR/back"
	sandbox wait "$op"
	op=$(sandbox exec -d web -- sh -c 'echo bye | nc -l -p 2223')
	until_ok 10 sandbox exec web -- sh -c 'netstat -ltn | grep -q :2223'
	[ "$(timeout 10 sandbox ssh --stdio -p 2223 web </dev/null)" = bye ]
	sandbox wait "$op" || true
}

@test "a port nobody listens on is named, with what to do instead" {
	run timeout 10 sandbox ssh --stdio web </dev/null
	[ "$status" -eq 8 ]
	[[ $output == *"nothing listens on port 22"* && $output == *"sandbox cp"* ]]
	run timeout 10 sandbox ssh --stdio nosuch </dev/null
	[ "$status" -eq 3 ]
	run sandbox ssh -- -oProxyCommand=x
	[ "$status" -eq 2 ]
}

@test "ssh-config is a block that ssh takes, and keeps to the server asked for" {
	sandbox ssh-config >"$SBX_DIR/ssh_config"
	run ssh -F "$SBX_DIR/ssh_config" -G web.sandbox
	[ "$status" -eq 0 ]
	[[ $output == *"ssh --stdio --port 22 %n"* ]]
	[[ $output == *"user root"* ]]
	[[ $(sandbox --context prod ssh-config 2>&1) == *"no context 'prod'"* ]]
	sandbox context create prod --url unix:///x
	[[ $(sandbox --context prod ssh-config) == *"--context prod ssh --stdio"* ]]
}

@test "ssh itself speaks through the pipe" {
	command -v ssh >/dev/null || skip "no ssh here"
	op=$(sandbox exec -d web -- sh -c 'echo SSH-2.0-not-really | nc -l -p 22')
	until_ok 10 sandbox exec web -- sh -c 'netstat -ltn | grep -q :22'
	run timeout 20 ssh -F "$SBX_DIR/ssh_config" -v web.sandbox </dev/null
	[[ $output == *"not-really"* ]]
	sandbox kill "$op" || true
}
