#!/usr/bin/env bats
# What a sandbox gets of its server, also when its worker is another machine's and runs containers: secrets, rules of egress, warm pools,
# forwards, public addresses. And how a delete ends whose worker is away.

load ../lib/helpers
load ../lib/tls
load ../lib/fleet

ORIGIN=127.78.0.1

setup_file() {
	need_engine
	export FLEET_RUNTIME=docker
	EDGE=$(free_port)
	OPORT=$(free_port)
	export EDGE OPORT
	FLEET=$(mktemp -d "${TMPDIR:-/tmp}/fleet.XXXXXX")
	export FLEET
	mkdir "$FLEET/www"
	echo hello-from-origin >"$FLEET/www/hello"
	python3 -m http.server -d "$FLEET/www" -b "$ORIGIN" "$OPORT" >/dev/null 2>&1 3>&- 4>&- &
	echo $! >"$FLEET/origin.pid"
	printf '[pool small]\nimage = %s\nsize = 1\nmemory = 128m\ndisk = 64m\n' "$IMAGE" >"$FLEET/pools.conf"
	fleet_start --config "$FLEET/pools.conf" --set "edge.listen=127.0.0.1:$EDGE" --set "egress.rules=*:*" --set "egress.open_addresses=$ORIGIN/32"
	fleet_docker
	until_ok 60 node_is w1 up
	printf env-value-1 | sandbox secret set API_TOKEN --stdin
	printf file-value-1 | sandbox secret set key.pem --stdin
	BOX=$(sbx_create --name box --network restricted --allow "ok.test:$OPORT" --secret API_TOKEN --secret key.pem:/run/secrets/key)
	export BOX
}

teardown_file() {
	local pid
	for pid in "$FLEET"/*.forward "$FLEET/origin.pid"; do [ ! -e "$pid" ] || kill "$(cat "$pid")" 2>/dev/null || true; done
	fleet_stop
}

fleet_docker() {
	fleet_worker w1 --set "egress.hosts=ok.test=$ORIGIN other.test=$ORIGIN"
	until_ok 60 link_up w1
}

# fetch HOST PATH: through the sandbox's proxy.
fetch() {
	printf 'GET http://%s:%s%s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n\r\n' "$1" "$OPORT" "$2" "$1" "$OPORT" |
		timeout 30 sandbox exec -i box -- nc -w 10 127.0.0.1 61080
}

secrets_there() {
	# shellcheck disable=SC2016
	[ "$(timeout 20 sandbox exec box -- sh -c 'echo "$API_TOKEN $(cat /run/secrets/key)"')" = "env-value-1 file-value-1" ]
}

@test "secrets reach a worker's sandbox, and come again after its daemon was killed" {
	secrets_there
	fleet_kill w1 KILL
	fleet_docker
	until_ok 60 secrets_there
	! grep -rqE 'env-value-1|file-value-1' "$FLEET/w1" "$FLEET/controller/log"
}

@test "restricted egress: what the rules allow, what they refuse, and rules that change" {
	sandbox node inspect --json w1 | jq -e '.networks | index("restricted_egress") != null'
	run fetch ok.test /hello
	[[ "$output" == *hello-from-origin* ]]
	run fetch other.test /hello
	[[ "$output" == *"other.test:$OPORT is not allowed"* ]]
	sandbox network log --json box | jq -e --arg t "other.test:$OPORT" 'any(.[]; .target == $t and .allowed == false)'
	noted() { sandbox events --since oldest --json | grep '"egress.denied"' | grep -q "other.test:$OPORT"; }
	until_ok 20 noted
	sandbox network check --json box "ok.test:$OPORT" | jq -e .allowed
	sandbox network set box --allow "other.test:$OPORT"
	[[ "$(fetch other.test /hello)" == *hello-from-origin* ]]
	run fetch ok.test /hello
	[[ "$output" == *"is not allowed"* ]]
}

@test "a forward and a public address reach a server in the sandbox" {
	local port
	timeout 20 sandbox exec -d -q box -- sh -c 'echo served >/workspace/index.html; exec httpd -f -p 127.0.0.1:8080 -h /workspace'
	sandbox forward -d --json box 8080 >"$FLEET/forward.json"
	jq -r .pid "$FLEET/forward.json" >"$FLEET/1.forward"
	port=$(jq -r '.forwards[0].local_port' "$FLEET/forward.json")
	forwarded() { [ "$(curl -s -m 10 "http://127.0.0.1:$port/")" = served ]; }
	until_ok 20 forwarded
	kill "$(cat "$FLEET/1.forward")"
	sandbox tunnel create box --port 8080 --subdomain pub >/dev/null
	public() { [ "$(curl -s -m 10 --resolve "pub.localhost:$EDGE:127.0.0.1" "http://pub.localhost:$EDGE/")" = served ]; }
	until_ok 20 public
}

@test "killed worker, killed controller: exactly the active tunnels answer, and a deleted sandbox's address is nobody's" {
	local name=pub
	public() { [ "$(curl -s -m 10 --resolve "$name.localhost:$EDGE:127.0.0.1" "http://$name.localhost:$EDGE/")" = served ]; }
	status() { curl -s -m 20 -o /dev/null -w '%{http_code}' --resolve "$1.localhost:$EDGE:127.0.0.1" "http://$1.localhost:$EDGE/" || true; }
	exactly() {
		name=pub
		until_ok 60 public
		[ "$(status dropped)" = 404 ]
		[ "$(status lost)" = 404 ]
		[ "$(status never)" = 404 ]
	}
	sandbox tunnel create box --port 8080 --subdomain dropped >/dev/null
	sbx_create --name brief --expose 8080=lost >/dev/null
	timeout 20 sandbox exec -d -q brief -- sh -c 'echo served >/workspace/index.html; exec httpd -f -p 127.0.0.1:8080 -h /workspace'
	name=dropped
	until_ok 20 public
	name=lost
	until_ok 20 public
	sandbox tunnel delete box dropped >/dev/null
	fleet_kill w1 KILL
	# Nobody else answers in its place.
	until_ok 20 eval '[ "$(status pub)" -ge 502 ] && [ "$(status lost)" -ge 502 ]'
	fleet_docker
	name=pub
	until_ok 60 public
	sandbox delete brief >/dev/null
	exactly
	fleet_kill controller KILL
	fleet_controller --config "$FLEET/pools.conf" --set "edge.listen=127.0.0.1:$EDGE" --set "egress.rules=*:*" --set "egress.open_addresses=$ORIGIN/32"
	exactly
	until_ok 60 node_is w1 up
}

@test "a pool is kept ready on a worker, and a create takes what is there" {
	ready() { sandbox pool list --json | jq -e '.[0].ready == 1'; }
	until_ok 60 ready
	local id
	id=$(timeout 40 sandbox create -q --image "$IMAGE" -m 128m --disk 64m --name quick)
	[ "$(sandbox pool list --json | jq '.[0].claims')" -eq 1 ]
	[ "$(timeout 20 sandbox exec quick -- sh -c 'hostname; echo "$SANDBOX_ID"')" = "quick
$id" ]
	sandbox delete quick
}

exec_status() {
	curl -s --max-time 10 -o "$FLEET/answer" -w '%{http_code}' --unix-socket "$FLEET/controller/d.sock" -H "Idempotency-Key: $1" \
		-H 'Content-Type: application/json' -X POST "http://x/v1/sandboxes/box/exec" -d '{"command":{"argv":["true"]}}'
}

@test "with the worker away a command is refused unrecorded, and a delete is recorded, ends its wait, and is done afterwards" {
	local before
	before=$(sandbox operation list -q | wc -l)
	fleet_kill w1 KILL
	unreached() { [ "$(exec_status again)" = 503 ]; }
	until_ok 20 unreached
	[ "$(sandbox operation list -q | wc -l)" -eq "$before" ]
	run timeout 90 sandbox delete box
	[ "$status" -eq 7 ]
	[[ "$output" == *"node w1 is away"*"sandbox wait"* ]]
	sandbox inspect --json box | jq -e '.state == "stopping" and .unreachable'
	sandbox list | grep -q unreachable
	fleet_docker
	gone() { sandbox inspect --json "$BOX" | jq -e '.state == "stopped" and .end_reason == "deleted"'; }
	until_ok 60 gone
	[ -z "$(docker ps -aq --filter "label=io.sandbox.id=$BOX")" ]
}
