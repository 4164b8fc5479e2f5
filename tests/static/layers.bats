#!/usr/bin/env bats
# The arrows of docs/architecture.md: who may include whom. Also: banned calls, marks left in code, generated files.

setup_file() {
	TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
	export TOP BUILD=${BUILD:-$TOP/build}
}

# no_include FOLDER PATTERN: no file below FOLDER includes a header matching PATTERN.
no_include() {
	run grep -rnE "^#include \"($2)" "$TOP/$1" --include='*.c' --include='*.h'
	[ "$status" -eq 1 ] || { echo "$output"; return 1; }
}

@test "shared/base includes nothing of ours above it" {
	no_include shared/base '(cli|daemon|shared/(model|json|http|mux|config|crypto))/'
}

@test "shared/model includes only shared/base" {
	no_include shared/model '(cli|daemon|shared/(json|http|mux|config|crypto))/'
}

@test "shared/mux includes only shared/base" {
	no_include shared/mux '(cli|daemon|shared/(model|json|http|config|crypto))/'
}

@test "shared never includes cli or daemon" {
	no_include shared '(cli|daemon)/'
}

@test "sandbox-init includes only shared/base and shared/mux" {
	no_include daemon/init '(cli|daemon/[^i]|shared/(model|json|http|config|crypto))'
}

@test "aegis is pure: it includes only the model and base" {
	no_include daemon/aegis '(cli|daemon/[^a]|shared/(json|http|mux|config|crypto))'
}

@test "the controller never includes a runtime or a worker" {
	no_include daemon/controller 'daemon/(runtime|worker|api|link)/'
}

@test "a worker reaches its controller by the upstream alone" {
	no_include daemon/worker 'daemon/(store|api)/'
	run grep -rnE '\bcontroller_[a-z_]+\(' "$TOP/daemon/worker" --include='*.c'
	[ "$status" -eq 1 ] || { echo "$output"; return 1; }
}

@test "the edge parses strangers' bytes: it includes no store, controller, runtime or API" {
	no_include daemon/edge '(cli|daemon/(store|controller|runtime|api|aegis|link|events|daemon\.h))/?'
}

@test "cli and daemon do not include each other" {
	no_include cli 'daemon/(api|controller|aegis|store|worker|runtime|init|edge|egress)'
	no_include daemon 'cli/'
}

@test "the store is known to the controller and the assembly alone" {
	run grep -rlE '^#include "daemon/store/' "$TOP/daemon" --include='*.c' --include='*.h'
	[ "$(echo "$output" | grep -vE 'daemon/(store|controller|daemon\.[ch]|main\.c|api/)' | grep -c .)" -eq 0 ] || { echo "$output"; false; }
}

@test "no mark of unfinished work is left in code" {
	run grep -rnE '\b(TODO|FIXME|XXX|HACK)\b' "$TOP/cli" "$TOP/daemon" "$TOP/shared" --include='*.c' --include='*.h' --include='*.def'
	[ "$status" -eq 1 ] || { echo "$output"; return 1; }
}

@test "every source opens with a comment that says what it is" {
	local f bad=0
	for f in $(cd "$TOP" && git ls-files 'cli/*.c' 'daemon/*.c' 'shared/*.c' 'cli/*.h' 'daemon/*.h' 'shared/*.h'); do
		head -n 1 "$TOP/$f" | grep -q '^/\*' || { echo "$f"; bad=1; }
	done
	[ "$bad" -eq 0 ]
}

@test "shell scripts pass shellcheck" {
	cd "$TOP"
	shellcheck -s sh setup.sh installer/base-image installer/microvm-kernel installer/dist installer/hosted.sh installer/release.sh installer/sysroot tests/lib/run-all tests/lib/generate tests/lib/lint tests/lib/with-postgres tests/fuzz/run tests/faults/allocations
	shellcheck -x tests/lib/helpers.bash tests/lib/jobs.bash tests/lib/run-unit tests/lib/run-bats .ci/run
}

@test "generated files are not stale" {
	local out
	out=$(mktemp -d)
	"$TOP/tests/lib/generate" "$BUILD" "$out"
	cd "$out"
	local f bad=0
	for f in $(find . -type f | sort); do
		if ! cmp -s "$f" "$TOP/$f"; then
			echo "stale: ${f#./} (run make generate)"
			bad=1
		fi
	done
	for f in $(cd "$TOP" && git ls-files man completions); do
		[ -f "$f" ] || { echo "no longer generated: $f"; bad=1; }
	done
	rm -rf "$out"
	[ "$bad" -eq 0 ]
}

@test "manual pages pass mandoc -T lint without a warning" {
	run mandoc -T lint -W warning "$TOP"/man/*.[158]
	[ -z "$output" ] || { echo "$output"; false; }
}
