#!/usr/bin/env bats
# The HTTP API over the unix socket of a real daemon on a real engine: what a client written for curl sees.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start
}

teardown_file() {
	docker image rm "sbx-api-test:$BATS_ROOT_PID" >/dev/null 2>&1 || true
	sbx_stop
}

# api METHOD PATH [curl arguments]: the body in $output, the status in $HTTP.
api() {
	local method=$1 path=$2 all
	shift 2
	all=$(curl -sS --max-time 90 --unix-socket "$SBX_DIR/d.sock" -X "$method" -w '\n%{http_code}' "$@" "http://sandbox$path") || return 1
	HTTP=${all##*$'\n'}
	output=${all%$'\n'*}
	output=${output%$'\n'}
}

# Fails with what was answered when the status is another.
want() {
	if [ "$HTTP" != "$1" ]; then
		echo "want $1, got $HTTP: $output" >&2
		return 1
	fi
}

field() {
	jq -r "$1" <<<"$output"
}

spec() {
	jq -n --arg image "$IMAGE" --argjson more "${1:-{\}}" '{spec: ({image: $image, resources: {cpu_millis: 500, memory_mib: 128, disk_mib: 64, pids: 64}} + $more)}'
}

# A running sandbox made over the API; its id in $BOX.
make_box() {
	local op
	api POST /v1/sandboxes -d "$(spec "${1:-}")"
	want 201
	BOX=$(field .sandbox.id)
	op=$(field .operation.id)
	api GET "/v1/operations/$op?wait=60"
	want 200
	[ "$(field .operation.state)" = succeeded ] || { echo "$output" >&2; return 1; }
}

# exec_op COMMAND-JSON: starts it in $BOX, its operation in $OP.
exec_op() {
	api POST "/v1/sandboxes/$BOX/exec" -d "{\"command\":$1}"
	want 202
	OP=$(field .operation.id)
}

end_of() {
	api GET "/v1/operations/$1?wait=60"
	want 200
}

drop_box() {
	api DELETE "/v1/sandboxes/$BOX"
	want 202
	end_of "$(field .operation.id)"
}

@test "health needs nobody, readiness asks the store" {
	api GET /healthz
	want 200
	[ "$(field '.status + " " + .store')" = "ok sqlite" ]
	[ "$(field '.tunnels.enabled')" = false ]
	[ "$(field '.tunnels | keys | length')" -eq 6 ]
	[[ "$(field .now)" == 20*Z ]]
	api GET /readyz
	want 200
	run curl -sS -I --max-time 5 --unix-socket "$SBX_DIR/d.sock" http://sandbox/healthz
	[[ "$output" == "HTTP/1.1 200"* ]]
}

@test "create, run, read the output, delete: the whole life over REST" {
	make_box
	api GET "/v1/sandboxes/$BOX"
	want 200
	[ "$(field '.state + " " + .tier + " " + .isolation')" = "running container container" ]
	[ "$(field '.spec.resources.memory_mib')" -eq 128 ]
	exec_op '{"argv":["sh","-c","echo out; echo err >&2; exit 3"],"env":{"A":"b"},"cwd":"/tmp","timeout_seconds":20}'
	end_of "$OP"
	[ "$(field '.operation | .state + " " + .outcome')" = "failed exited" ]
	[ "$(field '.operation.output | "\(.exit_code) \(.stdout) \(.stderr) \(.truncated)"')" = $'3 out\n err\n false' ]
	drop_box
	[ "$(field .operation.state)" = succeeded ]
	api GET "/v1/sandboxes/$BOX"
	want 200
	[ "$(field '.state + " " + .end_reason')" = "stopped deleted" ]
	api POST "/v1/sandboxes/$BOX/exec" -d '{"command":{"argv":["true"]}}'
	[[ "$HTTP" == 4* ]]
	[[ "$(field .message)" == *deleted* ]]
}

@test "bytes that are no text travel in base64 and are flagged" {
	make_box
	exec_op '{"argv":["printf","\\377\\000x"]}'
	end_of "$OP"
	[ "$(field .operation.output.stdout_base64)" = "/wB4" ]
	[ "$(field .operation.output.stdout_bytes)" -eq 3 ]
	drop_box
}

@test "a wait answers when the operation ends, or with its present state when the time is over" {
	make_box
	exec_op '{"argv":["sleep","4"]}'
	SECONDS=0
	api GET "/v1/operations/$OP?wait=1"
	want 200
	[ "$(field .operation.state)" = running ]
	api GET "/v1/operations/$OP?wait=60"
	want 200
	[ "$(field '.operation | .state + " " + .outcome')" = "succeeded exited" ]
	[ "$SECONDS" -lt 20 ]
	api GET "/v1/operations/$OP?wait=61"
	want 400
	api GET "/v1/operations/$OP?wait=-1"
	want 400
	drop_box
}

@test "a create that waits answers when the sandbox runs, or when it failed" {
	api POST "/v1/sandboxes?wait=60" -d "$(spec)"
	want 201
	[ "$(field .sandbox.state) $(field .operation.state)" = "running succeeded" ]
	[ "$(field .sandbox.image_digest)" != null ]
	api DELETE "/v1/sandboxes/$(field .sandbox.id)"
	want 202
	api POST "/v1/sandboxes?wait=60" -d "$(spec '{"image": "no.such.invalid/img:1"}')"
	want 201
	[ "$(field .sandbox.state) $(field .operation.state)" = "failed failed" ]
	api POST "/v1/sandboxes?wait=61" -d "$(spec)"
	want 400
}

@test "cancel ends a command; a second one and one of a create are conflicts" {
	local create
	make_box
	exec_op '{"argv":["sleep","600"]}'
	api POST "/v1/operations/$OP/cancel"
	want 202
	end_of "$OP"
	[ "$(field '.operation | .state + " " + .outcome')" = "failed canceled" ]
	api POST "/v1/operations/$OP/cancel" -d '{"signal":9}'
	want 409
	api POST "/v1/operations/$OP/cancel" -d '{"signal":65}'
	want 400
	api GET "/v1/operations?sandbox=$BOX"
	want 200
	create=$(field '.operations[] | select(.kind == "create") | .id')
	api POST "/v1/operations/$create/cancel"
	want 409
	drop_box
}

@test "a time-out is an outcome of its own" {
	make_box
	exec_op '{"argv":["sleep","600"],"timeout_seconds":1}'
	end_of "$OP"
	[ "$(field '.operation | .state + " " + .outcome')" = "failed timeout" ]
	[ "$(field .operation.output.exit_code)" -eq 124 ]
	drop_box
}

@test "an Idempotency-Key makes a repeat harmless" {
	local id op
	api POST /v1/sandboxes -H 'Idempotency-Key: once' -d "$(spec)"
	want 201
	id=$(field .sandbox.id)
	op=$(field .operation.id)
	api POST /v1/sandboxes -H 'Idempotency-Key: once' -d "$(spec)"
	want 201
	[ "$(field '.sandbox.id + .operation.id')" = "$id$op" ]
	api POST /v1/sandboxes -H 'Idempotency-Key: once' -d "$(spec '{"ttl_seconds":77}')"
	want 409
	api POST /v1/sandboxes -H 'Idempotency-Key;' -d "$(spec)"
	want 400
	BOX=$id
	end_of "$op"
	api POST "/v1/sandboxes/$BOX/exec" -H 'Idempotency-Key: cmd' -d '{"command":{"argv":["sh","-c","echo x >>/workspace/n"]}}'
	want 202
	op=$(field .operation.id)
	end_of "$op"
	api POST "/v1/sandboxes/$BOX/exec" -H 'Idempotency-Key: cmd' -d '{"command":{"argv":["sh","-c","echo x >>/workspace/n"]}}'
	want 202
	[ "$(field .operation.id)" = "$op" ]
	exec_op '{"argv":["cat","/workspace/n"]}'
	end_of "$OP"
	[ "$(field .operation.output.stdout)" = x ]
	drop_box
}

@test "explain decides and stores nothing; a refusal carries its decision" {
	api POST '/v1/sandboxes?explain=true' -d "$(spec '{"labels":{"explained":"yes"}}')"
	want 200
	[ "$(field '.decision | "\(.placed) \(.required_tier) \(.profile) \(.threshold)"')" = "true container strict 55" ]
	api POST /v1/sandboxes -d "$(spec '{"labels":{"explained":"yes"},"network":"restricted_egress","signals":{"untrusted_repository":true,"executes_generated_code":true}}')"
	want 503
	[ "$(field .code)" = no_capacity ]
	[ "$(field '.decision | "\(.score) \(.required_tier) \(.placed)"')" = "60 microvm false" ]
	[ "$(field '.decision.nodes | length')" -ge 1 ]
	api GET '/v1/sandboxes?all=true'
	[ "$(field '[.sandboxes[] | select(.spec.labels.explained)] | length')" -eq 0 ]
}

@test "lists page, filter by label, and refuse nonsense" {
	local boxes=() n
	for n in 1 2 3; do
		make_box "{\"labels\":{\"set\":\"page\",\"n\":\"$n\"}}"
		boxes+=("$BOX")
	done
	api GET '/v1/sandboxes?label=set=page&limit=2'
	want 200
	[ "$(field '[.sandboxes[].id] | join(" ")')" = "${boxes[2]} ${boxes[1]}" ]
	[ "$(field .next)" = "${boxes[1]}" ]
	api GET "/v1/sandboxes?label=set=page&limit=2&after=$(field .next)"
	[ "$(field '[.sandboxes[].id] | join(" ")')" = "${boxes[0]}" ]
	[ "$(field .next)" = null ]
	api GET '/v1/sandboxes?label=set=page&label=n=2'
	[ "$(field '[.sandboxes[].id] | join(" ")')" = "${boxes[1]}" ]
	api GET '/v1/sandboxes?tenant=nobody-here'
	[ "$(field '.sandboxes | length')" -eq 0 ]
	for n in 'limit=0' 'limit=1001' 'limit=x' 'label=x' 'label=a=1&label=a=2' 'tenant=A' 'after=x' 'all=maybe' 'unknown=1'; do
		api GET "/v1/sandboxes?$n"
		want 400
	done
	for BOX in "${boxes[@]}"; do drop_box; done
	api GET '/v1/sandboxes?label=set=page'
	[ "$(field '.sandboxes | length')" -eq 0 ]
	api GET '/v1/sandboxes?label=set=page&all=true'
	[ "$(field '.sandboxes | length')" -eq 3 ]
}

@test "a deadline moves when asked, and stats count what is used" {
	local before
	make_box '{"ttl_seconds":600}'
	api GET "/v1/sandboxes/$BOX"
	before=$(field .expires_at)
	api POST "/v1/sandboxes/$BOX/extend" -d '{"ttl_seconds":7200}'
	want 200
	[[ "$(field .sandbox.expires_at)" > "$before" ]]
	api POST "/v1/sandboxes/$BOX/extend" -d '{"ttl_seconds":0}'
	want 400
	api POST "/v1/sandboxes/$BOX/extend" -d '{"ttl_seconds":1.5}'
	want 400
	api GET "/v1/sandboxes/$BOX/stats"
	want 200
	[ "$(field '.memory_limit_bytes > 0 and .pids >= 1 and .cpu_us >= 0')" = true ]
	drop_box
	api GET "/v1/sandboxes/$BOX/stats"
	[[ "$HTTP" == 4* ]]
}

@test "names, prefixes and suffixes find a sandbox; strangers are not found" {
	make_box '{"name":"by-name"}'
	for ref in by-name "${BOX:0:18}" "${BOX: -8}" "$BOX"; do
		api GET "/v1/sandboxes/$ref"
		want 200
		[ "$(field .id)" = "$BOX" ]
	done
	for ref in nobody 0000 "${BOX:0:3}" a%2Fb %2e%2e; do
		api GET "/v1/sandboxes/$ref"
		[[ "$HTTP" == 40* ]]
		[ "$(field .code)" != internal ]
	done
	api POST /v1/sandboxes -d "$(spec '{"name":"by-name"}')"
	want 409
	drop_box
	api DELETE "/v1/sandboxes/$BOX"
	want 202
}

@test "bodies are read strictly, and the message names the place" {
	local body hint
	while IFS='|' read -r hint body; do
		api POST /v1/sandboxes --data-binary "$body"
		want 400
		[ "$(field .code)" = invalid_request ]
		[[ "$(field .message)" == *"$hint"* ]] || { echo "$body: $output" >&2; return 1; }
	done <<-'ROWS'
		spec|{}
		|[]
		|
		image|{"spec":{}}
		imgae|{"spec":{"image":"x","imgae":1}}
		x|{"spec":{"image":"x"},"x":1}
		image|{"spec":{"image":"x","image":"y"}}
		|{"spec":{"image":"x"}} {}
		spec.ttl_seconds|{"spec":{"image":"x","ttl_seconds":"9"}}
		ttl|{"spec":{"image":"x","ttl_seconds":0}}
		spec.resources.pids|{"spec":{"image":"x","resources":{"pids":1e99}}}
		spec.network|{"spec":{"image":"x","network":"any"}}
		|{"spec":{"image":"x\u0000y"}}
		privileged|{"spec":{"image":"x","signals":{"privileged":true}}}
	ROWS
	printf '{"spec":{"image":"\377"}}' >"$BATS_TEST_TMPDIR/bytes"
	api POST /v1/sandboxes --data-binary "@$BATS_TEST_TMPDIR/bytes"
	want 400
	api POST /v1/sandboxes --data-binary "$(printf '[%.0s' $(seq 1000))"
	want 400
}

@test "every error names its request, in the header and in the body" {
	run curl -sS -i --max-time 5 --unix-socket "$SBX_DIR/d.sock" http://sandbox/v1/nothing
	[[ "$output" == "HTTP/1.1 404"* ]]
	local id=${output##*\"request_id\":\"}
	id=${id%%\"*}
	[[ "$output" == *"X-Request-Id: $id"* ]]
	until_ok 5 grep -q "$id" "$SBX_DIR/log"
	run curl -sS -i -X PATCH --max-time 5 --unix-socket "$SBX_DIR/d.sock" http://sandbox/v1/sandboxes
	[[ "$output" == "HTTP/1.1 405"* ]]
	[[ "$output" == *"Allow: "*POST* ]]
	[[ "$output" == *invalid_request* ]]
}

@test "a body over its limit is refused at once, also when its length is not told" {
	api POST /v1/sandboxes -H 'Expect:' -H 'Content-Length: 999999999' --data-binary '{}'
	want 413
	[ "$(field .code)" = too_large ]
	run bash -c "head -c 20000000 /dev/zero | curl -sS --max-time 20 --unix-socket '$SBX_DIR/d.sock' -H 'Transfer-Encoding: chunked' -T - -X POST -o /dev/null -w '%{http_code}' http://sandbox/v1/images/pull"
	[[ "$output" == *413* ]]
	api DELETE /v1/sandboxes/x --data-binary '{}'
	want 413
}

@test "an image is imported, listed, used and removed" {
	mkdir -p "$BATS_TEST_TMPDIR/root/bin"
	cp "$(command -v busybox || echo /bin/busybox)" "$BATS_TEST_TMPDIR/root/bin/busybox" 2>/dev/null || skip "no busybox here"
	tar -C "$BATS_TEST_TMPDIR/root" -cf "$BATS_TEST_TMPDIR/root.tar" .
	api POST "/v1/images/import?name=sbx-api-test:$BATS_ROOT_PID" --data-binary "@$BATS_TEST_TMPDIR/root.tar"
	want 200
	[[ "$(tail -n 1 <<<"$output" | jq -r .image.digest)" == sha256:* ]]
	api GET /v1/images
	want 200
	[ "$(field "[.images[] | select(.name == \"sbx-api-test:$BATS_ROOT_PID\")] | length")" -eq 1 ]
	make_box "{\"image\":\"sbx-api-test:$BATS_ROOT_PID\"}"
	exec_op '{"argv":["/bin/busybox","echo","hi"]}'
	end_of "$OP"
	[ "$(field .operation.output.stdout)" = hi ]
	api DELETE "/v1/images/sbx-api-test:$BATS_ROOT_PID"
	want 409
	drop_box
	api DELETE "/v1/images/sbx-api-test:$BATS_ROOT_PID"
	want 204
	api DELETE "/v1/images/sbx-api-test:$BATS_ROOT_PID"
	want 404
}

@test "an upload that breaks off makes no image" {
	head -c 4000000 /dev/zero >"$BATS_TEST_TMPDIR/file"
	tar -C "$BATS_TEST_TMPDIR" -cf "$BATS_TEST_TMPDIR/half.tar" file
	truncate -s 1000448 "$BATS_TEST_TMPDIR/half.tar" # in the middle of the file
	run timeout 30 curl -sS --max-time 3 --unix-socket "$SBX_DIR/d.sock" -H 'Content-Length: 4010000' -X POST \
		--data-binary "@$BATS_TEST_TMPDIR/half.tar" "http://sandbox/v1/images/import?name=sbx-half:$BATS_ROOT_PID"
	[ "$status" -ne 0 ]
	until_ok 10 grep -q "failed image=sbx-half:$BATS_ROOT_PID" "$SBX_DIR/log"
	run docker image inspect "sbx-half:$BATS_ROOT_PID"
	[ "$status" -ne 0 ]
}

@test "a pull says why it failed" {
	api POST /v1/images/pull -d '{"image":"127.0.0.1:9/none:1"}'
	want 200
	[ "$(tail -n 1 <<<"$output" | jq -r '.error.code | length > 0')" = true ]
	[ "$(tail -n 1 <<<"$output" | jq -r '.error.message | length > 10')" = true ]
	api POST /v1/images/pull -d '{"image":"UPPER case"}'
	want 400
	api POST /v1/images/import
	want 400
}

@test "doctor looks at every part" {
	api GET /v1/doctor
	want 200
	[[ "$(field .status)" =~ ^(ok|warn)$ ]]
	[ "$(field '[.checks[] | select(.status != "ok" and .remedy == "")] | length')" -eq 0 ]
	for part in api store policy; do
		[ "$(field "[.checks[] | select(.part == \"$part\" and .status == \"ok\")] | length")" -eq 1 ]
	done
}

@test "the stream connection is offered by upgrade alone" {
	local head=$BATS_TEST_TMPDIR/head
	timeout 5 curl -sS -D "$head" -o /dev/null --http1.1 --max-time 1 --unix-socket "$SBX_DIR/d.sock" -H 'Connection: Upgrade' \
		-H 'Upgrade: sandbox-mux' http://sandbox/v1/mux || true
	grep -q '^HTTP/1.1 101' "$head"
	grep -q '^Upgrade: sandbox-mux' "$head"
	api GET /v1/mux
	want 400
	api GET /v1/mux -H 'Connection: Upgrade' -H 'Upgrade: websocket'
	want 400
}

@test "a thousand waits at once, a part of them left by their clients, cost no descriptor afterwards" {
	make_box
	exec_op '{"argv":["sleep","4"]}'
	local before
	before=$(daemon_fds)
	run timeout 60 python3 - "$SBX_DIR/d.sock" "$OP" <<'PY'
import resource, socket, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
n, socks = 1000, []
for i in range(n):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    s.connect(sys.argv[1])
    s.sendall(b"GET /v1/operations/%s?wait=30 HTTP/1.1\r\nHost: x\r\n\r\n" % sys.argv[2].encode())
    socks.append(s)
for s in socks[::10]:
    s.close()
good = 0
for i, s in enumerate(socks):
    if i % 10:
        good += b'"succeeded"' in s.recv(65536)
print(good)
PY
	[ "$output" = 900 ]
	until_ok 10 sh -c "[ \$(find /proc/$(sbx_pid)/fd -mindepth 1 | wc -l) -le $((before + 2)) ]"
	drop_box
}
