#!/usr/bin/env bats
# setup.sh as far as it can be tried without changing the machine, and `make install`.

load ../lib/helpers

setup_file() {
	if curl -fsS --max-time 5 --unix-socket "$DOCKER_SOCKET" http://engine/_ping >/dev/null 2>&1; then sbx_start; fi
}

teardown_file() {
	sbx_stop
}

setup() {
	DIR=$(mktemp -d "${TMPDIR:-/tmp}/sbx-setup.XXXXXX")
}

teardown() {
	local m
	# Of a test that failed.
	if [ -f "$DIR/pid" ]; then
		kill -KILL "$(cat "$DIR/pid")" 2>/dev/null || true
		m=$(cat "$DIR/state/sandbox/node-id" 2>/dev/null || true)
		if [ -n "$m" ]; then docker ps -aq --filter "label=io.sandbox.node=$m" | xargs -r docker rm -f >/dev/null; fi
		grep -o "$DIR/[^ ]*" /proc/mounts | sort -r | while read -r m; do umount -l "$m"; done
	fi
	rm -rf "$DIR"
}

@test "a dry run names the place and makes nothing" {
	run timeout 60 "$TOP/setup.sh" --dry-run --no-docker --prefix "$DIR/p"
	[ "$status" -eq 0 ]
	[[ $output == *"install below $DIR/p"*"records and log in "*sandboxd.sock*"no user is made, no service enabled"*"nothing was changed" ]]
	[ -z "$(ls -A "$DIR")" ]
}

# The files of a dry run's answer: "  DIRECTORY: NAME NAME…".
planned() {
	local dir names name
	sed -n 's/^  \(\/[^:]*\): /\1\t/p' | while IFS=$'\t' read -r dir names; do
		for name in $names; do echo "$dir/$name"; done
	done | sort
}

@test "a dry run names every file that is installed then, and nothing lies outside the prefix" {
	timeout 300 make -s -C "$TOP" BUILD="$BUILD" -o all install PREFIX="$DIR/p"
	timeout 60 "$TOP/setup.sh" --dry-run --no-docker --prefix "$DIR/p" | planned >"$DIR/planned"
	(cd / && find "$DIR/p" -type f | sort) >"$DIR/found"
	[ "$(wc -l <"$DIR/found")" -gt 60 ]
	diff "$DIR/planned" "$DIR/found"
	# The same when it is to go again.
	timeout 60 "$TOP/setup.sh" --uninstall --dry-run --prefix "$DIR/p" | planned | diff "$DIR/found" -
	run -0 timeout 60 "$TOP/setup.sh" --uninstall --purge --dry-run --prefix "$DIR/p"
	[[ $output == *"sandbox-base:latest"*sandbox* ]]
	[ -x "$DIR/p/bin/sandboxd" ]
	# Where something does lie outside, help says so.
	run -0 timeout 20 "$TOP/setup.sh" --help
	for place in /var/lib/sandbox /run/sandbox /etc/sandbox /etc/fish packages build/; do [[ $output == *"$place"* ]]; done
}

@test "what cannot be is said in one line before anything is done" {
	: >"$DIR/file"
	run --separate-stderr timeout 20 "$TOP/setup.sh" --prefix "$DIR/file/x"
	[ "$status" -eq 1 ]
	[ -z "$output" ]
	[ "$stderr" = "setup: cannot install below $DIR/file/x: $DIR/file is not a directory" ]
	cp "$TOP/setup.sh" "$DIR/setup.sh"
	run --separate-stderr timeout 20 "$DIR/setup.sh"
	[ "$status" -eq 1 ]
	[[ $stderr == "setup: run me from a checkout: "* ]]
	run -2 --separate-stderr timeout 20 "$TOP/setup.sh" --nonsense
	[ -z "$output" ]
	[[ $stderr == "setup: unknown option '--nonsense'; see "*" --help" ]]
	run -2 --separate-stderr timeout 20 "$TOP/setup.sh" nonsense
	[[ $stderr == "setup: unknown action 'nonsense' (install, check, check-full); see "* ]]
	run -2 timeout 20 "$TOP/setup.sh" --prefix
}

@test "a cut-off copy does nothing" {
	local size n
	size=$(stat -c %s "$TOP/setup.sh")
	for n in 100 $((size / 3)) $((size / 2)) $((size - 20)); do
		head -c "$n" "$TOP/setup.sh" >"$DIR/cut"
		run timeout 20 sh "$DIR/cut" --prefix "$DIR/p"
		[[ $output != *"setup: "* ]]
		[ "$(ls -A "$DIR")" = cut ]
	done
}

# The functions of setup.sh, and an installed program that talks to the daemon under test and has its images under other names.
as_installed() {
	sed '$d' "$TOP/setup.sh" >"$DIR/functions"
	mkdir -p "$DIR/p/bin"
	cat >"$DIR/p/bin/sandbox" <<-TXT
		#!/bin/bash
		exec "$BUILD/sandbox" "\${@/sandbox-base:latest/sbx-setup:$$}"
	TXT
	chmod +x "$DIR/p/bin/sandbox"
	cat >"$DIR/try" <<-TXT
		. "$DIR/functions"
		cd "$TOP"
		work=$DIR log=$DIR/log prefix=$DIR/p base=busybox dry_run=0 keep_log=0
	TXT
}

@test "the base image is built and imported as the program takes it" {
	need_engine
	as_installed
	echo ensure_base_image >>"$DIR/try"
	sed -i "s/'^sandbox-base:latest'/'^sbx-setup:$$'/" "$DIR/functions"
	run timeout 120 sh "$DIR/try"
	echo "$output"
	[ "$status" -eq 0 ]
	timeout 20 sandbox image list -q | grep -qx "sbx-setup:$$"
	[ "$(timeout 60 sandbox run --image "sbx-setup:$$" -- echo ok)" = ok ]
	run timeout 60 sh "$DIR/try"
	[ "$output" = "setup: base image sandbox-base:latest is present" ]
	timeout 20 sandbox image remove "sbx-setup:$$"
}

@test "make install takes a place with a space, and uninstall takes it all away" {
	timeout 300 make -s -C "$TOP" BUILD="$BUILD" -o all install PREFIX="$DIR/a b"
	[[ $("$DIR/a b/bin/sandbox" --version) == sandbox* ]]
	[ -x "$DIR/a b/bin/sandboxd" ]
	[ -f "$DIR/a b/share/man/man1/sandbox-run.1" ]
	timeout 60 make -s -C "$TOP" BUILD="$BUILD" uninstall PREFIX="$DIR/a b"
	[ ! -e "$DIR/a b" ]
}

# uninstall ARGUMENT…: setup.sh's own functions, over a place and a daemon of this test; packages and the engine are left alone.
uninstall() {
	timeout 120 env XDG_STATE_HOME="$DIR/state" XDG_CONFIG_HOME="$DIR/config" sh -c ". '$DIR/functions'; cd '$TOP' || exit 1
		id() { echo 1000; }
		keep_log=0 work='$DIR' log='$DIR/log'; parse_arguments --uninstall --prefix '$DIR/p' \"\$@\"; prefix='$DIR/p'; make() { command make BUILD='$BUILD' \"\$@\"; }; do_uninstall" sh "$@"
}

@test "uninstall ends the daemon, asks before it ends sandboxes, and with --purge leaves nothing" {
	need_engine
	sed '$d' "$TOP/setup.sh" >"$DIR/functions"
	timeout 300 make -s -C "$TOP" BUILD="$BUILD" -o all install PREFIX="$DIR/p"
	mkdir -p "$DIR/state/sandbox" "$DIR/config/sandbox"
	local pid sock=$DIR/d.sock
	cat >"$DIR/start" <<-TXT
		#!/bin/bash
		"$DIR/p/bin/sandboxd" --set "daemon.state_dir=$DIR/state/sandbox" --set "daemon.socket=$sock" --set "worker.docker_socket=$DOCKER_SOCKET" \
			--set worker.gvisor_runtime= --set policy.max_host_pressure=1 >>"$DIR/daemon.log" 2>&1 </dev/null 3>&- 4>&- &
		echo \$! >"$DIR/pid"
		for _ in {1..600}; do
			curl -fs --max-time 5 --unix-socket "$sock" http://x/readyz -o /dev/null && exit 0
			sleep 0.1
		done
		exit 1
	TXT
	chmod 755 "$DIR/start"
	"$DIR/start"
	# Its own daemon is found by the address; stopping it is tried by a program in its place, since no service manager started it.
	mv "$DIR/p/bin/sandbox" "$DIR/real"
	cat >"$DIR/p/bin/sandbox" <<-TXT
		#!/bin/bash
		case "\$1 \$2" in
		"daemon status") curl -fs --max-time 5 --unix-socket "$sock" http://x/readyz -o /dev/null ;;
		"daemon start") "$DIR/start" ;;
		"daemon stop") kill \$(cat "$DIR/pid") ;;
		"image remove") exit 0 ;;
		*) exec "$DIR/real" --server "unix://$sock" "\$@" ;;
		esac
	TXT
	chmod 755 "$DIR/p/bin/sandbox"
	"$DIR/p/bin/sandbox" create -q --image "$IMAGE" --disk-mib 64 >"$DIR/id"
	# Installed again over the program that runs, which goes on.
	timeout 300 make -s -C "$TOP" BUILD="$BUILD" -o all install-server PREFIX="$DIR/p"
	"$DIR/p/bin/sandbox" exec "$(cat "$DIR/id")" -- true
	run -1 uninstall --purge
	[[ $output == *"1 sandboxes still run"*"nothing was removed"* ]]
	[ -x "$DIR/p/bin/sandboxd" ]
	# A daemon that was stopped is started: only it can end what outlived it.
	kill "$(cat "$DIR/pid")"
	sbx_gone "$(cat "$DIR/pid")"
	run -1 uninstall --purge
	[[ $output == *"starting the local daemon"*"1 sandboxes still run"* ]]
	[ -x "$DIR/p/bin/sandboxd" ]
	pid=$(cat "$DIR/pid")
	run -0 uninstall --purge --yes
	echo "$output"
	sbx_gone "$pid"
	[ ! -e "$DIR/p" ]
	[ ! -e "$DIR/state/sandbox" ]
	[ ! -e "$DIR/config/sandbox" ]
	[ -z "$(docker ps -aq --filter "label=io.sandbox.id=$(cat "$DIR/id")")" ]
}
