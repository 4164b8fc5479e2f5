#!/usr/bin/env bats
# Process 1 gets no turn among what a command started: the worker helps from outside, and the sandbox stays.

load ../lib/helpers.bash
load ../lib/tiers.bash

setup_file() {
	need_engine
	[ "$(id -u)" -eq 0 ] || skip "not root: the control groups of containers belong to others"
	sbx_start
	trials_build
}

teardown_file() {
	sbx_stop
}

# Half a core for thousands that only fork: process 1 gets no turn, and what it could end one by one grows faster.
@test "a storm of forks ends with its time limit, and the sandbox goes on" {
	box=$(hostile_box --pids 3000 --cpu-millis 500 --memory-mib 768)
	timeout 60 sandbox exec --detach "$box" -- sleep 4321 >/dev/null
	run timeout 200 sandbox exec --timeout 2s "$box" -- /workspace/trials bomb
	echo "$output"
	[ "$status" -eq 124 ]
	run -0 timeout 60 sandbox exec "$box" -- sh -c 'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" "\n" | sort | uniq -c'
	[[ "$output" == *4321* ]]
	[[ "$output" != *bomb* ]]
	# The same, canceled.
	op=$(timeout 60 sandbox exec --detach "$box" -- /workspace/trials bomb)
	sleep 1
	timeout 60 sandbox kill "$op" >/dev/null
	run timeout 200 sandbox wait --json "$op"
	[ "$(sandbox operation inspect --json "$op" | jq -r .outcome)" = canceled ]
	run -0 timeout 60 sandbox exec "$box" -- echo alive
	timeout 90 sandbox delete "$box"
}

# frozen_file PID: what stops a process's control group, and the word for it.
frozen_file() {
	local v1
	v1=$(sed -n 's/^[0-9]*:freezer://p' "/proc/$1/cgroup")
	if [ -n "$v1" ]; then
		echo "/sys/fs/cgroup/freezer$v1/freezer.state FROZEN"
	else
		echo "/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$1/cgroup")/cgroup.freeze 1"
	fi
}

@test "a daemon killed while it holds a sandbox's processes lets them go when it is back" {
	box=$(sbx_create)
	first=$(docker inspect -f '{{.State.Pid}}' "sandbox-$box")
	read -r file word < <(frozen_file "$first")
	[ -w "$file" ] || skip "the control group of a container is not to be seen here: $file"
	sbx_kill KILL
	echo "$word" >"$file"
	sbx_daemon
	until_ok 30 timeout 20 sandbox exec "$box" -- true
}
