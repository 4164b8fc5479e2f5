#!/usr/bin/env bats
# Rounds in which one of controller and workers is killed at a random moment while commands are asked for: none runs twice, each ends
# with an outcome, and afterwards records and processes agree. FLEET_ROUNDS=30 for the long run; FLEET_SEED repeats one.

load ../lib/helpers
load ../lib/tls
load ../lib/fleet

setup_file() {
	fleet_start
	fleet_worker w1 --set worker.max_sandboxes=2
	fleet_worker w2 --set worker.max_sandboxes=2
	until_ok 20 link_up w1
	until_ok 20 link_up w2
	RANDOM=${FLEET_SEED:-$$}
	echo "# seed ${FLEET_SEED:-$$}" >&3
}

teardown_file() {
	fleet_stop
}

# post KEY SANDBOX: asks for a command that leaves one line in a file named after the key. Repeated until there is an answer.
post() {
	local code
	code=$(curl -s --max-time 10 -o "$FLEET/answer.$1" -w '%{http_code}' --unix-socket "$FLEET/controller/d.sock" -H "Idempotency-Key: $1" \
		-H 'Content-Type: application/json' -X POST "http://x/v1/sandboxes/$2/exec" \
		-d "{\"command\":{\"argv\":[\"/bin/sh\",\"-c\",\"echo ran >>$FLEET/ran.$1; sleep 0.2\"],\"cwd\":\"/\"}}") || return 1
	[ "$code" = 202 ]
}

restart() {
	case $1 in
	controller) fleet_controller ;;
	*) fleet_worker "$1" --set worker.max_sandboxes=2 ;;
	esac
}

# Processes 1 of sandboxes of this fleet.
inits() {
	pgrep -fc -- "--socket $FLEET/" || true
}

agree() {
	[ "$(inits)" -eq "$(sandbox list --json=state | grep -o running | wc -l)" ]
}

round() {
	local n=$1 i key pids='' victims=(controller w1 w2) victim
	victim=${victims[RANDOM % 3]}
	for i in 1 2 3 4; do
		key=r$n-$i
		(sleep "0.$((RANDOM % 5))"; until_ok 40 post "$key" "box$((i % 2 + 1))") &
		pids="$pids $!"
	done
	sleep "0.$((RANDOM % 7))"
	fleet_kill "$victim" KILL
	restart "$victim"
	for i in $pids; do wait "$i"; done
	until_ok 20 link_up w1
	until_ok 20 link_up w2
	for i in 1 2 3 4; do ran_as_said "r$n-$i" 60 "round $n, $victim killed"; done
}

@test "commands and kill -9 at random moments: none runs twice, none is without an end" {
	sandbox create -q --image any --name box1
	sandbox create -q --image any --name box2
	local n
	for ((n = 1; n <= ${FLEET_ROUNDS:-2}; n++)); do round "$n"; done
	until_ok 20 agree
}

@test "creates and deletes and kill -9 at random moments: never more than fits, nothing left over" {
	local n i id victims=(controller w1 w2) victim
	for ((n = 1; n <= ${FLEET_ROUNDS:-2}; n++)); do
		victim=${victims[RANDOM % 3]}
		for i in 1 2 3 4 5 6; do
			(timeout 30 sandbox create -q --image any >/dev/null 2>&1 || true) &
		done
		sleep "0.$((RANDOM % 4))"
		for id in $(sandbox list -q); do
			curl -s --max-time 5 -o /dev/null --unix-socket "$FLEET/controller/d.sock" -X DELETE "http://x/v1/sandboxes/$id" || true
			break
		done
		fleet_kill "$victim" KILL
		restart "$victim"
		until_ok 20 link_up w1
		until_ok 20 link_up w2
		until_ok 40 settled
		[ "$(sandbox list -q | wc -l)" -le 4 ]
		until_ok 20 agree
	done
	for id in $(sandbox list -q); do timeout 40 sandbox delete "$id"; done
	until_ok 20 no_inits
	sandbox node list --json=sandboxes | grep -vq '[1-9]'
}

no_inits() {
	[ "$(inits)" -eq 0 ]
}

# Nothing is on its way any more.
settled() {
	! sandbox list --json=state | grep -qE 'scheduled|creating|stopping'
}
