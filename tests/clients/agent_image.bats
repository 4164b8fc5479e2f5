#!/usr/bin/env bats
# Agents' images, really built from the npm registry on a base image that has a C library and a shell, and the agents really run in a sandbox.
# AGENTS names those to build (default: claude).
load ../lib/helpers.bash
load ../lib/tools_image.bash

setup_file() {
	command -v npm >/dev/null || skip "no npm"
	need_engine
	sbx_start
	TAG=$$
	BASE=sandbox-test-agent-base-$TAG:local
	export BASE TAG
	glibc_image "$BASE"
}

teardown_file() {
	local agent
	[ -n "${SBX_DIR:-}" ] || return 0
	sbx_stop
	for agent in ${AGENTS:-claude}; do docker rmi -f "sandbox-test-$agent-$TAG:local" >/dev/null 2>&1 || true; done
	docker rmi -f "$BASE" >/dev/null 2>&1 || true
}

@test "images are built, and what they hold runs without a network, confined as any sandbox" {
	local agent
	for agent in ${AGENTS:-claude}; do
		run -0 --separate-stderr timeout 1200 sandbox --json agent build "$agent" --base "$BASE" --tag "sandbox-test-$agent-$TAG:local"
		version=$(jq -r .version <<<"$output")
		[[ $(jq -r .says <<<"$output") == *"$version"* ]]
		run -0 --separate-stderr timeout 300 sandbox agent run "$agent" --image "sandbox-test-$agent-$TAG:local" --network deny --no-needs-secrets \
			--no-untrusted-repo --sensitivity internal --memory 1g --disk 256m --cpus 1 --pids 128 --name "try-$agent" -- --version
		[[ $output == *"$version"* ]]
		timeout 60 sandbox delete "try-$agent"
	done
	# The sandbox it was built in is gone.
	[ -z "$(timeout 60 sandbox list -q)" ]
}

@test "a program that is not there fails the build, and nothing is left" {
	run -2 --separate-stderr timeout 60 sandbox agent build goose --base "$BASE"
	[[ $stderr == *"not on the npm registry"* ]]
	run -1 --separate-stderr timeout 600 sandbox agent build claude --agent-version 0.0.0-none --base "$BASE"
	[[ $stderr == *npm* ]]
	[ -z "$(timeout 60 sandbox list -q)" ]
	[ -z "$(find /var/tmp -maxdepth 1 -name 'sandbox-agent.*' -newer "$SBX_DIR/pid")" ]
}
