#!/usr/bin/env bats
# What hostile code inside a container sandbox tries first, and what it gets.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start
	BOX=$(sbx_create)
	ROOTBOX=$(sbx_create --writable-root)
	export BOX ROOTBOX
}

teardown_file() {
	sbx_stop
}

in_box() {
	timeout 30 sandbox exec "$@"
}

@test "a command has no capability, and none comes back" {
	run -0 in_box "$BOX" -- grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status
	[ "$(echo "$output" | grep -c '0000000000000000')" -eq 4 ]
	run -0 in_box "$BOX" -- grep NoNewPrivs /proc/self/status
	[[ "$output" == *1 ]]
}

@test "root of a writable sandbox has the five file and id capabilities only" {
	run -0 in_box --user root "$ROOTBOX" -- grep CapEff /proc/self/status
	# CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, SETGID 6, SETUID 7.
	[[ "$output" == *00000000000000cb ]]
}

@test "mount, unshare, pivot: refused" {
	local c
	for c in 'mount -t tmpfs none /mnt' 'mount -o remount,rw /' 'unshare -m true' 'unshare -U true' 'umount /proc'; do
		run in_box --user root "$ROOTBOX" -- sh -c "$c"
		[ "$status" -ne 0 ] || { echo "'$c' succeeded"; false; }
	done
}

@test "device nodes cannot be made" {
	run in_box --user root "$ROOTBOX" -- mknod /tmp/sda b 8 0
	[ "$status" -ne 0 ]
	run in_box "$BOX" -- sh -c 'ls /dev/sd* /dev/vd* /dev/kvm /dev/loop* 2>/dev/null | wc -l'
	[ "$output" -eq 0 ]
}

@test "the host's processes are invisible, and its kernel settings read-only" {
	run -0 in_box "$BOX" -- sh -c 'ls -d /proc/[0-9]* | wc -l'
	[ "$output" -lt 12 ]
	run in_box --user root "$ROOTBOX" -- sh -c 'echo 1 >/proc/sys/kernel/panic'
	[ "$status" -ne 0 ]
	run in_box --user root "$ROOTBOX" -- sh -c 'echo x >/proc/sysrq-trigger'
	[ "$status" -ne 0 ]
	run in_box --user root "$ROOTBOX" -- sh -c 'echo "|/tmp/x" >/proc/sys/kernel/core_pattern'
	[ "$status" -ne 0 ]
}

@test "cgroup release agents are out of reach" {
	run in_box --user root "$ROOTBOX" -- sh -c 'echo /tmp/x >/sys/fs/cgroup/memory/release_agent || mkdir /sys/fs/cgroup/memory/x'
	[ "$status" -ne 0 ]
}

@test "our own mounts are read-only inside" {
	run in_box --user root "$ROOTBOX" -- sh -c 'echo x >/.sandbox/init'
	[ "$status" -ne 0 ]
	run in_box --user root "$ROOTBOX" -- touch /.sandbox/io/x
	[ "$status" -ne 0 ]
	run in_box --user root "$ROOTBOX" -- rm -f /.sandbox/io/worker.sock
	[ "$status" -ne 0 ]
}

@test "process 1 can neither be killed nor looked into by a user's command" {
	in_box --user 1000 "$BOX" -- sh -c 'kill -9 1; kill -STOP 1' || true
	run -0 in_box "$BOX" -- echo alive
	run in_box --user 1000 "$BOX" -- cat /proc/1/environ
	[ "$status" -ne 0 ]
	run in_box --user 1000 "$BOX" -- ls -l /proc/1/fd
	[ "$status" -ne 0 ]
}

@test "set-uid programs gain nothing" {
	in_box --user root "$ROOTBOX" -- sh -c 'mkdir /suid && cp /bin/busybox /suid/id && chmod 4755 /suid/id'
	run -0 in_box --user 1000 "$ROOTBOX" -- /suid/id -u
	[ "$output" = 1000 ]
}

@test "/workspace carries no device and no set-uid" {
	run -0 in_box "$BOX" -- sh -c 'grep " /workspace " /proc/mounts'
	[[ "$output" == *nosuid* ]]
	[[ "$output" == *nodev* ]]
}
