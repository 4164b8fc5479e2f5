#!/usr/bin/env bats
# The whole life of sandboxes: many, killed daemons, nothing left behind.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start
}

teardown_file() {
	sbx_stop
}

leftovers() {
	local node
	node=$(cat "$SBX_DIR/state/node-id")
	docker ps -aq --filter "label=io.sandbox.node=$node"
	docker volume ls -q --filter "label=io.sandbox.node=$node"
	find "$SBX_DIR/state/sandboxes" -mindepth 1 -maxdepth 1 2>/dev/null
	grep "$SBX_DIR/state" /proc/mounts
	losetup -a 2>/dev/null | grep "$SBX_DIR/state"
	return 0
}

no_leftovers() {
	[ -z "$(leftovers)" ]
}

# Records and engine name the same sandboxes.
agree() {
	local node want have
	node=$(cat "$SBX_DIR/state/node-id")
	want=$(sandbox list --json | jq -r '.[] | select(.state == "running") | "sandbox-" + .id' | sort)
	have=$(docker ps --format '{{.Names}}' --filter "label=io.sandbox.node=$node" | sort)
	[ "$want" = "$have" ] && [ "$(docker ps -aq --filter "label=io.sandbox.node=$node" | wc -l)" -eq "$(printf '%s' "$want" | grep -c .)" ]
}

@test "the lines of the guide work as written" {
	local id op
	run -0 --separate-stderr timeout 60 sandbox create --tenant platform --image "$IMAGE" --cpu-millis 2000 --memory-mib 4096 --ttl 3600 --network deny
	id=$(echo "$output" | tail -n 1)
	op=$(sandbox operation list "$id" --json | jq -r '.[-1].id')
	run -0 timeout 60 sandbox wait "$op" --timeout 900
	run -0 timeout 20 sandbox exec "$id" -- echo 'a b'
	[ "$output" = 'a b' ]
	run -0 timeout 60 sandbox delete "$id" --wait
	run -0 no_leftovers
}

@test "a high-risk request is refused, with score, threshold and what would satisfy it" {
	run timeout 30 sandbox create --tenant platform --image "$IMAGE" --network restricted --untrusted-repo --generated-code
	[ "$status" -eq 6 ]
	[[ "$output" == *60* ]]
	[[ "$output" == *55* ]]
	[[ "$output" == *microvm* ]]
	run -0 sandbox list -q
	[ -z "$output" ]
}

@test "run: one command, its output and status, and nothing left" {
	run -7 timeout 60 sandbox run --image "$IMAGE" --disk-mib 64 -- sh -c 'echo out; exit 7'
	[[ "$output" == *out* ]]
	run -0 until_ok 10 no_leftovers
}

@test "100 sandboxes created and deleted in a row leave nothing" {
	local i box fds
	box=$(sbx_create)
	sandbox delete "$box"
	fds=$(daemon_fds)
	for i in $(seq 100); do
		box=$(sbx_create)
		timeout 10 sandbox exec "$box" -- true
		timeout 60 sandbox delete -q "$box"
	done
	run -0 until_ok 10 no_leftovers
	[ "$(daemon_fds)" -le $((fds + 3)) ]
}

@test "500 commands, 20 at a time, are all right and give their descriptors back" {
	local box fds
	box=$(sbx_create)
	timeout 10 sandbox exec "$box" -- true
	fds=$(daemon_fds)
	run -0 sh -c "seq 500 | xargs -P20 -I{} timeout 30 sandbox exec $box -- echo {} | sort -n | uniq | wc -l"
	[ "$output" -eq 500 ]
	sleep 1
	[ "$(daemon_fds)" -le $((fds + 3)) ]
	sandbox delete "$box"
}

@test "a daemon killed at any moment agrees with the engine after its restart, and running sandboxes stay" {
	local keep i
	keep=$(sbx_create --name keep)
	for i in $(seq 10); do
		(sbx_create --name "r$i" >/dev/null 2>&1 || true) &
		sleep "0.$((RANDOM % 3))$((RANDOM % 10))"
		sbx_kill KILL
		wait %% 2>/dev/null || true
		sbx_daemon
		run -0 until_ok 30 agree
		run -0 timeout 20 sandbox exec keep -- echo kept
		[ "$output" = kept ]
		timeout 60 sandbox delete "r$i" >/dev/null 2>&1 || true
	done
	run -0 timeout 60 sandbox delete "$keep"
	local id
	for id in $(sandbox list -q); do timeout 60 sandbox delete "$id"; done
	run -0 until_ok 30 no_leftovers
}

@test "a daemon killed during a delete finishes it after the restart" {
	local box
	box=$(sbx_create)
	sandbox delete "$box" --no-wait
	sbx_kill KILL
	sbx_daemon
	run -0 until_ok 30 no_leftovers
}

@test "a graceful stop keeps sandboxes, and commands go on" {
	local box op
	box=$(sbx_create)
	op=$(sandbox exec --detach "$box" -- sh -c 'sleep 3; echo finished')
	sbx_kill TERM
	sbx_daemon
	run -0 timeout 30 sandbox wait "$op" --timeout 20
	run -0 timeout 10 sandbox logs "$op"
	[ "$output" = finished ]
	sandbox delete "$box"
}

@test "a container removed behind our back is noticed" {
	local box
	box=$(sbx_create)
	docker rm -f "sandbox-$box" >/dev/null
	until_ok 20 sh -c "sandbox inspect --json $box | jq -e '.state == \"failed\"'"
	run sandbox exec "$box" -- true
	[ "$status" -eq 125 ]
	run -0 sandbox delete "$box"
	run -0 until_ok 10 no_leftovers
}

@test "a failed create gives its name back" {
	run timeout 60 sandbox create --name again --image no.such.invalid/img:1
	[ "$status" -ne 0 ]
	run -0 timeout 60 sandbox create --name again --image "$IMAGE" --disk-mib 64
	sandbox delete again
}

@test "a full host disk refuses the create and loses nothing" {
	local small=$SBX_DIR/small
	mkdir "$small"
	truncate -s 96M "$SBX_DIR/small.img"
	mkfs.ext4 -q -F "$SBX_DIR/small.img"
	mount -o loop "$SBX_DIR/small.img" "$small"
	run in_small_daemon "$small"
	[ "$status" -eq 0 ] || { echo "$output"; tail -n 30 "$small/log"; false; }
	grep -o "$small/[^ ]*" /proc/mounts | sort -r | while read -r m; do umount "$m"; done
	umount "$small"
}

# A daemon of its own whose state lies on the small disk.
in_small_daemon() (
	set -e
	SBX_DIR=$1
	export SANDBOX_URL=unix://$SBX_DIR/d.sock
	sbx_daemon
	local box text
	box=$(sandbox create -q --image "$IMAGE" --disk-mib 64)
	if text=$(timeout 60 sandbox create --image "$IMAGE" --disk-mib 512 2>&1); then
		echo "a workspace larger than the disk was accepted"
		return 1
	fi
	echo "$text"
	[[ "$text" == *disk* || "$text" == *space* ]]
	dd if=/dev/zero of="$SBX_DIR/fill" bs=1M 2>/dev/null || true
	[ "$(sandbox exec "$box" -- sh -c 'dd if=/dev/urandom of=/workspace/f bs=1M count=20 2>/dev/null; md5sum </workspace/f')" \
		= "$(sandbox exec "$box" -- md5sum /workspace/f | sed 's|/workspace/f|-|')" ]
	[ "$(sandbox list -q)" = "$box" ]
	rm "$SBX_DIR/fill"
	sandbox delete -q "$box"
	sbx_kill TERM
)
