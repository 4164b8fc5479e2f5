#!/usr/bin/env bats
# The README shows what it really does, and links what really exists.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start
}

teardown_file() {
	sbx_stop
}

@test "the tour prints what the README shows" {
	run timeout 120 python3 "$TOP/tests/lib/tour.py" "$TOP/README.md"
	[ "$status" -eq 0 ] || { echo "$output"; false; }
}

@test "every link of README and docs leads to a file" {
	local bad=0 file link target
	for file in README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs/*.md docs/decisions/*.md; do
		[ -f "$TOP/$file" ] || continue
		for link in $(grep -oE '\]\([^)#]+' "$TOP/$file" | cut -c3- | grep -v '://'); do
			target=$TOP/$(dirname "$file")/$link
			[ -e "$target" ] || { echo "$file: $link"; bad=1; }
		done
	done
	[ "$bad" -eq 0 ]
}

@test "every test that docs/security.md names exists" {
	local bad=0 t
	for t in $(grep -oE '`tests/[^`]+`' "$TOP/docs/security.md" | tr -d '`' | sort -u); do
		[ -e "$TOP/$t" ] || { echo "$t"; bad=1; }
	done
	[ "$bad" -eq 0 ]
}
