#!/usr/bin/env bats
# run: create, exec, delete, whatever happens in between.
load ../lib/helpers

setup_file() {
	sbx_start
}

teardown_file() {
	sbx_stop
}

nothing_left() {
	[ -z "$(timeout 10 sandbox list -q)" ]
}

small() {
	timeout 60 sandbox run --image "$IMAGE" --disk-mib 64 --memory-mib 256 "$@"
}

@test "the command's output and status, and nothing is left" {
	run -0 --separate-stderr small -- echo hi there
	[ "$output" = "hi there" ]
	nothing_left
	run -7 small -- sh -c 'exit 7'
	nothing_left
	run -127 small -- nosuch
	nothing_left
	run -124 small --timeout 1s -- sleep 100
	nothing_left
}

@test "input passes, and its end" {
	run -0 bash -c "printf x | timeout 60 sandbox run --image $IMAGE --disk-mib 64 -- cat"
	[ "$output" = x ]
	nothing_left
}

@test "--keep leaves the sandbox and says which" {
	run -0 --separate-stderr small --keep --name kept -- true
	[[ $stderr == *kept* ]]
	timeout 10 sandbox exec kept -- true
	timeout 60 sandbox delete kept --wait
}

@test "a create that fails is the tool's failure, and nothing is left" {
	run -125 --separate-stderr timeout 60 sandbox run --image no.such.registry.invalid/img:1 -- true
	[ -n "$stderr" ]
	nothing_left
	run -125 --separate-stderr small --network bogus -- true
	[ -n "$stderr" ]
}

# Interrupts a run after so many seconds; the status must be the signal's and nothing may stay.
interrupt_after() {
	sandbox run --image "$IMAGE" --disk-mib 64 -- sleep 100 </dev/null >/dev/null 2>&1 3>&- &
	local pid=$! rc=0
	sleep "$2"
	kill "-$1" "$pid"
	wait "$pid" || rc=$?
	[ "$rc" -gt 128 ] || { echo "status $rc after $1 at $2"; return 1; }
	until_ok 20 nothing_left
}

@test "interrupted at any moment, it deletes what it made" {
	for at in 0.02 0.05 0.1 0.2 0.4 1.5; do
		interrupt_after TERM "$at"
		interrupt_after HUP "$at"
	done
	# Until the program has begun, INT is what the shell of a background job made it: ignored.
	for at in 0.7 1.5; do
		interrupt_after INT "$at"
	done
}

@test "a create that is interrupted at any moment names what it made" {
	local at pid id out=$BATS_TEST_TMPDIR/out
	for at in 0.005 0.01 0.02 0.05 0.1 0.2; do
		sandbox create --image "$IMAGE" --disk-mib 64 </dev/null >"$out" 2>&1 3>&- &
		pid=$!
		sleep "$at"
		kill -TERM "$pid" 2>/dev/null || true
		wait "$pid" || true
		sleep 0.3
		for id in $(sandbox list -q); do
			grep -q "$id" "$out" || { echo "$id is there after TERM at $at, and nobody said so:"; cat "$out"; return 1; }
			timeout 60 sandbox delete --wait "$id" >/dev/null
		done
	done
}

@test "a killed run leaves a sandbox that ends by its lifetime" {
	sandbox run --image "$IMAGE" --disk-mib 64 --ttl 3s -- sleep 100 </dev/null >/dev/null 2>&1 3>&- &
	pid=$!
	sleep 1.5
	kill -KILL "$pid"
	wait "$pid" || true
	until_ok 30 nothing_left
}

@test "files in before, results out afterwards" {
	mkdir -p "$BATS_TEST_TMPDIR/w/up/sub"
	cd "$BATS_TEST_TMPDIR/w"
	echo in >up/sub/f
	run -5 --separate-stderr small --upload up --download result --download out -- sh -c 'cat sub/f >result; mkdir out; echo o >out/o; exit 5'
	[ "$(cat result)" = in ]
	[ "$(cat out/o)" = o ]
	run -125 --separate-stderr small --upload nothing-here -- true
	[[ $stderr == *nothing-here* ]]
	run -125 --separate-stderr small --download nosuch -- true
	[[ $stderr == *nosuch* ]]
	run -3 small --download nosuch -- sh -c 'exit 3'
	nothing_left
}

@test "several at once" {
	run -0 bash -c "seq 6 | xargs -P6 -I{} timeout 100 sandbox run --image $IMAGE --disk-mib 64 -- echo {} | sort -n | tr '\n' ' '"
	[ "$output" = "1 2 3 4 5 6 " ]
	nothing_left
}

@test "an image named as other tools want it is answered with where it goes" {
	run -127 --separate-stderr timeout 60 sandbox run nosuchimage echo hi
	[ -z "$output" ]
	[[ $stderr == *"no program 'nosuchimage'"*"--image"* ]]
	# Who named one knows where.
	run -127 --separate-stderr timeout 60 sandbox run --image "$IMAGE" -- nosuchprogram
	[[ $stderr != *"--image"* ]]
}
