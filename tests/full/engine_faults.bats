#!/usr/bin/env bats
# Every call of a sandbox's life to the engine going wrong, in every way.

load ../lib/helpers.bash
load ../lib/engine_faults.bash

setup_file() {
	engine_faults_start
}

teardown_file() {
	engine_faults_stop
}

@test "refused, refused after the effect, cut, cut after the effect" {
	engine_rounds 14 error refused_after cut cut_after
}

@test "lies, garbage, half an answer" {
	engine_rounds 14 lie garbage short
}

@test "no answer at all" {
	engine_rounds 10 hang
}
