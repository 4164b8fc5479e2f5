#!/usr/bin/env bats
# The fleet's rounds of failures, thirty of each: cables that stay out for longer than a link may be silent, and kill -9 of anything,
# NATS and the database among it.
# run-alone: it kills the database of the others

load ../lib/helpers
load ../lib/postgres

rounds() {
	FLEET_ROUNDS=30 FLEET_OUTAGE=45 FLEET_DATABASE=1 run timeout 1700 bats "$TOP/tests/e2e/$1"
	echo "$output"
	[ "$status" -eq 0 ]
}

# A round that failed may have left the database down.
teardown() {
	[ -z "${SANDBOX_TEST_PG_URL:-}" ] || pg_ctl status || pg_ctl start
}

@test "thirty rounds with pulled cables" {
	rounds fleet_partition.bats
}

@test "thirty rounds with kill -9" {
	rounds fleet_rounds.bats
}
