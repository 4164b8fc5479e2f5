#!/usr/bin/env bats
# What tests/installer/hosted.bats tries at a few offsets, at many: the script and each download cut off.
load ../lib/helpers.bash

@test "scripts and downloads cut off at many offsets" {
	command -v minisign >/dev/null || skip "no minisign"
	CUT_STEP=17 run timeout 1500 bats --tap -f "cut off anywhere|fails or is cut" "$TOP/tests/installer/hosted.bats"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"1..2"* && $output != *"# skip"* ]]
}
