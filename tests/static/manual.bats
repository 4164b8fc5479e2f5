#!/usr/bin/env bats
# The manual pages against the code: options, exit statuses, environment variables, files. What one side has, the other has too.

setup_file() {
	TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
	export TOP BUILD=${BUILD:-$TOP/build}
	PAGES=$(mktemp -d)
	export PAGES
	local page
	for page in "$TOP"/man/*.[158]; do
		sed 's/\\-/-/g; s/\\&//g; s/\\(ti/~/g; s/\\e/\\/g' "$page" >"$PAGES/$(basename "$page")"
	done
}

teardown_file() {
	rm -rf "$PAGES"
}

# section NAME FILE: its lines.
section() {
	awk -v name="$1" '/^\.SH / { on = ($0 == ".SH " name) } on' "$PAGES/$2"
}

# same WHAT: compares the sorted files code and page.
same() {
	diff "$BATS_TEST_TMPDIR/code" "$BATS_TEST_TMPDIR/page" || { echo "$1: < is in the code alone, > in the manual alone"; return 1; }
}

@test "every environment variable the program reads is in sandbox(1), and the reverse" {
	grep -rhoE '(getenv|env_text|env_set|absolute_env|xdg)\("[A-Z_]+"' "$TOP/cli" "$TOP/shared" | sed 's/.*("//; s/"//' | sort -u >"$BATS_TEST_TMPDIR/code"
	# The proxy variables are libcurl's to read.
	section ENVIRONMENT sandbox.1 | sed -n 's/^\.B //p' | tr -d ' ' | tr ',' '\n' | grep -v '_proxy$' | sort -u >"$BATS_TEST_TMPDIR/page"
	[ "$(wc -l <"$BATS_TEST_TMPDIR/code")" -gt 10 ]
	same variables
}

@test "every exit status of the table of errors is in every verb's page, and no other" {
	local page
	{ echo 0; sed -n 's/^X([A-Z_]*, *"[a-z_]*", *[0-9]*, *\([0-9]*\),.*/\1/p' "$TOP/shared/base/errors.def"; } | sort -nu >"$BATS_TEST_TMPDIR/code"
	[ "$(wc -l <"$BATS_TEST_TMPDIR/code")" -eq 9 ]
	for page in "$PAGES"/sandbox.1 "$PAGES"/sandbox-*.1; do
		page=$(basename "$page")
		[ "$page" != sandbox-mcp.1 ] || continue
		# Those that pass on a command's own status say so in words.
		if section 'EXIT STATUS' "$page" | grep -q 'status of the command itself'; then continue; fi
		section 'EXIT STATUS' "$page" | sed -n 's/^\.B \([0-9]*\)$/\1/p' | sort -nu >"$BATS_TEST_TMPDIR/page"
		same "$page"
	done
}

@test "every option a verb takes is in its page, and the reverse" {
	local verb page
	# shellcheck disable=SC1091
	. "$TOP/completions/sandbox.bash"
	for verb in $_sandbox_verbs; do
		page=sandbox-$verb.1
		{
			_sandbox_options "$verb"
			for sub in $(_sandbox_subs "$verb"); do _sandbox_options "$verb $sub"; done
		} | tr ' ' '\n' | grep -- -- | sort -u >"$BATS_TEST_TMPDIR/code" || true
		sed -n 's/^\.B \(-[A-Za-z0-9], \)\{0,1\}\(--[^ =]*\).*/\2/p' "$PAGES/$page" | sed 's/\[=.*//' | while read -r name; do
			case $name in
			--\[no-\]*) printf '%s\n' "--${name#--\[no-\]}" "--no-${name#--\[no-\]}" ;;
			*) echo "$name" ;;
			esac
		done | sort -u >"$BATS_TEST_TMPDIR/page"
		same "$page"
	done
}

@test "every file of the program is in sandbox(1), and the reverse" {
	local name
	section FILES sandbox.1 | sed -n 's/^\.I //p' >"$BATS_TEST_TMPDIR/files"
	for name in sandbox/config sandbox/directories sandbox/tokens sandbox/token.key .sandbox.conf sandboxd.sock sandbox/console_history; do
		grep -q -- "$name\$" "$BATS_TEST_TMPDIR/files" || { echo "$name is not in the manual"; false; }
	done
	# What the code names: each macro or literal that ends up as a file.
	grep -q '#define CONFIG_FILE "config"' "$TOP/cli/settings.h"
	grep -q '#define USE_FILE "directories"' "$TOP/cli/place.c"
	grep -q '#define KEY_FILE "token.key"' "$TOP/cli/token_store.c"
	grep -q '%s/tokens' "$TOP/cli/token_store.c"
	grep -q '#define PROJECT_FILE ".sandbox.conf"' "$TOP/cli/place.h"
	grep -rq 'console_history' "$TOP/cli"
}

@test "every page a page refers to exists" {
	local name bad=0
	for name in $(grep -hoE 'sandbox[a-z.-]* ?\([158]\)' "$PAGES"/* | tr -d ' ' | sort -u); do
		[ -e "$PAGES/$(tr -d ')' <<<"${name/(/.}")" ] || { echo "no page $name"; bad=1; }
	done
	[ "$bad" -eq 0 ]
}
