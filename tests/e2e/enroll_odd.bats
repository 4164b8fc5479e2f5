#!/usr/bin/env bats
# Workers over SSH on machines that are not as one would wish: odd login shells, old keys, no way to root, the wrong system, a clock that is
# off, no engine, a package manager that is busy, a connection that ends in the middle. Nothing is changed before it is known to be right.
load ../lib/helpers
load ../lib/tls
load ../lib/fleet
load ../lib/hosts

setup_file() {
	hosts_need
	hosts_begin
	ssh-keygen -q -t rsa -b 2048 -N '' -f "$HOSTS/rsa"
	cat "$HOSTS/rsa.pub" >>"$HOSTS/authorized"
	host alpha 11 "SetEnv LC_ALL=tr_TR.UTF-8 SANDBOX_TEST_RUNTIME=fake"
	fleet_start_for_hosts
}

teardown_file() {
	fleet_stop
	hosts_end
}

teardown() {
	local n m
	for n in $(sandbox node list -q 2>/dev/null); do sandbox node remove --force "$n" >/dev/null 2>&1 || true; done
	# What a test put over the host's programs.
	for m in /usr/bin/date /usr/bin/getconf /usr/bin/sudo /usr/bin/sha256sum /usr/bin/apt-get /usr/sbin/dockerd /etc/os-release /usr/lib/os-release /usr/bin/df; do
		while in_host alpha umount -l "$m" 2>/dev/null; do :; done
	done
	host_clean alpha
}

add() {
	local user=$1
	shift
	timeout 60 sandbox node add "$user@$(host_ip alpha)" --controller "https://$HOSTS_NET.1:$FLEET_PORT" --canary-image any "$@"
}

# over PROGRAM TEXT: a script in the place of a program of the host; over PROGRAM: nothing that could be run.
over() {
	if [ $# -eq 2 ]; then
		printf '#!/bin/sh\n%s\n' "$2" >"$HOSTS/fake"
		chmod 755 "$HOSTS/fake"
		# A copy of its own each time: the file is bound, not its name.
		cp "$HOSTS/fake" "$HOSTS/fake.${1##*/}"
		in_host alpha mount --bind "$HOSTS/fake.${1##*/}" "$1"
	else
		: >"$HOSTS/none"
		chmod 644 "$HOSTS/none"
		in_host alpha mount --bind "$HOSTS/none" "$1"
	fi
}

nothing_left() {
	run -0 in_host alpha sh -c 'ls -d /opt/sandbox /etc/sandbox /var/lib/sandbox-worker /run/sandbox-worker /etc/cron.d/sandbox-worker 2>/dev/null; true'
	[ -z "$output" ]
	[ -z "$(sandbox node list -q)" ]
}

@test "fish and bash with noisy start files, a foreign locale and a short PATH" {
	command -v fish >/dev/null || skip "no fish"
	run -0 --separate-stderr add fiona -i "$HOSTS/key"
	[ "$output" = alpha ]
	run -0 timeout 60 sandbox node remove alpha --purge "fiona@$(host_ip alpha)" -i "$HOSTS/key"
	nothing_left
	run -0 add bert -i "$HOSTS/key" --dry-run
	[[ $output == *"supervise"* ]]
	nothing_left
}

@test "an RSA key that today's servers refuse is said to be one, with the way out" {
	run -4 add root -i "$HOSTS/rsa"
	[[ $output == *"does not let root in"*"use an Ed25519 key"* ]]
	nothing_left
}

@test "without sudo there the line for sudoers is said, and nothing done" {
	over /usr/bin/sudo
	run -4 add ann -i "$HOSTS/key"
	[[ $output == *"there is no sudo"*"ann ALL=(root) NOPASSWD: /bin/sh"* ]]
	nothing_left
}

@test "machines that cannot be workers are told so before anything changes" {
	over /usr/bin/date '[ "$*" = +%s ] && exec /bin/busybox date -d "@$(($(/bin/busybox date +%s) - 7200))" +%s; exec /bin/busybox date "$@"'
	run -2 add root -i "$HOSTS/key"
	[[ $output == *"the clock of "*" s behind; set it first"* ]]
	in_host alpha umount -l /usr/bin/date
	over /usr/bin/getconf '[ "$1" = LONG_BIT ] && echo 32; exit 0'
	run -2 add root -i "$HOSTS/key"
	[[ $output == *"is a 32-bit"* ]]
	in_host alpha umount -l /usr/bin/getconf
	over /usr/bin/getconf '[ "$1" = LONG_BIT ] && echo 64 && exit 0; echo "musl libc 1.2.3"'
	run -2 add root -i "$HOSTS/key"
	[[ $output == *"has musl as its C library"* ]]
	in_host alpha umount -l /usr/bin/getconf
	over /usr/bin/df 'printf "Filesystem 1024-blocks Used Available Capacity Mounted\nx 9000000 8900000 102400 99%% /\n"'
	run -2 add root -i "$HOSTS/key"
	[[ $output == *"has 100 MiB free below /var/lib; a worker needs 1024"* ]]
	in_host alpha umount -l /usr/bin/df
	nothing_left
}

@test "a connection that ends in the middle: what remains is said, and the next run finishes" {
	# The first sum that is taken there is the arriving program's.
	over /usr/bin/sha256sum 'for p in /proc/[0-9]*; do case $(tr "\0" " " <$p/cmdline) in "sshd: root"*) kill -KILL ${p#/proc/} ;; esac; done 2>/dev/null; sleep 3'
	run add root -i "$HOSTS/key"
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output == *"what remains there: /opt/sandbox"* ]]
	in_host alpha umount -l /usr/bin/sha256sum
	[ -e "/proc/$(cat "$HOSTS/alpha/sshd.pid")/root/opt/sandbox" ]
	run -0 add root -i "$HOSTS/key"
	[[ $output == *"a first sandbox ran there"* ]]
}

@test "without an engine: refused, a foreign system named, Debian's package manager waited for" {
	in_host alpha sh -c 'umount /run/docker.sock; rm -f /run/docker.sock'
	run -2 add root -i "$HOSTS/key"
	[[ $output == *"no Docker Engine answers"*"--install-docker"* ]]
	run -0 add root -i "$HOSTS/key" --install-docker --dry-run
	[[ $output == *"DPkg::Lock::Timeout"*"docker.io"* && $output != *dpkg/lock* ]]
	over /usr/bin/apt-get
	over /usr/sbin/dockerd
	printf 'ID=otherlinux\nVERSION_ID=7\n' >"$HOSTS/os"
	in_host alpha mount --bind "$HOSTS/os" /etc/os-release
	run -2 add root -i "$HOSTS/key" --install-docker
	[[ $output == *"runs otherlinux 7, on which this program cannot install Docker"* ]]
	in_host alpha umount -l /usr/bin/apt-get
	# Locked or broken: the last line of what it says, and what was there stays.
	over /usr/bin/apt-get 'echo "E: Could not get lock /var/lib/dpkg/lock-frontend" >&2; exit 100'
	run -1 add root -i "$HOSTS/key" --install-docker
	[[ $output == *"installing Docker Engine"*"failed: E: Could not get lock"* ]]
	nothing_left
}
