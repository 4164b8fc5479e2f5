#!/usr/bin/env bats
# What hostile code inside a container sandbox tries first, and what it gets.

load ../lib/helpers.bash
load ../lib/tiers.bash
load ../lib/escapes.bash

setup_file() {
	need_engine
	sbx_start
	escapes_setup
	BOX=$(hostile_box)
	ROOTBOX=$(sbx_create --writable-root)
	export BOX ROOTBOX
}

teardown_file() {
	escapes_teardown
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

@test "mounts, roots and the file system's handles by system call: refused" {
	trial "$BOX" mount
}

@test "file handles past the mounts: refused" {
	trial "$BOX" handles
}

@test "joining or leaving name spaces: refused" {
	trial "$BOX" namespaces
}

@test "a user name space: refused, since the kernel is the host's" {
	trial "$BOX" userns
}

@test "tracing and reading process 1: refused" {
	trial "$BOX" ptrace
}

@test "the kernel's keyrings: refused" {
	trial "$BOX" keyrings
}

@test "modules, kexec, bpf, perf, clocks, swap: refused" {
	trial "$BOX" kernel
}

@test "io_uring: refused, and as by a kernel without it" {
	trial "$BOX" rings
	trial "$BOX" rings-unknown
}

@test "sockets that leave the name space, vsock first: refused; ordinary ones are made" {
	trial "$BOX" families
}

@test "device nodes, made or found: refused" {
	trial "$BOX" devices
}

@test "files of /proc and /sys that change the host: refused" {
	trial "$BOX" proc
}

@test "the host's abstract sockets, raw packets: refused" {
	trial "$BOX" abstract
}

@test "taking capabilities and other users' names: refused" {
	trial "$BOX" capabilities
}

@test "a link in a sandbox leads to the sandbox's own files, also while it changes" {
	echo "of the host" >"$SBX_DIR/sentinel"
	in_box "$BOX" -- ln -sfn "$SBX_DIR" /workspace/dir
	in_box "$BOX" -- ln -sfn "$SBX_DIR/sentinel" /workspace/file
	run ! timeout 30 sandbox cp "$BOX:/workspace/dir/sentinel" "$BATS_TEST_TMPDIR/a"
	timeout 30 sandbox cp "$BOX:/workspace/file" "$BATS_TEST_TMPDIR/b" || true
	run ! timeout 30 sandbox cp /etc/hostname "$BOX:/workspace/dir/planted"
	timeout 60 sandbox exec --detach "$BOX" -- sh -c "cd /workspace; mkdir -p real; end=\$((\$(date +%s) + 6)); while [ \$(date +%s) -lt \$end ]; do ln -sfn $SBX_DIR swap; rm -f swap; mkdir swap; rmdir swap; done" >/dev/null
	for _ in 1 2 3 4 5 6 7 8; do
		timeout 30 sandbox cp "$BOX:/workspace/swap" "$BATS_TEST_TMPDIR/swapped" 2>/dev/null || true
		timeout 30 sandbox cp /etc/hostname "$BOX:/workspace/swap/planted" 2>/dev/null || true
	done
	[ ! -e "$SBX_DIR/planted" ]
	run ! grep -rs "of the host" "$BATS_TEST_TMPDIR/a" "$BATS_TEST_TMPDIR/b" "$BATS_TEST_TMPDIR/swapped"
}

@test "names from inside neither steer a terminal nor forge a line of the log" {
	local esc=$'\033]0;owned\007' forged=$'x\n2026-01-01T00:00:00.000000Z error forged line'
	in_box --detach "$BOX" -- sh -c 'sleep 60; true' "$esc" >/dev/null
	in_box "$BOX" -- "$forged" || true
	run -0 timeout 20 sandbox ps "$BOX"
	[[ $output == *owned* ]]
	[[ $output != *$'\033'* ]]
	run -0 timeout 20 sandbox operation list
	[[ $output != *$'\033'* ]]
	! grep -q '^2026-01-01T00:00:00.000000Z error forged' "$SBX_DIR/log" || false
	! grep -q $'\033' "$SBX_DIR/log" || false
}
