#!/usr/bin/env bats
# The recipes of docs/ci.md, run as they stand there: no terminal, a HOME that cannot be written, CI set.

load ../lib/helpers

setup_file() {
	need_engine
	sbx_start
}

teardown_file() {
	sbx_stop
}

setup() {
	W=$(mktemp -d "$SBX_DIR/work.XXXXXX")
	cd "$W"
	printf 'pear\napple\nfig\n' >input.txt
	export IMAGE JOB_ID=$BATS_TEST_NUMBER CI_JOB_ID=$BATS_TEST_NUMBER CI=1 HOME=/proc
	unset XDG_CONFIG_HOME XDG_STATE_HOME
}

# recipe NAME: the fenced block behind its mark.
recipe() {
	awk -v mark="<!-- recipe: $1 -->" '$0 == mark { on = 1; next } on && /^```/ { if (inside) exit; inside = 1; next } inside' "$TOP/docs/ci.md"
}

# play SHELL: runs standard input as a script without a terminal.
play() {
	cat >"$W/script"
	[ -s "$W/script" ]
	(cd "$W" && setsid -w timeout 100 "${1:-sh}" "$W/script" </dev/null)
}

nothing_left() {
	[ -z "$(sandbox list -q)" ]
}

@test "one command" {
	run --separate-stderr play < <(recipe one)
	[ "$status" -eq 0 ]
	[ "$output" = "hello from Linux" ]
	[[ $stderr != *$'\e'* ]]
	nothing_left
}

@test "several steps: files in, artefacts out, nothing left" {
	run --separate-stderr play < <(recipe steps)
	[ "$status" -eq 0 ]
	[ "$(xargs <artefacts/sorted.txt)" = "apple fig pear" ]
	[ "$output" = 3 ]
	nothing_left
}

@test "several steps: a step that fails ends the job with its status, and nothing is left" {
	run --separate-stderr play < <(recipe steps | sed 's/sort input.txt/exit 9; sort/')
	[ "$status" -eq 9 ]
	nothing_left
}

@test "several steps: a cancelled job leaves nothing" {
	recipe steps | sed 's/^sandbox exec .*wc -l.*/echo $$ >started; sandbox exec "$box" -- sleep 60/' >script
	setsid sh script </dev/null >/dev/null 2>&1 3>&- &
	until_ok 30 test -s started
	kill -TERM -- "-$(cat started)"
	until_ok 20 nothing_left
}

@test "parallel jobs: every status counts, one label cleans up" {
	run --separate-stderr play < <(recipe parallel)
	[ "$status" -eq 0 ]
	[ "$output" = $'part 1\npart 2\npart 3' ]
	nothing_left
	run --separate-stderr play < <(recipe parallel | sed 's/echo part \$part/exit $part/')
	[ "$status" -eq 3 ]
	nothing_left
}

@test "no room: another try" {
	run --separate-stderr play < <(recipe retry)
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	nothing_left
}

@test "the GitHub job's step" {
	recipe github | awk '/run: \|/ { on = 1; next } on && /^ {10}/ { sub(/^ {10}/, ""); print; next } { on = 0 }' | play bash
	[ "$(xargs <result.txt)" = "apple fig pear" ]
	nothing_left
}

@test "the GitLab job's script and what runs after it" {
	recipe gitlab | awk '/^  script:/ { on = 1; next } on && /^    - / { sub(/^    - /, ""); print; next } { on = 0 }' | play
	[ "$(xargs <result.txt)" = "apple fig pear" ]
	[ "$(sandbox list -q | wc -l)" -eq 1 ]
	recipe gitlab | awk '/^  after_script:/ { on = 1; next } on && /^    - / { sub(/^    - /, ""); print; next } { on = 0 }' | play
	nothing_left
}
