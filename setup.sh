#!/bin/sh
# Sets Sandbox up from a checkout, or runs its tests. POSIX sh; everything is in functions called by the last line,
# so a cut-off copy does nothing. See `./setup.sh --help`.

usage() {
	cat <<'TXT'
usage: ./setup.sh [install] [OPTIONS]   install what is missing, build, install, start, run a first sandbox
       ./setup.sh check [OPTIONS]       install what the tests need, run all tests, stop what was started
       ./setup.sh check-full [OPTIONS]  all of that and what takes longer
       ./setup.sh --url URL [OPTIONS]   install a release instead of this checkout; --url URL --help says more
       ./setup.sh --uninstall [--purge] [--prefix DIR]   remove what was installed, whichever way

  --prefix DIR       install below DIR (default: /usr/local as root, ~/.local otherwise). Only programs, manual pages, completions, unit
                     files and documents are put there. Elsewhere are: packages; the daemon's records (/var/lib/sandbox, as a user
                     ~/.local/state/sandbox), socket (/run/sandbox, $XDG_RUNTIME_DIR/sandbox) and settings (/etc/sandbox, ~/.config/sandbox);
                     the base image, in the engine; the build, in build/ here; and, below /usr/local, the completion of fish (/etc/fish)
  --base KIND        base image when none exists: busybox (default), debian (by debootstrap), or the name of an image to pull
  --no-docker        do not install or start Docker Engine
  --microvm          also the microvm tier (QEMU and Debian's cloud kernel), where KVM boots a virtual machine
  --docker-group     add the calling user to the docker group (that equals root on this machine)
  --dry-run          name every package, file, directory, service and user it would make; change nothing
  --purge            with --uninstall: also the daemon's records and settings, and the base image
  --yes              do not ask before installing packages; with --uninstall: end sandboxes that still run
  -h, --help         this text

Every change to the machine is named before it is made. Nothing is downloaded but packages of the distribution,
and with --base IMAGE that image.
TXT
}

say() {
	printf '%s\n' "setup: $*"
}

die() {
	printf '%s\n' "setup: $*" >&2
	exit 1
}

# What was asked for cannot be understood: the status that sandbox itself has for that.
bad_usage() {
	printf '%s\n' "setup: $*; see $0 --help" >&2
	exit 2
}

# As die, after the last lines of the log, which then stays.
die_logged() {
	tail -n "$1" "$log" >&2
	shift
	keep_log=1
	die "$* (log: $work.log)"
}

# The packages, by what needs them. Debian and Ubuntu names.
BUILD_PACKAGES="gcc make libc6-dev musl-tools pkg-config libcjson-dev libmicrohttpd-dev libevent-dev libsqlite3-dev libpq-dev libcurl4-openssl-dev libinih-dev libssl-dev libwslay-dev libsodium-dev libreadline-dev libssh2-1-dev"
RUN_PACKAGES="e2fsprogs busybox-static ca-certificates"
ENGINE_PACKAGES="docker.io"
MICROVM_PACKAGES="qemu-system-x86"
TEST_PACKAGES="libcmocka-dev bats clang curl expect python3 python3-pip-whl procps util-linux iproute2 coreutils findutils gawk mandoc shellcheck zsh fish ksh dash tmux jq socat libfaketime strace docker.io libclang-rt-14-dev git openssl caddy runsc postgresql nats-server libnats3.4 nftables minisign wget docker-registry dpkg-dev qemu-system-x86 openssh-server sudo csh systemd logrotate"
FULL_PACKAGES="gcc-aarch64-linux-gnu qemu-user debootstrap docker-compose"

parse_arguments() {
	action=install prefix='' base=busybox use_docker=1 docker_group=0 dry_run=0 yes=0 microvm=0 purge=0
	while [ $# -gt 0 ]; do
		case $1 in
		install | check | check-full) action=$1 ;;
		--uninstall) action=uninstall ;;
		--prefix) [ $# -ge 2 ] || bad_usage "--prefix needs a directory"; prefix=$2; shift ;;
		--prefix=*) prefix=${1#*=} ;;
		--base) [ $# -ge 2 ] || bad_usage "--base needs busybox, debian or an image"; base=$2; shift ;;
		--base=*) base=${1#*=} ;;
		--no-docker) use_docker=0 ;;
		--docker-group) docker_group=1 ;;
		--microvm) microvm=1 ;;
		--purge) purge=1 ;;
		--dry-run) dry_run=1 ;;
		--yes | -y) yes=1 ;;
		-h | --help) usage; exit 0 ;;
		-*) bad_usage "unknown option '$1'" ;;
		*) bad_usage "unknown action '$1' (install, check, check-full)" ;;
		esac
		shift
	done
	if [ -z "$prefix" ]; then
		if [ "$(id -u)" -eq 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
	fi
	case $prefix in
	/*) ;;
	*) prefix=$PWD/$prefix ;;
	esac
}

find_checkout() {
	top=$(cd "$(dirname "$0")" 2>/dev/null && pwd) || die "cannot find my own directory"
	if [ ! -f "$top/Makefile" ] || [ ! -f "$top/daemon/main.c" ]; then
		die "run me from a checkout: $top holds no Makefile and daemon/main.c (a release is installed by its own setup.sh, or with --url)"
	fi
	cd "$top" || die "cannot enter $top"
}

# --- packages -------------------------------------------------------------------------------------------------------

installed() {
	dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -q '^installed'
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		command -v sudo >/dev/null 2>&1 || die "this needs root and there is no sudo here: $*"
		sudo "$@"
	fi
}

# Waits for the package manager's lock instead of breaking it, never prompts, and says what it installs.
apt_install() {
	export DEBIAN_FRONTEND=noninteractive
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q -y "$@" >"$log" 2>&1
}

# What installing would remove is named like the rest: busybox-static, for one, takes the place of busybox.
say_removals() {
	gone=$(apt-get -s -q install --no-install-recommends "$@" 2>/dev/null | sed -n 's/^Remv \([^ ]*\).*/\1/p' | tr '\n' ' ')
	[ -z "$gone" ] || say "whose place they take is removed: ${gone% }"
}

need_packages() {
	command -v dpkg-query >/dev/null 2>&1 || die "this needs apt (Debian, Ubuntu and their kin); on other systems install the equivalents of: $*"
	missing=''
	for p in "$@"; do
		case $p in
		docker.io) ! command -v dockerd >/dev/null 2>&1 || continue ;;
		libclang-rt-14-dev | caddy | runsc) # not in every release: the tests that want it say so
			apt-cache show "$p" >/dev/null 2>&1 || [ -z "$(apt-cache pkgnames libc6 2>/dev/null)" ] || continue
			;;
		pkg-config) ! command -v pkg-config >/dev/null 2>&1 || continue ;;
		esac
		installed "$p" || missing="$missing $p"
	done
	[ -n "$missing" ] || return 0
	missing=${missing# }
	if [ "$dry_run" -eq 1 ]; then
		say "would install packages: $missing"
		# shellcheck disable=SC2086
		say_removals $missing
		return 0
	fi
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null 2>&1 || die "packages are missing; as root run: apt-get install $missing"
		if [ "$yes" -eq 0 ]; then
			if ! [ -t 0 ]; then die "packages are missing (use --yes to allow sudo): apt-get install $missing"; fi
			printf 'setup: install with sudo apt-get: %s? [y/N] ' "$missing"
			read -r answer
			case $answer in [yY]*) ;; *) die "stopped; nothing was changed" ;; esac
		fi
	fi
	say "installing packages: $missing"
	# shellcheck disable=SC2086
	say_removals $missing
	# shellcheck disable=SC2086
	if ! apt_install install --no-install-recommends $missing; then
		say "refreshing the package lists"
		apt_install update || die_logged 5 "apt-get update failed"
		# shellcheck disable=SC2086
		say_removals $missing
		# shellcheck disable=SC2086
		apt_install install --no-install-recommends $missing || die_logged 5 "apt-get could not install: $missing"
	fi
}

# --- Docker Engine --------------------------------------------------------------------------------------------------

engine_answers() {
	[ -S "$1" ] && curl -fsS --max-time 5 --unix-socket "$1" http://engine/_ping >/dev/null 2>&1
}

wait_for_engine() {
	i=0
	while [ $i -lt 150 ]; do
		engine_answers "$1" && return 0
		i=$((i + 1))
		sleep 0.2
	done
	return 1
}

# The end of its log, for whoever has to find out why it did not start.
engine_says() {
	if [ -d /run/systemd/system ]; then
		echo "see: journalctl -u docker"
	else
		echo "its log, /var/log/dockerd.log, ends with: $(tail -n 1 /var/log/dockerd.log 2>/dev/null | cut -c 1-300)"
	fi
}

ensure_engine() {
	engine_socket=/var/run/docker.sock
	if engine_answers "$engine_socket"; then
		say "Docker Engine answers on $engine_socket"
		return 0
	fi
	if [ "$use_docker" -eq 0 ]; then
		say "no Docker Engine answers you on $engine_socket; the daemon will say so until one does"
		return 0
	fi
	if [ -S "$engine_socket" ] && [ "$(id -u)" -ne 0 ] && [ ! -w "$engine_socket" ]; then
		[ "$docker_group" -eq 1 ] ||
			die "$engine_socket exists but you may not use it; run me as root, or with --docker-group (which equals giving root)"
		maybe_docker_group
		[ "$dry_run" -eq 1 ] || { say "then run me again; nothing was built or installed so far"; exit 0; }
		return 0
	fi
	# shellcheck disable=SC2086
	need_packages $ENGINE_PACKAGES
	if [ "$dry_run" -eq 1 ]; then
		if [ -d /run/systemd/system ]; then
			say "would start docker.service"
		else
			say "would start dockerd by hand: /run/sandbox-dockerd.pid, /var/log/dockerd.log, $engine_socket, /var/lib/docker"
		fi
		return 0
	fi
	if [ -d /run/systemd/system ]; then
		say "starting docker.service"
		as_root systemctl start docker.service || die "systemctl could not start docker.service; see: journalctl -u docker"
	else
		say "starting dockerd by hand (no service manager here); log: /var/log/dockerd.log"
		as_root sh -c 'setsid dockerd --pidfile /run/sandbox-dockerd.pid >>/var/log/dockerd.log 2>&1 </dev/null &'
	fi
	wait_for_engine "$engine_socket" || die "Docker Engine does not answer on $engine_socket; $(engine_says)"
}

maybe_docker_group() {
	[ "$docker_group" -eq 1 ] || return 0
	user=${SUDO_USER:-$(id -un)}
	[ "$user" != root ] || { say "root needs no docker group"; return 0; }
	say "adding $user to the docker group: whoever is in it is root on this machine in all but name"
	[ "$dry_run" -eq 1 ] || as_root usermod -aG docker "$user" || die "usermod failed"
	say "log in again for the group to take effect"
	docker_group=0
}

# --- install --------------------------------------------------------------------------------------------------------

build() {
	say "building"
	if ! make -s -j"$(nproc 2>/dev/null || echo 2)" all >"$log" 2>&1; then
		die_logged 20 "the build failed"
	fi
}

# Said before anything is installed or built for nothing.
check_prefix() {
	at=$prefix
	while [ ! -e "$at" ]; do at=$(dirname "$at"); done
	if [ ! -d "$at" ]; then die "cannot install below $prefix: $at is not a directory"; fi
	[ -w "$at" ] || die "cannot install below $prefix: you cannot write in $at; give another place with --prefix DIR"
}

install_files() {
	say "installing below $prefix"
	make -s install PREFIX="$prefix" >"$log" 2>&1 || die_logged 5 "make install PREFIX=$prefix failed"
}

ensure_base_image() {
	if "$prefix/bin/sandbox" image list 2>/dev/null | grep -q '^sandbox-base:latest'; then
		say "base image sandbox-base:latest is present"
		return 0
	fi
	case $base in
	busybox)
		say "building the base image sandbox-base:latest from this system's static busybox"
		installer/base-image busybox >"$work/base.tar" || die "could not build the base image"
		"$prefix/bin/sandbox" image import "$work/base.tar" sandbox-base:latest >/dev/null || die "could not import the base image"
		;;
	debian)
		need_packages debootstrap
		say "building the base image sandbox-base:latest with debootstrap (a few minutes)"
		as_root installer/base-image debian >"$work/base.tar" || die "debootstrap could not build the base image"
		"$prefix/bin/sandbox" image import "$work/base.tar" sandbox-base:latest >/dev/null || die "could not import the base image"
		;;
	*)
		say "pulling $base"
		if ! "$prefix/bin/sandbox" image pull "$base"; then
			say "no registry gave $base; building a small base image instead"
			base=busybox
			ensure_base_image
			return
		fi
		# What `sandbox run` and `create` take unless told otherwise.
		curl -fsS --max-time 20 --unix-socket "$engine_socket" -X POST "http://engine/images/$base/tag?repo=sandbox-base&tag=latest" >/dev/null ||
			die "could not name $base sandbox-base:latest"
		say "$base is the base image now, also named sandbox-base:latest"
		;;
	esac
}

# A daemon of the program before this one is replaced; sandboxes and the commands in them go on meanwhile.
start_daemon() {
	pid=$("$prefix/bin/sandbox" daemon status 2>/dev/null | sed -n 's/^running, process \([0-9]*\),.*/\1/p')
	differs=0
	[ -z "$pid" ] || cmp -s "/proc/$pid/exe" "$prefix/bin/sandboxd" || differs=$?
	if [ "$differs" -eq 1 ]; then
		say "restarting the local daemon, which runs another program than the one just installed (sandboxes and their commands go on)"
		"$prefix/bin/sandbox" daemon stop || die "the running daemon (process $pid) did not stop"
	else
		say "starting the local daemon"
	fi
	"$prefix/bin/sandbox" daemon start || die "the daemon did not start; try: $prefix/bin/sandbox doctor"
}

first_run() {
	say "running a first sandbox: sandbox run -- uname -a"
	"$prefix/bin/sandbox" run -- uname -a || die "the first sandbox did not run; try: $prefix/bin/sandbox doctor"
}

# The tier is configured only when a machine was made and everything of it held.
ensure_microvm() {
	if [ "$microvm" -eq 0 ]; then
		[ ! -c /dev/kvm ] || [ "$(id -u)" -ne 0 ] || say "this machine has KVM: ./setup.sh --microvm adds the microvm tier"
		return 0
	fi
	[ "$(id -u)" -eq 0 ] || die "--microvm needs root: each machine gets a user and control groups of its own"
	[ "$(uname -m)" = x86_64 ] || die "--microvm: only 64-bit x86 is supported"
	# shellcheck disable=SC2086
	need_packages $MICROVM_PACKAGES
	if [ "$dry_run" -eq 1 ]; then
		say "would put a kernel into $prefix/libexec/sandbox/kernel, try the driver, and name it in /etc/sandbox/sandboxd.conf"
		return 0
	fi
	driver=$prefix/libexec/sandbox/sandbox-driver-qemu
	say "putting Debian's cloud kernel into $prefix/libexec/sandbox/kernel"
	installer/microvm-kernel "$prefix/libexec/sandbox/kernel" >"$log" 2>&1 || die_logged 5 "there is no kernel for machines"
	say "trying the driver"
	if ! "$prefix/bin/sandboxd" driver-check --docker-socket "$engine_socket" "$driver" >"$log" 2>&1; then
		grep FAIL "$log" >&2
		say "machines do not work here, so the microvm tier stays off; everything else is as it was"
		return 0
	fi
	config=/etc/sandbox/sandboxd.conf
	if grep -q '^[[:space:]]*driver[[:space:]]*=[[:space:]]*/' "$config" 2>/dev/null; then
		say "$config names a driver already; for this one write: driver = $driver"
		return 0
	fi
	say "naming the driver in $config"
	mkdir -p /etc/sandbox || die "could not make /etc/sandbox"
	printf '\n[worker]\ndriver = %s\n' "$driver" >>"$config" || die "could not write $config"
	"$prefix/bin/sandbox" daemon stop >/dev/null 2>&1
	"$prefix/bin/sandbox" daemon start || die "the daemon did not start; try: $prefix/bin/sandbox doctor"
}

next_steps() {
	case ":$PATH:" in
	*":$prefix/bin:"*) ;;
	*) say "$prefix/bin is not on your PATH; for this shell: PATH=\"$prefix/bin:\$PATH\"" ;;
	esac
	if engine_answers "$engine_socket"; then
		printf '\nSandbox is ready. Next:\n'
	else
		printf '\nSandbox is installed; once a Docker Engine answers, run me again for the base image. Then:\n'
	fi
	cat <<'TXT'
  sandbox run -- sh -c 'echo hello from $(hostname)'   one command in a sandbox of its own
  sandbox create --name dev --ttl 2h                   a sandbox to keep for a while
  sandbox exec dev -- ls -l /                          run something in it
  sandbox delete dev --wait                            and away with it
  sandbox doctor                                       what works here, and what does not and why
TXT
}

# One line a directory: its files. tests/installer/setup.bats compares it with what is installed.
plan_files() {
	version=$(cat VERSION)
	fish=$prefix/share/fish/vendor_completions.d
	[ "$prefix" != /usr/local ] || fish=/etc/fish/completions
	printf '  %s\n' "$prefix/bin: sandbox sandbox-mcp sandboxd" \
		"$prefix/libexec/sandbox: sandbox-init-$version sandbox-remote-$version.so sandbox-ssh-$version.so sandbox-console sandbox-driver-qemu sandbox-boot" \
		"$prefix/share/man/man1: $(names man/*.1)" "$prefix/share/man/man5: $(names man/*.5)" "$prefix/share/man/man8: $(names man/*.8)" \
		"$prefix/share/bash-completion/completions: sandbox" "$prefix/share/zsh/site-functions: _sandbox" "$fish: sandbox.fish" \
		"$prefix/share/doc/sandbox: README.md LICENSE" "$prefix/share/sandbox/skill/sandbox-platform: SKILL.md" \
		"$prefix/share/sandbox/skill/sandbox-platform/references: $(names installer/skill/sandbox-platform/references/*.md)" \
		"$prefix/share/sandbox/server: base-image microvm-kernel Caddyfile logrotate LICENSE $(names installer/*.conf.example)" \
		"$prefix/share/sandbox/server/compose: $(names installer/compose/*)" "$prefix/lib/systemd/system: $(names installer/systemd/*.service)"
}

names() {
	for n; do printf '%s\n' "${n##*/}"; done | tr '\n' ' ' | sed 's/ $//'
}

plan_daemon() {
	if [ "$(id -u)" -eq 0 ]; then
		at=/var/lib/sandbox socket=/run/sandbox/sandboxd.sock
	else
		at=${XDG_STATE_HOME:-$HOME/.local/state}/sandbox socket=${XDG_RUNTIME_DIR:-$at}/sandboxd.sock
		[ -z "${XDG_RUNTIME_DIR:-}" ] || socket=$XDG_RUNTIME_DIR/sandbox/sandboxd.sock
	fi
	say "would start the local daemon: records and log in $at, socket $socket"
	say "would make the image sandbox-base:latest in the engine unless it is there (kind: $base), and the daemon makes sandbox-probe:$(cat VERSION); then run a first sandbox and delete it"
	say "no user is made, no service enabled, no rc file edited; logs and temporary files in ${TMPDIR:-/tmp}/sandbox-setup.* go at the end"
}

plan() {
	say "would build in $top/build"
	say "would install below $prefix, directories made where they are missing:"
	plan_files
	plan_daemon
	ensure_microvm
	say "nothing was changed"
}

do_install() {
	check_prefix
	# shellcheck disable=SC2086
	need_packages curl $BUILD_PACKAGES $RUN_PACKAGES
	ensure_engine
	maybe_docker_group
	if [ "$dry_run" -eq 1 ]; then
		plan
		return 0
	fi
	build
	install_files
	start_daemon
	if engine_answers "$engine_socket"; then
		ensure_base_image
		first_run
		ensure_microvm
	fi
	next_steps
}

# --- check ----------------------------------------------------------------------------------------------------------

stop_check_engine() {
	[ -n "$check_engine_pid" ] || return 0
	kill "$check_engine_pid" 2>/dev/null
	i=0
	while kill -0 "$check_engine_pid" 2>/dev/null && [ $i -lt 100 ]; do
		i=$((i + 1))
		sleep 0.1
	done
	kill -KILL "$check_engine_pid" 2>/dev/null
	check_engine_pid=''
}

# An engine of our own, with its own data, socket and no bridge, so that the tests neither see nor touch another one.
start_check_engine() {
	mkdir -p "$work/docker"
	say "starting a private Docker Engine for the tests"
	echo '{}' >"$work/docker/daemon.json"
	if command -v runsc >/dev/null 2>&1; then
		cat >"$work/docker/daemon.json" <<JSON
{"runtimes": {"runsc": {"path": "$(command -v runsc)",
  "runtimeArgs": ["--platform=ptrace", "--network=none", "--ignore-cgroups", "--fsgofer-host-uds"]}}}
JSON
	fi
	# Its own session: a terminal's interrupt ends the tests first, then this.
	setsid dockerd --config-file "$work/docker/daemon.json" --data-root "$work/docker/data" --exec-root "$work/docker/exec" --pidfile "$work/docker/pid" --host "unix://$work/docker.sock" \
		--bridge none --iptables=false --ip-forward=false >"$work/dockerd.log" 2>&1 </dev/null &
	check_engine_pid=$!
	engine_socket=$work/docker.sock
	if ! wait_for_engine "$engine_socket"; then
		tail -n 15 "$work/dockerd.log" >&2
		die "the tests' Docker Engine did not start"
	fi
}

clean_up() {
	status=$?
	trap - EXIT INT TERM HUP
	stop_check_engine
	if [ -n "$work" ]; then
		grep -o "$work/[^ ]*" /proc/mounts 2>/dev/null | sort -r | while read -r m; do umount -l "$m" 2>/dev/null; done
		if [ "$keep_log" -eq 1 ]; then mv "$log" "$work.log" && rm -rf "$work"; else rm -rf "$work" 2>/dev/null; fi
	fi
	exit "$status"
}

# The tests' image lives in the engine under test; a user's own engine keeps no trace of a run.
load_test_image() {
	if curl -fsS --max-time 10 --unix-socket "$engine_socket" http://engine/images/sandbox-base:latest/json >/dev/null 2>&1; then
		return 0
	fi
	installer/base-image busybox >"$work/base.tar" || die "could not build the tests' base image"
	curl -fsS --max-time 60 --unix-socket "$engine_socket" -X POST -H 'Content-Type: application/x-tar' -T "$work/base.tar" \
		'http://engine/images/create?fromSrc=-&repo=sandbox-base&tag=latest' >/dev/null || die "the engine refused the tests' base image"
}

# Sandboxes are ended by who says so, and the daemon that would look after them only then.
end_daemon() {
	if ! "$prefix/bin/sandbox" daemon status >/dev/null 2>&1; then
		# Sandboxes outlive their daemon, and only a daemon ends them.
		[ "$purge" -eq 1 ] && [ -n "$(ls -A "$(records | head -n 1)/sandboxes" 2>/dev/null)" ] || return 0
		say "starting the local daemon: sandboxes of it are left"
		"$prefix/bin/sandbox" daemon start >"$log" 2>&1 || die_logged 5 "the daemon did not start, so its sandboxes cannot be ended; nothing was removed"
	fi
	live=$("$prefix/bin/sandbox" list -q 2>/dev/null | wc -l)
	if [ "$live" -gt 0 ]; then
		[ "$yes" -eq 1 ] || die "$live sandboxes still run (sandbox list): end them, or give --yes; nothing was removed"
		say "ending $live sandboxes"
		"$prefix/bin/sandbox" delete --all --yes --wait >"$log" 2>&1 || die_logged 5 "not every sandbox could be ended; nothing was removed"
	fi
	say "stopping the local daemon"
	"$prefix/bin/sandbox" daemon stop >"$log" 2>&1 || die_logged 5 "the daemon did not stop; nothing was removed"
}

# The base image, and what the probe of the engine runs in; of the engine, since the daemon may have been stopped before.
purge_images() {
	for image in sandbox-base:latest "sandbox-probe:$(cat VERSION)"; do
		code=$(curl -sS -o "$log" -w '%{http_code}' --max-time 20 --unix-socket /var/run/docker.sock -X DELETE "http://engine/images/$image" 2>/dev/null) || code=
		case $code in
		200 | 404) ;;
		'') say "Docker Engine does not answer: if it has the image $image, that stays" ;;
		*) say "the image $image stays ($code $(head -c 200 "$log"))" ;;
		esac
	done
}

# An engine that install started where nothing manages services is not ours to end: others may use it.
tell_of_engine() {
	pid=$(cat /run/sandbox-dockerd.pid 2>/dev/null) || return 0
	if kill -0 "$pid" 2>/dev/null; then say "Docker Engine, which was started by hand, goes on: kill $pid ends it"; fi
}

# Where the daemon's records and settings are, one a line; the last of them is what machines of the microvm tier leave.
records() {
	if [ "$(id -u)" -eq 0 ]; then
		printf '%s\n' /var/lib/sandbox /run/sandbox /etc/sandbox /var/lib/sandbox-driver-qemu
	else
		printf '%s\n' "${XDG_STATE_HOME:-$HOME/.local/state}/sandbox" "${XDG_CONFIG_HOME:-$HOME/.config}/sandbox"
	fi
}

purge_records() {
	records | while IFS= read -r d; do
		[ -e "$d" ] || continue
		say "removing $d"
		rm -rf "$d" || die "could not remove $d"
	done || exit 1
}

remove_installed() {
	# Put there by --microvm.
	rm -rf "$prefix/libexec/sandbox/kernel"
	# What the installer of releases put there it also removes.
	if [ -f "$prefix/share/sandbox/manifest" ]; then
		installer/hosted.sh --uninstall --prefix "$prefix" || exit 1
	else
		make -s uninstall PREFIX="$prefix" >"$log" 2>&1 || die_logged 5 "make uninstall PREFIX=$prefix failed"
	fi
}

do_uninstall() {
	[ -e "$prefix/bin/sandbox" ] || die "nothing is installed below $prefix"
	if [ "$dry_run" -eq 1 ]; then
		say "would stop the local daemon and remove what was installed below $prefix:"
		if [ -f "$prefix/share/sandbox/manifest" ]; then sed -n "s|^file [0-9a-f]* |  $prefix/|p" "$prefix/share/sandbox/manifest"; else plan_files; fi
		[ ! -d "$prefix/libexec/sandbox/kernel" ] || printf '  %s\n' "$prefix/libexec/sandbox/kernel"
		[ "$purge" -eq 0 ] || say "would remove the images sandbox-base:latest and sandbox-probe:$(cat VERSION), and $(records | tr '\n' ' ')"
		say "nothing was changed"
		return 0
	fi
	end_daemon
	if [ "$purge" -eq 1 ]; then purge_images; fi
	remove_installed
	if [ "$purge" -eq 1 ]; then purge_records; else say "settings and the daemon's records stay (--purge removes them)"; fi
	say "removed from $prefix; packages that were installed stay, Docker Engine among them"
	tell_of_engine
}

do_check() {
	# shellcheck disable=SC2086
	need_packages $BUILD_PACKAGES $RUN_PACKAGES $TEST_PACKAGES
	# shellcheck disable=SC2086
	[ "$action" = check ] || need_packages $FULL_PACKAGES
	[ "$dry_run" -eq 0 ] || { say "would build and run all tests"; return 0; }
	[ "$(id -u)" -eq 0 ] || say "not root: tests that need mounts or an engine of their own will be skipped"
	build
	make -s -j"$(nproc 2>/dev/null || echo 2)" units-build tools >"$log" 2>&1 || die_logged 20 "the tests do not build"
	if [ "$(id -u)" -eq 0 ]; then
		start_check_engine
	else
		engine_socket=/var/run/docker.sock
	fi
	load_test_image
	if [ "$(uname -m)" = x86_64 ] && ! ls build/kernel/vmlinuz-* >/dev/null 2>&1; then
		say "fetching a kernel for the tests' virtual machines"
		installer/microvm-kernel build/kernel >"$log" 2>&1 || die_logged 5 "there is no kernel for the tests' virtual machines"
	fi
	say "running the tests"
	[ "$action" = check ] || export FULL=1 FUZZ_SECONDS=60 BATS_FILE_TIMEOUT=1800
	SANDBOX_TEST_DOCKER_SOCKET=$engine_socket tests/lib/run-all "$top/build"
}

main() {
	parse_arguments "$@"
	find_checkout
	check_engine_pid='' engine_socket='' keep_log=0
	unset SANDBOX_URL # what is installed here is meant, not another server
	work=$(mktemp -d "${TMPDIR:-/tmp}/sandbox-setup.XXXXXX") || die "cannot make a temporary directory in ${TMPDIR:-/tmp}"
	log=$work/log
	: >"$log"
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	trap 'exit 129' HUP
	case $action in
	install) do_install ;;
	check | check-full) do_check ;;
	uninstall) do_uninstall ;;
	esac
}

# A release's address among the arguments: the installer of releases takes all of them.
hands_over() {
	for a; do
		case $a in --url | --url=*) return 0 ;; esac
	done
	return 1
}

{ if hands_over "$@"; then exec "$(dirname "$0")/installer/hosted.sh" "$@"; fi; main "$@"; }
