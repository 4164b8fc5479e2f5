#!/usr/bin/env bats
# The fleet's rounds of failures, thirty of each: cables that stay out for longer than a link may be silent, and kill -9 of anything.
load ../lib/helpers

rounds() {
	FLEET_ROUNDS=30 FLEET_OUTAGE=45 run timeout 1700 bats "$TOP/tests/e2e/$1"
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "thirty rounds with pulled cables" {
	rounds fleet_partition.bats
}

@test "thirty rounds with kill -9" {
	rounds fleet_rounds.bats
}
