#!/usr/bin/env bats
# Limits as code inside a sandbox meets them: memory, processes, CPU, disk, temporary files, time.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start
	BOX=$(sbx_create --pids 40 --memory-mib 128 --cpu-millis 500 --disk-mib 64)
	export BOX
}

teardown_file() {
	sbx_stop
}

@test "memory: a process over the limit is killed, the sandbox and other commands live on" {
	run -137 timeout 60 sandbox exec "$BOX" -- sh -c 'x=a; while :; do x=$x$x$x$x; done'
	run -0 timeout 20 sandbox exec "$BOX" -- echo alive
	[ "$output" = alive ]
}

@test "memory: the record says it was the limit" {
	run --separate-stderr timeout 60 sandbox exec --json "$BOX" -- sh -c 'x=a; while :; do x=$x$x$x$x; done'
	[ "$status" -eq 137 ]
	echo "$output" | jq -e '.outcome == "signaled" and .output.oom_killed == true'
}

@test "memory: filling /tmp does not kill process 1" {
	run timeout 60 sandbox exec "$BOX" -- sh -c 'dd if=/dev/zero of=/tmp/fill bs=1M count=500; rm -f /tmp/fill; true'
	run -0 timeout 20 sandbox exec "$BOX" -- echo alive
}

@test "processes: a fork bomb stays in its box and can be ended" {
	run timeout 60 sandbox exec --timeout 3s "$BOX" -- sh -c 'f() { f | f & }; f; sleep 30'
	until_ok 60 timeout 20 sandbox exec "$BOX" -- true
	run -0 timeout 20 sandbox exec "$BOX" -- echo alive
	[ "$output" = alive ]
}

@test "processes: commands have the ordinary priority, process 1 comes before them" {
	run -0 timeout 20 sandbox exec "$BOX" -- awk '{ print $19 }' /proc/self/stat
	[ "$output" = 0 ]
	run -0 timeout 20 sandbox exec "$BOX" -- awk '{ print $19 }' /proc/1/stat
	[ "$output" = -20 ]
}

@test "disk: /workspace has the size that was asked, and says so when full" {
	run timeout 60 sandbox exec "$BOX" -- sh -c 'cd /workspace && dd if=/dev/zero of=big bs=1M count=200; rc=$?; ls -l big; rm -f big; exit $rc'
	[ "$status" -ne 0 ]
	[[ "$output" == *"No space left on device"* ]]
}

@test "disk: the root file system is read-only unless asked otherwise" {
	run timeout 20 sandbox exec "$BOX" -- touch /etc/x
	[ "$status" -ne 0 ]
	[[ "$output" == *"Read-only"* ]]
	local box
	box=$(sbx_create --writable-root)
	run -0 timeout 20 sandbox exec "$box" -- touch /etc/x
	sandbox delete "$box"
}

@test "disk: a writable root that grows past its size ends the sandbox, and the command hears why" {
	local box
	box=$(sbx_create --writable-root --disk-mib 64)
	run timeout 90 sandbox exec --user root "$box" -- sh -c 'dd if=/dev/zero of=/big bs=1M count=90; sleep 80'
	[ "$status" -eq 125 ]
	[[ "$output" == *"grew past resources.disk_mib"* ]]
	sandbox inspect --json "$box" | jq -e '.state == "failed"'
	timeout 60 sandbox delete "$box"
}

@test "disk: inodes of /tmp are bounded" {
	run timeout 60 sandbox exec "$BOX" -- sh -c 'i=0; while [ $i -lt 400000 ]; do : >/tmp/f$i || exit 9; i=$((i+1)); done'
	[ "$status" -ne 0 ]
	timeout 30 sandbox exec "$BOX" -- sh -c 'rm -rf /tmp/f*' || timeout 60 sandbox exec "$BOX" -- find /tmp -name 'f*' -delete
}

@test "CPU: two busy loops together get half a core" {
	run -0 timeout 60 sandbox exec "$BOX" -- sh -c 'for i in 1 2; do (timeout 4 sh -c "while :; do :; done") & done; wait; times; true'
	# The second line of times: user and system time of the children.
	local used
	used=$(echo "$output" | tail -n 1 | awk '{ split($1, u, /[ms]/); split($2, s, /[ms]/); print u[1]*60+u[2]+s[1]*60+s[2] }')
	awk -v u="$used" 'BEGIN { exit !(u > 0.5 && u < 3.2) }' || { echo "used $used s of CPU in 4 s"; false; }
}

@test "time: a sandbox ends at its deadline within a second" {
	local box start
	start=$(date +%s%N)
	box=$(sbx_create --ttl 3s)
	until_ok 10 sh -c "! docker inspect sandbox-$box"
	local took=$((($(date +%s%N) - start) / 1000000))
	[ "$took" -ge 2800 ]
	[ "$took" -lt 6000 ]
}
