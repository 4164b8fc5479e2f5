#!/usr/bin/env bats
# What is left over is found with its owner, told by the exit status, and removed.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start --set policy.max_host_pressure=1
}

teardown_file() {
	sbx_stop
}

@test "nothing is left over while sandboxes live and after they went" {
	sbx_create --name one >/dev/null
	run -0 --separate-stderr sandbox gc --verify
	[ -z "$output" ]
	sandbox delete one --wait
	run -0 sandbox gc --verify
	run -0 sandbox gc --verify --json
	[ "$output" = '[]' ]
}

@test "a container, a directory and a lost sandbox are listed, with owner and evidence; then removed" {
	local node other=01a00000-0000-7000-8000-0000000000aa third=01a00000-0000-7000-8000-0000000000bb lost
	node=$(cat "$SBX_DIR/state/node-id")
	docker create --name "sandbox-$other" --label io.sandbox.managed=1 --label "io.sandbox.id=$other" --label "io.sandbox.node=$node" "$IMAGE" true >/dev/null
	mkdir "$SBX_DIR/state/sandboxes/$third"
	run -1 --separate-stderr sandbox gc --verify --json
	[ "$(echo "$output" | jq -r 'map(.kind) | sort | join(" ")' | head -n 1)" = 'container directory' ]
	[ "$(echo "$output" | jq -r '.[] | select(.kind == "container") | .sandbox_id' 2>/dev/null | head -n 1)" = "$other" ]
	run -1 sandbox gc --verify
	[[ "$output" == *"directory"*"$third"*"no live sandbox has this id"* ]]
	[ -d "$SBX_DIR/state/sandboxes/$third" ]
	run -0 sandbox gc
	[ ! -d "$SBX_DIR/state/sandboxes/$third" ]
	run ! docker inspect "sandbox-$other"
	run -0 sandbox gc --verify
}
