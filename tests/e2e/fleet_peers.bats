#!/usr/bin/env bats
# Two controllers on one PostgreSQL, each with the link of one worker: either answers for the sandboxes of both, and a restart of one
# after the other loses nothing. Plain processes as sandboxes.

load ../lib/helpers
load ../lib/tls
load ../lib/fleet
load ../lib/postgres

setup_file() {
	need_postgres
	export PG_NAME=peers_$$
	pg_database "$PG_NAME"
	PORT2=$(free_port)
	FLEET=$(mktemp -d "${TMPDIR:-/tmp}/fleet.XXXXXX")
	export PORT2 FLEET
	head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$FLEET/secret"
	chmod 600 "$FLEET/secret"
	fleet_start --set store.driver=postgresql --set "store.url=$PG_URL"
	fleet_kill controller
	first
	second
	fleet_worker w1 --set worker.max_sandboxes=8
	worker2
	until_ok 30 link_up w1
	until_ok 30 link_up w2
	sandbox node drain w1
	sandbox create -q --image any --name far
	sandbox node undrain w1
	until_ok 30 reaches first
}

teardown_file() {
	[ -n "${PG_NAME:-}" ] || return 0
	fleet_stop
	pg_drop "$PG_NAME"
}

shared() {
	echo --set store.driver=postgresql --set "store.url=$PG_URL" --set "peers.secret_file=$FLEET/secret" --set "peers.ca_file=$FLEET/tls/ca.pem"
}

# The first one has the link of w1, the second one that of w2, where the sandbox `far` is.
first() {
	# shellcheck disable=SC2046
	fleet_controller $(shared) --set "peers.url=https://localhost:$FLEET_PORT"
}

second() {
	# shellcheck disable=SC2046
	fleet_run second --set daemon.role=controller --set "daemon.listen=127.0.0.1:$PORT2" --set "daemon.tls_cert=$FLEET/tls/server.pem" \
		--set "daemon.tls_key=$FLEET/tls/server.key" $(shared) --set "peers.url=https://localhost:$PORT2"
}

worker2() {
	FLEET_PORT=$PORT2 fleet_worker w2 --set worker.max_sandboxes=8
}

on() {
	local name=controller
	[ "$1" = first ] || name=$1
	shift
	SANDBOX_URL=unix://$FLEET/$name/d.sock timeout 60 "$@"
}

reaches() {
	[ "$(on "$1" sandbox exec -w / far -- echo yes 2>/dev/null)" = yes ]
}

ended() {
	on first sandbox operation inspect --json=state "$1" | grep -qE 'succeeded|failed'
}

@test "a controller without the link answers as one that has it" {
	local c op
	for c in first second; do
		[ "$(on "$c" sandbox exec -w / far -- echo hello)" = hello ]
		run on "$c" sandbox exec -w / far -- sh -c 'echo no >&2; exit 7'
		[ "$status" -eq 7 ]
		head -c 3000000 /dev/urandom >"$FLEET/blob"
		on "$c" sandbox exec -i -w / far -- cat <"$FLEET/blob" | cmp - "$FLEET/blob"
		on "$c" sandbox cp "$FLEET/blob" "far:$FLEET/copied"
		cmp "$FLEET/blob" "$FLEET/copied"
		op=$(on "$c" sandbox exec -d -q -w / far -- sh -c 'echo first; sleep 0.3; echo last')
		[ "$(on "$c" sandbox logs -f "$op")" = "$(printf 'first\nlast')" ]
		op=$(on "$c" sandbox exec -d -q -w / far -- sleep 100)
		on "$c" sandbox kill "$op"
		until_ok 20 ended "$op"
		on "$c" sandbox node inspect --json w2 | jq -e '.state == "up"'
	done
	on first sandbox create -q --image any --name made
	on second sandbox exec -w / made -- true
	on second sandbox delete made
}

call() {
	curl -sS --max-time 10 --cacert "$FLEET/tls/ca.pem" -H "Authorization: Bearer $1" -o /dev/null -w '%{http_code}' "https://localhost:$FLEET_PORT$2"
}

@test "the controllers' secret opens their connection and nothing else, and no other credential opens it" {
	local secret
	secret=sbp_$(cat "$FLEET/secret")
	[ "$(call "$secret" /v1/sandboxes)" = 403 ]
	[ "$(call "$secret" /v1/link)" = 403 ]
	[ "$(call "$secret" /v1/peer)" = 400 ]
	[ "$(call "${secret}0" /v1/peer)" = 401 ]
	[ "$(call "$(cat "$FLEET/controller/api-token")" /v1/peer)" = 403 ]
	[ "$(call "$(cut -d. -f1 "$FLEET/w1/node-credential")" /v1/peer)" = 403 ]
	! grep -rq "$(cat "$FLEET/secret")" "$FLEET"/*/log || false
	fleet_kill second
	chmod 644 "$FLEET/secret"
	run second
	[ "$status" -ne 0 ]
	[[ "$output" == *"can be read by others"* ]]
	chmod 600 "$FLEET/secret"
	second
	until_ok 30 reaches first
}

# count: a command of some seconds on the far sandbox, its client on the first controller.
count() {
	on first sandbox exec -w / far -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo $i; sleep 0.2; done' >"$FLEET/out" 2>"$FLEET/err" 3>&- &
	CLIENT=$!
	until_ok 20 grep -q 2 "$FLEET/out"
}

counted() {
	wait "$CLIENT" || { cat "$FLEET/err"; tail -n 20 "$FLEET/controller/log" "$FLEET/second/log" "$FLEET/w2/log"; false; }
	[ "$(cat "$FLEET/out")" = "$(seq 20)" ]
}

@test "one controller after the other is restarted: a running command and its client notice nothing" {
	count
	fleet_kill second
	second
	counted
	until_ok 30 reaches first
	count
	fleet_kill controller
	first
	counted
	until_ok 30 reaches first
	count
	fleet_kill second KILL
	second
	counted
	until_ok 30 reaches second
	[ "$(on second sandbox list -q | wc -l)" -eq 1 ]
}

@test "what is silly among controllers is refused" {
	run "$BUILD/sandboxd" --check-config --set peers.url=https://a.example
	[ "$status" -eq 2 ]
	[[ "$output" == *"go together"* ]]
	run "$BUILD/sandboxd" --check-config --set peers.url=https://a.example --set peers.secret_file=/x
	[ "$status" -eq 2 ]
	[[ "$output" == *"share a PostgreSQL"* ]]
}
