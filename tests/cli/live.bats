#!/usr/bin/env bats
# The verbs against the real daemon and engine: the lines people type, as they type them.

load ../lib/helpers

setup_file() {
	if curl -fsS --max-time 5 --unix-socket "$DOCKER_SOCKET" http://engine/_ping >/dev/null 2>&1; then sbx_start; fi
}

teardown_file() {
	sbx_stop
}

setup() {
	need_engine
}

teardown() {
	local id
	for id in $(timeout 20 sandbox list -q 2>/dev/null); do timeout 60 sandbox delete -q "$id" >/dev/null 2>&1 || true; done
}

@test "the original's lines work as written" {
	run --separate-stderr timeout 60 sandbox create --tenant platform --image "$IMAGE" --cpu-millis 2000 --memory-mib 4096 --ttl 3600 --network deny
	[ "$status" -eq 0 ]
	local id=$output op
	[[ $id =~ ^[0-9a-f-]{36}$ ]]
	op=$(timeout 60 sandbox operation list "$id" --json | jq -er '.[0].id')
	[ "$(timeout 60 sandbox wait "$op" --timeout 900)" = succeeded ]
	[ "$(timeout 20 sandbox exec "$id" -- echo 'a  b')" = "a  b" ]
	timeout 60 sandbox delete "$id" --wait
	[ "$(timeout 20 sandbox inspect "$id" --json | jq -r .end_reason)" = deleted ]
}

@test "the original's script of JSON calls works as written" {
	local create id op delete
	timeout 60 sandbox --json doctor | jq -e '.status != "fail"'
	create=$(timeout 60 sandbox --json create --tenant smoke --image "$IMAGE" --cpu-millis 500 --memory-mib 256 --disk-mib 256 --pids 64 --ttl 600 \
		--network deny --no-wait -- sleep 600)
	id=$(jq -er .sandbox.id <<<"$create")
	op=$(jq -er .operation.id <<<"$create")
	timeout 60 sandbox --json wait "$op" --timeout 120 | jq -e '.state == "succeeded"'
	timeout 60 sandbox --json inspect "$id" | jq -e '.state == "running"'
	timeout 60 sandbox --json list --tenant smoke | jq -e --arg id "$id" 'any(.id == $id)'
	delete=$(timeout 60 sandbox --json delete "$id" --no-wait)
	timeout 60 sandbox --json wait "$(jq -er .id <<<"$delete")" --timeout 120 | jq -e '.state == "succeeded"'
	timeout 60 sandbox --json list --tenant smoke | jq -e 'length == 0'
	timeout 60 sandbox --json list --tenant smoke --all | jq -e 'any(.state == "stopped")'
}

@test "risk over the threshold exits 6 and names score, threshold and a way out" {
	run --separate-stderr timeout 60 sandbox create --image "$IMAGE" --network restricted --untrusted-repo --generated-code
	[ "$status" -eq 6 ]
	[ -z "$output" ]
	[[ $stderr == *60* && $stderr == *55* && $stderr == *microvm* ]]
	[ "$(timeout 20 sandbox list -q | wc -l)" -eq 0 ]
	run timeout 60 sandbox create --explain --image "$IMAGE"
	[ "$status" -eq 0 ]
	[ "$(timeout 20 sandbox list -q | wc -l)" -eq 0 ]
}

@test "names, beginnings and ends of ids find a sandbox" {
	local id
	id=$(sbx_create -q --name web-1)
	[ "$(timeout 20 sandbox inspect -q web-1)" = "$id" ]
	[ "$(timeout 20 sandbox inspect -q "$id")" = "$id" ]
	[ "$(timeout 20 sandbox inspect -q "${id: -8}")" = "$id" ]
	[ "$(timeout 20 sandbox inspect -q "${id:0:13}")" = "$id" ]
	run timeout 20 sandbox inspect nosuch
	[ "$status" -eq 3 ]
	run timeout 60 sandbox create --image "$IMAGE" --name web-1
	[ "$status" -eq 5 ]
	timeout 20 sandbox list | grep -q "^${id: -8}  web-1  *running"
}

@test "an idempotency key creates one sandbox" {
	local a b
	a=$(sbx_create -q --idempotency-key k-1)
	b=$(sbx_create -q --idempotency-key k-1)
	[ "$a" = "$b" ]
	run sbx_create --idempotency-key k-1 --pids 99
	[ "$status" -eq 5 ]
	[ "$(timeout 20 sandbox list -q | wc -l)" -eq 1 ]
}

@test "labels select" {
	local a
	a=$(sbx_create -q -l job=42 -l x=y)
	sbx_create -q -l job=43
	[ "$(timeout 20 sandbox list -q -l job=42)" = "$a" ]
	[ "$(timeout 20 sandbox list -q -l job=42 -l x=z)" = "" ]
}

@test "extend moves the deadline, and nothing else does" {
	local id before after
	id=$(sbx_create -q --ttl 30m)
	before=$(timeout 20 sandbox inspect "$id" --json | jq -r .expires_at)
	timeout 20 sandbox exec "$id" -- true
	timeout 20 sandbox top "$id" --json >/dev/null
	after=$(timeout 20 sandbox inspect "$id" --json | jq -r .expires_at)
	[ "$before" = "$after" ]
	after=$(timeout 20 sandbox extend "$id" --ttl 2h)
	[[ $after > $before ]]
}

@test "a time to live ends a sandbox, and says so afterwards" {
	local id
	id=$(sbx_create -q --ttl 1s)
	until_ok 15 sh -c "sandbox inspect $id --json | jq -e '.end_reason == \"expired\"'"
	run --separate-stderr timeout 20 sandbox exec "$id" -- true
	[ "$status" -eq 125 ]
	[[ $stderr == *expired* ]]
}

@test "wait and list outlast a restart of the daemon" {
	local id op
	id=$(sbx_create -q --name kept)
	op=$(timeout 20 sandbox exec --detach "$id" -- sleep 4)
	timeout 40 sandbox wait "$op" --timeout 30 >"$SBX_DIR/out" 2>"$SBX_DIR/err" 3>&- &
	local pid=$!
	sleep 0.5
	sbx_kill TERM
	sbx_daemon
	wait $pid
	grep -q '^succeeded' "$SBX_DIR/out"
	[ "$(timeout 20 sandbox list -q)" = "$id" ]
}

@test "an image is imported, used and removed" {
	mkdir -p "$SBX_DIR/root/bin"
	cp "$(command -v busybox)" "$SBX_DIR/root/bin/busybox" || skip "no static busybox"
	tar -C "$SBX_DIR/root" -cf "$SBX_DIR/root.tar" .
	[[ $(timeout 60 sandbox image import "$SBX_DIR/root.tar" "sbx-live:$$") == "sbx-live:$$"* ]]
	timeout 20 sandbox image list -q | grep -qx "sbx-live:$$"
	id=$(timeout 60 sandbox create -q --image "sbx-live:$$" --disk 64m)
	[ "$(timeout 20 sandbox exec "$id" -- /bin/busybox echo ok)" = ok ]
	timeout 60 sandbox delete -q "$id"
	timeout 20 sandbox image remove "sbx-live:$$"
	! timeout 20 sandbox image list -q | grep -qx "sbx-live:$$" || false
	run timeout 20 sandbox image remove "sbx-live:$$"
	[ "$status" -eq 3 ]
}

@test "top shows what a sandbox uses" {
	local id
	id=$(sbx_create -q --name busy)
	timeout 20 sandbox top busy --json | jq -e '.pids >= 1 and .memory_limit_bytes == 268435456 and .memory_bytes > 0'
	timeout 20 sandbox top | grep -q busy
}

@test "ps shows the processes inside, whatever the image holds" {
	local id
	id=$(sbx_create -q)
	timeout 20 sandbox exec --detach -q "$id" -- sleep 300
	until_ok 10 sh -c "sandbox ps $id | grep -q 'sleep 300'"
	timeout 20 sandbox ps "$id" --json | jq -e 'any(.pid == 1) and any(.command == "sleep 300" and .memory_kib > 0)'
	run --separate-stderr timeout 20 sandbox ps nosuch
	[ "$status" -eq 3 ]
	[ -z "$output" ]
}

@test "several are deleted at once, twice without harm" {
	local a b
	a=$(sbx_create -q)
	b=$(sbx_create -q)
	timeout 60 sandbox delete "$a" "$b"
	timeout 60 sandbox delete "$a" "$b"
	[ -z "$(timeout 20 sandbox list -q)" ]
}

@test "doctor finds nothing broken here" {
	run timeout 60 sandbox doctor
	[ "$status" -eq 0 ]
	[[ ${lines[-1]} == ok || ${lines[-1]} == warn ]]
}

@test "--tenant says whose names are meant, for requests and streams alike" {
	local mine theirs
	mine=$(sbx_create --name twin)
	theirs=$(sbx_create --name twin --tenant other)
	which() { timeout 20 sandbox "$@" exec --no-stdin twin -- sh -c 'echo $SANDBOX_ID'; }
	[ "$(which)" = "$mine" ]
	[ "$(which --tenant other)" = "$theirs" ]
	[ "$(SANDBOX_TENANT=other which)" = "$theirs" ]
	[ "$(timeout 20 sandbox inspect -q twin)" = "$mine" ]
	[ "$(timeout 20 sandbox --tenant other inspect -q twin)" = "$theirs" ]
	echo theirs >"$BATS_TEST_TMPDIR/f"
	timeout 20 sandbox --tenant other cp "$BATS_TEST_TMPDIR/f" twin:/workspace/f
	[ "$(timeout 20 sandbox --tenant other cp twin:/workspace/f - | tar xO)" = theirs ]
	run timeout 20 sandbox cp twin:/workspace/f -
	[ "$status" -eq 3 ]
	[ "$(timeout 20 sandbox --tenant other list -q)" = "$theirs" ]
	# A tenant without one has none: another's is never taken instead.
	run -125 timeout 20 sandbox --tenant nobody exec twin -- true
	[[ $output == *"no sandbox matches 'twin'"* ]]
	run -3 timeout 20 sandbox --tenant nobody delete twin
	# A whole id means one sandbox wherever it is.
	timeout 20 sandbox --tenant nobody exec "$mine" -- true
	run -2 timeout 20 sandbox --tenant 'No Tenant' list
	timeout 60 sandbox --tenant other delete twin
	[ "$(timeout 20 sandbox inspect -q twin)" = "$mine" ]
	timeout 60 sandbox delete twin
}
