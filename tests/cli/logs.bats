#!/usr/bin/env bats
# logs: what a start command or an operation wrote, whole lines, once each, to the end.
load ../lib/helpers

setup_file() {
	sbx_start
}

teardown_file() {
	sbx_stop
}

lengths() {
	awk '{ print length }' | tr '\n' ' '
}

@test "long lines come back in one piece" {
	id=$(sbx_create -- sh -c 'for n in 16384 16385 100000; do head -c $n /dev/zero | tr "\0" a; echo; done')
	ready() { [ "$(timeout 10 sandbox logs "$id" | lengths)" = "16384 16385 100000 " ]; }
	until_ok 10 ready
	# One stamp a line, of 25 bytes with its blank, however long the line is.
	[ "$(timeout 10 sandbox logs -t "$id" | lengths)" = "16409 16410 100025 " ]
	timeout 60 sandbox delete "$id"
}

@test "following before, during and after gives every line once, then ends with 0 and says how it ended" {
	id=$(sbx_create -- sh -c 'seq 1 2500; sleep 2; seq 2501 5000; printf unfinished; exit 3')
	seq 1 5000 >"$BATS_TEST_TMPDIR/want"
	printf unfinished >>"$BATS_TEST_TMPDIR/want"
	timeout 30 sandbox logs -f "$id" >"$BATS_TEST_TMPDIR/during" 2>"$BATS_TEST_TMPDIR/err" 3>&-
	cmp "$BATS_TEST_TMPDIR/during" "$BATS_TEST_TMPDIR/want"
	grep -q 'status 3' "$BATS_TEST_TMPDIR/err"
	timeout 30 sandbox logs -f "$id" >"$BATS_TEST_TMPDIR/after"
	cmp "$BATS_TEST_TMPDIR/after" "$BATS_TEST_TMPDIR/want"
	timeout 30 sandbox logs "$id" | cmp - "$BATS_TEST_TMPDIR/want"
	timeout 60 sandbox delete "$id"
}

@test "without --follow it ends although the command goes on" {
	id=$(sbx_create -- sh -c 'echo one; echo two; sleep 100')
	ready() { [ "$(timeout 10 sandbox logs "$id")" = $'one\ntwo' ]; }
	until_ok 10 ready
	timeout 60 sandbox delete "$id"
}

@test "--tail and --since" {
	id=$(sbx_create)
	op=$(timeout 10 sandbox exec -d "$id" -- sh -c 'seq 1 100; echo e1 >&2; echo e2 >&2')
	run -0 timeout 20 sandbox attach "$op"
	run -0 --separate-stderr timeout 10 sandbox logs --tail 3 "$op"
	[ "$output" = $'98\n99\n100' ]
	[ "$stderr" = $'e1\ne2' ]
	run -0 --separate-stderr timeout 10 sandbox logs --tail 0 "$op"
	[ -z "$output$stderr" ]
	run -0 --separate-stderr timeout 10 sandbox logs --since 288,3 "$op"
	[ "$output" = 100 ]
	[ "$stderr" = e2 ]
	run -0 --separate-stderr timeout 10 sandbox logs --since 99999 "$op"
	[ -z "$output" ]
	timeout 60 sandbox delete "$id"
}

@test "--timestamps: one per line, at its beginning, also over a daemon restart" {
	before=$(date -u +%Y-%m-%dT%H:%M:%S)
	id=$(sbx_create -- sh -c 'head -c 100000 /dev/zero | tr "\0" a; echo; echo e >&2; echo slow; printf pie; sleep 1.2; echo ces; printf unfinished; exec sleep 100')
	ready() { [ "$(timeout 10 sandbox logs "$id" 2>/dev/null | tail -c 10)" = unfinished ]; }
	until_ok 15 ready
	run -0 --separate-stderr timeout 10 sandbox logs -t "$id"
	[ "${#lines[@]}" -eq 4 ]
	stamp='^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z'
	for l in "${lines[@]}"; do [[ $l =~ $stamp\ [a-z]+$ ]]; done
	[ "${#lines[0]}" -eq 100025 ]
	[[ ${lines[2]} == *" pieces" ]]
	[[ $stderr =~ $stamp\ e$ ]]
	[[ ! ${lines[0]} < $before ]]
	[[ ! ${lines[3]} < ${lines[2]} ]]
	shown=$output
	run -0 --separate-stderr timeout 10 sandbox logs -t --tail 1 "$id"
	[[ $shown == *"$output" ]]
	sbx_kill KILL
	sbx_daemon
	again() { [ "$(timeout 10 sandbox logs -t "$id" 2>/dev/null)" = "$shown" ]; }
	until_ok 20 again
	timeout 60 sandbox delete "$id"
}

@test "--since takes times and durations" {
	id=$(sbx_create)
	op=$(timeout 10 sandbox exec -d "$id" -- sh -c 'echo early; sleep 2; echo late; sleep 100')
	ready() { timeout 10 sandbox logs "$op" | grep -q late; }
	until_ok 15 ready
	late=$(timeout 10 sandbox logs -t "$op" | tail -1)
	run -0 --separate-stderr timeout 10 sandbox logs --since "${late%% *}" "$op"
	[ "$output" = late ]
	[ -z "$stderr" ]
	run -0 timeout 10 sandbox logs --since 1h "$op"
	[ "$output" = $'early\nlate' ]
	run -0 --separate-stderr timeout 10 sandbox logs --since 0ms "$op"
	[ -z "$output$stderr" ]
	for bad in yesterday 2026-13-01T00:00:00Z 10x 5,x; do
		run -2 --separate-stderr timeout 10 sandbox logs --since "$bad" "$op"
		[ -n "$stderr" ]
	done
	timeout 60 sandbox delete "$id"
}

@test "what is no longer kept is counted" {
	id=$(sbx_create)
	op=$(timeout 10 sandbox exec -d "$id" -- head -c 5000000 /dev/zero)
	run -0 timeout 30 sandbox wait "$op"
	n=$(timeout 20 sandbox logs "$op" 2>"$BATS_TEST_TMPDIR/err" | wc -c)
	gap=$(sed -n 's/^sandbox: \([0-9]*\) bytes of stdout are no longer kept$/\1/p' "$BATS_TEST_TMPDIR/err")
	[ $((n + gap)) -eq 5000000 ]
	[ "$n" -ge 65536 ]
	timeout 60 sandbox delete "$id"
}

@test "a deleted sandbox ends the follower; a reader that leaves ends it quietly" {
	id=$(sbx_create -- sh -c 'while :; do echo tick; sleep 0.1; done')
	run bash -c "timeout 10 sandbox logs -f $id | head -1; echo \${PIPESTATUS[0]}"
	[ "$output" = $'tick\n141' ]
	timeout 60 sandbox logs -f "$id" >/dev/null 2>"$BATS_TEST_TMPDIR/err" 3>&- &
	pid=$!
	sleep 1
	timeout 60 sandbox delete "$id" --wait
	rc=0
	wait "$pid" || rc=$?
	[ "$rc" -eq 0 ]
	grep -q deleted "$BATS_TEST_TMPDIR/err"
}

@test "no such thing" {
	run -3 --separate-stderr timeout 10 sandbox logs nosuch
	[ -n "$stderr" ]
	run -3 --separate-stderr timeout 10 sandbox logs 01890000-0000-7000-8000-00000000abcd
	[ -n "$stderr" ]
	id=$(sbx_create)
	run -3 --separate-stderr timeout 10 sandbox logs "$id"
	[ -n "$stderr" ]
	timeout 60 sandbox delete "$id"
}
