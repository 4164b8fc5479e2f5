#!/usr/bin/env bats
# What tests must not do, since nobody would notice.

# The shell ends at no command that "!" turns round: in the midst of a test it can only say so by "|| false".
@test "a negation in the midst of a test can fail it" {
	cd "$BATS_TEST_DIRNAME/.."
	run find . \( -name '*.bats' -o -name '*.bash' \) -exec awk '
		/^[ \t]*(#|$)/ { next }
		held != "" && !/^[ \t]*}/ { print held }
		{ held = /^[ \t]*! / && !/[|][|]/ ? FILENAME ":" FNR ":" $0 : "" }' {} +
	[ "$status" -eq 0 ]
	[ "$output" = "" ] || { echo "$output"; false; }
}
