#!/usr/bin/env bats
# Creates that were given to a worker which dies: placed on another when nothing can have begun, and the worker that comes back late
# has nothing of theirs.

load ../lib/helpers
load ../lib/tls
load ../lib/fleet

setup_file() {
	fleet_start
	fleet_worker w1 --set worker.max_sandboxes=4
	fleet_worker w2 --set worker.max_sandboxes=1
	until_ok 30 link_up w1
	until_ok 30 link_up w2
}

teardown_file() {
	fleet_stop
}

node_of() {
	sandbox inspect --json=node_name "$1" | jq -r .node_name
}

runs_on() {
	[ "$(sandbox inspect --json=state "$1" | jq -r .state)" = running ] && [ "$(node_of "$1")" = "$2" ]
}

says() {
	sandbox operation inspect --json "$1" | jq -r .progress | grep -q "$2"
}

@test "a create whose worker dies before it began is done by another, as soon as that has room" {
	local first second op
	# While it does not answer, nothing is known to be wrong with it.
	kill -STOP "$(fleet_pid w1)"
	sandbox node drain w2
	first=$(sandbox create -q --no-wait --name first)
	second=$(sandbox create -q --no-wait --name second)
	[ "$(node_of first)" = w1 ]
	[ "$(node_of second)" = w1 ]
	sandbox node undrain w2
	fleet_kill w1 KILL
	until_ok 60 runs_on first w2
	sandbox exec -w / first -- true
	# There is no room for the second one: it waits, which is said, and takes the first's place.
	op=$(sandbox operation list --json | jq -r --arg id "$second" '.[] | select(.sandbox_id == $id) | .id')
	until_ok 30 says "$op" "node w1 is away: it is created by another"
	[ "$(sandbox inspect --json=unreachable second | jq -r .unreachable)" = true ]
	sandbox delete first
	until_ok 60 runs_on second w2
	sandbox events --json | grep -c sandbox.rescheduled | grep -qx 2
	# The one that comes back finds nothing to do and has nothing left over.
	fleet_worker w1 --set worker.max_sandboxes=4
	until_ok 60 link_up w1
	[ "$(pgrep -fc -- "--socket $FLEET/w1/" || true)" -eq 0 ]
	[ "$(sandbox node inspect --json=sandboxes w1 | jq -r .sandboxes)" = 0 ]
	sandbox delete second
	[ -n "$first" ]
}
