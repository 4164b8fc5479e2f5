#!/usr/bin/env bats
# Somebody sets the clock: two hours on, two hours back, while sandboxes live and clients wait. What is due ends in its time, nothing else
# does, whether the controller's clock jumps or a worker's that has no controller. libfaketime sets it, for one daemon alone.

load ../lib/helpers
load ../lib/tls
load ../lib/fleet

setup_file() {
	FAKETIME_LIB=$(find /usr/lib -name libfaketimeMT.so.1 2>/dev/null | head -n 1)
	export FAKETIME_LIB
	[ -n "$FAKETIME_LIB" ] || skip "no libfaketime"
	[[ $BUILD != *asan* ]] || skip "a sanitizer must be the first library"
	FLEET=$(mktemp -d "${TMPDIR:-/tmp}/fleet.XXXXXX")
	export FLEET
	step controller +0
	step w1 +0
	clocked controller fleet_start --set "edge.listen=127.0.0.1:$(free_port)" --set edge.share=true --set edge.share_ttl=3s
	clocked w1 fleet_worker w1
	until_ok 30 link_up w1
}

teardown_file() {
	fleet_stop
}

# step NAME OFFSET: sets its clock so far from the machine's, from one instant to the next.
step() {
	echo "$2" >"$FLEET/clock.$1.new"
	mv "$FLEET/clock.$1.new" "$FLEET/clock.$1"
}

# clocked NAME COMMAND…: what it starts has the clock of that name. Its monotonic clocks are the machine's, as with a real step.
clocked() {
	local name=$1
	shift
	LD_PRELOAD=$FAKETIME_LIB FAKETIME_TIMESTAMP_FILE=$FLEET/clock.$name FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1 \
		FAKETIME_FORCE_MONOTONIC_FIX=0 "$@"
}

# The hour that the daemon shows, by the API.
shown_hour() {
	curl -fsS --max-time 10 --unix-socket "$FLEET/$1/d.sock" http://x/healthz | jq -r .now | cut -c 1-13
}

jumped() {
	[ "$(shown_hour "$1")" = "$(date -u -d "${2/h/ hours}" +%Y-%m-%dT%H)" ]
}

state_is() {
	sandbox inspect --json=state "$1" | grep -q "\"$2\""
}

expired() {
	sandbox inspect --json=state,end_reason "$1" | grep -q expired
}

@test "a step of the controller's clock ends nothing early, keeps nothing alive, and cuts no wait" {
	local op waiter offset n=0
	sandbox create -q --image any --name long --ttl 10m
	for offset in +2h -2h; do
		n=$((n + 1))
		op=$(sandbox exec -d -q -w / long -- sleep 2)
		timeout 60 sandbox wait -t 40s "$op" >"$FLEET/waited" 2>&1 3>&- 4>&- &
		waiter=$!
		sandbox create -q --image any --name "brief$n" --ttl 3s
		step controller "$offset"
		until_ok 10 jumped controller "$offset"
		wait "$waiter" || { cat "$FLEET/waited"; false; }
		until_ok 40 expired "brief$n"
		# One that is made after the step has its time, too.
		sandbox create -q --image any --name "later$n" --ttl 2s
		until_ok 40 expired "later$n"
		state_is long running
		[ "$(sandbox exec -w / long -- echo here)" = here ]
		step controller +0
	done
	[ "$(sandbox list -q)" = "$(sandbox inspect -q long)" ]
}

@test "a port that is shared after a step has its time, and no more" {
	local offset begun
	for offset in +2h -2h; do
		step controller "$offset"
		until_ok 10 jumped controller "$offset"
		begun=$(date +%s%N)
		run --separate-stderr timeout 60 sandbox http 9
		[ "$status" -eq 3 ]
		[[ $stderr == *"edge.share_ttl"* ]]
		[ $((($(date +%s%N) - begun) / 1000000)) -ge 2800 ]
		step controller +0
	done
}

@test "a worker whose clock jumps while its controller is away ends what is due alone" {
	local due
	due=$(sandbox create -q --image any --name due --ttl 4s)
	fleet_kill controller KILL
	step w1 +2h
	until_ok 10 jumped w1 +2h
	until_ok 60 grep -q "sandbox=$due its time is over" "$FLEET/w1/log"
	step w1 -2h
	until_ok 10 jumped w1 -2h
	sleep 1.5
	clocked controller fleet_controller
	until_ok 30 link_up w1
	until_ok 40 expired due
	state_is long running
	[ "$(sandbox exec -w / long -- echo here)" = here ]
	! grep "its time is over" "$FLEET/w1/log" | grep -v "$due"
}
