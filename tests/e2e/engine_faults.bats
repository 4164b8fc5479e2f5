#!/usr/bin/env bats
# An engine whose calls go wrong: refused, cut before or after their effect, hanging, lying. Whatever the client is told, nothing is
# left, and the next sandbox lives. More ways and calls: tests/full/engine_faults.bats.

load ../lib/helpers.bash
load ../lib/engine_faults.bash

setup_file() {
	engine_faults_start
}

teardown_file() {
	engine_faults_stop
}

@test "the engine does what it was told and the connection ends before it says so" {
	engine_rounds 8 cut_after
}

@test "the engine says that it did what it did not do" {
	engine_rounds 8 lie
}
