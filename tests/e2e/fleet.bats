#!/usr/bin/env bats
# One controller, workers that join it over HTTPS: the same verbs, who may join as whom, and nothing lost or done twice when any of
# them is killed. Workers run plain processes but where the engine matters (fleet_engine.bats).

load ../lib/helpers
load ../lib/tls
load ../lib/fleet

setup_file() {
	fleet_start
	fleet_worker w1 --set worker.max_sandboxes=3
	fleet_worker w2 --set worker.max_sandboxes=3
	until_ok 20 node_is w1 up
	until_ok 20 node_is w2 up
}

teardown_file() {
	fleet_stop
}

teardown() {
	local id
	for id in $(sandbox list -q 2>/dev/null); do timeout 20 sandbox delete "$id" >/dev/null 2>&1 || true; done
}

# A sandbox; the test runtime has no /workspace.
make() {
	sandbox create -q --image any "$@"
}

run_in() {
	sandbox exec -w / "$@"
}

ended() {
	sandbox operation inspect --json=state "$1" | grep -qE 'succeeded|failed'
}

state_is() {
	sandbox inspect --json=state "$1" | grep -q "\"$2\""
}

@test "commands, input, output, files and logs go through the link" {
	make --name plain
	[ "$(run_in plain -- echo hello)" = hello ]
	[ "$(echo in | run_in -i plain -- cat)" = in ]
	run run_in plain -- sh -c 'echo no >&2; exit 7'
	[ "$status" -eq 7 ]
	head -c 3000000 /dev/urandom >"$FLEET/blob"
	run_in -i plain -- cat <"$FLEET/blob" | cmp - "$FLEET/blob"
	sandbox cp "$FLEET/blob" "plain:$FLEET/copied"
	cmp "$FLEET/blob" "$FLEET/copied"
	local op
	op=$(run_in -d -q plain -- sh -c 'echo first; sleep 0.3; echo last')
	[ "$(sandbox logs -f "$op")" = "$(printf 'first\nlast')" ]
	op=$(run_in -d -q plain -- sleep 100)
	sandbox kill "$op"
	until_ok 10 ended "$op"
	sandbox delete plain
	run sandbox exec plain -- true
	[ "$status" -ne 0 ]
}

@test "fifteen creates at once for six slots: exactly six" {
	local i pids=
	for ((i = 0; i < 15; i++)); do
		(make >/dev/null 2>&1 && echo ok >>"$FLEET/made") &
		pids="$pids $!"
	done
	for i in $pids; do wait "$i" || true; done
	[ "$(wc -l <"$FLEET/made")" -eq 6 ]
	[ "$(sandbox list -q | wc -l)" -eq 6 ]
	sandbox node inspect --json=sandboxes w1 | grep -q 3
	sandbox node inspect --json=sandboxes w2 | grep -q 3
	rm "$FLEET/made"
}

@test "a draining node gets nothing new and keeps what it has" {
	sandbox node drain w1
	make --name here
	make --name there
	[ "$(sandbox list --json=node_name | grep -c w1)" -eq 0 ]
	sandbox node undrain w1
	run sandbox node remove w2
	[ "$status" -eq 5 ]
	[[ "$output" == *"holds 2 sandboxes"* ]]
}

@test "a viewer and an operator change no node; the unknown one is said so" {
	local t
	t=$(sandbox token create -q look-nodes --role viewer --for team)
	run env SANDBOX_URL="https://localhost:$FLEET_PORT" SANDBOX_TOKEN="$t" sandbox --ca-file "$FLEET/tls/ca.pem" node drain w1
	[ "$status" -eq 4 ]
	run env SANDBOX_URL="https://localhost:$FLEET_PORT" SANDBOX_TOKEN="$t" sandbox --ca-file "$FLEET/tls/ca.pem" node list
	[ "$status" -eq 4 ]
	run sandbox node inspect nobody
	[ "$status" -eq 3 ]
}

# join NAME TOKEN [ARGUMENT…]: what a worker that must not join says.
join() {
	local dir=$FLEET/bad
	rm -rf "$dir"
	mkdir "$dir"
	SANDBOX_JOIN_TOKEN=$2 SANDBOX_TEST_RUNTIME=fake run timeout 20 "$BUILD/sandboxd" --set daemon.role=worker --set "worker.name=$1" \
		--set "worker.controller=https://localhost:$FLEET_PORT" --set "daemon.state_dir=$dir" --set "daemon.socket=$dir/d.sock" "${@:3}"
	[ "$status" -ne 0 ]
	[ ! -e "$dir/node-credential" ]
}

@test "a join token is good once, for its name, its key and its time" {
	local t short
	t=$(sandbox node token -q w3)
	JOIN_TOKEN=$t fleet_worker w3
	until_ok 20 node_is w3 up
	join w3 "$t"
	[[ "$output" == *"used already"* ]]
	t=$(sandbox node token -q w4)
	join other "$t"
	[[ "$output" == *"is for the node 'w4'"* ]]
	# Another key than the pinned one: nothing is sent to whoever has it.
	join w4 "${t%%.*}.sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	[[ "$output" == *"not the pinned one"* ]]
	# Without the pin the system's authorities decide, and do not know this one.
	SANDBOX_JOIN_TOKEN=${t%%.*} SANDBOX_TEST_RUNTIME=fake run timeout 3 "$BUILD/sandboxd" --set daemon.role=worker --set worker.name=w4 \
		--set "worker.controller=https://localhost:$FLEET_PORT" --set "daemon.state_dir=$FLEET/bad" --set "daemon.socket=$FLEET/bad/d.sock"
	[[ "$output" == *"not trusted"* ]]
	# A checked certificate instead of the pin: the token is bound to the pin, and says so.
	join w4 "${t%%.*}" --set "worker.ca_file=$FLEET/tls/ca.pem"
	[[ "$output" == *"bound to another key"* ]]
	join w1 "$(sandbox node token -q w1)"
	[[ "$output" == *"another node is called 'w1'"* ]]
	short=$(sandbox node token -q --expires 1s w5)
	sleep 1.2
	join w5 "$short"
	[[ "$output" == *"has expired"* ]]
	join w5 "sbj_nonsense.${short#*.}"
	[[ "$output" == *"not valid here"* ]]
	run sandbox node token --expires 2h w5
	[ "$status" -eq 2 ]
	sandbox audit --json | grep -q node_join
}

call() {
	curl -sS --max-time 10 --cacert "$FLEET/tls/ca.pem" -H "Authorization: Bearer $1" -w '\n%{http_code}' "${@:3}" "https://localhost:$FLEET_PORT$2"
}

@test "a node's credential opens its link and nothing else" {
	local secret path
	secret=$(cut -d. -f1 "$FLEET/w1/node-credential")
	[ "$(stat -c %a "$FLEET/w1/node-credential")" = 600 ]
	for path in /v1/sandboxes /v1/nodes /v1/tokens /v1/events /metrics; do
		run call "$secret" "$path"
		[ "${lines[-1]}" = 403 ]
	done
	run call "$secret" /v1/sandboxes -X POST -H 'Content-Type: application/json' -d '{"spec":{}}'
	[ "${lines[-1]}" = 403 ]
	# Tokens of people open no link.
	run call "$(sandbox token create -q linker --role admin)" /v1/link
	[ "${lines[-1]}" = 403 ]
	run call "${secret%?}0" /v1/link
	[ "${lines[-1]}" = 401 ] || [ "${secret: -1}" = 0 ]
	# Another machine with this credential is not this node.
	mkdir "$FLEET/thief"
	cp "$FLEET/w1/node-credential" "$FLEET/thief/"
	SANDBOX_TEST_RUNTIME=fake "$BUILD/sandboxd" --set daemon.role=worker --set worker.name=w1 --set "worker.controller=https://localhost:$FLEET_PORT" \
		--set "daemon.state_dir=$FLEET/thief" --set "daemon.socket=$FLEET/thief/d.sock" >"$FLEET/thief/log" 2>&1 3>&- 4>&- &
	echo $! >"$FLEET/thief/pid"
	until_ok 20 grep -q "this credential is another node's" "$FLEET/thief/log"
	fleet_kill thief
	rm -rf "$FLEET/thief"
	make --name after
	run_in after -- true
	sandbox delete after
	chmod 644 "$FLEET/w3/node-credential"
	fleet_kill w3
	run fleet_worker w3
	[ "$status" -ne 0 ]
	[[ "$output" == *"can be read by others"* ]]
	chmod 600 "$FLEET/w3/node-credential"
}

@test "credentials rotate, and the old one ends with the first use of the new one" {
	local before
	before=$(cat "$FLEET/w3/node-credential")
	fleet_worker w3 --set worker.credential_rotate=1s
	until_ok 30 grep -q "credential rotated" "$FLEET/w3/log"
	[ "$before" != "$(cat "$FLEET/w3/node-credential")" ]
	fleet_kill w3 KILL
	fleet_worker w3
	until_ok 20 link_up w3
	run call "$(echo "$before" | cut -d. -f1)" /v1/link
	[ "${lines[-1]}" = 401 ]
}

@test "a removed node is refused, and comes back by joining again" {
	sandbox node drain w1
	sandbox node drain w2
	make --name held
	run sandbox node remove w3
	[ "$status" -eq 5 ]
	sandbox node remove --force w3
	sandbox node undrain w1
	sandbox node undrain w2
	state_is held failed
	until_ok 30 grep -q "credential is not valid here" "$FLEET/w3/log"
	run sandbox node inspect w3
	[ "$status" -eq 3 ]
	fleet_kill w3
	# First as it was, then as a machine that was set up anew: with another id under its old name.
	rm "$FLEET/w3/node-credential"
	fleet_worker w3
	until_ok 20 node_is w3 up
	until_ok 20 sandbox api GET '/v1/images?node=w3'
	fleet_kill w3
	sandbox node remove --force w3
	rm -rf "$FLEET/w3"
	fleet_worker w3
	until_ok 20 node_is w3 up
	# Its name means the new worker, and nothing asks the old one any more.
	until_ok 20 sandbox api GET '/v1/images?node=w3'
	until_ok 30 sandbox gc --verify
	fleet_kill w3
	sandbox node remove w3
}

refuses_unconnected() {
	run run_in "$1" -- true
	[ "$status" -eq 125 ] && [[ "$output" == *"not connected"* ]]
}

@test "a worker that is killed comes back: what ran goes on, its output is whole" {
	make --name kept
	local w op
	w=$(sandbox list --json=node_name | grep -o 'w[12]')
	op=$(run_in -d -q kept -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.2; done')
	fleet_kill "$w" KILL
	# One that is asked before the controller noticed the loss is lost with the link; then it is said at once.
	until_ok 20 refuses_unconnected kept
	fleet_worker "$w" --set worker.max_sandboxes=3
	until_ok 20 link_up "$w"
	until_ok 20 ended "$op"
	[ "$(sandbox logs "$op" | tail -n 1)" = 10 ]
	[ "$(sandbox logs "$op" | wc -l)" -eq 10 ]
	run_in kept -- true
}

@test "a controller that is killed comes back: a command with its client goes on" {
	make --name kept
	run_in kept -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo $i; sleep 0.2; done' >"$FLEET/out" 2>"$FLEET/err" &
	local client=$!
	until_ok 10 grep -q 2 "$FLEET/out"
	fleet_kill controller KILL
	fleet_controller
	wait "$client" || { cat "$FLEET/err"; tail -n 20 "$FLEET/w1/log" "$FLEET/w2/log" "$FLEET/controller/log"; false; }
	[ "$(tail -n 1 "$FLEET/out")" = 15 ]
	[ "$(wc -l <"$FLEET/out")" -eq 15 ]
	until_ok 20 link_up w1
	until_ok 20 link_up w2
}

@test "without a controller a worker ends what is due, and says so afterwards" {
	make --name brief --ttl 3s
	local id
	id=$(sandbox list -q)
	fleet_kill controller KILL
	until_ok 15 grep -q "sandbox=$id its time is over" "$FLEET/w1/log" "$FLEET/w2/log"
	until_ok 10 test ! -e "$FLEET/w1/sandboxes/$id" -a ! -e "$FLEET/w2/sandboxes/$id"
	fleet_controller
	until_ok 20 state_is "$id" stopped
	sandbox inspect --json=end_reason "$id" | grep -q expired
	until_ok 20 link_up w1
	until_ok 20 link_up w2
}

@test "what is silly in the configuration of a role is refused" {
	run "$BUILD/sandboxd" --check-config --set daemon.role=worker
	[ "$status" -eq 2 ]
	[[ "$output" == *"worker.controller is empty"* ]]
	run "$BUILD/sandboxd" --check-config --set daemon.role=worker --set worker.controller=http://controller.example
	[ "$status" -eq 2 ]
	[[ "$output" == *"plain http"* ]]
	run "$BUILD/sandboxd" --check-config --set worker.controller=https://controller.example
	[ "$status" -eq 2 ]
	run "$BUILD/sandboxd" --check-config --set daemon.role=worker --set worker.controller=https://c.example --set worker.labels=zone
	[ "$status" -eq 2 ]
	run env SANDBOX_URL="unix://$FLEET/w1/d.sock" sandbox list
	[ "$status" -ne 0 ]
	[[ "$output" == *"this daemon is a worker"* ]]
}
