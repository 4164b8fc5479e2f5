#!/usr/bin/env bats
# The user's own daemon: started when it is needed, once, detached, and its failures told. Runs as a user without rights; the daemon
# serves without an engine, which is all these tests need.

load ../lib/helpers

setup() {
	DIR=$(mktemp -d "${TMPDIR:-/tmp}/sbx-auto.XXXXXX")
	mkdir -p "$DIR/bin" "$DIR/home" "$DIR/run"
	cp "$BUILD/sandbox" "$BUILD/sandboxd" "$DIR/bin/"
	[ ! -e "$BUILD/sandbox-init" ] || cp "$BUILD/sandbox-init" "$DIR/bin/"
	chmod 0755 "$DIR" "$DIR/bin"
	chmod 0700 "$DIR/run"
	AS=()
	if [ "$(id -u)" -eq 0 ]; then
		command -v setpriv >/dev/null || skip "setpriv is missing"
		chown -R 12345:12345 "$DIR"
		AS=(setpriv --reuid=12345 --regid=12345 --clear-groups)
	fi
	[ ! -S /run/sandbox/sandboxd.sock ] || hide_system_daemon
}

# The system's daemon would be used instead; it is out of sight, and stays as it is.
hide_system_daemon() {
	[ "$(id -u)" -eq 0 ] || skip "a daemon of the system runs here"
	printf '#!/bin/sh\nmount -t tmpfs tmpfs /run/sandbox && exec "$@"\n' >"$DIR/bin/apart"
	chmod 0755 "$DIR/bin/apart"
	unshare -m "$DIR/bin/apart" true || skip "a daemon of the system runs here and cannot be hidden"
	AS=(unshare -m "$DIR/bin/apart" "${AS[@]}")
}

teardown() {
	local pid
	pid=$(cli daemon status --json 2>/dev/null | jq -r --arg own "$DIR/" 'select(.socket | startswith($own)) | .pid // empty') || true
	if [ -n "$pid" ]; then
		kill "$pid" 2>/dev/null || true
		sbx_gone "$pid" || kill -KILL "$pid"
	fi
	rm -rf "$DIR"
}

# The program as that user, with an environment of its own.
cli() {
	env -i PATH="$DIR/bin:/usr/bin:/bin" HOME="$DIR/home" XDG_RUNTIME_DIR="$DIR/run" "${EXTRA[@]}" "${AS[@]}" timeout 60 "$DIR/bin/sandbox" "$@"
}
EXTRA=()

running_pid() {
	cli daemon status --json | jq -er .pid
}

@test "the first command starts the daemon and says so on standard error" {
	run --separate-stderr cli list --json
	[ "$status" -eq 0 ]
	[ "$output" = "[]" ]
	[ "$(grep -c 'starting the local daemon' <<<"$stderr")" -eq 1 ]
	run --separate-stderr cli list -q
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
}

@test "many at once start one daemon" {
	local i
	for i in $(seq 12); do
		cli list --json >"$DIR/out.$i" 2>"$DIR/err.$i" 3>&- &
	done
	wait
	for i in $(seq 12); do
		[ "$(cat "$DIR/out.$i")" = "[]" ] || { cat "$DIR/err.$i"; false; }
	done
	[ "$(cat "$DIR"/err.* | grep -c 'starting the local daemon')" -eq 1 ]
	[ "$(pgrep -cf "^sandboxd --ready-fd 3 --set daemon.socket=$DIR/run")" -eq 1 ]
}

@test "the daemon holds nothing of the caller: pipes end, the session is its own" {
	run bash -c "$(declare -f cli); DIR='$DIR'; AS=(${AS[*]}); EXTRA=(); exec 7>&1; cli list 2>&1 7>&1 | cat"
	[ "$status" -eq 0 ]
	local pid
	pid=$(running_pid)
	[ "$(ps -o sid= -p "$pid" | tr -d ' ')" = "$pid" ]
	[ "$(ps -o tty= -p "$pid" | tr -d ' ')" = '?' ]
	[ "/proc/$pid/cwd" -ef "/proc/$pid/root" ]
	[ "/proc/$pid/fd/2" -ef "$DIR/home/.local/state/sandbox/sandboxd.log" ]
}

@test "a token in the environment does not reach the daemon" {
	EXTRA=(SANDBOX_TOKEN=s3cr3tval)
	cli list
	! tr '\0' '\n' <"/proc/$(running_pid)/environ" | grep s3cr3tval
}

@test "a killed daemon is replaced, in spite of its stale socket" {
	cli list
	local first
	first=$(running_pid)
	kill -KILL "$first"
	sbx_gone "$first"
	[ -S "$DIR/run/sandbox/sandboxd.sock" ]
	run --separate-stderr cli list --json
	[ "$status" -eq 0 ]
	[ "$output" = "[]" ]
	[ "$(running_pid)" != "$first" ]
}

@test "start, status, stop and logs" {
	run cli daemon status
	[ "$status" -eq 3 ]
	[ "${lines[0]}" = "not running" ]
	cli daemon start
	cli daemon start
	cli daemon status | grep -q '^running'
	cli daemon status --json | jq -e '.running and .version == "'"$(cat "$TOP/VERSION")"'"'
	cli daemon logs | grep -q serving
	local pid
	pid=$(running_pid)
	cli daemon stop
	sbx_gone "$pid"
	cli daemon stop
	run cli daemon status
	[ "$status" -eq 3 ]
}

@test "commands that only look start nothing" {
	run cli version
	[ "$status" -eq 0 ]
	run cli doctor
	run cli __complete sandbox
	[ "$status" -eq 0 ]
	run cli help
	run cli daemon logs
	[ "$status" -eq 3 ]
	run cli daemon status
	[ "$status" -eq 3 ]
}

@test "a given server is never started" {
	run --separate-stderr cli --server "unix://$DIR/none" list
	[ "$status" -eq 8 ]
	run cli daemon status
	[ "$status" -eq 3 ]
	run --separate-stderr cli --server "unix://$DIR/none" daemon start
	[ "$status" -eq 2 ]
}

@test "a daemon that fails at its start is reported with its last words" {
	mkdir -p "$DIR/home/.config/sandbox"
	echo '[nosuch]' >"$DIR/home/.config/sandbox/sandboxd.conf"
	echo 'key = 1' >>"$DIR/home/.config/sandbox/sandboxd.conf"
	run --separate-stderr cli list
	[ "$status" -eq 8 ]
	[ -z "$output" ]
	[[ $stderr == *"ended while starting"* && $stderr == *"sandboxd.conf:"* ]]
}

@test "a missing daemon program is named" {
	rm "$DIR/bin/sandboxd"
	run --separate-stderr cli list
	[ "$status" -eq 8 ]
	[[ $stderr == *"sandboxd is neither beside this one nor on PATH"* ]]
}

@test "a program called sandboxd that is none is found out" {
	printf '#!/bin/sh\necho hello >&3\nsleep 5\n' >"$DIR/bin/sandboxd"
	run --separate-stderr cli list
	[ "$status" -eq 8 ]
	[[ $stderr == *"something else than ready"* ]]
}

@test "a home that cannot be written is named" {
	[ "$(id -u)" -eq 0 ] || skip "needs root to take the right away"
	chown 0:0 "$DIR/home"
	run --separate-stderr cli list
	[ "$status" -eq 8 ]
	[[ $stderr == *"$DIR/home"* ]]
}

@test "no HOME and no XDG directory is said, not guessed" {
	run --separate-stderr env -i PATH=/usr/bin:/bin "${AS[@]}" timeout 20 "$DIR/bin/sandbox" list
	[ "$status" -eq 2 ]
	[[ $stderr == *"HOME is not set"* ]]
}

@test "a socket path over the kernel's limit works" {
	local long
	long=$DIR/$(printf 'x%.0s' $(seq 120))
	mkdir -m 0700 "$long"
	[ "$(id -u)" -ne 0 ] || chown 12345:12345 "$long"
	EXTRA=("XDG_RUNTIME_DIR=$long")
	run --separate-stderr cli list --json
	[ "$status" -eq 0 ]
	[ "$output" = "[]" ]
}

@test "a socket without permission says which group to join" {
	[ "$(id -u)" -eq 0 ] || skip "needs root to make such a socket"
	mkdir "$DIR/locked"
	python3 -c 'import socket,sys,time
s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(1); time.sleep(20)' "$DIR/locked/s" 3>&- &
	local holder=$!
	until_ok 10 test -S "$DIR/locked/s"
	chmod 0600 "$DIR/locked/s"
	run --separate-stderr cli --server "unix://$DIR/locked/s" list
	kill $holder
	[ "$status" -eq 4 ]
	[[ $stderr == *"may not use"* && $stderr == *"usermod -aG sandbox"* ]]
}
