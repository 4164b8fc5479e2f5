#!/usr/bin/env bats
# What the documents claim about proofs: every test they name is there, and every row of the threat table names one.

setup_file() {
	TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
	export TOP
}

@test "every test that docs/security.md and docs/testing.md name exists" {
	local f name n=0 bad=0
	for f in security testing; do
		for name in $(grep -oE '\btests/[A-Za-z0-9_/.-]+' "$TOP/docs/$f.md" | sed 's/[.]$//' | sort -u); do
			n=$((n + 1))
			[ -e "$TOP/$name" ] || { echo "docs/$f.md names $name, which is not there"; bad=1; }
		done
	done
	[ "$n" -gt 30 ]
	[ "$bad" -eq 0 ]
}

@test "every command of docs/testing.md is a target of the Makefile or a file" {
	local target n=0 bad=0
	for target in $(grep -oE '`make [a-z-]+' "$TOP/docs/testing.md" | sed 's/^`make //' | sort -u); do
		n=$((n + 1))
		grep -qE "^([a-z-]+ )*$target( [a-z-]+)*:" "$TOP/Makefile" || { echo "make $target is no target"; bad=1; }
	done
	[ "$n" -gt 8 ]
	[ "$bad" -eq 0 ]
}

@test "every row of the threat table says who shows it, or that nothing is claimed" {
	awk -F'|' '/^## /{ on = ($0 == "## Who trusts whom") } on && NF == 6 && !/^\| (asset|---)/ && !/^\|---/ {
		n++
		if ($5 !~ /tests\// && $5 !~ /\(no claim\)/) { print "no test: " $2; bad = 1 }
	} END { exit bad || n < 20 }' "$TOP/docs/security.md"
}

@test "each case quoted in the table of the tiers is one of the escape trials" {
	local quoted n=0 bad=0
	while IFS= read -r quoted; do
		n=$((n + 1))
		grep -qF "$quoted" "$TOP"/tests/e2e/{escape,tiers,tiers_microvm,egress}.bats "$TOP"/tests/lib/escapes.bash || { echo "no test begins with: $quoted"; bad=1; }
	done < <(sed -n '/^## What holds/,/^## Inside/p' "$TOP/docs/security.md" | grep -oE '"[a-z][^"]*…"' | tr -d '"' | sed 's/…$//' | sort -u)
	[ "$n" -gt 8 ]
	[ "$bad" -eq 0 ]
}
