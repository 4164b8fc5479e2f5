#!/usr/bin/env bats
# sandboxd as a process: command line, configuration, sockets, rights, signals.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start
}

teardown_file() {
	sbx_stop
}

get() {
	curl -sS --max-time 20 --unix-socket "$SBX_DIR/d.sock" "http://sandbox$1"
}

# A second daemon of its own state directory; ends by itself when it cannot start.
other() {
	local dir=$1
	shift
	run timeout 20 "$BUILD/sandboxd" --set "daemon.state_dir=$dir" --set "worker.docker_socket=$DOCKER_SOCKET" "$@"
}

@test "the command line explains itself and refuses what it does not know" {
	run -0 sandboxd --version
	[[ "$output" == sandboxd\ [0-9]* ]]
	run -0 sandboxd --help
	[[ "$output" == *--check-config* ]]
	run -2 sandboxd --nonsense
	run -2 sandboxd extra
	[[ "$output" == *extra* ]]
	run -2 sandboxd --ready-fd 200
	run -2 sandboxd --ready-fd x
}

@test "the configuration is checked with file and line, and printed whole" {
	local conf=$BATS_TEST_TMPDIR/c.conf
	printf '[policy]\nprofile = strict\n' >"$conf"
	run -0 sandboxd --config "$conf" --check-config
	printf '[policy]\nprofil = strict\n' >"$conf"
	run -2 sandboxd --config "$conf" --check-config
	[[ "$output" == *"c.conf:2"*profil* ]]
	run sandboxd --config "$BATS_TEST_TMPDIR/none" --check-config
	[ "$status" -ne 0 ]
	[[ "$output" == *none* ]]
	run -0 sandboxd --set policy.profile=trusted-workstation --print-config
	[[ "$output" == *"trusted-workstation"* ]]
	run -2 sandboxd --set policy.profile=lax --check-config
	run -2 sandboxd --set nothing --check-config
	run sandboxd --set daemon.listen=0.0.0.0:1 --set "daemon.state_dir=$BATS_TEST_TMPDIR/s" --set "daemon.socket=$BATS_TEST_TMPDIR/s.sock"
	[ "$status" -ne 0 ]
	[[ "$output" == *daemon.listen*127.0.0.1* ]]
}

@test "the API documents come from the table" {
	run -0 sandboxd --print-api-doc md
	[[ "$output" == *"/v1/operations/{id}"* ]]
	sandboxd --print-api-doc openapi | jq -e '.paths["/v1/sandboxes"].post.operationId == "create"'
	run -2 sandboxd --print-api-doc pdf
}

@test "a second daemon on the same socket or state directory is refused, and the first goes on" {
	other "$BATS_TEST_TMPDIR/s2" --set "daemon.socket=$SBX_DIR/d.sock"
	[ "$status" -eq 1 ]
	[[ "$output" == *"another sandboxd answers on $SBX_DIR/d.sock"* ]]
	other "$SBX_DIR/state" --set "daemon.socket=$BATS_TEST_TMPDIR/o.sock"
	[ "$status" -eq 1 ]
	[[ "$output" == *"$(sbx_pid)"* ]]
	[ "$(get /healthz | jq -r .status)" = ok ]
}

@test "a socket left by a killed daemon is replaced; a file that is no socket is not" {
	sbx_kill KILL
	[ -S "$SBX_DIR/d.sock" ]
	sbx_daemon
	[ "$(get /healthz | jq -r .status)" = ok ]
	echo precious >"$BATS_TEST_TMPDIR/file"
	other "$BATS_TEST_TMPDIR/s3" --set "daemon.socket=$BATS_TEST_TMPDIR/file"
	[ "$status" -eq 1 ]
	[[ "$output" == *"no socket"* ]]
	[ "$(cat "$BATS_TEST_TMPDIR/file")" = precious ]
}

@test "TERM answers who waits, removes the socket, keeps sandboxes and their commands" {
	local box op
	box=$(sbx_create)
	op=$(curl -sS --unix-socket "$SBX_DIR/d.sock" -d '{"command":{"argv":["sh","-c","sleep 6; echo done"]}}' "http://sandbox/v1/sandboxes/$box/exec" | jq -r .operation.id)
	get "/v1/operations/$op?wait=60" >"$BATS_TEST_TMPDIR/answer" &
	sleep 0.5
	SECONDS=0
	sbx_kill TERM
	[ "$SECONDS" -lt 10 ]
	wait $!
	[ "$(jq -r .operation.state "$BATS_TEST_TMPDIR/answer")" = running ]
	[ ! -e "$SBX_DIR/d.sock" ]
	[ -n "$(docker ps -q --filter "name=sandbox-$box")" ]
	sbx_daemon
	[ "$(get "/v1/sandboxes/$box" | jq -r .state)" = running ]
	[ "$(get "/v1/operations/$op?wait=60" | jq -r '.operation | .state + .output.stdout')" = $'succeededdone' ]
}

@test "a second TERM does not cut the stop short" {
	kill -TERM "$(sbx_pid)"
	kill -TERM "$(sbx_pid)" 2>/dev/null || true
	sbx_gone "$(sbx_pid)"
	[ "$(tail -n 1 "$SBX_DIR/log" | grep -c 'daemon stopped')" -eq 1 ]
	[ ! -e "$SBX_DIR/d.sock" ]
	sbx_daemon
}

@test "others are kept out, the group's members get a tenant of their own" {
	[ "$(id -u)" -eq 0 ] || skip "needs root to become another user"
	sbx_kill TERM
	chmod 0711 "$SBX_DIR"
	sbx_daemon --set daemon.socket_group=daemon
	[ "$(stat -c %a "$SBX_DIR/d.sock")" = 666 ]
	local as=(setpriv --reuid 65534 --regid 65534)
	run -0 "${as[@]}" --clear-groups curl -sS --max-time 5 --unix-socket "$SBX_DIR/d.sock" http://sandbox/v1/sandboxes
	[[ "$output" == *forbidden*"uid 65534"* ]]
	run -0 "${as[@]}" --clear-groups curl -sS --max-time 5 --unix-socket "$SBX_DIR/d.sock" http://sandbox/healthz
	[[ "$output" == *'"ok"'* ]]
	run -0 "${as[@]}" --groups daemon curl -sS --max-time 5 --unix-socket "$SBX_DIR/d.sock" http://sandbox/v1/sandboxes
	[[ "$output" == '{"sandboxes":[]}' ]]
	run -0 "${as[@]}" --groups daemon curl -sS --max-time 5 --unix-socket "$SBX_DIR/d.sock" -d '{"spec":{"image":"'"$IMAGE"'"}}' 'http://sandbox/v1/sandboxes?explain=true'
	[[ "$output" == *'"decision"'* ]]
	run -0 "${as[@]}" --groups daemon curl -sS --max-time 5 --unix-socket "$SBX_DIR/d.sock" -d '{"spec":{"tenant":"default","image":"x"}}' http://sandbox/v1/sandboxes
	[[ "$output" == *forbidden* ]]
	run -0 "${as[@]}" --groups daemon curl -sS --max-time 5 --unix-socket "$SBX_DIR/d.sock" -X DELETE http://sandbox/v1/images/x
	[[ "$output" == *forbidden*admin* ]]
	sbx_kill TERM
	sbx_daemon --set daemon.socket_group=sandbox
}

@test "TCP is loopback and always wants the token" {
	sbx_kill TERM
	sbx_daemon --set daemon.listen=127.0.0.1:0
	local port token
	port=$(grep -o 'port=[0-9]*' "$SBX_DIR/log" | tail -n 1 | cut -d= -f2)
	[ "$(stat -c %a "$SBX_DIR/state/api-token")" = 600 ]
	token=$(cat "$SBX_DIR/state/api-token")
	run -0 grep -c "$token" "$SBX_DIR/log" || [ "$output" = 0 ]
	run curl -sS --max-time 5 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/v1/sandboxes"
	[ "$output" = 401 ]
	run curl -sS --max-time 5 -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" "http://127.0.0.1:$port/v1/sandboxes"
	[ "$output" = 200 ]
	run curl -sS --max-time 5 -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" -H "Host: evil" "http://127.0.0.1:$port/v1/sandboxes"
	[ "$output" = 403 ]
	run curl -sS --max-time 5 -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" -H "Origin: http://localhost" "http://127.0.0.1:$port/v1/sandboxes"
	[ "$output" = 403 ]
	run curl -sS --max-time 5 -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" -d '{}' "http://127.0.0.1:$port/v1/images/pull"
	[ "$output" = 415 ]
	sbx_kill TERM
	sbx_daemon --set daemon.listen=
}

@test "HUP takes over what can change, and a broken file changes nothing" {
	local conf=$SBX_DIR/hup.conf
	sbx_kill TERM
	printf '[policy]\nprofile = strict\n' >"$conf"
	sbx_daemon --config "$conf"
	[ "$(get /v1/doctor | jq -r '.checks[] | select(.part == "policy") | .status')" = ok ]
	printf '[policy]\nprofile = trusted-workstation\n' >"$conf"
	kill -HUP "$(sbx_pid)"
	until_ok 5 sh -c "curl -sS --max-time 20 --unix-socket '$SBX_DIR/d.sock' http://sandbox/v1/doctor | jq -e '.checks[] | select(.part == \"policy\") | .status == \"warn\"'"
	printf '[policy]\nprofile = nothing\n' >"$conf"
	kill -HUP "$(sbx_pid)"
	until_ok 5 grep -q 'configuration not reloaded' "$SBX_DIR/log"
	[[ "$(get /v1/doctor | jq -r '.checks[] | select(.part == "policy") | .detail')" == *trusted-workstation* ]]
	sbx_kill TERM
	: >"$conf"
	sbx_daemon --config "$conf"
}

@test "a pull that policy forbids does not start" {
	sbx_kill TERM
	sbx_daemon --set policy.allowed_registries=local
	run -0 curl -sS --max-time 10 --unix-socket "$SBX_DIR/d.sock" -w '\n%{http_code}' -d '{"image":"debian:12"}' http://sandbox/v1/images/pull
	[[ "$output" == *forbidden*$'\n403' ]]
	sbx_kill TERM
	sbx_daemon --set 'policy.allowed_registries=*'
}

@test "an idle daemon is small and hides its memory" {
	local dirty limit=6144
	sbx_kill TERM
	sbx_daemon
	get /healthz >/dev/null
	dirty=$(awk '/^Private_Dirty/ { print $2 }' "/proc/$(sbx_pid)/smaps_rollup")
	[ "$(stat -c %u "/proc/$(sbx_pid)/mem")" -eq 0 ]
	grep -q '^Max core file size *0 *0' "/proc/$(sbx_pid)/limits"
	nm "$BUILD/sandboxd" 2>/dev/null | grep -Eq "__(asan|tsan)_init" && skip "an instrumented build is larger"
	echo "private dirty: $dirty KiB"
	[ "$dirty" -le "$limit" ]
}
