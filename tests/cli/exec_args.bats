#!/usr/bin/env bats
# exec: arguments, environment, directory and user cross as they are.
load ../lib/helpers

setup_file() {
	sbx_start
	ID=$(sbx_create)
	export ID
}

teardown_file() {
	sbx_stop
}

@test "every argument arrives byte for byte, none is taken for an option" {
	args=(' a b' '' $'x\ny' -n --help 'é☕' '$HOME' '*' '"q"' "it's" '\\' $'\xff\xfe')
	timeout 10 sandbox exec "$ID" -- printf '<%s>\n' "${args[@]}" >"$BATS_TEST_TMPDIR/got"
	printf '<%s>\n' "${args[@]}" | cmp - "$BATS_TEST_TMPDIR/got"
	timeout 10 sandbox exec "$ID" printf '<%s>\n' "${args[@]}" | cmp - "$BATS_TEST_TMPDIR/got"
}

@test "a shell line given as one word is not found, and sh -c is suggested" {
	run -127 --separate-stderr timeout 5 sandbox exec "$ID" -- 'ls && pwd'
	[[ $stderr == *"'ls && pwd'"* && $stderr == *"sh -c"* ]]
	run -127 --separate-stderr timeout 5 sandbox exec "$ID" -- cd /tmp
	[[ $stderr == *"cd"* && $stderr == *"sh -c"* ]]
}

@test "a directory that cannot be entered: nothing runs, it is named" {
	for dir in /nope /etc/passwd; do
		run -125 --separate-stderr timeout 5 sandbox exec --cwd "$dir" "$ID" -- sh -c 'true; touch /workspace/marker'
		[[ $stderr == *"$dir"* ]]
	done
	timeout 5 sandbox exec "$ID" -- sh -c 'mkdir -p /workspace/closed "/workspace/a b"; chmod 700 /workspace/closed'
	run -125 --separate-stderr timeout 5 sandbox exec --cwd /workspace/closed --user 12345 "$ID" -- touch /workspace/marker
	for dir in rel ''; do
		run -125 --separate-stderr timeout 5 sandbox exec --cwd "$dir" "$ID" -- touch /workspace/marker
		[[ $stderr == *--cwd* ]]
	done
	run ! timeout 5 sandbox exec "$ID" -- ls /workspace/marker
	run -0 timeout 5 sandbox exec --cwd '/workspace/a b' "$ID" -- pwd
	[ "$output" = '/workspace/a b' ]
}

@test "environment values are byte-exact" {
	timeout 5 sandbox exec -e 'A=x=y' -e $'B=l1\nl2' -e 'C=' -e 'D="q"' -e 'E=é' -e F=1 -e F=2 "$ID" -- env -0 >"$BATS_TEST_TMPDIR/env" ||
		timeout 5 sandbox exec -e 'A=x=y' -e $'B=l1\nl2' -e 'C=' -e 'D="q"' -e 'E=é' -e F=1 -e F=2 "$ID" -- cat /proc/self/environ >"$BATS_TEST_TMPDIR/env"
	tr '\n\0' '\1\n' <"$BATS_TEST_TMPDIR/env" >"$BATS_TEST_TMPDIR/lines"
	for want in A=x=y $'B=l1\1l2' C= 'D="q"' E=é F=2; do
		grep -qxF -- "$want" "$BATS_TEST_TMPDIR/lines"
	done
	[ "$(grep -c '^F=' "$BATS_TEST_TMPDIR/lines")" -eq 1 ]
}

@test "a name alone takes the local value, and nothing when it has none" {
	GIVEN='a b' run -0 timeout 5 sandbox exec -e GIVEN "$ID" -- sh -c 'echo "[$GIVEN]"'
	[ "$output" = '[a b]' ]
	run -0 timeout 5 sandbox exec -e NEVER_SET_HERE "$ID" -- sh -c 'echo "[${NEVER_SET_HERE-unset}]"'
	[ "$output" = '[unset]' ]
}

@test "malformed variables are refused" {
	for bad in =x 'BAD NAME=1' '1A=x'; do
		run -125 --separate-stderr timeout 5 sandbox exec -e "$bad" "$ID" -- true
		[ -n "$stderr" ]
	done
}

@test "an environment file is literal" {
	printf '# note\n\nQ="kept"\nH=a#b\nS= lead\nE=\n' >"$BATS_TEST_TMPDIR/env"
	run -0 timeout 5 sandbox exec --env-file "$BATS_TEST_TMPDIR/env" -e E=over "$ID" -- sh -c 'printf "%s|" "$Q" "$H" "$S" "$E"'
	[ "$output" = '"kept"|a#b| lead|over|' ]
	run -125 --separate-stderr timeout 5 sandbox exec --env-file /nonexistent "$ID" -- true
	[[ $stderr == *nonexistent* ]]
}

@test "a value is seen in no process list and no log" {
	sandbox exec --timeout 20s -e TOK=s3cr3tval "$ID" -- sh -c 'sleep 2; ps | grep "[s]3cr3tval" || true' >"$BATS_TEST_TMPDIR/in" 3>&- &
	sleep 1
	hits=$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -c -- '^TOK=s3cr3tval' || true)
	[ "$hits" -eq 0 ]
	wait
	[ ! -s "$BATS_TEST_TMPDIR/in" ]
	run ! grep -r s3cr3tval "$SBX_DIR/log"
}

@test "users by name and number, unknown ones refused" {
	run -0 timeout 5 sandbox exec --user 4321:4322 "$ID" -- id -u
	[ "$output" = 4321 ]
	run -0 timeout 5 sandbox exec -u root "$ID" -- id -u
	[ "$output" = 0 ]
	run -125 --separate-stderr timeout 5 sandbox exec --user nobody-here "$ID" -- true
	[[ $stderr == *nobody-here* ]]
}

@test "a long command works, and input carries any size" {
	run -0 timeout 20 sandbox exec "$ID" -- sh -c "$(printf 'true;%.0s' $(seq 20000))"
	run -0 bash -c "{ printf 'true\\n%.0s' \$(seq 200000); echo 'echo end'; } | timeout 30 sandbox exec \"\$ID\" -- sh"
	[ "$output" = end ]
}

@test "an argument list that no kernel takes is refused as such" {
	many=$(seq 1 5000)
	# shellcheck disable=SC2086
	run -125 --separate-stderr timeout 20 sandbox exec "$ID" -- echo $many
	[[ $stderr == *"argument"* ]]
}

@test "output is not given a terminal's line ends" {
	run -0 bash -c 'timeout 5 sandbox exec "$ID" -- echo hi | od -An -c'
	[ "$(echo $output)" = 'h i \n' ]
}

@test "a terminal without a local one has a sane size" {
	run -0 timeout 5 sandbox exec -t "$ID" -- stty size </dev/null
	[[ $output == "24 80"* ]]
}

@test "usage errors say what is missing" {
	run -125 --separate-stderr timeout 5 sandbox exec
	[ -n "$stderr" ]
	run -125 --separate-stderr timeout 5 sandbox exec "$ID"
	[ -n "$stderr" ]
	run -125 --separate-stderr timeout 5 sandbox exec "" -- true
	[ -n "$stderr" ]
	run -125 --separate-stderr timeout 5 sandbox exec "$ID" -- ""
	[ -n "$stderr" ]
	run -125 --separate-stderr timeout 5 sandbox exec --timeout 0 "$ID" -- true
	[[ $stderr == *--timeout* ]]
}
