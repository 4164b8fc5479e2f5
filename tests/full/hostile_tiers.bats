#!/usr/bin/env bats
# Hostile guests at length, on each tier that this machine has: crowds, bombs and floods, while the neighbours are used.

load ../lib/helpers.bash
load ../lib/tiers.bash

setup_file() {
	need_engine
	local driver=
	TIERS="container gvisor"
	if [ "$(id -u)" -eq 0 ] && [ -x /usr/bin/qemu-system-x86_64 ] && [ -d "$BUILD/kernel" ]; then
		need_microvm
		driver="--set worker.driver=$MICROVM_DIR/driver --set worker.driver_development=true"
		TIERS="$TIERS microvm"
	fi
	export TIERS
	# shellcheck disable=SC2086
	tiers_start --set worker.gvisor_runtime=runsc $driver
	trials_build
}

teardown_file() {
	sbx_stop
	microvm_stop
}

@test "ten thousand connections with noise, while commands go on" {
	export CONNECTIONS=10000
	on_each_tier flood
}

# Room for thousands of processes and little CPU: what ends them competes with them.
great_bomb() {
	local box
	box=$(hostile_box --tier "$1" --pids 4000 --cpu-millis 500 --memory-mib 512)
	timeout 90 sandbox exec --detach "$box" -- /workspace/trials bomb >/dev/null
	for _ in 1 2 3 4 5 6 7 8; do
		unharmed "$1"
		sleep 1
	done
	drop "$box"
}

@test "four thousand deaf processes on half a core, while commands go on elsewhere" {
	on_each_tier great_bomb
}

# Ten commands that write without end, and nobody reads.
spout() {
	local box i
	box=$(hostile_box --tier "$1")
	for i in 1 2 3 4 5 6 7 8 9 10; do
		timeout 60 sandbox exec --detach "$box" -- sh -c 'yes flood; yes flood >&2' >/dev/null || true
	done
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		unharmed "$1"
		sleep 1
	done
	[ "$(du -sm "$SBX_DIR/state" --exclude='*.img' | cut -f1)" -lt 1024 ]
	drop "$box"
}

@test "output without end that nobody reads is bounded" {
	on_each_tier spout
}

# Twenty in a row that are ended in the middle of their worst.
in_a_row() {
	local box
	for _ in $(seq "$2"); do
		box=$(hostile_box --tier "$1" --pids 128)
		timeout 60 sandbox exec --detach "$box" -- /workspace/trials bomb >/dev/null
		timeout 60 sandbox exec --detach "$box" -- sh -c 'dd if=/dev/zero of=/workspace/x bs=1M' >/dev/null 2>&1 || true
		drop "$box"
	done
	unharmed "$1"
	[ "$(find /sys/fs/cgroup -type d -path "*$(cat "$SBX_DIR/state/node-id")*" -name '*-*-*-*-*' 2>/dev/null | grep -c "$box")" -eq 0 ]
}

rows() {
	in_a_row "$1" 8
}

@test "hostile sandboxes in a row leave nothing" {
	on_each_tier rows
}
