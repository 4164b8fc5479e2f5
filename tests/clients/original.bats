#!/usr/bin/env bats
# The public Rust original's own smoke test of its command line, unmodified, with ours in its place. SMOKE_SCRIPT is a copy of its
# scripts/smoke-test-cli.sh; the image it names is made of this machine's Python where the engine has none of that name.

load ../lib/helpers.bash
load ../lib/tls.bash
load ../lib/tools_image.bash

SMOKE_IMAGE=python:3.13-alpine

setup_file() {
	[ -n "${SMOKE_SCRIPT:-}" ] || return 0
	need_engine
	EDGE=$(free_port)
	sbx_start --set "edge.listen=127.0.0.1:$EDGE"
	if ! docker image inspect "$SMOKE_IMAGE" >/dev/null 2>&1; then
		python_image "$SMOKE_IMAGE"
		export SMOKE_IMAGE_MADE=1
	fi
}

teardown_file() {
	[ -z "${SBX_DIR:-}" ] || sbx_stop
	[ -z "${SMOKE_IMAGE_MADE:-}" ] || docker rmi -f "$SMOKE_IMAGE" >/dev/null 2>&1 || true
}

@test "the original's smoke test passes" {
	[ -n "${SMOKE_SCRIPT:-}" ] || skip "SMOKE_SCRIPT names no copy of the original's scripts/smoke-test-cli.sh"
	SANDBOX_TOKEN=unused-on-a-socket SANDBOX_CLI=$BUILD/sandbox run -0 timeout 300 sh "$SMOKE_SCRIPT"
	[[ $output == *"smoke test passed"* ]]
}
