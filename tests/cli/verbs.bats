#!/usr/bin/env bats
# What the verbs print, ask and return, against a server that answers what each test wants. No engine is needed.

load ../lib/helpers

setup() {
	DIR=$(mktemp -d "${TMPDIR:-/tmp}/sbx-cli.XXXXXX")
	export HOME=$DIR/home XDG_STATE_HOME=$DIR/state XDG_RUNTIME_DIR=$DIR/run XDG_CONFIG_HOME=$DIR/config
	mkdir -p "$HOME"
	unset SANDBOX_DEBUG CI
	export SANDBOX_URL=unix://$DIR/s
	mkdir "$DIR/a"
	mkfifo "$DIR/ready"
	python3 "$TOP/tests/lib/fake_server.py" "$DIR/s" "$DIR/a" >"$DIR/ready" 2>"$DIR/err" 3>&- 4>&- &
	FAKE=$!
	local line=
	read -r -t 10 line <"$DIR/ready"
	[ "$line" = ready ]
}

teardown() {
	kill "$FAKE" 2>/dev/null || true
	wait "$FAKE" 2>/dev/null || true
	rm -rf "$DIR"
}

ID=01919191-1111-7222-8333-00000000abcd
OP=01919191-2222-7222-8333-00000000beef

sandbox_json() { # STATE [extra members]
	printf '{"id":"%s","name":"web","state":"%s","tier":"gvisor","isolation":"container","unreachable":false,"risk_score":10,"created_at":"2020-01-02T03:04:05Z","updated_at":"2020-01-02T03:04:05Z","expires_at":"2099-01-02T03:04:05Z","ended_at":null,"end_reason":null,"failure":null,"image_digest":"sha256:00","node_id":null,"node_name":"local","tunnels":[],"spec":{"tenant":"default","image":"alpine:3","network":"deny","command":[],"labels":{"a":"b"},"resources":{"cpu_millis":1500,"memory_mib":512,"disk_mib":1024,"pids":64}}%s}' "$ID" "$1" "${2:-}"
}

operation_json() { # STATE [extra members]
	printf '{"id":"%s","sandbox_id":"%s","kind":"create","state":"%s","outcome":null,"output":null,"error":null,"error_code":null,"created_at":"2020-01-02T03:04:05Z","updated_at":"2020-01-02T03:04:05Z"%s}' "$OP" "$ID" "$1" "${2:-}"
}

put() { # NAME JSON [STATUS]
	printf '%s' "$2" >"$DIR/a/$1.json"
	if [ -n "${3:-}" ]; then printf '%s' "$3" >"$DIR/a/$1.status"; fi
}

raw() { # NAME TEXT (printf escapes)
	# shellcheck disable=SC2059
	printf "$2" >"$DIR/a/$1"
}

offer_create() { # final state of the operation, extra members
	put POST_v1_sandboxes "{\"sandbox\":$(sandbox_json scheduled),\"operation\":$(operation_json pending)}" 201
	put GET_v1_operations_$OP "{\"operation\":$(operation_json "$1" "${2:-}")}"
	put GET_v1_sandboxes_$ID "$(sandbox_json running)"
}

sent() { # jq filter over the last request
	tail -n 1 "$DIR/a/requests" | jq -er "$1"
}

asked() { # n-th request's method and target
	sed -n "${1}p" "$DIR/a/requests" | jq -r '.method + " " + .target'
}

# --- create -----------------------------------------------------------------------------------------------------

@test "create waits and prints only the id on standard output" {
	offer_create succeeded
	run --separate-stderr timeout 20 sandbox create --name web
	[ "$status" -eq 0 ]
	[ "$output" = "$ID" ]
	[[ $stderr == *"web is running as gvisor"* ]]
}

@test "create -q says nothing else" {
	offer_create succeeded
	run --separate-stderr timeout 20 sandbox create -q
	[ "$status" -eq 0 ]
	[ "$output" = "$ID" ]
	[ -z "$stderr" ]
}

@test "create sends the spec the options describe" {
	offer_create succeeded
	timeout 20 sandbox create --tenant platform --image I:1 --cpus 2 --memory 4g --disk 1g --pids 64 --ttl 30m --network restricted \
		--untrusted-repo --generated-code --needs-secrets --writable-root --sensitivity confidential --isolation microvm --tier gvisor \
		-e A=x=y -e 'B= q ' -l k=v --expose 3000=web --expose 80 -- python -m 'http server' ''
	spec=$(sed -n 1p "$DIR/a/requests" | jq -r .body | jq -c .spec)
	jq -e '.tenant == "platform" and .image == "I:1" and .resources == {cpu_millis:2000,memory_mib:4096,disk_mib:1024,pids:64}' <<<"$spec"
	jq -e '.ttl_seconds == 1800 and .network == "restricted_egress" and .sensitivity == "confidential" and .isolation == "microvm"' <<<"$spec"
	jq -e '.min_tier == "gvisor" and .writable_root and .signals == {untrusted_repository:true,executes_generated_code:true,needs_secrets:true}' <<<"$spec"
	jq -e '.env == {A:"x=y",B:" q "} and .labels == {k:"v"} and .command == ["python","-m","http server",""]' <<<"$spec"
	jq -e '.exposures | map([.container_port,.subdomain]) == [[3000,"web"],[80,null]]' <<<"$spec"
	sed -n 1p "$DIR/a/requests" | jq -e '.headers["idempotency-key"] | length > 30'
}

@test "create leaves what was not asked to the server, but for a smaller workspace" {
	offer_create succeeded
	timeout 20 sandbox create
	sed -n 1p "$DIR/a/requests" | jq -r .body | jq -e '(.spec | has("ttl_seconds") or has("tenant") or has("name") | not) and .spec.resources == {disk_mib:1024}'
}

@test "create --json is {sandbox, operation} in their final states" {
	offer_create succeeded
	run --separate-stderr timeout 20 sandbox --json create
	[ "$status" -eq 0 ]
	jq -e '.sandbox.state == "running" and .operation.state == "succeeded"' <<<"$output"
}

@test "create --no-wait asks once and prints what it got" {
	offer_create succeeded
	run --separate-stderr timeout 20 sandbox create --no-wait --json
	[ "$status" -eq 0 ]
	jq -e '.sandbox.state == "scheduled" and .operation.state == "pending"' <<<"$output"
	[ "$(wc -l <"$DIR/a/requests")" -eq 1 ]
}

@test "create polls until the operation ended" {
	offer_create succeeded
	put GET_v1_operations_$OP.1 "{\"operation\":$(operation_json pending)}"
	put GET_v1_operations_$OP.2 "{\"operation\":$(operation_json running)}"
	put GET_v1_operations_$OP.3 "{\"operation\":$(operation_json succeeded)}"
	run timeout 20 sandbox create -q
	[ "$status" -eq 0 ]
	[[ $(asked 2) == "GET /v1/operations/$OP?wait="* ]]
}

@test "a slow create shows on a terminal what it is doing, and erases it" {
	command -v script >/dev/null || skip "script(1) is missing"
	offer_create succeeded
	put GET_v1_operations_$OP.1 "{\"operation\":$(operation_json running ',"progress":"pulling layer 3"')}"
	put GET_v1_operations_$OP.2 "{\"operation\":$(operation_json succeeded)}"
	run bash -c 'TERM=xterm script -qec "timeout 20 sandbox create" /dev/null </dev/null'
	[[ $output == *$'\r\x1b[Kcreating: pulling layer 3 (0s)\r\x1b[K'* ]]
}

@test "a create that fails shows its text and exits by its kind" {
	offer_create failed ',"x":1'
	put GET_v1_operations_$OP "{\"operation\":$(operation_json failed | jq -c '.error="registry says: no such image" | .error_code="not_found"')}"
	run --separate-stderr timeout 20 sandbox create --image no.such/image:1
	[ "$status" -eq 3 ]
	[ -z "$output" ]
	[[ $stderr == *"registry says: no such image"* ]]
}

@test "no capacity exits 6, says the server's reason once and where to read on" {
	put POST_v1_sandboxes '{"code":"no_capacity","message":"score 60 needs a microVM","request_id":"r1","decision":{"score":60,"signals":[{"name":"network restricted","points":10},{"name":"untrusted repository","points":20}],"required_tier":"microvm","tier_reason":"score 60 is at or over 55","profile":"strict","threshold":55,"placed":false,"node":null,"nodes":[{"id":"n","name":"local","fits":false,"rank":0,"reason":"tier not offered"}],"refusal":"no node offers microvm"}}' 503
	run --separate-stderr timeout 20 sandbox create --network restricted --untrusted-repo --generated-code
	[ "$status" -eq 6 ]
	[ -z "$output" ]
	[[ $stderr == *"score 60 needs a microVM"*"hint: "*"create --explain"* ]]
	[ "$(grep -c "score 60" <<<"$stderr")" -eq 1 ]
	run --separate-stderr timeout 20 sandbox create --json
	[ "$status" -eq 6 ]
	jq -e '.error | .code == "no_capacity" and .request_id == "r1" and .decision.score == 60' <<<"$output"
}

@test "create --explain creates nothing" {
	put POST_v1_sandboxes '{"decision":{"score":30,"signals":[],"required_tier":"container","tier_reason":"","profile":"strict","threshold":55,"placed":true,"node":"local","nodes":[{"id":"n","name":"local","fits":true,"rank":1500,"reason":""}],"refusal":null}}'
	run --separate-stderr timeout 20 sandbox create --explain
	[ "$status" -eq 0 ]
	[[ $output == *"30 of 100"* && $output == *"placed on"*local* ]]
	[ "$(sent .target)" = "/v1/sandboxes?explain=true" ]
}

@test "a wait that times out exits 7 and says the operation goes on" {
	offer_create pending
	run --separate-stderr timeout 20 sandbox create --wait-timeout 1s
	[ "$status" -eq 7 ]
	[[ $stderr == *"outcome is unknown"* && $stderr == *"sandbox wait $OP"* ]]
}

@test "an interrupt while waiting exits 130 and says what goes on" {
	offer_create pending
	printf 5 >"$DIR/a/GET_v1_operations_$OP.delay"
	# A background job of a shell starts with INT ignored, and what was ignored stays so.
	env --default-signal=INT sandbox create --wait-timeout 20s 2>"$DIR/stderr" 3>&- &
	local pid=$! start=$SECONDS
	until_ok 10 grep -q operations "$DIR/a/requests"
	kill -INT $pid
	local rc=0
	wait $pid || rc=$?
	[ "$rc" -eq 130 ]
	[ $((SECONDS - start)) -lt 5 ]
	grep -q "the create goes on" "$DIR/stderr"
}

@test "bad labels, variables and names are refused before anything is sent" {
	local args
	for args in "--label x" "--label =x" "-e =x" "-e 'BAD NAME=1'" "--name Web" "--name 00ff" "--expose 0" "--expose 80=" "--env-file /nonexistent"; do
		run --separate-stderr eval "timeout 20 sandbox create $args"
		[[ $status -eq 2 || $status -eq 3 ]]
		[ -z "$output" ]
		[ "$(wc -l <<<"$stderr")" -le 2 ]
	done
	[ ! -e "$DIR/a/requests" ]
}

@test "an environment file is literal" {
	offer_create succeeded
	printf '# comment\nA="quoted"\n\nB=x # y\r\nC=\nA=last\nHOME_COPY\n' >"$DIR/env"
	timeout 20 sandbox create --env-file "$DIR/env" -e C=over
	sed -n 1p "$DIR/a/requests" | jq -r .body | jq -e '.spec.env == {A:"last",B:"x # y",C:"over"}'
}

@test "the policy profile is named when it is not strict" {
	offer_create succeeded
	put GET_v1_sandboxes_$ID "$(sandbox_json running ',"decision":{"profile":"trusted-workstation"}')"
	run --separate-stderr timeout 20 sandbox create
	[[ $stderr == *"trusted-workstation"* ]]
}

# --- list, inspect, wait, delete, extend ---------------------------------------------------------------------------

@test "list shows a table, ids with -q, an array with --json" {
	put GET_v1_sandboxes "{\"sandboxes\":[$(sandbox_json running)]}"
	run --separate-stderr timeout 20 sandbox list
	[ "$status" -eq 0 ]
	[[ ${lines[0]} == "ID "*NAME*STATE*TIER*IMAGE*AGE*EXPIRES ]]
	[[ ${lines[1]} == "0000abcd  web   running  gvisor  alpine:3  "* ]]
	[ "$(timeout 20 sandbox list -q)" = "$ID" ]
	timeout 20 sandbox --json list | jq -e 'length == 1 and .[0].id == "'$ID'"'
	timeout 20 sandbox list --json=id,spec.image | jq -e '.[0] == {id:"'$ID'","spec.image":"alpine:3"}'
}

@test "an empty list is a header, nothing with -q, [] with --json" {
	put GET_v1_sandboxes '{"sandboxes":[]}'
	[ "$(timeout 20 sandbox list | wc -l)" -eq 1 ]
	[ -z "$(timeout 20 sandbox list -q)" ]
	[ "$(timeout 20 sandbox list --json)" = "[]" ]
	[ "$(timeout 20 sandbox list --json=id)" = "[]" ]
}

@test "list passes its filters on and follows pages" {
	put GET_v1_sandboxes.1 "{\"sandboxes\":[$(sandbox_json running)],\"next\":\"$ID\"}"
	put GET_v1_sandboxes.2 "{\"sandboxes\":[$(sandbox_json running)]}"
	run timeout 20 sandbox list --all -l 'a=b c' --tenant t --json
	[ "$(jq length <<<"$output")" -eq 2 ]
	[ "$(asked 1)" = "GET /v1/sandboxes?limit=500&tenant=t&all=true&label=a%3Db%20c" ]
	[ "$(asked 2)" = "GET /v1/sandboxes?limit=500&tenant=t&all=true&label=a%3Db%20c&after=$ID" ]
}

@test "a field that does not exist is named" {
	put GET_v1_sandboxes_web "$(sandbox_json running)"
	run --separate-stderr timeout 20 sandbox inspect web --json=id,nosuch
	[ "$status" -eq 2 ]
	[[ $stderr == *"'nosuch'"* ]]
	jq -e .error.code <<<"$output"
}

@test "control bytes of a server never reach the terminal" {
	put GET_v1_sandboxes "{\"sandboxes\":[$(sandbox_json running | jq -c '.name="a\u001b[2Jb"')]}"
	run timeout 20 sandbox list
	[[ $output == *'\x1b[2Jb'* ]]
	[[ $output != *$'\x1b'* ]]
	put GET_v1_sandboxes_x '{"code":"conflict","message":"bad \u001b]0;x\u0007","request_id":"r"}' 409
	run timeout 20 sandbox inspect x
	[ "$status" -eq 5 ]
	[[ $output != *$'\x1b'* ]]
}

@test "inspect prints what matters, and the whole object with --json" {
	put GET_v1_sandboxes_web "$(sandbox_json running)"
	run timeout 20 sandbox inspect web
	[ "$status" -eq 0 ]
	[[ $output == *"1.5 cores, 512 MiB memory, 1.0 GiB /workspace, 64 pids"* ]]
	timeout 20 sandbox inspect web --json | jq -e '.spec.labels.a == "b"'
}

@test "references cross as one path segment" {
	run timeout 20 sandbox inspect 'a/../b?c'
	[ "$status" -eq 3 ]
	[ "$(sent .target)" = "/v1/sandboxes/a%2F..%2Fb%3Fc" ]
}

@test "wait prints the end, the operation with --json, and exits by it" {
	put GET_v1_operations_$OP "{\"operation\":$(operation_json succeeded)}"
	[ "$(timeout 20 sandbox wait $OP)" = succeeded ]
	timeout 20 sandbox --json wait $OP --timeout 120 | jq -e '.state == "succeeded"'
	put GET_v1_operations_$OP "{\"operation\":$(operation_json failed | jq -c '.kind="exec" | .outcome="exited" | .output={exit_code:7,stdout:"",stderr:"",truncated:false}')}"
	run --separate-stderr timeout 20 sandbox wait $OP
	[ "$status" -eq 1 ]
	[[ $output == *"exit status 7"* ]]
	run timeout 20 sandbox --json wait $OP
	[ "$status" -eq 1 ]
	jq -e '.output.exit_code == 7' <<<"$output"
	put GET_v1_operations_$OP "{\"operation\":$(operation_json failed | jq -c '.error="gone" | .error_code="conflict"')}"
	run timeout 20 sandbox wait $OP
	[ "$status" -eq 5 ]
}

@test "wait outlasts a server that restarts" {
	put GET_v1_operations_$OP "{\"operation\":$(operation_json pending)}"
	timeout 30 sandbox wait $OP --timeout 20 >"$DIR/out" 3>&- &
	local pid=$!
	until_ok 10 test -s "$DIR/a/requests"
	kill "$FAKE"
	wait "$FAKE" 2>/dev/null || true
	rm -f "$DIR/s"
	sleep 1
	put GET_v1_operations_$OP "{\"operation\":$(operation_json succeeded)}"
	python3 "$TOP/tests/lib/fake_server.py" "$DIR/s" "$DIR/a" >/dev/null 2>&1 3>&- 4>&- &
	FAKE=$!
	wait $pid
	[ "$(cat "$DIR/out")" = succeeded ]
}

@test "delete waits; --no-wait prints the operation" {
	put DELETE_v1_sandboxes_web "{\"operation\":$(operation_json pending)}" 202
	put GET_v1_operations_$OP "{\"operation\":$(operation_json succeeded)}"
	run --separate-stderr timeout 20 sandbox delete web
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	timeout 20 sandbox --json delete web | jq -e '.state == "succeeded"'
	timeout 20 sandbox --json delete web --no-wait | jq -e '.state == "pending" and .id == "'$OP'"'
	timeout 20 sandbox delete web --wait
	[ "$(timeout 20 sandbox delete -q web --no-wait)" = "$OP" ]
}

@test "delete of several tries all and fails if one did" {
	put DELETE_v1_sandboxes_web "{\"operation\":$(operation_json succeeded)}" 202
	put GET_v1_operations_$OP "{\"operation\":$(operation_json succeeded)}"
	run --separate-stderr timeout 20 sandbox delete nosuch web
	[ "$status" -eq 3 ]
	[[ $stderr == *"web: deleted"* ]]
	run timeout 20 sandbox delete nosuch --missing-ok
	[ "$status" -eq 0 ]
}

@test "extend needs a time and prints the new deadline" {
	put POST_v1_sandboxes_web_extend "{\"sandbox\":$(sandbox_json running)}"
	run timeout 20 sandbox extend web
	[ "$status" -eq 2 ]
	[ "$(timeout 20 sandbox extend web --ttl 2h)" = 2099-01-02T03:04:05Z ]
	sent '.body | fromjson | .ttl_seconds == 7200'
}

# --- operations, images, top ---------------------------------------------------------------------------------------

@test "operation list, inspect and cancel" {
	put GET_v1_operations "{\"operations\":[$(operation_json running | jq -c '.kind="exec" | .command={argv:["sh","-c","x\ny"]}')]}"
	put GET_v1_operations_$OP "{\"operation\":$(operation_json running)}"
	put POST_v1_operations_${OP}_cancel "{\"operation\":$(operation_json running)}" 202
	run timeout 20 sandbox operation list web
	[[ ${lines[1]} == "$OP  0000abcd  exec  running  -"*'sh -c x\x0ay' ]]
	[ "$(asked 1)" = "GET /v1/operations?limit=50&sandbox=web" ]
	timeout 20 sandbox operation inspect $OP | grep -q running
	timeout 20 sandbox operation cancel $OP --signal INT
	sent '.body | fromjson | .signal == 2'
	run timeout 20 sandbox operation cancel $OP --signal NOSUCH
	[ "$status" -eq 2 ]
}

@test "image pull shows the image at the end" {
	printf 'HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n{"progress":"layer","percent":50}\n{"image":{"name":"a:1","digest":"sha256:1","size_bytes":1,"created_at":"2020-01-01T00:00:00Z"}}\n' >"$DIR/a/POST_v1_images_pull"
	run --separate-stderr timeout 20 sandbox image pull a:1
	[ "$status" -eq 0 ]
	[ "$output" = "a:1  sha256:1" ]
	timeout 20 sandbox image pull a:1 --json | jq -e '.name == "a:1"'
}

@test "image pull reports the registry's failure, and an answer that breaks off" {
	printf 'HTTP/1.1 200 OK\r\n\r\n{"progress":"x"}\n{"error":{"code":"not_found","message":"no such image"}}\n' >"$DIR/a/POST_v1_images_pull"
	run --separate-stderr timeout 20 sandbox image pull a:1
	[ "$status" -eq 3 ]
	[[ $stderr == *"no such image"* ]]
	printf 'HTTP/1.1 200 OK\r\n\r\n{"progress":"x"}\n' >"$DIR/a/POST_v1_images_pull"
	run --separate-stderr timeout 20 sandbox image pull a:1
	[ "$status" -eq 1 ]
	printf 'HTTP/1.1 200 OK\r\n\r\n{"progr' >"$DIR/a/POST_v1_images_pull"
	run timeout 20 sandbox image pull a:1
	[ "$status" -eq 1 ]
}

@test "image import sends the file as it is" {
	printf 'HTTP/1.1 200 OK\r\n\r\n{"image":{"name":"n:1","digest":"sha256:2","size_bytes":1,"created_at":"2020-01-01T00:00:00Z"}}\n' >"$DIR/a/POST_v1_images_import"
	head -c 300000 /dev/zero | tr '\0' x >"$DIR/tar"
	timeout 20 sandbox image import "$DIR/tar" n:1
	sent '.target == "/v1/images/import?name=n%3A1" and (.body | length == 300000)'
	timeout 20 sandbox image import - n:1 <"$DIR/tar"
	sent '.body | length == 300000'
	run --separate-stderr timeout 20 sandbox image import "$DIR" n:1
	[ "$status" -eq 2 ]
	[[ $stderr == *"is a directory"* ]]
	run timeout 20 sandbox image import "$DIR/nosuch" n:1
	[ "$status" -eq 3 ]
}

@test "image list and remove" {
	put GET_v1_images '{"images":[{"name":"a:1","digest":"sha256:0123456789abcdef","size_bytes":5242880,"created_at":"2020-01-01T00:00:00Z"}]}'
	raw DELETE_v1_images_a%3A1 'HTTP/1.1 204 No Content\r\n\r\n'
	[[ $(timeout 20 sandbox image list | tail -n 1) == "a:1   sha256:0123456789ab  5.0 MiB"* ]]
	[ "$(timeout 20 sandbox image list -q)" = a:1 ]
	timeout 20 sandbox image remove a:1
}

@test "top prints once without a terminal" {
	put GET_v1_sandboxes_web "$(sandbox_json running)"
	put GET_v1_sandboxes_${ID}_stats '{"cpu_us":1500000,"memory_bytes":1048576,"memory_limit_bytes":536870912,"pids":3,"pids_limit":64}'
	run timeout 20 sandbox top web
	[ "$status" -eq 0 ]
	[[ ${lines[1]} == *"1.0 MiB / 512 MiB"*"3 / 64"*"1.50s" ]]
	timeout 20 sandbox top web --json | jq -e '.cpu_percent == 0 and .pids == 3'
}

# --- doctor, version, errors ---------------------------------------------------------------------------------------

@test "doctor shows every check and how to mend it, and exits 1 when one failed" {
	put GET_healthz '{"status":"ok","version":"'"$(cat "$TOP/VERSION")"'"}'
	put GET_v1_doctor '{"status":"ok","checks":[{"part":"store","status":"ok","detail":"fine","remedy":""}]}'
	run timeout 20 sandbox doctor
	[ "$status" -eq 0 ]
	[ "${lines[-1]}" = ok ]
	timeout 20 sandbox --json doctor | jq -e '.status == "ok" and (.checks | length == 3)'
	put GET_v1_doctor '{"status":"fail","checks":[{"part":"engine","status":"fail","detail":"refused","remedy":"start it"}]}'
	run timeout 20 sandbox doctor
	[ "$status" -eq 1 ]
	[[ $output == *"mend: start it"* ]]
	[ "${lines[-1]}" = fail ]
}

@test "doctor works without a server" {
	kill "$FAKE"
	wait "$FAKE" 2>/dev/null || true
	run --separate-stderr timeout 20 sandbox doctor --json
	[ "$status" -eq 1 ]
	jq -e '.status == "fail" and (.checks | map(select(.part == "daemon"))[0].remedy | length > 10)' <<<"$output"
}

@test "version asks the server and does without it" {
	put GET_healthz '{"status":"ok","version":"9.9"}'
	[[ $(timeout 20 sandbox version) == *"sandboxd 9.9"* ]]
	kill "$FAKE"
	wait "$FAKE" 2>/dev/null || true
	timeout 20 sandbox version --json | jq -e '.server_version == null'
}

@test "what is not this API is named so, without its body" {
	local rows=(
		'HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 24\r\n\r\n<html>secret dump</html>|502 Bad Gateway with HTML'
		'HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n|502 Bad Gateway without a body'
		'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 12\r\n\r\n<html>log in|200 OK with HTML'
		'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"sandboxes"|with something else than JSON'
		'HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n\357\273\277{"sandboxes":[]}|with something else than JSON'
		'HTTP/1.1 204 No Content\r\n\r\n|holds no list'
		'HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n|413 Too Large'
		'HTTP/1.1 301 Moved\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n|301 Moved'
		'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]|holds no list'
		'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue|something else than JSON'
		'SSH-2.0-x\r\n|not HTTP'
	)
	local row
	for row in "${rows[@]}"; do
		raw GET_v1_sandboxes "${row%%|*}"
		run --separate-stderr timeout 20 sandbox list
		[ "$status" -eq 1 ]
		[ -z "$output" ]
		[[ $stderr == *"${row#*|}"* ]] || { echo "want ${row#*|}: $stderr"; false; }
		[[ $stderr != *secret* ]]
		run --separate-stderr timeout 20 sandbox list --json
		[ "$status" -eq 1 ]
		jq -e '.error.code == "internal"' <<<"$output"
	done
}

@test "deep nesting and huge answers are refused" {
	python3 -c 'print("["*200000, end="")' >"$DIR/a/GET_v1_sandboxes.json"
	run --separate-stderr timeout 20 sandbox list
	[ "$status" -eq 1 ]
	python3 -c 'print("{\"sandboxes\":[\"" + "x"*5000000 + "\"]}", end="")' >"$DIR/a/GET_v1_sandboxes.json"
	run --separate-stderr timeout 20 sandbox list
	[ "$status" -eq 2 ]
	[[ $stderr == *JSON_BYTES_MAX* ]]
}

@test "error codes become exit statuses and an error object" {
	local row
	for row in invalid_request:400:2 unauthorized:401:4 forbidden:403:4 not_found:404:3 conflict:409:5 too_large:413:2 rate_limited:429:6 \
		no_capacity:503:6 unavailable:503:8 internal:500:1 something_new:500:1; do
		IFS=: read -r code http want <<<"$row"
		put GET_v1_sandboxes_x "{\"code\":\"$code\",\"message\":\"because $code\",\"request_id\":\"r7\"}" "$http"
		run --separate-stderr timeout 20 sandbox inspect x --json
		[ "$status" -eq "$want" ] || { echo "$code: $status"; false; }
		[[ $stderr == *"because $code"* ]]
		jq -e '.error.message == "because '"$code"'" and .error.request_id == "r7"' <<<"$output"
	done
}

@test "an unreachable server exits 8 with a way out" {
	SANDBOX_URL=unix://$DIR/nosuch run --separate-stderr timeout 20 sandbox list
	[ "$status" -eq 8 ]
	[ -z "$output" ]
	[[ $stderr == *"$DIR/nosuch"* && $stderr == *hint:* ]]
}

@test "an address of no known kind is refused as what it is" {
	local url
	for url in ssh://host unix:relative 'no sense' ftp://host; do
		run --separate-stderr timeout 20 sandbox --server "$url" list
		[ "$status" -eq 2 ]
		[[ $stderr == *"server address"* ]]
	done
}

@test "a full disk and a closed standard output are failures" {
	put GET_v1_sandboxes "{\"sandboxes\":[$(sandbox_json running)]}"
	run --separate-stderr sh -c 'timeout 20 sandbox list >/dev/full'
	[ "$status" -eq 1 ]
	[[ $stderr == *"standard output"* ]]
	run --separate-stderr sh -c 'timeout 20 sandbox list >&-'
	[ "$status" -eq 1 ]
	[[ $stderr == *"standard output"* ]]
	run sh -c 'timeout 20 sandbox list 2>&- | head -n 1'
	[ "$status" -eq 0 ]
	[[ $output == ID* ]]
}

@test "a create whose id could not be written names the sandbox that is there" {
	offer_create succeeded
	run --separate-stderr sh -c 'timeout 20 sandbox create >/dev/full'
	[ "$status" -eq 1 ]
	[[ $stderr == *"standard output"*"sandbox delete $ID"* ]]
}

@test "a large list reaches a slow reader whole" {
	jq -nc --argjson s "$(sandbox_json running)" '{sandboxes: [range(800) | $s]}' >"$DIR/a/GET_v1_sandboxes.json"
	run bash -c 'timeout 30 sandbox list --json | { sleep 1; cat; } | jq length'
	[ "$output" = 800 ]
}

@test "no colour and no cursor movement without a terminal" {
	put GET_healthz '{"status":"ok","version":"1"}'
	put GET_v1_doctor '{"status":"ok","checks":[]}'
	run timeout 20 sandbox doctor
	[[ $output != *$'\x1b'* ]]
}

@test "progress and colour appear on a terminal, and not under CI or NO_COLOR" {
	command -v script >/dev/null || skip "script(1) is missing"
	put GET_healthz '{"status":"ok","version":"1"}'
	put GET_v1_doctor '{"status":"ok","checks":[]}'
	TERM=xterm script -qec "timeout 20 sandbox doctor" /dev/null </dev/null | grep -q $'\x1b\[32m'
	! TERM=xterm NO_COLOR=1 script -qec "timeout 20 sandbox doctor" /dev/null </dev/null | grep -q $'\x1b' || false
	! TERM=xterm CI=1 script -qec "timeout 20 sandbox doctor" /dev/null </dev/null | grep -q $'\x1b' || false
}

@test "--debug shows requests on standard error" {
	put GET_v1_sandboxes '{"sandboxes":[]}'
	run --separate-stderr timeout 20 sandbox list --debug
	[[ $stderr == *"GET /v1/sandboxes?limit=500 -> 200"* ]]
}
