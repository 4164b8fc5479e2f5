#!/usr/bin/env bats
# A warm pool of machines, which take their time to boot: what tests/e2e/tiers.bats tries with gVisor.

load ../lib/helpers.bash
load ../lib/tiers.bash

TIERS=microvm

setup_file() {
	need_engine
	need_microvm
	tiers_start --set "worker.driver=$MICROVM_DIR/driver" --set worker.driver_development=true
}

teardown_file() {
	sbx_stop
	microvm_stop
}

@test "a warm pool of machines hands out what was asked for" {
	on_each_tier claimed
}
