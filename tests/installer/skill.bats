#!/usr/bin/env bats
# The skill for coding agents: its form, and every command in it run as written.
load ../lib/helpers.bash

SKILL=$TOP/installer/skill/sandbox-platform

setup_file() {
	need_engine
	sbx_start
}

teardown_file() {
	sbx_stop
}

# The commands of all ```sh blocks of a file, in order.
commands() {
	awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$1"
}

# Runs them in a directory of their own; the first that fails ends it.
as_written() {
	commands "$SKILL/$1" >"$BATS_TEST_TMPDIR/script"
	[ -s "$BATS_TEST_TMPDIR/script" ]
	mkdir -p "$BATS_TEST_TMPDIR/work"
	cd "$BATS_TEST_TMPDIR/work"
	run -0 timeout 100 bash -euo pipefail "$BATS_TEST_TMPDIR/script" </dev/null
	run -0 --separate-stderr sandbox list -q
	[ -z "$output" ]
}

@test "the skill has a name, a description and references that exist" {
	run -0 awk 'NR == 1 { if ($0 != "---") exit 1; next } $0 == "---" { exit } { print }' "$SKILL/SKILL.md"
	[ "${#lines[@]}" -eq 2 ]
	[ "${lines[0]}" = "name: sandbox-platform" ]
	[ "$(basename "$SKILL")" = sandbox-platform ]
	[[ ${lines[1]} == "description: "* ]]
	[ "${#lines[1]}" -lt 1024 ]
	[ "$(wc -l <"$SKILL/SKILL.md")" -lt 200 ]
	local file
	for file in $(grep -o '(references/[a-z]*\.md)' "$SKILL/SKILL.md" | tr -d '()'); do [ -f "$SKILL/$file" ]; done
	[ "$(find "$SKILL/references" -name '*.md' | wc -l)" -eq "$(grep -c '^- \[references/' "$SKILL/SKILL.md")" ]
}

@test "every tool the skill names exists, and the other way round" {
	tools=$(printf '{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n' | sandbox-mcp | jq -r '.result.tools[].name' | sort)
	[ "$(grep -o 'sandbox_[a-z_]*[a-z]' "$SKILL/references/mcp.md" | sort -u)" = "$tools" ]
}

@test "SKILL.md: every command works as written" {
	as_written SKILL.md
}

@test "references/cli.md: every command works as written" {
	as_written references/cli.md
}

@test "references/mcp.md: every command works as written" {
	as_written references/mcp.md
}

@test "references/operations.md: every command works as written" {
	as_written references/operations.md
}

@test "references/safety.md: every command works as written" {
	as_written references/safety.md
}
