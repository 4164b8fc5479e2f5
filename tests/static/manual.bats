#!/usr/bin/env bats
# The manual pages against the code: options, exit statuses, environment variables, files, keys. What one side has, the other has too.

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
	for name in sandbox/config sandbox/directories sandbox/tokens sandbox/token.key .sandbox.conf sandboxd.sock sandbox/console_history sandbox/baselines; do
		grep -q -- "$name\$" "$BATS_TEST_TMPDIR/files" || { echo "$name is not in the manual"; false; }
	done
	# The other way round: nothing else is in the page.
	grep -vE '/(config|directories|tokens|token\.key|sandboxd\.sock|console_history|baselines|sandbox)$|^\.sandbox\.conf$' "$BATS_TEST_TMPDIR/files" && {
		echo "the code knows nothing of these"
		false
	}
	# What the code names: each macro or literal that ends up as a file.
	grep -q '#define CONFIG_FILE "config"' "$TOP/cli/settings.h"
	grep -q '#define USE_FILE "directories"' "$TOP/cli/place.c"
	grep -q '#define KEY_FILE "token.key"' "$TOP/cli/token_store.c"
	grep -q '%s/tokens' "$TOP/cli/token_store.c"
	grep -q '#define PROJECT_FILE ".sandbox.conf"' "$TOP/cli/place.h"
	grep -rq 'console_history' "$TOP/cli"
	grep -rq '%s/baselines/' "$TOP/cli"
}

# options_of SOURCE…: those of a getopt table, or compared by hand.
options_of() {
	{
		grep -hoE '\{ "[a-z-]+", (required|no)_argument' "$@" | sed 's/{ "/--/; s/".*//'
		grep -hoE '(strcmp\(argv\[i\], |value_of\(argv, &i, |is\(argv\[i\], )"--[a-z-]+"' "$@" | grep -o -- '--[a-z-]*'
	} | sort -u
}

@test "every option of sandboxd and sandbox-init is in their pages and help, and the reverse" {
	local dir=$BATS_TEST_TMPDIR name
	set_of() { section "$1" "$2" | sed -n 's/^\.B \(--[a-z-]*\).*/\1/p' | sort -u >"$dir/page"; }
	# That one is for the generators.
	options_of "$TOP/daemon/main.c" | grep -vx -- --print-api-doc >"$dir/code"
	[ "$(wc -l <"$dir/code")" -gt 5 ]
	set_of OPTIONS sandboxd.8
	same sandboxd
	options_of "$TOP/daemon/first.c" >"$dir/code"
	[ "$(wc -l <"$dir/code")" -gt 5 ]
	set_of 'OPTIONS OF INIT' sandboxd.8
	same 'sandboxd init'
	options_of "$TOP/daemon/runtime/driver_check.c" >"$dir/code"
	[ "$(wc -l <"$dir/code")" -gt 2 ]
	set_of 'OPTIONS OF DRIVER-CHECK' sandboxd.8
	same 'sandboxd driver-check'
	options_of "$TOP/daemon/init/main.c" >"$dir/code"
	[ "$(wc -l <"$dir/code")" -gt 3 ]
	set_of OPTIONS sandbox-init.8
	same sandbox-init
	for name in $(options_of "$TOP/cli/mcp/main.c"); do
		grep -qw -- "$name" "$PAGES/sandbox-mcp.1" || { echo "sandbox-mcp $name is not in its page"; false; }
		"$BUILD/sandbox-mcp" --help | grep -qw -- "$name" || { echo "sandbox-mcp $name is not in its help"; false; }
	done
	for name in "" init driver-check; do
		# shellcheck disable=SC2086
		"$BUILD/sandboxd" $name --help | grep -oE '^  --[a-z-]+' | tr -d ' ' | sort -u >"$dir/page"
		case $name in
		"") options_of "$TOP/daemon/main.c" | grep -vx -- --print-api-doc >"$dir/code" ;;
		init) options_of "$TOP/daemon/first.c" >"$dir/code" ;;
		*) options_of "$TOP/daemon/runtime/driver_check.c" >"$dir/code" ;;
		esac
		same "the help of sandboxd $name"
	done
}

@test "every environment variable sandboxd reads is in its page, and the reverse" {
	{
		grep -rhoE '(getenv|xdg_dir)\("[A-Z_]+"' "$TOP/daemon" | sed 's/.*("//; s/"//'
		grep -rhoE '#define VARIABLE "[A-Z_]+"' "$TOP/daemon" | sed 's/.*E "//; s/"//'
	} | sort -u >"$BATS_TEST_TMPDIR/code"
	[ "$(wc -l <"$BATS_TEST_TMPDIR/code")" -gt 5 ]
	section ENVIRONMENT sandboxd.8 | sed -n 's/^\.B //p' | tr -d ' ' | tr ',' '\n' | sort -u >"$BATS_TEST_TMPDIR/page"
	same variables
}

@test "every file of sandboxd's page is one the code names" {
	local name
	section FILES sandboxd.8 | sed -n 's/^\.I //p' | tr ',' '\n' | sed 's,.*/,,; s/ //g' | sort -u >"$BATS_TEST_TMPDIR/page"
	[ "$(wc -l <"$BATS_TEST_TMPDIR/page")" -gt 8 ]
	while read -r name; do
		[ "$name" = sandbox ] || grep -rqE "[/\"]$name\"" "$TOP/daemon" "$TOP/shared" || { echo "nothing in the code is called $name"; false; }
	done <"$BATS_TEST_TMPDIR/page"
	for name in api-token secret.key node-credential store.db db-password tls.crt tls.key sandboxd.conf sandboxd.sock; do
		grep -qx "$name" "$BATS_TEST_TMPDIR/page" || { echo "$name is not in the page"; false; }
	done
}

@test "every key of the configuration is in its page once, and the reverse" {
	local section
	{
		cat "$TOP/daemon/config.def" "$TOP/daemon/pool.def"
	} | sed -n 's/^CONFIG_[A-Z]*("\([a-z]*\)[A-Z ]*", "\([a-z_0-9]*\)",.*/\1.\2/p' | sort >"$BATS_TEST_TMPDIR/code"
	[ "$(wc -l <"$BATS_TEST_TMPDIR/code")" -gt 50 ]
	awk '/^\.SH / { s = $2; gsub(/[^a-z]/, "", s); if (substr($2, 1, 1) != "[") s = "" } s && /^\.B / { print s "." $2 }' "$PAGES/sandboxd.conf.5" |
		sort >"$BATS_TEST_TMPDIR/page"
	same keys
}

@test "every page a page refers to exists" {
	local name bad=0
	for name in $(grep -hoE 'sandbox[a-z.-]* ?\([158]\)' "$PAGES"/* | tr -d ' ' | sort -u); do
		[ -e "$PAGES/$(tr -d ')' <<<"${name/(/.}")" ] || { echo "no page $name"; bad=1; }
	done
	[ "$bad" -eq 0 ]
}
