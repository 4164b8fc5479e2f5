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

# unit NAME: with the programs under test filled in.
unit() {
	sed "s|@BINDIR@/sandboxd|$BUILD/sandboxd|" "$TOP/installer/systemd/$1.service" >"$T/$1.service"
}

@test "the units are valid and narrow; those of workers leave sandboxes alone" {
	command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
	local u
	for u in sandboxd sandboxd-controller sandboxd-worker sandboxd-edge; do
		unit $u
		run -0 systemd-analyze verify --man=no "$T/$u.service"
		[ -z "$output" ]
	done
	# The figure is tenths of systemd's exposure: 9.6 is a unit without any of this.
	if systemd-analyze --help | grep -q -- --offline; then
		run -0 systemd-analyze security --offline=yes --threshold=20 "$T/sandboxd-controller.service"
		run -0 systemd-analyze security --offline=yes --threshold=20 "$T/sandboxd-edge.service"
		run -0 systemd-analyze security --offline=yes --threshold=75 "$T/sandboxd.service"
		run -0 systemd-analyze security --offline=yes --threshold=75 "$T/sandboxd-worker.service"
	fi
	for u in sandboxd sandboxd-worker; do
		grep -qx 'KillMode=process' "$T/$u.service"
		grep -qx 'RuntimeDirectoryPreserve=yes' "$T/$u.service"
		# With a mount namespace of its own the engine would not see the workspaces.
		run grep -E '^(Private(Tmp|Devices|Mounts|Users)|Protect(System|Home|KernelModules|KernelTunables|ControlGroups|Proc)|Read(Only|Write)Paths|InaccessiblePaths|TemporaryFileSystem|BindPaths|RootDirectory|MountAPIVFS)=' "$T/$u.service"
		[ "$status" -eq 1 ]
	done
	# The unit that node add writes differs from the packaged worker's in nothing that makes it wider.
	[ "$(sed -n 's/^CapabilityBoundingSet=//p' "$T/sandboxd-worker.service")" = \
		"$(tr -d '\n\t"' <"$TOP/cli/enroll/scripts.c" | sed -n 's/.*CapabilityBoundingSet=\([A-Z_ ]*\)\\n.*/\1/p')" ]
}

@test "the examples are what the daemon takes" {
	local f
	for f in "$TOP"/installer/*.conf.example; do
		run -0 sandboxd --config "$f" --check-config
	done
	[ "$(find "$TOP/installer" -name '*.conf.example' | wc -l)" -eq 3 ]
}

@test "a controller needs neither root, nor capabilities, nor an engine" {
	[ "$(id -u)" -eq 0 ] || skip "not root"
	local port pid
	# A folder of its own: others may not look into bats' own.
	T=$(mktemp -d "${TMPDIR:-/tmp}/sbx-controller.XXXXXX")
	port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	run -2 sandboxd init --config "$T/c/s.conf" --role worker
	run -0 sandboxd init --config "$T/c/s.conf" --role controller --listen "127.0.0.1:$port" --tls --name localhost
	grep -qx 'role = controller' "$T/c/s.conf"
	mkdir -m 0700 "$T/state"
	mkdir "$T/run"
	chown -R 65534:65534 "$T/c" "$T/state" "$T/run"
	chmod 711 "$T"
	# What the unit says, as far as a process can have it without systemd; the programs may lie where nobody else looks.
	cp "$BUILD/sandboxd" "$T/sandboxd"
	setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs env -i "$T/sandboxd" --config "$T/c/s.conf" \
		--set daemon.role=controller --set "daemon.state_dir=$T/state" --set "daemon.socket=$T/run/d.sock" >"$T/log" 2>&1 3>&- 4>&- &
	pid=$!
	until_ok 30 test -S "$T/run/d.sock" || cat "$T/log"
	curl -fsS --max-time 20 --cacert "$T/c/tls.crt" "https://localhost:$port/readyz" -o "$T/ready"
	grep -q '^CapBnd:.0000000000000000$' "/proc/$pid/status"
	# Root on that machine is its admin.
	run -0 sandbox --server "unix://$T/run/d.sock" node token -q rack-1
	[[ $output == sbj_*.sha256//* ]]
	kill "$pid"
	wait "$pid" || true
	rm -rf "$T"
}

@test "the log is rotated while the daemon goes on writing to it" {
	command -v logrotate >/dev/null || skip "no logrotate"
	local pid
	mkdir -m 0755 "$T/log"
	sandboxd --set "daemon.state_dir=$T/state" --set "daemon.socket=$T/d.sock" --set worker.docker_socket=/nonexistent --set daemon.log_level=debug >>"$T/log/sandboxd.log" 2>&1 3>&- 4>&- &
	pid=$!
	until_ok 30 curl -fs --max-time 5 --unix-socket "$T/d.sock" http://x/healthz -o /dev/null
	sed "s|/var/log/sandboxd.log|$T/log/sandboxd.log|" "$TOP/installer/logrotate" >"$T/rule"
	chmod 644 "$T/rule"
	run -0 logrotate --force --state "$T/rotated" "$T/rule"
	[ -s "$T/log/sandboxd.log.1" ]
	curl -fsS --max-time 5 --unix-socket "$T/d.sock" http://x/healthz -o /dev/null
	kill -HUP "$pid"
	until_ok 20 test -s "$T/log/sandboxd.log"
	kill "$pid"
	wait "$pid" || true
	# Written from its beginning, not behind a hole of the size it had.
	[ "$(head -c 1 "$T/log/sandboxd.log" | od -An -tu1 | tr -d ' ')" != 0 ]
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
