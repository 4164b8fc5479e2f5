#!/usr/bin/env bats
# Tokens, tenants, quotas and the audit log, over https as clients use them.

load ../lib/helpers.bash
load ../lib/tls.bash

setup_file() {
	need_engine
	CA=$(mktemp -d "${TMPDIR:-/tmp}/sbxca.XXXXXX")
	make_ca "$CA"
	make_cert "$CA" server DNS:localhost,IP:127.0.0.1
	PORT=$(free_port)
	BOOT1=boot-$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
	BOOT2=boot-$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
	export CA PORT
	export SANDBOX_BOOTSTRAP_TOKENS="$BOOT1, operator@ops:$BOOT2"
	sbx_start --set "daemon.listen=127.0.0.1:$PORT" --set "daemon.tls_cert=$CA/server.pem" --set "daemon.tls_key=$CA/server.key"
	unset SANDBOX_BOOTSTRAP_TOKENS
	export SANDBOX_CA_FILE=$CA/ca.pem BOOT1 BOOT2
}

teardown_file() {
	sbx_stop
	rm -rf "${CA:?}"
}

# as TOKEN ARGUMENTS…: the CLI over https with that token.
as() {
	SANDBOX_TOKEN=$1 SANDBOX_URL=https://localhost:$PORT sandbox "${@:2}"
}

@test "a token is shown once, kept as a hash, and does what its role and tenant allow" {
	local op view box other
	op=$(sandbox token create worker --for team-a 2>/dev/null)
	[[ "$op" =~ ^sbx_[0-9a-f]{64}$ ]]
	view=$(sandbox token create looker --role viewer --for team-a --json | jq -r .secret)
	run grep -rlF "$op" "$SBX_DIR/state" "$SBX_DIR/log"
	[ -z "$output" ]
	other=$(sbx_create -q --name other)
	box=$(as "$op" create -q --image "$IMAGE" --disk-mib 64 --memory-mib 256 --name mine)
	[ "$(sandbox inspect "$box" --json | jq -r .spec.tenant)" = team-a ]
	[ "$(as "$op" list -q)" = "$box" ]
	[ "$(as "$view" list -q)" = "$box" ]
	run -0 as "$op" exec mine -- echo hello
	[ "$output" = hello ]
	run -3 as "$op" inspect "$other"
	run -125 as "$op" exec "$other" -- true
	run -4 as "$op" create --tenant team-b --image "$IMAGE"
	run -4 as "$view" delete mine
	run -125 as "$view" exec mine -- true
	[[ "$output" == *operator* ]]
	run -4 as "$op" token list
	run -4 as "$op" audit
	run -4 as "$op" quota set team-a --sandboxes 100
	run -4 as "$op" image remove "$IMAGE"
	[ "$(sandbox token list --json | jq -r '.[] | select(.name == "worker") | .last_used_from')" = 127.0.0.1 ]
	sandbox delete "$box" "$other"
}

@test "tokens end: by revoking at once, by their time" {
	local t
	t=$(sandbox token create shortlived --expires 2s -q)
	as "$t" list
	refused() { ! as "$t" list 2>"$BATS_TEST_TMPDIR/err"; }
	until_ok 10 refused
	grep -q expired "$BATS_TEST_TMPDIR/err"
	t=$(sandbox token create revoked --role admin -q)
	as "$t" token list
	sandbox token revoke revoked
	run -4 as "$t" list
	[[ "$output" == *revoked* ]]
	run -3 sandbox token revoke revoked
	# The name is free again.
	sandbox token create revoked -q >/dev/null
	run -5 sandbox token create revoked
	sandbox token revoke revoked
	[ "$(sandbox token list --json | jq '[.[] | select(.name == "revoked" and .revoked_at != null)] | length')" -eq 2 ]
	run -2 sandbox token revoke "$t"
	[[ "$output" != *"$t"* ]]
}

@test "what a token may not be is refused" {
	run -2 sandbox token create 'Bad Name'
	run -2 sandbox token create abcdef12
	run -2 sandbox token create boss --role admin --for team-a
	[[ "$output" == *"all tenants"* ]]
	run -2 sandbox token create x1z --role king
	run -2 sandbox token create x1z --for 'No Tenant'
	run -4 as "sbx_$(printf '%064d' 0)" list
	run -4 as "" list
	run -4 as "sbx_" list
}

@test "a token for several tenants acts in the first, or in the one asked for" {
	local t
	t=$(sandbox token create pair --for alpha --for beta -q)
	as "$t" create -q --image "$IMAGE" --disk-mib 64 --memory-mib 256 --name in-alpha
	as "$t" --tenant beta create -q --image "$IMAGE" --disk-mib 64 --memory-mib 256 --name in-beta
	[ "$(sandbox inspect in-alpha --json | jq -r .spec.tenant)" = alpha ]
	[ "$(sandbox inspect in-beta --json | jq -r .spec.tenant)" = beta ]
	run -3 as "$t" inspect in-beta
	run -0 as "$t" --tenant beta exec in-beta -- echo there
	[ "$output" = there ]
	run -4 as "$t" --tenant gamma list
	sandbox delete in-alpha in-beta
}

@test "bootstrap tokens of the environment work, and leave it" {
	as "$BOOT1" token list >/dev/null
	run -4 as "$BOOT2" token list
	[ "$(as "$BOOT2" list -q)" = "" ]
	run grep -c "$BOOT1" "/proc/$(sbx_pid)/environ"
	[ "$output" = 0 ]
	start_with() {
		SANDBOX_BOOTSTRAP_TOKENS=$1 run timeout 20 sandboxd --set "daemon.state_dir=$BATS_TEST_TMPDIR/s" --set "daemon.socket=$BATS_TEST_TMPDIR/s.sock" \
			--set "worker.docker_socket=$DOCKER_SOCKET" --set "daemon.init_path=$BUILD/sandbox-init" --set daemon.listen=127.0.0.1:0
		[ "$status" -ne 0 ] && [[ "$output" == *"$2"* ]] && [[ "$output" != *"$BOOT1"* ]]
	}
	start_with short 'at least 32'
	start_with "$BOOT1,$BOOT1" 'the same'
	start_with "king:$BOOT1" 'not a role'
	start_with "admin@a:$BOOT1" operator@TENANT
}

@test "a quota holds whatever a tenant asks" {
	local t
	t=$(sandbox token create limited --for small -q)
	sandbox quota set small --sandboxes 1 --memory 512m --ttl 1h
	[ "$(as "$t" quota show small --json | jq -c '[.sandboxes, .memory_mib, .ttl_seconds, .cpu_millis]')" = '[1,512,3600,null]' ]
	run -2 as "$t" create --image "$IMAGE" --disk-mib 64 --memory-mib 256 --ttl 2h
	[[ "$output" == *3600* ]]
	run -6 as "$t" create --image "$IMAGE" --disk-mib 64 --memory-mib 768
	[[ "$output" == *quota*memory* ]]
	as "$t" create -q --image "$IMAGE" --disk-mib 64 --memory-mib 256 --ttl 1h --name only
	run -6 as "$t" create --image "$IMAGE" --disk-mib 64 --memory-mib 128
	[[ "$output" == *quota*sandboxes*"1 allowed, 1 in use"* ]]
	run -2 as "$t" extend only 2h
	[ "$(as "$t" quota show small --json | jq -c .used.sandboxes)" = 1 ]
	run -4 as "$t" quota show default
	as "$t" delete only
	as "$t" create -q --image "$IMAGE" --disk-mib 64 --memory-mib 128 --name again
	sandbox delete again
}

@test "the audit log has every change, stream and refusal, with who and from where" {
	local t box entry
	t=$(sandbox token create seen --for watched -q)
	box=$(as "$t" create -q --image "$IMAGE" --disk-mib 64 --memory-mib 256)
	as "$t" exec "$box" -- sh -c 'echo secret-argument' >/dev/null
	echo data | as "$t" cp - "$box:/tmp/x" 2>/dev/null || as "$t" cp "$CA/ca.pem" "$box:/tmp/x"
	run -125 as "$t" exec nobody -- true
	run -4 as "$t" token list
	sandbox delete "$box"
	entry() { sandbox audit -n 200 --json | jq -e "[.[] | select($1)] | length >= 1"; }
	entry ".action == \"create\" and .who == \"token seen\" and .tenant == \"watched\" and .from == \"127.0.0.1\" and .target == \"$box\" and .outcome == \"ok\""
	entry ".action == \"stream.exec\" and .target == \"$box\" and .detail == \"sh\" and .who == \"token seen\" and .outcome == \"ok\""
	entry ".action == \"stream.exec\" and .target == \"nobody\" and .outcome == \"not_found\""
	entry ".action == \"stream.files_put\" and .target == \"$box\""
	entry ".action == \"tokens\" and .who == \"token seen\" and .outcome == \"forbidden\""
	entry ".action == \"delete\" and .target == \"$box\" and .from == \"unix\""
	entry '.action == "token_create" and .target == "seen"'
	run -0 sandbox audit -n 1000 --json
	[[ "$output" != *secret-argument* ]]
	[[ "$output" != *"$t"* ]]
	[ "$(sandbox audit --who 'token seen' --json | jq -r '[.[].who] | unique | join(",")')" = 'token seen' ]
	[ "$(sandbox audit -n 3 -q | wc -l)" -eq 3 ]
}

@test "strangers are refused and noted, but cannot fill the log" {
	local n
	for n in $(seq 60); do
		echo "url = https://localhost:$PORT/v1/sandboxes"
		echo "output = /dev/null"
	done >"$BATS_TEST_TMPDIR/urls"
	curl -sS --max-time 20 --cacert "$CA/ca.pem" -H 'Authorization: Bearer wrong' --config "$BATS_TEST_TMPDIR/urls"
	n=$(sandbox audit -n 1000 --json | jq '[.[] | select(.who == "" and .outcome == "unauthorized")] | length')
	[ "$n" -ge 1 ]
	[ "$n" -le 50 ]
}
