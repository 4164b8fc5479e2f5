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

# Room for hundreds of processes and little CPU: what ends them competes with them.
great_bomb() {
	local box
	box=$(hostile_box --tier "$1" --pids 400 --cpu-millis 500 --memory-mib 256)
	timeout 90 sandbox exec --detach "$box" -- /workspace/trials bomb >/dev/null
	for _ in 1 2 3 4 5 6 7 8; do
		unharmed "$1"
		sleep 1
	done
	drop "$box"
}

@test "four hundred deaf processes on half a core, while commands go on elsewhere" {
	on_each_tier great_bomb
}

answers_or_failed() {
	[ "$(state_of "$1")" = failed ] || [ "$(timeout 20 sandbox exec "$1" -- echo still)" = still ]
}

# Thousands of processes on half a core, for one command that has a time limit. It is kept, and the sandbox goes on; or, where nobody
# can part the command from its sandbox, both end, and the record says so. Never a status that nobody saw.
storm() {
	local box ended said
	box=$(hostile_box --tier "$1" --pids 4000 --cpu-millis 500 --memory-mib 1024)
	run timeout 120 sandbox exec --timeout 3s "$box" -- /workspace/trials bomb
	ended=$status said=$output
	echo "$said"
	unharmed "$1"
	if [ "$1" = container ]; then
		[ "$ended" -eq 124 ]
		run -0 timeout 60 sandbox exec "$box" -- echo still
	else
		[ "$ended" -eq 124 ] || [[ "$ended $said" == "125 "*lost* ]]
		until_ok 60 answers_or_failed "$box"
	fi
	drop "$box"
}

@test "four thousand processes on half a core end with their time limit, or with their sandbox" {
	on_each_tier storm
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
