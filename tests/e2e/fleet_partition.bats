#!/usr/bin/env bats
# Two controllers on one PostgreSQL and three workers, each worker on a network of its own whose cable is pulled at random moments while
# commands are asked for: none runs twice, each ends with an outcome, and afterwards records and processes agree. Controllers, workers and
# NATS are killed, too: every event gets there, in order. FLEET_ROUNDS=30 for the long run, with FLEET_DATABASE=1 also the database is
# killed (nobody else may use it); FLEET_SEED repeats a run.

load ../lib/helpers
load ../lib/tls
load ../lib/fleet
load ../lib/postgres
load ../lib/nats

WORKERS=(w1 w2 w3)

setup_file() {
	[ "$(id -u)" -eq 0 ] || skip "not root: networks of their own need it"
	need_postgres
	need_nats
	export PG_NAME=partition_$$ NET=fp$$ PORT2
	pg_database "$PG_NAME"
	PORT2=$(free_port)
	FLEET=$(mktemp -d "${TMPDIR:-/tmp}/fleet.XXXXXX")
	export FLEET
	head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$FLEET/secret"
	chmod 600 "$FLEET/secret"
	networks
	FLEET_CERT="DNS:localhost,IP:127.0.0.1,IP:10.213.1.1,IP:10.213.2.1,IP:10.213.3.1"
	export FLEET_CERT
	fleet_start_dirs
	nats_prepare "$FLEET/nats"
	nats_start
	first
	second
	local w
	for w in "${WORKERS[@]}"; do
		worker "$w"
		until_ok 30 link_up "$w"
	done
	RANDOM=${FLEET_SEED:-$$}
	echo "# seed ${FLEET_SEED:-$$}" >&3
}

teardown_file() {
	[ -n "${PG_NAME:-}" ] || return 0
	local i
	for i in 1 2 3; do cable "w$i" up || true; done
	nats_stop
	fleet_stop
	for i in 1 2 3; do ip netns delete "$NET-w$i" 2>/dev/null || true; done
	pg_drop "$PG_NAME"
}

# A network for each worker: 10.213.N.2, the controllers' end is 10.213.N.1.
networks() {
	local i
	for i in 1 2 3; do
		ip netns add "$NET-w$i"
		ip link add "$NET-$i" type veth peer name eth0 netns "$NET-w$i"
		ip address add "10.213.$i.1/24" dev "$NET-$i"
		ip link set "$NET-$i" up
		ip -n "$NET-w$i" address add "10.213.$i.2/24" dev eth0
		ip -n "$NET-w$i" link set eth0 up
		ip -n "$NET-w$i" link set lo up
	done
}

# cable WORKER up|down
cable() {
	ip link set "$NET-${1#w}" "$2"
}

shared() {
	echo --set store.driver=postgresql --set "store.url=$PG_URL" --set "peers.secret_file=$FLEET/secret" --set "peers.ca_file=$FLEET/tls/ca.pem" \
		--set "events.nats_url=nats://127.0.0.1:$NATS_PORT" --set events.nats_subject=test.events
}

# controller NAME PORT
controller() {
	# shellcheck disable=SC2046
	fleet_run "$1" --set daemon.role=controller --set "daemon.listen=0.0.0.0:$2" --set "daemon.tls_cert=$FLEET/tls/server.pem" \
		--set "daemon.tls_key=$FLEET/tls/server.key" $(shared) --set "peers.url=https://localhost:$2"
}

first() {
	controller controller "$FLEET_PORT"
}

second() {
	controller second "$PORT2"
}

# worker NAME: w3 has its link to the second controller.
worker() {
	local port=$FLEET_PORT
	[ "$1" != w3 ] || port=$PORT2
	FLEET_NETNS=$NET-$1 FLEET_URL=https://10.213.${1#w}.1:$port fleet_worker "$1" --set worker.max_sandboxes=2
}

post() {
	local code socket=$FLEET/controller/d.sock
	[ $((RANDOM % 2)) -eq 0 ] || socket=$FLEET/second/d.sock
	code=$(curl -s --max-time 10 -o "$FLEET/answer.$1" -w '%{http_code}' --unix-socket "$socket" -H "Idempotency-Key: $1" \
		-H 'Content-Type: application/json' -X POST "http://x/v1/sandboxes/$2/exec" \
		-d "{\"command\":{\"argv\":[\"/bin/sh\",\"-c\",\"echo ran >>$FLEET/ran.$1; sleep 0.2\"],\"cwd\":\"/\"}}") || return 1
	[ "$code" = 202 ]
}

inits() {
	pgrep -fc -- "--socket $FLEET/" || true
}

agree() {
	[ "$(inits)" -eq "$(sandbox list --json=state | grep -o running | wc -l)" ]
}

outage() {
	sleep "$((RANDOM % ${FLEET_OUTAGE:-3})).$((RANDOM % 10))"
}

# For some of them the cable is out for longer than a link may be silent.
disturb() {
	case $1 in
	controller)
		fleet_kill controller KILL
		first
		;;
	second)
		fleet_kill second KILL
		second
		;;
	kill-*)
		fleet_kill "${1#kill-}" KILL
		worker "${1#kill-}"
		;;
	nats)
		nats_stop KILL
		outage
		nats_start
		;;
	database)
		pg_ctl -m immediate stop
		outage
		pg_ctl start
		;;
	*)
		cable "$1" down
		outage
		cable "$1" up
		;;
	esac
}

round() {
	local n=$1 i key pids='' what kinds=(w1 w2 w3 w1 w2 w3 controller second kill-w1 kill-w3 nats nats ${FLEET_DATABASE:+database database})
	what=${kinds[RANDOM % ${#kinds[@]}]}
	for i in 1 2 3 4 5 6; do
		key=r$n-$i
		(sleep "0.$((RANDOM % 9))"; until_ok 90 post "$key" "box$((i % 3 + 1))") &
		pids="$pids $!"
	done
	sleep "0.$((RANDOM % 9))"
	disturb "$what"
	for i in $pids; do wait "$i"; done
	for i in "${WORKERS[@]}"; do until_ok 90 link_up "$i"; done
	for i in 1 2 3 4 5 6; do ran_as_said "r$n-$i" 120 "round $n, $what"; done
}

@test "pulled cables and kill -9 at random moments: none runs twice, none is without an end" {
	local n
	for n in 1 2 3; do sandbox create -q --image any --name "box$n"; done
	for ((n = 1; n <= ${FLEET_ROUNDS:-2}; n++)); do round "$n"; done
	until_ok 30 agree
	for n in 1 2 3; do timeout 60 sandbox delete "box$n"; done
	until_ok 30 agree
}

gone() {
	! sandbox list --json=id | grep -q "$1"
}

@test "NATS that was away with the controller that died gets every event, in order" {
	local id w
	nats_stop KILL
	id=$(sandbox create -q --image any --name told)
	fleet_kill controller KILL
	SANDBOX_URL=unix://$FLEET/second/d.sock timeout 60 sandbox delete --no-wait "$id"
	nats_start
	first
	for w in "${WORKERS[@]}"; do until_ok 90 link_up "$w"; done
	until_ok 60 gone "$id"
	until_ok 90 same_as_stored
	[ "$(nats_got | jq -r 'select(.msg_id != .id) | .id' | wc -l)" -eq 0 ]
	nats_got | jq -e -s --arg id "$id" 'map(select(.sandbox_id == $id) | .type) | .[0] == "sandbox.scheduled" and index("sandbox.running") < index("sandbox.stopped")'
}

@test "a create and deletes behind a pulled cable are done when it is back, and no node is over its limit" {
	local i pids=
	for i in 1 2 3 4; do sandbox create -q --image any --name "held$i"; done
	cable w1 down
	for i in 1 2 3 4; do (SANDBOX_URL=unix://$FLEET/second/d.sock timeout 60 sandbox delete --no-wait "held$i" >/dev/null 2>&1) & pids="$pids $!"; done
	for i in 1 2 3 4 5 6 7 8; do (timeout 90 sandbox create -q --image any --wait-timeout 60s >/dev/null 2>&1 || true) & pids="$pids $!"; done
	sleep 1
	cable w1 up
	until_ok 90 link_up w1
	for i in $pids; do wait "$i" || true; done
	until_ok 60 settled
	[ "$(sandbox list -q | wc -l)" -le 6 ]
	until_ok 30 agree
	for i in $(sandbox list -q); do timeout 60 sandbox delete "$i"; done
	until_ok 30 agree
	[ "$(sandbox node list --json | jq '[.[].sandboxes] | add')" -eq 0 ]
}

settled() {
	! sandbox list --json=state | grep -qE 'scheduled|creating|stopping'
}
