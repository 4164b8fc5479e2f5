#!/usr/bin/env bats
# More requests than places: refusals that say why, and waiting in order.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start --set worker.max_sandboxes=1
}

teardown_file() {
	sbx_stop
}

teardown() {
	local id
	for id in $(timeout 20 sandbox list -q); do
		timeout 60 sandbox delete "$id" >/dev/null
	done
}

api() {
	curl -sS --max-time 20 --unix-socket "$SBX_DIR/d.sock" "http://sandbox$1" "${@:2}"
}

waiting() {
	local n
	n=$(api /metrics | awk '$1 == "sandbox_creates_waiting" { print $2 }')
	[ "$n" -eq "$1" ]
}

# A client that waits for a place, in the background; its output and status go to files of its name.
waiter() {
	(
		set +e
		timeout 60 sandbox create -q --image "$IMAGE" --disk-mib 64 --memory-mib 128 --name "$1" --wait-capacity "${2:-40s}" >"$BATS_TEST_TMPDIR/$1.out" 2>"$BATS_TEST_TMPDIR/$1.err" 3>&-
		echo $? >"$BATS_TEST_TMPDIR/$1.status"
	) &
}

@test "without a place a create waits as long as it was told, then says what was missing" {
	# No waiting makes a node larger than it is.
	run --separate-stderr timeout 20 sandbox create -q --image "$IMAGE" --disk-mib 64 --memory-mib 900000
	[ "$status" -eq 6 ]
	[[ $stderr == *"MiB of memory in all, 900000 asked"* ]]
	[[ $stderr != *"--wait-capacity"* ]]
	sbx_create --name holder
	run --separate-stderr timeout 20 sandbox create -q --image "$IMAGE" --disk-mib 64
	[ "$status" -eq 6 ]
	# What is scarce, once, and how to wait for it.
	[ "$(grep -o "its limit is 1" <<<"$stderr" | wc -l)" -eq 1 ]
	[[ $stderr == *"--wait-capacity"* ]]
	local start=$SECONDS
	run --separate-stderr timeout 20 sandbox create -q --image "$IMAGE" --disk-mib 64 --wait-capacity 2s
	[ "$status" -eq 6 ]
	[ $((SECONDS - start)) -ge 1 ]
	[[ $stderr == *"waited 2s for capacity"*"node local runs 1 sandboxes, its limit is 1"*"deleting a sandbox"* ]]
	run -0 sandbox list -q
	[ "${#lines[@]}" -eq 1 ]
}

@test "run gets the place that becomes free" {
	sbx_create --name holder
	(timeout 40 sandbox run --image "$IMAGE" --disk-mib 64 --wait-capacity 30s -- echo got it >"$BATS_TEST_TMPDIR/run.out" 2>&1 3>&-) &
	until_ok 20 waiting 1
	timeout 30 sandbox delete holder
	until_ok 30 grep -q "got it" "$BATS_TEST_TMPDIR/run.out"
	wait
}

@test "those that wait get places in the order of their coming, and none is given away to somebody later" {
	local k
	sbx_create --name holder
	for k in 1 2 3; do
		waiter "w$k-x"
		until_ok 20 waiting "$k"
	done
	timeout 30 sandbox delete holder
	for k in 1 2 3; do
		until_ok 30 test -e "$BATS_TEST_TMPDIR/w$k-x.status"
		[ "$(cat "$BATS_TEST_TMPDIR/w$k-x.status")" -eq 0 ]
		run -0 sandbox list -q
		[ "$output" = "$(cat "$BATS_TEST_TMPDIR/w$k-x.out")" ]
		run -6 timeout 20 sandbox create -q --image "$IMAGE" --disk-mib 64 --name pushy
		timeout 30 sandbox delete "w$k-x"
	done
	wait
}

@test "a client that leaves gets nothing and frees its place" {
	sbx_create --name holder
	timeout 60 sandbox create -q --image "$IMAGE" --disk-mib 64 --name gone --wait-capacity 50s >/dev/null 2>&1 3>&- &
	local pid=$!
	until_ok 20 waiting 1
	kill -KILL "$(pgrep -P "$pid")"
	until_ok 10 waiting 0
	timeout 30 sandbox delete holder
	run -0 sandbox list -q
	[ -z "$output" ]
	run -3 timeout 20 sandbox inspect gone
	wait "$pid" || true
}

@test "the API answers with the refusal when the time is over, and a stopping daemon lets go" {
	sbx_create --name holder
	run -0 api '/v1/sandboxes?wait_capacity=1' -H 'Content-Type: application/json' -d '{"spec":{"image":"'"$IMAGE"'"}}' -w '\n%{http_code}'
	[ "${lines[1]}" = 503 ]
	jq -e '.code == "no_capacity" and .decision.placed == false and (.decision.nodes[0].reason | test("its limit is 1"))' <<<"${lines[0]}"
	run -0 api '/v1/sandboxes?wait_capacity=x' -H 'Content-Type: application/json' -d '{"spec":{"image":"'"$IMAGE"'"}}' -o /dev/null -w '%{http_code}'
	[ "$output" = 400 ]
	waiter late 30s
	until_ok 20 waiting 1
	sbx_kill TERM
	until_ok 20 test -e "$BATS_TEST_TMPDIR/late.status"
	[ "$(cat "$BATS_TEST_TMPDIR/late.status")" -ne 0 ]
	sbx_daemon
}
