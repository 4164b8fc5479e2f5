#!/usr/bin/env bats
# The guides: every command in their ```sh blocks runs as written, in order; the index for machines names every page, and no other.
load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start
	# As on a server whose operator reads along: the images of the examples are the base image.
	mkdir -p "$SBX_DIR/cwd"
}

teardown_file() {
	sbx_stop
}

# as_written GUIDE: in a directory of its own; the first command that fails ends it.
as_written() {
	awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$TOP/docs/guides/$1" >"$BATS_TEST_TMPDIR/script"
	[ -s "$BATS_TEST_TMPDIR/script" ]
	mkdir -p "$BATS_TEST_TMPDIR/work"
	cd "$BATS_TEST_TMPDIR/work"
	run timeout 100 bash -euxo pipefail "$BATS_TEST_TMPDIR/script" </dev/null
	[ "$status" -eq 0 ] || { echo "$output"; false; }
	run -0 --separate-stderr sandbox list -q
	[ -z "$output" ]
}

@test "cli.md: every command works as written" {
	as_written cli.md
}

@test "mcp.md: every command works as written" {
	as_written mcp.md
}

@test "security.md: every command works as written" {
	as_written security.md
}

@test "llms.txt is the index: every page is in it, and every link of it and of the guides leads somewhere" {
	local f link bad=0
	for f in "$TOP"/docs/*.md "$TOP"/docs/guides/*.md; do
		grep -qF "(${f#"$TOP/docs/"})" "$TOP/docs/llms.txt" || { echo "llms.txt lacks ${f#"$TOP/docs/"}"; bad=1; }
	done
	for f in "$TOP/docs/llms.txt" "$TOP"/docs/guides/*.md; do
		for link in $(grep -oE '\]\([^)#]+' "$f" | cut -c3- | grep -v '://'); do
			[ -e "$(dirname "$f")/$link" ] || { echo "${f#"$TOP/"}: $link"; bad=1; }
		done
	done
	# One line of what it is, then sections of links: the form that readers of llms.txt expect.
	[ "$(head -n 1 "$TOP/docs/llms.txt")" = "# Sandbox" ]
	sed -n 3p "$TOP/docs/llms.txt" | grep -q '^> '
	[ "$bad" -eq 0 ]
}
