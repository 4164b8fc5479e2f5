#!/usr/bin/env bats
# A server's first configuration, its unit, and the way of its records into a copy and back.
load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start
}

teardown_file() {
	sbx_stop
}

setup() {
	T=$BATS_TEST_TMPDIR
}

@test "init writes what the daemon takes, with secrets nobody else reads, once" {
	run -0 --separate-stderr sandboxd init --config "$T/etc/s.conf" --listen 0.0.0.0:8443 --tls --name sandbox.example.com --name 10.0.0.1 \
		--database postgresql://sandbox@db.example/sandbox --profile strict
	[[ $output == *"wrote $T/etc/s.conf"*"sandbox token create"*"https://sandbox.example.com:8443"* ]]
	[ "$(stat -c %a "$T/etc" "$T/etc/s.conf" "$T/etc/tls.key" "$T/etc/tls.crt" "$T/etc/db-password" | tr '\n' ' ')" = "700 600 600 644 600 " ]
	sandboxd --config "$T/etc/s.conf" --check-config
	openssl x509 -in "$T/etc/tls.crt" -noout -checkhost sandbox.example.com | grep -q "does match"
	openssl x509 -in "$T/etc/tls.crt" -noout -checkip 10.0.0.1 | grep -q "does match"
	[ "$(openssl x509 -in "$T/etc/tls.crt" -noout -pubkey)" = "$(openssl pkey -in "$T/etc/tls.key" -pubout)" ]
	grep -qE '^[A-Za-z0-9_-]{32}$' "$T/etc/db-password"
	[[ $output != *"$(cat "$T/etc/db-password")"* ]]
	before=$(cat "$T"/etc/* | sha256sum)
	run -1 sandboxd init --config "$T/etc/s.conf"
	[[ $output == *"$T/etc/s.conf is there already; --force replaces it"* ]]
	[ "$before" = "$(cat "$T"/etc/* | sha256sum)" ]
	run -0 sandboxd init --config "$T/etc/s.conf" --force
	[[ $(cat "$T/etc/s.conf") != *tls_key* ]]
}

@test "init that cannot be right writes nothing" {
	run -2 sandboxd init --config "$T/a/s.conf" --listen 0.0.0.0:8443
	[[ $output == *"beyond loopback"* ]]
	run -2 sandboxd init --config "$T/a/s.conf" --listen 0.0.0.0:8443 --tls
	[[ $output == *"--name"* ]]
	run -2 sandboxd init --config "$T/a/s.conf" --listen 0.0.0.0:8443 --tls --name 'a,DNS:b'
	[[ $output == *"no host name"* ]]
	run -2 sandboxd init --config "$T/a/s.conf" --listen 127.0.0.1:1 --tls --name x --profile lax
	[[ $output == *"profile"* ]]
	run -2 sandboxd init --config "$T/a/s.conf" --database postgresql://sandbox:secret@db/x
	[[ $output == *password* && $output != *:secret@* ]]
	[ -z "$(ls -A "$T/a")" ]
	run -2 sandboxd init nonsense
}

@test "a daemon on such a configuration serves https to who trusts its certificate" {
	port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	sandboxd init --config "$T/etc/s.conf" --listen "127.0.0.1:$port" --tls --name localhost --name 127.0.0.1 >/dev/null
	sandboxd --config "$T/etc/s.conf" --set "daemon.state_dir=$T/state" --set "daemon.socket=$T/d.sock" --set worker.docker_socket=/nonexistent >"$T/log" 2>&1 3>&- 4>&- &
	local pid=$!
	until_ok 20 test -f "$T/state/api-token"
	until_ok 20 curl -sS --max-time 5 --cacert "$T/etc/tls.crt" "https://localhost:$port/healthz" -o "$T/health"
	kill "$pid"
	wait "$pid" || true
	[ "$(jq -r .status "$T/health")" = ok ]
}

@test "records are copied while the daemon works and come back after a loss" {
	local id
	id=$(sbx_create --name keeper)
	sandbox exec keeper -- true
	args="--set daemon.state_dir=$SBX_DIR/state --set daemon.socket=$SBX_DIR/d.sock"
	# Commands run while it is copied.
	for _ in 1 2 3 4; do sandbox exec keeper -- true; done &
	# shellcheck disable=SC2086
	run -0 sandboxd backup $args "$T/copy.db"
	wait $!
	[ "$(stat -c %a "$T/copy.db")" = 600 ]
	# shellcheck disable=SC2086
	run -1 sandboxd backup $args "$T/copy.db"
	[[ $output == *"exists; name a new file"* ]]
	# shellcheck disable=SC2086
	run -1 sandboxd restore $args "$T/copy.db"
	[[ $output == *"$(sbx_pid)"* ]]
	sbx_kill KILL
	# shellcheck disable=SC2086
	run -0 sandboxd restore $args "$T/copy.db"
	[[ $output == *"store.db.before-restore"* ]]
	rm "$SBX_DIR"/state/store.db.before-restore*
	sbx_daemon
	[ "$(sandbox inspect keeper --json | jq -r '.id')" = "$id" ]
	[ "$(sandbox exec keeper -- echo still here)" = "still here" ]
	sandbox delete keeper --wait
}

@test "what is no copy is refused and changes nothing" {
	args="--set daemon.state_dir=$T/state --set daemon.socket=$T/d.sock"
	mkdir -m 0700 "$T/state"
	echo nonsense >"$T/file"
	# shellcheck disable=SC2086
	run -1 sandboxd restore $args "$T/file"
	[[ $output == *"$T/file"* ]]
	python3 -c "import sqlite3; sqlite3.connect('$T/other.db').execute('create table t(x)')"
	# shellcheck disable=SC2086
	run -1 sandboxd restore $args "$T/other.db"
	[[ $output == *"$T/other.db is no store of sandboxd"* ]]
	# shellcheck disable=SC2086
	run -1 sandboxd restore $args "$T/none"
	[[ $output == *"there is no store at $T/none"* ]]
	# shellcheck disable=SC2086
	run -1 sandboxd backup $args "$T/out"
	[[ $output == *"there is no store at $T/state/store.db"* ]]
	[ "$(ls -A "$T/state")" = lock ]
	[ ! -e "$T/out" ]
	# shellcheck disable=SC2086
	run -2 sandboxd backup $args --set store.driver=postgresql --set store.url=postgresql://db/x "$T/out"
	[[ $output == *pg_dump* ]]
}

@test "the unit is valid, narrow, and leaves sandboxes alone" {
	command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
	sed "s|@BINDIR@/sandboxd|$BUILD/sandboxd|" "$TOP/installer/systemd/sandboxd.service" >"$T/sandboxd.service"
	run -0 systemd-analyze verify --man=no "$T/sandboxd.service"
	[ -z "$output" ]
	grep -qx 'KillMode=process' "$T/sandboxd.service"
	grep -qx 'RuntimeDirectoryPreserve=yes' "$T/sandboxd.service"
	# With a mount namespace of its own the engine would not see the workspaces.
	run grep -E '^(Private(Tmp|Devices|Mounts|Users)|Protect(System|Home|KernelModules|KernelTunables|ControlGroups|Proc)|Read(Only|Write)Paths|InaccessiblePaths|TemporaryFileSystem|BindPaths|RootDirectory|MountAPIVFS)=' "$T/sandboxd.service"
	[ "$status" -eq 1 ]
}

@test "the unit's capabilities are enough, readiness is told, and a sandbox outlives a restart" {
	[ "$(id -u)" -eq 0 ] || skip "not root"
	local caps id
	caps=$(sed -n 's/^CapabilityBoundingSet=//p' "$TOP/installer/systemd/sandboxd.service" | tr 'A-Z' 'a-z' | sed 's/cap_/+/g; s/ /,/g')
	serve() {
		python3 "$TOP/tests/lib/notify.py" "$T/notify" "$T/told" 3>&- 4>&- &
		local listener=$!
		until_ok 10 test -S "$T/notify"
		NOTIFY_SOCKET=$T/notify setpriv --bounding-set="-all,$caps" --inh-caps="-all" --no-new-privs "$BUILD/sandboxd" --set "daemon.state_dir=$T/state" \
			--set "daemon.socket=$T/d.sock" --set "worker.docker_socket=$DOCKER_SOCKET" --set policy.max_host_pressure=1 --set worker.gvisor_runtime= \
			--set "daemon.init_path=$BUILD/sandbox-init" >>"$T/log" 2>&1 3>&- 4>&- &
		daemon=$!
		wait $listener
		[ "$(cat "$T/told")" = READY=1 ]
		rm -f "$T/notify"
	}
	export SANDBOX_URL=unix://$T/d.sock
	serve
	id=$(sbx_create --name outlives)
	sandbox exec outlives -- sh -c 'echo kept >/workspace/f'
	kill "$daemon"
	wait "$daemon" || true
	serve
	run timeout 20 sandbox exec outlives -- cat /workspace/f
	sandbox delete outlives --wait || true
	kill "$daemon"
	wait "$daemon" || true
	[ "$output" = kept ]
}
