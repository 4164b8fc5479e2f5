#!/usr/bin/env bats
# The same behaviour on every tier of the engine, and the proof of each tier from inside. gVisor needs an engine with a runsc
# runtime. tiers_microvm.bats is the same for machines.

load ../lib/helpers.bash
load ../lib/tls.bash
load ../lib/ways.bash
load ../lib/tiers.bash
load ../lib/escapes.bash

TIERS="container gvisor"

setup_file() {
	need_engine
	# shellcheck disable=SC2086
	tiers_start --set worker.gvisor_runtime=runsc $ORIGIN_SETTINGS
	escapes_setup
	origin_start
	ways_setup
	trials_give
}

teardown_file() {
	escapes_teardown
	origin_stop
	ways_teardown
	sbx_stop
}

@test "each tier is what it says, seen from inside" {
	on_each_tier proof
}

@test "exit statuses, environment and directory" {
	on_each_tier statuses
}

@test "streams are whole and apart" {
	on_each_tier streams
}

@test "a time-out ends the whole tree" {
	on_each_tier time_outs
}

@test "a server that a finished command left behind stays up" {
	on_each_tier left_behind
}

@test "no zombie stays" {
	on_each_tier zombies
}

@test "copies in and out" {
	on_each_tier copies
}

@test "logs of a detached command" {
	on_each_tier kept_output
}

@test "terminal sessions" {
	[ -x "$BUILD/tools/pty" ] || skip "tests/tools/pty is not built"
	on_each_tier terminals
}

@test "no capabilities, a read-only root, no network but loopback" {
	on_each_tier rights
}

@test "/workspace ends where its size does" {
	on_each_tier disk
}

@test "the CPU limit holds for all its processes together" {
	on_each_tier cpu
}

@test "a killed daemon finds the sandbox again, and its processes" {
	on_each_tier resumes
}

@test "out of memory: the neighbours go on, and the record says what it was" {
	on_each_tier out_of_memory
}

@test "a fork bomb that is deaf to signals ends in its own sandbox, and the delete is bounded" {
	on_each_tier fork_bomb
}

@test "mounts and roots by system call: refused" {
	on_each_tier refused mount
}

@test "file handles past the mounts: refused" {
	on_each_tier refused handles
}

@test "the host's abstract sockets, raw packets: refused" {
	on_each_tier refused abstract
}

@test "io_uring, sockets that leave the name space: refused" {
	on_each_tier refused rings
	on_each_tier refused families
}

@test "taking capabilities and other users' names: refused" {
	on_each_tier refused capabilities
}

@test "files of /proc and /sys that change the host: refused" {
	on_each_tier refused proc
}

@test "what a kernel of its own allows reaches nothing of the host" {
	on_each_tier own_kernel namespaces userns ptrace keyrings kernel devices
}

@test "from a closed sandbox nothing leaves: no address, name, socket or device" {
	on_each_tier closed
}

@test "restricted egress leads where it may, and nowhere else" {
	on_each_tier restricted
}

@test "a warm pool of the tier hands out what was asked for" {
	on_each_tier claimed
}

@test "signals to process 1 from root inside harm nobody else" {
	on_each_tier signals_to_init
}

@test "a sandbox that writes everything full is used and ended as ever" {
	on_each_tier full_disks
}

@test "delete while busy leaves nothing" {
	on_each_tier busy_delete
}

@test "a sandbox that is killed from outside is noticed, and no status is invented" {
	on_each_tier killed_from_outside
}

@test "a sandbox that does not move any more is deleted in bounded time" {
	on_each_tier frozen
}

@test "a flood of connections, noise and descriptors at the socket does no harm" {
	on_each_tier flood
}

@test "a second sandbox-init started inside does not take over" {
	on_each_tier impostor
}

@test "a tier that is not offered refuses with the reason, and nothing weaker is given" {
	run -6 timeout 30 sandbox create --image "$IMAGE" --tier microvm
	[[ "$output" == *microvm* ]]
	sbx_kill TERM
	sbx_daemon --set worker.gvisor_runtime=
	run -6 timeout 30 sandbox create --image "$IMAGE" --tier gvisor
	[[ "$output" == *gvisor* ]]
	[[ "$output" == *worker.gvisor_runtime* ]]
	sbx_kill TERM
	sbx_daemon --set worker.gvisor_runtime=no-such-runtime
	run -6 timeout 30 sandbox create --image "$IMAGE" --tier gvisor
	[[ "$output" == *no-such-runtime* ]]
	[ -z "$(sandbox list --json | jq -r '.[] | select(.tier == "container" and .name == null) | .id')" ]
}
