#!/usr/bin/env bats
# The same behaviour on every tier, and the proof of each tier from inside. gVisor needs an engine with a runsc runtime.

load ../lib/helpers.bash

TIERS="container gvisor"

setup_file() {
	need_engine
	sbx_start --set worker.gvisor_runtime=runsc
	local tier offered
	offered=
	for tier in $TIERS; do
		if sandbox doctor --json | jq -e --arg part "tier $tier" '.checks[] | select(.part == $part) | .detail | startswith("not offered")' >/dev/null; then
			continue
		fi
		offered="$offered $tier"
		sbx_create --name "box-$tier" --tier "$tier" --pids 64 --memory-mib 160 --cpu-millis 1000
	done
	OFFERED=$offered
	export OFFERED
}

teardown_file() {
	sbx_stop
}

# Runs a function of this file for each tier that is offered here; a tier that is not is said.
on_each_tier() {
	local tier
	for tier in $TIERS; do
		case " $OFFERED " in
		*" $tier "*) ;;
		*) continue ;;
		esac
		echo "on $tier:"
		BOX=box-$tier
		"$@" "$tier"
	done
	case $OFFERED in
	*gvisor*) ;;
	*) skip "gvisor: $(sandbox doctor --json | jq -r '.checks[] | select(.part == "tier gvisor") | .detail')" ;;
	esac
}

inside() {
	timeout 30 sandbox exec "$BOX" -- "$@"
}

state_of() {
	sandbox inspect --json "$1" | jq -r .state
}

proof() {
	local kernel version
	kernel=$(uname -r)
	version=$(inside cat /proc/version)
	case $1 in
	container) [[ $version == *"$kernel"* ]] ;;
	gvisor)
		[[ $version != *"$kernel"* ]]
		inside dmesg | grep -q gVisor
		;;
	esac
	[ "$(sandbox inspect --json "$BOX" | jq -r .tier)" = "$1" ]
	[ "$(sandbox inspect --json "$BOX" | jq -r .isolation)" = container ]
}

@test "each tier is what it says, seen from inside" {
	on_each_tier proof
}

statuses() {
	local want
	for want in 0 1 7 255; do
		run "-$want" inside sh -c "exit $want"
	done
	run -143 inside sh -c 'kill -TERM $$'
	run -137 inside sh -c 'kill -KILL $$'
	run -127 inside no-such-program
	run -126 inside /etc
	run -0 timeout 30 sandbox exec --env GREETING='a b' --cwd /tmp "$BOX" -- sh -c 'echo "$GREETING $PWD"'
	[ "$output" = "a b /tmp" ]
}

@test "exit statuses, environment and directory" {
	on_each_tier statuses
}

streams() {
	local sum
	[ "$(printf x | inside cat)" = x ]
	[ -z "$(inside cat </dev/null)" ]
	run --separate-stderr -0 inside sh -c 'echo out; echo err >&2'
	[ "$output" = out ]
	[ "$stderr" = err ]
	head -c 8000000 /dev/urandom >"$BATS_TEST_TMPDIR/in"
	inside cat <"$BATS_TEST_TMPDIR/in" >"$BATS_TEST_TMPDIR/out"
	cmp "$BATS_TEST_TMPDIR/in" "$BATS_TEST_TMPDIR/out"
}

@test "streams are whole and apart" {
	on_each_tier streams
}

time_outs() {
	local start=$SECONDS
	run -124 timeout 30 sandbox exec --timeout 1s "$BOX" -- sh -c 'setsid sleep 321 & trap "" TERM; sleep 321; sleep 321'
	[ $((SECONDS - start)) -lt 12 ]
	run -1 inside sh -c 'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" " " | grep "sleep 32[1]"'
}

@test "a time-out ends the whole tree" {
	on_each_tier time_outs
}

left_behind() {
	run -0 inside sh -c 'sleep 654 >/dev/null 2>&1 & echo started'
	[ "$output" = started ]
	run -0 inside sh -c 'cat /proc/[0-9]*/cmdline | tr "\0" " " | grep -c "sleep 65[4]"'
	inside sh -c 'for p in /proc/[0-9]*; do grep -q "^sleep.65[4]" $p/cmdline 2>/dev/null && kill ${p#/proc/}; done; true'
}

@test "a server that a finished command left behind stays up" {
	on_each_tier left_behind
}

zombies() {
	local i
	for i in 1 2 3 4 5 6; do
		inside sh -c '(sleep 0 &) ; (setsid sleep 0.01 &)'
	done
	# shellcheck disable=SC2016
	until_ok 10 sh -c 'test "$(timeout 20 sandbox exec '"$BOX"' -- sh -c "grep -l ^State:.Z /proc/[0-9]*/status 2>/dev/null | wc -l")" -eq 0'
}

@test "no zombie stays" {
	on_each_tier zombies
}

terminals() {
	run -0 timeout 40 "$BUILD/tools/pty" 33x99 sandbox shell "$BOX" -- sh <<-'END'
		raw
		send stty size\r
		expect 33 99
		send exit 7\r
		end
	END
	[[ $output == *"status 7"*"settings same"* ]]
}

copies() {
	mkdir -p "$BATS_TEST_TMPDIR/tree/sub"
	head -c 300000 /dev/urandom >"$BATS_TEST_TMPDIR/tree/sub/blob"
	ln -sf sub/blob "$BATS_TEST_TMPDIR/tree/link"
	timeout 30 sandbox cp "$BATS_TEST_TMPDIR/tree" "$BOX:/workspace/tree-$1"
	rm -rf "$BATS_TEST_TMPDIR/back"
	timeout 30 sandbox cp "$BOX:/workspace/tree-$1" "$BATS_TEST_TMPDIR/back"
	diff -r "$BATS_TEST_TMPDIR/tree" "$BATS_TEST_TMPDIR/back"
	[ "$(readlink "$BATS_TEST_TMPDIR/back/link")" = sub/blob ]
}

@test "copies in and out" {
	on_each_tier copies
}

kept_output() {
	local op
	op=$(timeout 20 sandbox exec --detach "$BOX" -- sh -c 'echo one; echo two >&2; sleep 0.2; echo three')
	timeout 20 sandbox wait "$op" >/dev/null
	run -0 timeout 20 sandbox logs "$op"
	[[ "$output" == *one*three* ]]
	[[ "$output" == *two* ]]
}

@test "logs of a detached command" {
	on_each_tier kept_output
}

@test "terminal sessions" {
	[ -x "$BUILD/tools/pty" ] || skip "tests/tools/pty is not built"
	on_each_tier terminals
}

rights() {
	[ "$(inside sh -c 'grep ^CapEff /proc/self/status | tr -dc 1-9')" = "" ]
	run ! inside mount -t tmpfs none /tmp
	run ! inside touch /etc/x
	run ! timeout 30 sandbox exec --user 1000 "$BOX" -- kill -9 1
	run -0 inside cat /proc/net/dev
	[[ "$output" == *lo:* ]]
	[[ "$output" != *eth* ]]
	run -0 inside sh -c 'echo hi | nc -l -p 8080 127.0.0.1 >/tmp/got & for i in $(seq 50); do echo x | nc -w 2 127.0.0.1 8080 && break; sleep 0.1; done; wait'
}

@test "no capabilities, a read-only root, no network but loopback" {
	on_each_tier rights
}

disk() {
	run inside sh -c 'cd /workspace && dd if=/dev/zero of=big bs=1M count=100; rc=$?; rm -f big; exit $rc'
	[ "$status" -ne 0 ]
	[[ "$output" == *"No space left on device"* ]]
}

@test "/workspace ends where its size does" {
	on_each_tier disk
}

cpu() {
	local id before after
	id=$(sandbox inspect --json "$BOX" | jq -r .id)
	before=$(sandbox top --json "$BOX" | jq '[.. | .cpu_us? // empty][0]')
	timeout 30 sandbox exec "$BOX" -- sh -c 'for i in 1 2 3; do (timeout 2 sh -c "while :; do :; done") & done; wait' || true
	after=$(sandbox top --json "$BOX" | jq '[.. | .cpu_us? // empty][0]')
	[ "$after" -gt "$before" ]
	# One core for some two seconds; three loops on two cores would use four.
	[ $((after - before)) -lt 3400000 ] || { echo "used $((after - before)) us"; false; }
}

@test "the CPU limit holds for all its processes together" {
	on_each_tier cpu
}

resumes() {
	local before after
	before=$(inside sh -c 'sleep 987 >/dev/null 2>&1 & echo $!')
	sbx_kill KILL
	sbx_daemon
	until_ok 20 inside true
	after=$(inside sh -c "tr '\\0' ' ' </proc/$before/cmdline")
	[ "$after" = "sleep 987 " ]
	inside kill "$before"
}

@test "a killed daemon finds the sandbox again, and its processes" {
	on_each_tier resumes
}

# One command over the memory limit. In a container it alone ends; a sentry ends with everything in it.
out_of_memory() {
	local box op
	box=$(sbx_create --tier "$1" --memory-mib 128)
	run --separate-stderr timeout 60 sandbox exec --json "$box" -- sh -c 'x=a; while :; do x=$x$x$x$x; done'
	case $1 in
	container)
		[ "$status" -eq 137 ]
		[ "$(state_of "$box")" = running ]
		;;
	gvisor)
		[ "$status" -eq 125 ]
		until_ok 15 sh -c "sandbox inspect --json $box | jq -e '.state == \"failed\"'"
		sandbox inspect --json "$box" | grep -q 'out of memory'
		;;
	esac
	timeout 60 sandbox delete "$box"
	[ "$(state_of "box-$1")" = running ]
}

@test "out of memory: the neighbours go on, and the record says what it was" {
	on_each_tier out_of_memory
}

fork_bomb() {
	local box start=$SECONDS
	box=$(sbx_create --tier "$1" --pids 16 --memory-mib 256)
	run timeout 60 sandbox exec --timeout 3s "$box" -- sh -c 'f() { f | f & }; f; sleep 30'
	[ "$status" -ne 0 ]
	run -0 inside echo alive
	run -0 timeout 60 sandbox delete "$box"
	[ $((SECONDS - start)) -lt 40 ]
}

@test "a fork bomb ends in its own sandbox, and the delete is bounded" {
	on_each_tier fork_bomb
}

busy_delete() {
	local box start
	box=$(sbx_create --tier "$1")
	timeout 60 sandbox exec --detach "$box" -- sh -c 'while :; do dd if=/dev/zero of=/tmp/x bs=64k count=100 2>/dev/null; done' >/dev/null
	timeout 60 sandbox exec --detach "$box" -- sh -c 'trap "" TERM INT; while :; do sleep 1; done' >/dev/null
	start=$SECONDS
	run -0 timeout 60 sandbox delete "$box"
	[ $((SECONDS - start)) -lt 15 ]
	run -3 sandbox inspect "$box" --json || [ "$(state_of "$box")" != running ]
	[ -z "$(docker ps -aq --filter "name=sandbox-$box")" ]
	[ -z "$(find /sys/fs/cgroup -type d -name "$box" 2>/dev/null)" ]
}

@test "delete while busy leaves nothing" {
	on_each_tier busy_delete
}

killed_from_outside() {
	local box pid
	box=$(sbx_create --tier "$1")
	pid=$(docker inspect -f '{{.State.Pid}}' "sandbox-$box")
	(sleep 1; kill -KILL "$pid") &
	run -125 timeout 60 sandbox exec "$box" -- sleep 50
	until_ok 20 sh -c "sandbox inspect --json $box | jq -e '.state == \"failed\"'"
	timeout 60 sandbox delete "$box"
}

@test "a sandbox that is killed from outside is noticed, and no status is invented" {
	on_each_tier killed_from_outside
}

frozen() {
	local box pid start
	box=$(sbx_create --tier "$1")
	pid=$(docker inspect -f '{{.State.Pid}}' "sandbox-$box")
	kill -STOP "$pid"
	start=$SECONDS
	run -0 timeout 60 sandbox delete "$box"
	[ $((SECONDS - start)) -lt 30 ]
	[ ! -d "/proc/$pid" ]
	[ "$(state_of "box-$1")" = running ]
}

@test "a sandbox that does not move any more is deleted in bounded time" {
	on_each_tier frozen
}

flood() {
	local fds
	fds=$(daemon_fds)
	timeout 40 sandbox exec "$BOX" -- sh -c 'i=0; while [ $i -lt 200 ]; do nc local:/.sandbox/io/worker.sock </dev/null >/dev/null 2>&1 & i=$((i+1)); [ $((i % 20)) -ne 0 ] || wait; done; wait; true' || true
	run -0 inside echo fine
	[ "$output" = fine ]
	until_ok 15 sh -c "test \$(find /proc/$(sbx_pid)/fd -mindepth 1 | wc -l) -le $((fds + 4))"
}

@test "a flood of connections to the socket does no harm" {
	on_each_tier flood
}

impostor() {
	timeout 20 sandbox exec --detach "$BOX" -- /.sandbox/init --socket /.sandbox/io/worker.sock --deadline-us 0 --grace-ms 1000
	sleep 1
	run -0 inside echo right
	[ "$output" = right ]
	grep -q "connection refused sandbox=$(sandbox inspect --json "$BOX" | jq -r .id)" "$SBX_DIR/log"
	run inside sh -c 'for p in /proc/[0-9]*; do case ${p#/proc/} in 1 | self) ;; *) grep -q worker.sock $p/cmdline 2>/dev/null && kill -9 ${p#/proc/} ;; esac; done; true'
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
