#!/bin/sh
# The hosted installer of Sandbox: `curl -fsSL URL/setup.sh | sh`, arguments by `| sh -s -- --help`. For every POSIX shell. Functions
# only, called by the last line: a copy that was cut off does nothing. Everything happens in one folder below the prefix until sums
# and signature are checked and the programs have run from there; then files are renamed into place, and back when one fails.

# shellcheck disable=SC2015 # `A && B || die`: whichever of them fails

default_url=''
default_version=''
release_key=''

usage() {
	cat <<'TXT'
usage: curl -fsSL URL/setup.sh | sh -s -- [OPTIONS]

  --prefix DIR       install below DIR (default: /usr/local as root, ~/.local otherwise), and nothing outside it but what the
                     coding agents found here are given (--no-mcp, --no-skill)
  --version VERSION  that version instead of the newest
  --server           also sandboxd, its systemd units and examples
  --no-mcp           do not register the MCP bridge with the coding agents found here
  --no-skill         do not give the skill to the coding agents found here
  --yes              do not ask, even on a terminal
  --force            take the place of files that something else put there
  --dry-run          say what would be done, with every place; nothing is downloaded or changed
  --uninstall        remove what was installed below the prefix, and nothing else
  --url URL          where releases are (https; http only on loopback); also SANDBOX_SETUP_URL
  --public-key KEY   the minisign key that signs them; also SANDBOX_SETUP_KEY
  -h, --help         this text

Your settings, rc files and sandboxes are never touched.
TXT
}

say() {
	printf 'setup: %s\n' "$*"
}

die() {
	printf 'setup: %s\n' "$*" >&2
	exit 1
}

# As sandbox itself: what cannot be understood has a status of its own.
bad_usage() {
	printf 'setup: %s; see --help\n' "$*" >&2
	exit 2
}

have() {
	command -v "$1" >/dev/null 2>&1
}

# --- arguments ------------------------------------------------------------------------------------------------------

parse_arguments() {
	action=install server=0 mcp=1 skill=1 yes=0 force=0 dry_run=0 prefix=''
	url=${SANDBOX_SETUP_URL:-$default_url} key=${SANDBOX_SETUP_KEY:-$release_key} version=$default_version
	while [ $# -gt 0 ]; do
		case $1 in
		--prefix | --version | --url | --public-key)
			[ $# -ge 2 ] && [ -n "$2" ] || bad_usage "$1 needs a value"
			take_value "$1" "$2"
			shift
			;;
		--prefix=?* | --version=?* | --url=?* | --public-key=?*) take_value "${1%%=*}" "${1#*=}" ;;
		--server) server=1 ;;
		--no-mcp) mcp=0 ;;
		--no-skill) skill=0 ;;
		--yes | -y) yes=1 ;;
		--force) force=1 ;;
		--dry-run) dry_run=1 ;;
		--uninstall) action=uninstall ;;
		-h | --help) usage; exit 0 ;;
		-*) bad_usage "unknown option '$1'" ;;
		*) bad_usage "unknown argument '$1'" ;;
		esac
		shift
	done
	if [ -z "$prefix" ]; then
		if [ "$(id -u)" -eq 0 ]; then prefix=/usr/local; else prefix=${HOME:?HOME is not set: give --prefix}/.local; fi
	fi
	case $prefix in
	/*) ;;
	*) prefix=$(pwd)/$prefix ;;
	esac
	prefix=${prefix%/}
	manifest=$prefix/share/sandbox/manifest
}

take_value() {
	case $1 in
	--prefix) prefix=$2 ;;
	--version) version=$2 ;;
	--url) url=$2 ;;
	--public-key) key=$2 ;;
	esac
}

check_source() {
	url=${url%/}
	case $url in
	'') die "this copy knows no address of releases: give --url" ;;
	*[!A-Za-z0-9:/._~%@+-]*) case $url in 'http://['*) ;; *) die "the address holds characters that do not belong into one: $url" ;; esac ;;
	esac
	case $url in
	https://?*) loopback=0 ;;
	http://127.*.*.*@* | http://localhost*@*) die "no user names in the address, please" ;;
	http://localhost | http://localhost[:/]* | http://127.[0-9]*.[0-9]*.[0-9]* | 'http://[::1]' | 'http://[::1]'[:/]*) is_loopback ;;
	*) die "$url: only https, or http on this machine's loopback" ;;
	esac
	case $version in
	'') die "this copy knows no version: give --version" ;;
	*[!A-Za-z0-9.+~-]* | .*) die "'$version' is no version" ;;
	esac
	case $key in
	'') die "this copy knows no key that signs releases: give --public-key" ;;
	*[!A-Za-z0-9+/=]*) die "the public key is not one of minisign" ;;
	esac
}

# 127.1.2.3.example.com is a name.
is_loopback() {
	host=${url#http://}
	host=${host%%[/:]*}
	case $host in
	127.*[!0-9.]*) die "$url: only https, or http on this machine's loopback" ;;
	esac
	loopback=1
}

# --- the machine ----------------------------------------------------------------------------------------------------

# A 64-bit kernel may run a 32-bit system: what counts is the class in the ELF head of its shell.
word_size() {
	getconf LONG_BIT 2>/dev/null && return
	case $(od -An -tu1 -j4 -N1 /bin/sh 2>/dev/null | tr -d ' ') in
	1) echo 32 ;;
	*) echo 64 ;;
	esac
}

detect_system() {
	os=$(uname -s) machine=$(uname -m)
	[ "$os" = Linux ] || die "there are releases for Linux only, and this is $os"
	case $machine in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) die "there are releases for x86_64 and arm64, and this machine is $machine" ;;
	esac
	[ "$(word_size)" = 64 ] || die "this machine's kernel is $machine, but its programs are 32-bit: there is no release for that"
	libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || libc=$(ldd --version 2>&1 | head -n 1)
	case $libc in
	*musl*) die "releases need glibc 2.34 or newer, and this system has musl: build from source (make) instead" ;;
	esac
	number=$(printf '%s\n' "$libc" | sed -n 's/.*[^0-9.]\(2\.[0-9][0-9]*\).*/\1/p')
	[ -z "$number" ] || [ "${number#2.}" -ge 34 ] || die "releases need glibc 2.34 or newer, and this system has $number"
}

need_tools() {
	missing=''
	for tool in tar gzip sed find head tail mkdir mv rm chmod wc; do
		have "$tool" || missing="$missing $tool"
	done
	have curl || have wget || missing="$missing curl (or wget)"
	have sha256sum || have shasum || have openssl || missing="$missing sha256sum"
	[ -z "$missing" ] || die "this needs, and does not find:$missing"
}

# The folders that have to be made, outermost first.
missing_parents() {
	at=$1 list=''
	while [ ! -d "$at" ]; do
		list="$at
$list"
		up=${at%/*}
		at=${up:-/}
	done
	printf '%s' "$list"
}

check_prefix() {
	at=$prefix
	while [ ! -e "$at" ]; do
		up=${at%/*}
		at=${up:-/}
	done
	[ -d "$at" ] || die "cannot install below $prefix: $at is not a directory"
	[ -w "$at" ] || die "cannot install below $prefix: you cannot write in $at; run me as root, or give another place with --prefix DIR"
}

# --- the folder of one run ------------------------------------------------------------------------------------------

# What a run that was killed left behind is undone first; a run that lives is not disturbed.
earlier_runs() {
	for left in "$prefix"/.sandbox-setup.*; do
		[ -d "$left" ] || continue
		pid=${left##*.}
		if kill -0 "$pid" 2>/dev/null && grep -q 'setup\|sh' "/proc/$pid/cmdline" 2>/dev/null; then
			die "another setup (process $pid) works below $prefix; if that is not so, remove $left"
		fi
		say "undoing what an earlier setup left behind"
		stage=$left
		roll_back
		rm -rf "$left"
	done
	stage=''
}

open_stage() {
	parents=$(missing_parents "$prefix")
	# shellcheck disable=SC2174 # new parents have the usual modes
	mkdir -p "$prefix" || die "cannot make $prefix"
	earlier_runs
	mkdir "$prefix/.sandbox-setup.$$" || die "cannot write below $prefix"
	stage=$prefix/.sandbox-setup.$$
	mkdir "$stage/tree" "$stage/old" && : >"$stage/journal" || die "cannot write below $prefix"
	[ -z "$parents" ] || printf '%s\n' "$parents" >"$stage/parents"
}

# Undoes the journal's lines, last first.
roll_back() {
	[ -s "$stage/journal" ] || return 0
	sed -n '1!G;h;$p' "$stage/journal" | while IFS=' ' read -r what item; do
		case $what in
		put) if [ -e "$stage/old/$item" ]; then mv -f "$stage/old/$item" "$prefix/$item"; else rm -f "$prefix/$item"; fi ;;
		gone) [ ! -e "$stage/old/$item" ] || mv -f "$stage/old/$item" "$prefix/$item" ;;
		dir) rmdir "$prefix/$item" 2>/dev/null ;;
		esac
	done
}

# shellcheck disable=SC2317 # called by the trap
close_stage() {
	code=$?
	trap - EXIT INT TERM HUP
	if [ -n "$stage" ] && [ -d "$stage" ]; then
		if [ "$done" -eq 0 ]; then
			roll_back
			made=$(cat "$stage/parents" 2>/dev/null)
		else
			made=''
		fi
		rm -rf "$stage"
		[ -z "$made" ] || printf '%s\n' "$made" | sed -n '1!G;h;$p' | while IFS= read -r item; do rmdir "$item" 2>/dev/null; done
	fi
	exit "$code"
}

# --- download and check ---------------------------------------------------------------------------------------------

# Through the shell's own redirection: a confined curl may not write files where it likes.
by_curl() {
	if [ "$loopback" -eq 1 ]; then
		curl -fsSL --proto '=http' --proto-redir '=http' --connect-timeout 20 --max-filesize 268435456 "$1" >"$2" 2>"$stage/why"
	else
		curl -fsSL --proto '=https' --proto-redir '=https' --tlsv1.2 --connect-timeout 20 --max-filesize 268435456 "$1" >"$2" 2>"$stage/why"
	fi
}

# GNU wget would try twenty times; busybox knows no such option.
by_wget() {
	if wget --version >/dev/null 2>&1; then
		wget -q -t 2 -T 60 -O - "$1" >"$2" 2>"$stage/why"
	else
		wget -q -O - "$1" >"$2" 2>"$stage/why"
	fi
}

# wget is asked where there is no curl, or one that does not work here (no such file, may not write, not executable).
fetch() {
	: >"$stage/why"
	if have curl; then
		by_curl "$1" "$2" && return 0
		case $? in
		2 | 23 | 126 | 127) ;;
		*) die "cannot download $1: $(head -n 1 "$stage/why")" ;;
		esac
	fi
	have wget && by_wget "$1" "$2" && return 0
	reason=$(head -n 1 "$stage/why")
	die "cannot download $1${reason:+: $reason}"
}

sum_of() {
	if have sha256sum; then
		sha256sum <"$1"
	elif have shasum; then
		shasum -a 256 <"$1"
	else
		openssl dgst -sha256 -r <"$1"
	fi | sed 's/[^0-9a-f].*//'
}

# minisign's format: 2 letters, 8 bytes of key id, then the key or the signature; ED signs the BLAKE2b sum of the file, and a second
# signature covers the first and the trusted comment.
signed_by_openssl() {
	d=$stage/signature
	mkdir "$d" || return 1
	printf '%s' "$key" | openssl base64 -d -A >"$d/key"
	sed -n 2p "$2" | openssl base64 -d -A >"$d/sig"
	sed -n 4p "$2" | openssl base64 -d -A >"$d/global"
	[ "$(head -c 2 "$d/sig")" = ED ] || return 1
	[ "$(head -c 10 "$d/key" | tail -c 8 | od -An -tx1)" = "$(head -c 10 "$d/sig" | tail -c 8 | od -An -tx1)" ] || return 1
	{ printf '\060\052\060\005\006\003\053\145\160\003\041\000' && tail -c 32 "$d/key"; } >"$d/der"
	tail -c 64 "$d/sig" >"$d/sig64"
	openssl dgst -blake2b512 -binary "$1" >"$d/hash" || return 1
	{ cat "$d/sig64" && sed -n '3s/^trusted comment: //p' "$2" | tr -d '\n'; } >"$d/commented"
	ed25519 "$d/hash" "$d/sig64" && ed25519 "$d/commented" "$d/global"
}

ed25519() {
	openssl pkeyutl -verify -pubin -inkey "$d/der" -keyform DER -rawin -in "$1" -sigfile "$2" >/dev/null 2>&1
}

check_signature() {
	if have minisign; then
		minisign -V -q -P "$key" -m "$1" -x "$2" >/dev/null 2>&1 || die "the signature of $url/$version/SHA256SUMS is wrong; nothing was installed"
	elif have openssl && openssl pkeyutl -help 2>&1 | grep -q rawin; then
		signed_by_openssl "$1" "$2" || die "the signature of $url/$version/SHA256SUMS is wrong; nothing was installed"
	else
		die "nothing here can check the release's signature: install minisign, or openssl 3"
	fi
	# An old release under the name of a new one would carry a good signature too.
	[ "$(sed -n '3s/^trusted comment: //p' "$2")" = "sandbox $version" ] || die "$url/$version is signed as another release; nothing was installed"
}

get_archive() {
	name=sandbox-$1-$version-linux-$arch
	want=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]$name\.tar\.gz\$/\1/p" "$stage/SHA256SUMS")
	[ -n "$want" ] || die "release $version has no $1 for $arch"
	say "downloading $url/$version/$name.tar.gz"
	fetch "$url/$version/$name.tar.gz" "$stage/archive"
	[ "$(sum_of "$stage/archive")" = "$want" ] || die "$name.tar.gz does not have the checksum of its release; nothing was installed"
	mkdir "$stage/unpack" || die "cannot write below $prefix"
	gzip -dc "$stage/archive" 2>"$stage/why" | tar -C "$stage/unpack" -xf - 2>>"$stage/why" ||
		die "cannot unpack below $prefix: $(head -n 1 "$stage/why")"
	(cd "$stage/unpack/$name" && find . -type d | sed 's|^\./||' | while IFS= read -r p; do mkdir -p "$stage/tree/$p" || exit 1; done &&
		find . -type f | sed 's|^\./||' | while IFS= read -r p; do mv "$p" "$stage/tree/$p" || exit 1; done) || die "cannot write below $prefix"
	rm -rf "$stage/unpack" "$stage/archive"
}

download() {
	fetch "$url/$version/SHA256SUMS" "$stage/SHA256SUMS"
	fetch "$url/$version/SHA256SUMS.minisig" "$stage/SHA256SUMS.minisig"
	check_signature "$stage/SHA256SUMS" "$stage/SHA256SUMS.minisig"
	get_archive client
	[ "$server" -eq 0 ] || get_archive server
}

# The programs run from where they will be: that shows a noexec mount, another architecture and missing libraries.
try_programs() {
	for program in sandbox sandboxd; do
		[ "$program" = sandbox ] || [ "$server" -eq 1 ] || continue
		said=$("$1/bin/$program" --version 2>"$stage/why" </dev/null) && [ "$said" = "$program $version" ] && continue
		why=$(head -n 1 "$stage/why")
		case $why in
		*'shared librar'*) [ "$program" = sandbox ] || why="$why; as root: apt-get install $(sed 's/ ([^)]*)//g; s/,//g' "$1/share/sandbox/server/packages")" ;;
		*ermission*) why="$why; is $prefix mounted noexec?" ;;
		esac
		die "$program does not run below $prefix: ${why:-it says "$said"}"
	done
}

lacks_library() {
	have ldd && ldd "$prefix/libexec/sandbox/$1-$version.so" 2>/dev/null | grep -q 'not found'
}

# Loaded when they are used, so nothing fails before.
tell_libraries() {
	what='' packages=''
	if lacks_library sandbox-remote; then what=", https servers" packages=" libcurl4 ca-certificates"; fi
	found=$(find /lib/*-linux-gnu /usr/lib/*-linux-gnu /lib64 /usr/lib64 /usr/local/lib -maxdepth 1 -name 'libsodium.so.2[36]*' 2>/dev/null | head -n 1)
	if [ -z "$found" ]; then what="$what, stored tokens (sandbox login)" packages="$packages libsodium23"; fi
	if lacks_library sandbox-ssh; then what="$what, workers over SSH (sandbox node add)" packages="$packages libssh2-1"; fi
	[ -z "$what" ] || say "note: libraries are missing here for ${what#, }; as root: apt-get install$packages"
}

# --- putting in place -----------------------------------------------------------------------------------------------

# listed PATH: the manifest of what is installed has it.
listed() {
	[ -f "$manifest" ] && grep -q "^file [0-9a-f]* $(printf '%s' "$1" | sed 's/[.[\*^$]/\\&/g')\$" "$manifest"
}

check_conflicts() {
	[ "$force" -eq 0 ] || return 0
	while IFS= read -r item; do
		[ -e "$prefix/$item" ] || [ -L "$prefix/$item" ] || continue
		listed "$item" || die "$prefix/$item is there and was not put there by me: --force replaces it, --prefix DIR takes another place"
	done <"$stage/files"
}

# A name is never without a file: the old one is linked aside, the new one renamed over it.
put() {
	if [ -e "$prefix/$1" ]; then
		mkdir -p "$stage/old/$(dirname "$1")" || return 1
		ln "$prefix/$1" "$stage/old/$1" 2>/dev/null || cp -p "$prefix/$1" "$stage/old/$1" || return 1
	fi
	printf 'put %s\n' "$1" >>"$stage/journal" || return 1
	mv -f "$stage/tree/$1" "$prefix/$1"
}

# systemd looks below /usr/local and /etc; from elsewhere a unit is copied or linked by hand.
fill_in_units() {
	for unit in "$stage"/tree/lib/systemd/system/*.service; do
		[ -f "$unit" ] || continue
		sed "s|@BINDIR@|$(printf '%s' "$prefix/bin" | sed 's/[|&\\]/\\&/g')|" "$unit" >"$unit.new" && mv -f "$unit.new" "$unit" || die "cannot write below $prefix"
	done
}

make_dirs() {
	while IFS= read -r item; do
		[ ! -d "$prefix/$item" ] || continue
		printf 'dir %s\n' "$item" >>"$stage/journal" && mkdir "$prefix/$item" || return 1
	done <"$stage/dirs"
}

# Files of the version before that this one lacks. An old sandbox-init stays: sandboxes that run have it as process 1.
drop_old_files() {
	[ -f "$manifest" ] || return 0
	sed -n 's/^file [0-9a-f]* //p' "$manifest" | while IFS= read -r item; do
		grep -qxF -e "$item" "$stage/files" && continue
		[ "$server" -eq 1 ] || ! part_of_server "$item" || continue
		case $item in libexec/sandbox/sandbox-init-*) continue ;; esac
		[ -e "$prefix/$item" ] || continue
		mkdir -p "$stage/old/$(dirname "$item")" && printf 'gone %s\n' "$item" >>"$stage/journal" && mv -f "$prefix/$item" "$stage/old/$item" || exit 1
	done
}

# A client's update leaves the server that is there.
part_of_server() {
	grep -qxF -e "server $1" "$manifest"
}

write_manifest() {
	{
		printf 'sandbox-manifest 1\nversion %s\n' "$version"
		while IFS= read -r item; do printf 'file %s %s\n' "$(sum_of "$prefix/$item")" "$item"; done <"$stage/files"
		[ ! -f "$manifest" ] || sed -n 's/^file [0-9a-f]* //p' "$manifest" | while IFS= read -r item; do
			if [ -f "$prefix/$item" ] && ! grep -qxF -e "$item" "$stage/files"; then printf 'file %s %s\n' "$(sum_of "$prefix/$item")" "$item"; fi
		done
		{
			[ ! -f "$manifest" ] || sed -n '/^server /p; /^dir /p; /^parent /p; /^skill /p; /^mcp /p' "$manifest"
			sed -n 's/^dir /dir /p' "$stage/journal"
			[ ! -f "$stage/parents" ] || sed '/^$/d; s/^/parent /' "$stage/parents"
			[ ! -f "$stage/server-files" ] || sed 's/^/server /' "$stage/server-files"
		} | sort -u
	} >"$stage/tree/share/sandbox/manifest" && put share/sandbox/manifest
}

place() {
	(cd "$stage/tree" && find . -type f | sed 's|^\./||' | sort) >"$stage/files"
	(cd "$stage/tree" && find . -type d | sed -n 's|^\./||p' | sort) >"$stage/dirs"
	[ "$server" -eq 0 ] || grep -e '^bin/sandboxd$' -e '^libexec/sandbox/sandbox-\(init\|driver\|boot\)' -e '^share/man/man[58]/' -e '^share/sandbox/server/' -e '^lib/systemd/' \
		"$stage/files" >"$stage/server-files"
	check_conflicts
	make_dirs || die "cannot make folders below $prefix; what was there stays"
	while IFS= read -r item; do
		put "$item" 2>"$stage/why" || die "cannot write $prefix/$item ($(head -n 1 "$stage/why")); what was there stays"
	done <"$stage/files"
	drop_old_files || die "cannot replace the version before; it stays"
	write_manifest || die "cannot write $manifest; what was there stays"
	try_programs "$prefix"
	done=1
}

# --- coding agents --------------------------------------------------------------------------------------------------

remember() {
	grep -qxF -e "$*" "$manifest" || printf '%s\n' "$*" >>"$manifest"
}

# Agents that read skills from a folder of theirs get a copy there; one that is there already and is not ours stays.
give_skill() {
	[ -n "${HOME:-}" ] || return 0
	for agent in .claude .codex; do
		to=$HOME/$agent/skills/sandbox-platform
		[ -d "$HOME/$agent" ] || continue
		if [ -e "$to" ] && ! grep -qxF -e "skill $to" "$manifest"; then
			say "$to is there already and stays as it is"
			continue
		fi
		mkdir -p "$HOME/$agent/skills" && rm -rf "$to" && cp -R "$prefix/share/sandbox/skill/sandbox-platform" "$to" || { say "could not write $to"; continue; }
		remember "skill $to"
		say "gave the skill to $agent ($to)"
	done
}

register_mcp() {
	rows=$("$prefix/bin/sandbox" mcp install </dev/null 2>&1) || say "the MCP bridge could not be registered everywhere: sandbox mcp install says why"
	printf '%s\n' "$rows" | sed -n 's/^\([a-z]*\)  *added .*/\1/p' >"$stage/clients"
	while IFS= read -r client; do
		remember "mcp $client"
		say "registered the MCP bridge with $client"
	done <"$stage/clients"
}

path_hint() {
	case ":$PATH:" in
	*":$prefix/bin:"*) return 0 ;;
	esac
	say "$prefix/bin is not on your PATH; this line changes that:"
	shell=${SHELL:-}
	case ${shell##*/} in
	fish) printf '  fish_add_path %s\n' "$prefix/bin" ;;
	zsh) printf "  echo 'export PATH=\"%s:\$PATH\"' >>~/.zshrc\n" "$prefix/bin" ;;
	bash) printf "  echo 'export PATH=\"%s:\$PATH\"' >>~/.bashrc\n" "$prefix/bin" ;;
	*) printf "  echo 'export PATH=\"%s:\$PATH\"' >>~/.profile\n" "$prefix/bin" ;;
	esac
}

# --- the two actions ------------------------------------------------------------------------------------------------

plan() {
	what='sandbox, sandbox-mcp, completions and manual pages'
	[ "$server" -eq 0 ] || what="$what, sandboxd with units and examples"
	say "version $version for $arch from $url: $what, below $prefix"
	[ "$skill" -eq 0 ] || say "coding agents found here get the skill (--no-skill: not)"
	[ "$mcp" -eq 0 ] || say "coding agents found here are told about the MCP bridge (--no-mcp: not)"
	if [ -f "$manifest" ]; then say "replaces version $(sed -n 's/^version //p' "$manifest")"; fi
}

# The names of single manual pages and documents stand in the archive, which a dry run does not fetch.
plan_places() {
	printf '  %s\n' "$prefix/bin: sandbox sandbox-mcp" "$prefix/libexec/sandbox: sandbox-remote-$version.so sandbox-ssh-$version.so sandbox-console lib/" \
		"$prefix/share: man/man1/sandbox*.1 bash-completion/completions/sandbox zsh/site-functions/_sandbox fish/vendor_completions.d/sandbox.fish doc/sandbox/" \
		"$prefix/share/sandbox: skill/ manifest (every file by name, with its sum)"
	[ "$server" -eq 0 ] || printf '  %s\n' "$prefix/bin: sandboxd" "$prefix/libexec/sandbox: sandbox-init-$version sandbox-driver-qemu sandbox-boot" \
		"$prefix/share: man/man5/ man/man8/ sandbox/server/" "$prefix/lib/systemd/system: sandboxd*.service, none of them enabled or started"
	printf '  %s\n' "$prefix/.sandbox-setup.*: while it works, removed at the end"
	if [ "$skill" -eq 1 ] && [ -n "${HOME:-}" ]; then
		for agent in .claude .codex; do [ ! -d "$HOME/$agent" ] || printf '  %s\n' "$HOME/$agent/skills/sandbox-platform"; done
	fi
	say "no user is made, no package installed, no rc file edited"
}

# Asked on the terminal, since standard input may be this text.
agree() {
	[ "$yes" -eq 0 ] && [ -t 1 ] && (: </dev/tty) 2>/dev/null || return 0
	printf 'setup: go on? [Y/n] '
	read -r answer </dev/tty
	case $answer in
	[nN]*) die "stopped; nothing was changed" ;;
	esac
}

do_install() {
	check_source
	detect_system
	need_tools
	check_prefix
	plan
	if [ "$dry_run" -eq 1 ]; then
		plan_places
		say "nothing was changed"
		return 0
	fi
	agree
	open_stage
	download
	try_programs "$stage/tree"
	fill_in_units
	place
	[ "$skill" -eq 0 ] || give_skill
	[ "$mcp" -eq 0 ] || register_mcp
	say "sandbox $version is installed"
	tell_libraries
	path_hint
	if [ "$server" -eq 1 ]; then say "next, for a server: $prefix/bin/sandboxd init --help"; else say "next: sandbox --help"; fi
}

# What was changed since is the user's now, and stays.
remove_file() {
	[ -e "$prefix/$2" ] || return 0
	if [ "$(sum_of "$prefix/$2")" = "$1" ]; then
		rm -f "$prefix/$2" || die "cannot remove $prefix/$2"
	else
		say "$prefix/$2 was changed since it was installed, and stays"
	fi
}

remove_listed() {
	sed -n 's/^skill //p' "$list" | while IFS= read -r item; do rm -rf "$item" && rmdir "$(dirname "$item")" 2>/dev/null; done
	sed -n 's/^file //p' "$list" | while IFS=' ' read -r sum item; do remove_file "$sum" "$item"; done || return 1
	rm -f "$manifest"
	sed -n 's/^dir //p' "$list" | sort -r | while IFS= read -r item; do rmdir "$prefix/$item" 2>/dev/null; done
	sed -n 's/^parent //p' "$list" | sort -r | while IFS= read -r item; do rmdir "$item" 2>/dev/null; done
	return 0
}

do_uninstall() {
	[ -f "$manifest" ] || die "nothing was installed below $prefix by me (there is no $manifest)"
	[ "$(head -n 1 "$manifest")" = 'sandbox-manifest 1' ] || die "$manifest is not one of mine"
	[ -w "$(dirname "$manifest")" ] || die "you cannot write below $prefix: run me as the user who installed it"
	say "removing version $(sed -n 's/^version //p' "$manifest") from $prefix"
	if [ "$dry_run" -eq 1 ]; then
		sed -n "s|^file [0-9a-f]* |  $prefix/|p; s|^skill |  |p; s|^mcp |  MCP entry of |p" "$manifest"
		say "nothing was changed"
		return 0
	fi
	agree
	sed -n 's/^mcp //p' "$manifest" | while IFS= read -r client; do
		"$prefix/bin/sandbox" mcp uninstall --client "$client" </dev/null >/dev/null 2>&1 || say "the entry named sandbox of $client could not be removed"
	done
	list=$(mktemp "${TMPDIR:-/tmp}/sandbox-setup.XXXXXX") && cp "$manifest" "$list" || die "cannot make a temporary file in ${TMPDIR:-/tmp}"
	remove_listed
	rm -f "$list"
	say "removed; settings (~/.config/sandbox) and the daemon's records stay"
}

main() {
	if [ -n "${ZSH_VERSION:-}" ]; then emulate sh; fi
	set -u
	umask 022
	export LC_ALL=C
	stage='' done=0
	parse_arguments "$@"
	trap close_stage EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	trap 'exit 129' HUP
	case $action in
	install) do_install ;;
	uninstall) do_uninstall ;;
	esac
}

{ main "$@"; exit; }
