#!/usr/bin/env bats
# Warm pools: sandboxes that run before anybody asks for one.

load ../lib/helpers.bash

setup_file() {
	need_engine
	docker tag "$IMAGE" sandbox-pool-test:latest
	sbx_prepare
	cat >"$SBX_DIR/pools.conf" <<-CONF
		[pool small]
		image = sandbox-pool-test:latest
		size = 3
		memory = 128m
		disk = 64m
	CONF
	# One that can be replaced as an upgrade does.
	cp "$BUILD/sandbox-init" "$SBX_DIR/init"
	sbx_daemon --config "$SBX_DIR/pools.conf" --set "daemon.init_path=$SBX_DIR/init"
}

teardown_file() {
	sbx_stop
	docker rmi -f sandbox-pool-test:latest >/dev/null 2>&1 || true
}

ready() {
	local n
	n=$(sandbox pool list --json | jq '.[0].ready')
	[ "$n" -eq "$1" ]
}

full() {
	until_ok 40 ready 3
}

claims() {
	sandbox pool list --json | jq '.[0].claims'
}

claim() {
	timeout 40 sandbox create -q --image sandbox-pool-test:latest -m 128m --disk 64m "$@"
}

containers() {
	docker ps -aq --filter "label=io.sandbox.node=$(cat "$SBX_DIR/state/node-id")" "$@"
}

@test "what waits in a pool is seen by pool list and doctor, and by nothing else" {
	full
	run -0 sandbox pool list
	[[ ${lines[1]} == *small*sandbox-pool-test:latest*container*deny*"3 of 3"* ]]
	run -0 sandbox list -q --all
	[ -z "$output" ]
	run -0 sandbox operation list -q
	[ -z "$output" ]
	[ "$(containers | wc -l)" -eq 3 ]
	run sandbox doctor
	[[ $output == *"pool small"*"3 of 3 ready"* ]]
	local id
	id=$(containers --format '{{.Names}}' | head -1)
	run -3 sandbox inspect "${id#sandbox-}"
	run -3 sandbox delete "${id#sandbox-}"
}

@test "a claimed one is in everything what was asked for" {
	full
	local before id
	before=$(claims)
	id=$(claim --name web --env GREETING="good day" --label team=x --ttl 10m)
	[ "$(claims)" -eq $((before + 1)) ]
	run -0 timeout 20 sandbox exec web -- sh -c 'hostname; cat /proc/sys/kernel/hostname; grep -c web /etc/hosts; echo "$GREETING"; echo "$SANDBOX_ID"; df -m /workspace | awk "NR==2 { print (\$2 <= 64) }"; pwd; ls -A /workspace'
	[ "${lines[0]}" = web ]
	[ "${lines[1]}" = web ]
	[ "${lines[2]}" = 2 ]
	[ "${lines[3]}" = "good day" ]
	[ "${lines[4]}" = "$id" ]
	[ "${lines[5]}" = 1 ]
	[ "${lines[6]}" = /workspace ]
	[ "$(hostname)" != web ]
	run -0 sandbox inspect --json web
	jq -e --arg id "$id" '.id == $id and .name == "web" and .spec.labels.team == "x" and .state == "running" and .tier == "container"
		and (.image_digest | startswith("sha256:"))' <<<"$output"
	jq -e '(.expires_at[0:19] + "Z" | fromdate) - (.created_at[0:19] + "Z" | fromdate) | . >= 599 and . <= 601' <<<"$output"
	jq -e '.decision | tostring | test("of pool small")' <<<"$output"
	run -0 sandbox list -q
	[ "$output" = "$id" ]
	[ "$(sandbox operation list --json | jq "[.[] | select(.sandbox_id == \"$id\") | .kind] | map(select(. == \"create\")) | length")" -eq 1 ]
	run -0 timeout 20 sandbox exec web -- sh -c 'touch /workspace/x; cat /proc/self/cgroup >/dev/null; id -u'
	timeout 30 sandbox delete web
}

@test "explain says that one is ready, and takes none" {
	full
	local before
	before=$(claims)
	run -0 timeout 20 sandbox create --explain --image sandbox-pool-test:latest -m 128m --disk 64m
	[[ $output == *"fits, rank "*": a sandbox of pool small was ready"* ]]
	run -0 timeout 20 sandbox create --explain --json --image sandbox-pool-test:latest -m 128m --disk 64m
	jq -e '.decision.placed and (.decision.nodes | map(.reason) | any(test("of pool small")))' <<<"$output"
	run -0 timeout 20 sandbox create --explain --image sandbox-pool-test:latest -m 130m --disk 64m
	[[ $output != *"of pool"* ]]
	[ "$(claims)" -eq "$before" ]
	ready 3
}

@test "a start command runs, and the deadline is the request's" {
	full
	local id before
	before=$(claims)
	id=$(claim --ttl 4s -- sh -c 'echo started; sleep 100')
	[ "$(claims)" -eq $((before + 1)) ]
	until_ok 10 bash -c "sandbox logs $id | grep -q started"
	until_ok 20 bash -c "! sandbox list -q | grep -q $id"
}

@test "another shape is made as ever, and takes nothing from the pool" {
	full
	local before
	before=$(claims)
	timeout 40 sandbox run --image sandbox-pool-test:latest -m 130m --disk 64m -- true
	timeout 40 sandbox run --image sandbox-pool-test:latest -m 128m --disk 64m --writable-root -- touch /etc/x
	timeout 40 sandbox run --image "$IMAGE" -m 128m --disk 64m -- true
	[ "$(claims)" -eq "$before" ]
	ready 3
}

@test "more claims at once than are ready: all succeed" {
	full
	local k pids=()
	for k in 1 2 3 4 5 6; do
		timeout 60 sandbox run --image sandbox-pool-test:latest -m 128m --disk 64m -- sh -c 'echo "$SANDBOX_ID"' >"$BATS_TEST_TMPDIR/$k" 2>/dev/null 3>&- &
		pids+=($!)
	done
	wait "${pids[@]}"
	[ "$(sort -u "$BATS_TEST_TMPDIR"/[1-6] | wc -l)" -eq 6 ]
	full
}

@test "one whose process ended is not handed out" {
	full
	local before k
	docker kill $(containers) >/dev/null
	k=$(claim --name after)
	[ "$(timeout 20 sandbox exec after -- echo alive)" = alive ]
	timeout 30 sandbox delete "$k"
}

@test "another image under the name replaces what waits" {
	full
	local old id
	old=$(containers | sort)
	printf 'FROM %s\nENV NEWER=yes\n' "$IMAGE" | docker build -q -t sandbox-pool-test:latest - >/dev/null
	# Also before the pool has noticed.
	id=$(claim)
	[ "$(timeout 20 sandbox exec "$id" -- sh -c 'echo $NEWER')" = yes ]
	timeout 30 sandbox delete "$id"
	gone() {
		local one
		for one in $old; do
			! docker inspect "$one" >/dev/null 2>&1 || return 1
		done
	}
	until_ok 30 gone
	full
}

@test "another sandbox-init replaces what waits" {
	full
	local old
	old=$(containers | head -1)
	cp "$BUILD/sandbox-init" "$SBX_DIR/init.new"
	mv "$SBX_DIR/init.new" "$SBX_DIR/init"
	renewed() {
		! docker inspect "$old" >/dev/null 2>&1
	}
	until_ok 30 renewed
	full
	timeout 40 sandbox run --image sandbox-pool-test:latest -m 128m --disk 64m -- true
}

@test "a daemon killed at any moment leaves the books balanced and nothing behind" {
	local round k clients=()
	for round in 1 2 3 4; do
		for k in 1 2; do
			(timeout 20 sandbox run --image sandbox-pool-test:latest -m 128m --disk 64m -- true >/dev/null 2>&1 3>&- || true) &
			clients+=($!)
		done
		sleep "0.$((RANDOM % 6))$((RANDOM % 10))"
		sbx_kill KILL
		sbx_daemon
	done
	wait "${clients[@]}"
	for k in $(sandbox list -q); do
		timeout 40 sandbox delete "$k"
	done
	full
	settled() {
		[ "$(containers | wc -l)" -eq 3 ] && [ "$(find "$SBX_DIR/state/sandboxes" -mindepth 1 -maxdepth 1 | wc -l)" -eq 3 ] &&
			sandbox gc --verify >/dev/null && ready 3
	}
	until_ok 60 settled
	# What the node counts as taken is what waits.
	run -0 curl -sS --max-time 10 --unix-socket "$SBX_DIR/d.sock" http://sandbox/metrics
	grep -q '^sandbox_node_sandboxes{node="local"} 3$' <<<"$output"
	[ "$(timeout 40 sandbox run --image sandbox-pool-test:latest -m 128m --disk 64m -- echo fine)" = fine ]
}

@test "a request that fits nowhere because of the pool gets its room" {
	sbx_kill TERM
	sbx_daemon --config "$SBX_DIR/pools.conf" --set "daemon.init_path=$SBX_DIR/init" --set worker.max_sandboxes=3
	full
	[ "$(timeout 40 sandbox run --image "$IMAGE" -m 128m --disk 64m -- echo there)" = there ]
	full
}

@test "without pools in the configuration those that wait are ended" {
	sbx_kill TERM
	: >"$SBX_DIR/pools.conf"
	sbx_daemon
	none() {
		[ -z "$(containers)" ]
	}
	until_ok 30 none
	run -0 sandbox pool list -q
	[ -z "$output" ]
}
