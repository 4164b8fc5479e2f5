# Common ground of the bats files: a private daemon (own state directory and socket) on the engine under test.
# In setup_file: sbx_start; in teardown_file: sbx_stop. Then `sandbox` talks to that daemon.


bats_require_minimum_version 1.5.0
TOP=${TOP:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
BUILD=${BUILD:-$TOP/build}
IMAGE=${SANDBOX_TEST_IMAGE:-sandbox-base:latest}
DOCKER_SOCKET=${SANDBOX_TEST_DOCKER_SOCKET:-/var/run/docker.sock}
export TOP BUILD IMAGE DOCKER_SOCKET
export PATH="$BUILD:$PATH"
export DOCKER_HOST="unix://$DOCKER_SOCKET"
# The user's own settings never reach a test.
unset SANDBOX_TOKEN SANDBOX_CONTEXT SANDBOX_TENANT NO_COLOR CLICOLOR_FORCE

# Skips (or fails, under SANDBOX_TESTS_MUST_RUN=1) when no engine answers.
need_engine() {
	curl -fsS --max-time 5 --unix-socket "$DOCKER_SOCKET" http://engine/_ping >/dev/null 2>&1 || skip "no Docker Engine on $DOCKER_SOCKET"
}

# For setup_file: a QEMU driver with a state directory of its own, $MICROVM_DIR/driver, allowed to emulate. Skips where it cannot be.
need_microvm() {
	[ "$(id -u)" -eq 0 ] || skip "not root: machines get users and control groups of their own"
	[ "$(uname -m)" = x86_64 ] || skip "microVMs are made on 64-bit x86 only"
	[ -x /usr/bin/qemu-system-x86_64 ] || skip "no qemu-system-x86_64 (package qemu-system-x86)"
	MICROVM_KERNEL=$(find "$BUILD/kernel" -name 'vmlinuz-*' 2>/dev/null | head -n 1)
	[ -n "$MICROVM_KERNEL" ] || skip "no kernel for microVMs: run installer/microvm-kernel $BUILD/kernel"
	MICROVM_DIR=$(mktemp -d "${TMPDIR:-/tmp}/sbx-microvm.XXXXXX")
	export MICROVM_DIR MICROVM_KERNEL
	microvm_config "allow_emulation = true"
	cat >"$MICROVM_DIR/driver" <<-TXT
		#!/bin/sh
		exec "$BUILD/sandbox-driver-qemu" --config "$MICROVM_DIR/conf" "\$@"
	TXT
	chmod 755 "$MICROVM_DIR/driver"
}

# microvm_config LINE…: the driver's configuration from its next call on.
microvm_config() {
	printf '%s\n' "[qemu]" "state_dir = $MICROVM_DIR/state" "docker_socket = $DOCKER_SOCKET" "$@" >"$MICROVM_DIR/conf"
	chmod 644 "$MICROVM_DIR/conf"
}

# In teardown_file, after sbx_stop: fails when a machine is left.
microvm_stop() {
	[ -n "${MICROVM_DIR:-}" ] || return 0
	local left
	left=$(ls -A "$MICROVM_DIR/state/boxes" 2>/dev/null || true)
	cat "$MICROVM_DIR"/state/boxes/*/keeper 2>/dev/null | while read -r left_pid _; do kill -KILL "$left_pid" 2>/dev/null || true; done
	rm -rf "$MICROVM_DIR"
	[ -z "$left" ] || { echo "machines were left: $left" >&2; return 1; }
}

# Starts sandboxd with a state directory of its own; arguments are passed on (--set …). Without gVisor unless they ask for it:
# its probe takes a second or two.
sbx_start() {
	sbx_prepare
	sbx_daemon "$@"
}

# The directories alone.
sbx_prepare() {
	SBX_DIR=$(mktemp -d "${TMPDIR:-/tmp}/sbx.XXXXXX")
	export SBX_DIR
	export HOME=$SBX_DIR/home XDG_CONFIG_HOME=$SBX_DIR/config XDG_STATE_HOME=$SBX_DIR/xstate XDG_RUNTIME_DIR=$SBX_DIR/run
	mkdir -p "$HOME" "$XDG_CONFIG_HOME" "$XDG_STATE_HOME"
	mkdir -m 0700 "$XDG_RUNTIME_DIR"
	export SANDBOX_URL=unix://$SBX_DIR/d.sock
}

# (Re)starts the daemon over the same state directory.
sbx_daemon() {
	local fifo=$SBX_DIR/ready.$$
	SBX_ARGS=${*:-${SBX_ARGS:-}}
	export SBX_ARGS
	rm -f "$fifo"
	mkfifo "$fifo"
	# shellcheck disable=SC2086
	"$BUILD/sandboxd" --set "daemon.state_dir=$SBX_DIR/state" --set "daemon.socket=$SBX_DIR/d.sock" --set "worker.docker_socket=$DOCKER_SOCKET" \
		--set "daemon.init_path=$BUILD/sandbox-init" --set daemon.log_level=debug --set policy.max_host_pressure=1 --set worker.gvisor_runtime= --ready-fd 9 $SBX_ARGS \
		9>"$fifo" >>"$SBX_DIR/log" 2>&1 </dev/null 3>&- 4>&- &
	SBX_PID=$!
	export SBX_PID
	echo "$SBX_PID" >"$SBX_DIR/pid"
	local line=
	read -r -t 60 line <"$fifo" || true
	rm -f "$fifo"
	if [ "$line" != ready ]; then
		echo "sandboxd did not become ready; its log:" >&2
		tail -n 40 "$SBX_DIR/log" >&2
		return 1
	fi
}

sbx_pid() {
	cat "$SBX_DIR/pid"
}

# Ends the daemon by signal (TERM by default) and waits for it.
sbx_kill() {
	local pid
	pid=$(sbx_pid)
	kill "-${1:-TERM}" "$pid" 2>/dev/null || return 0
	sbx_gone "$pid"
}

sbx_gone() {
	local i
	for ((i = 0; i < 300; i++)); do
		[ -d "/proc/$1" ] && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null || return 0
		sleep 0.1
	done
	echo "process $1 did not end" >&2
	return 1
}

# Deletes every sandbox of the daemon, ends it, and fails when anything of it is left on the machine.
sbx_stop() {
	[ -n "${SBX_DIR:-}" ] || return 0
	local id node=
	for id in $(timeout 20 sandbox list -q 2>/dev/null); do
		timeout 60 sandbox delete "$id" >/dev/null 2>&1 || true
	done
	[ -f "$SBX_DIR/state/node-id" ] && node=$(cat "$SBX_DIR/state/node-id")
	sbx_kill TERM || kill -KILL "$(sbx_pid)" 2>/dev/null
	if [ -n "$node" ]; then
		for id in $(docker ps -aq --filter "label=io.sandbox.node=$node" 2>/dev/null); do
			docker rm -f "$id" >/dev/null 2>&1 || true
		done
	fi
	grep -o "$SBX_DIR/state/[^ ]*" /proc/mounts | sort -r | while read -r id; do umount -l "$id" || true; done
	rm -rf "$SBX_DIR"
}

# until DEADLINE_SECONDS COMMAND…: polls until the command succeeds.
until_ok() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		if [ $SECONDS -ge $end ]; then
			echo "not within its time: $*" >&2
			return 1
		fi
		sleep 0.1
	done
}

# A running sandbox with small resources; prints its id.
sbx_create() {
	sandbox create -q --image "$IMAGE" --disk-mib 64 --memory-mib 256 "$@"
}

daemon_fds() {
	find "/proc/$(sbx_pid)/fd" -mindepth 1 | wc -l
}

# inside_net SANDBOX COMMAND…: a program of this machine (the image may lack it) on the loopback of a running sandbox. Replaces the shell.
inside_net() {
	local pid
	pid=$(docker inspect -f '{{.State.Pid}}' "sandbox-$(sandbox inspect -q "$1")") || return 1
	shift
	exec nsenter "--net=/proc/$pid/ns/net" "$@"
}
