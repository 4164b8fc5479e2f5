#!/usr/bin/env bats
# The hosted installer against releases on a server of this machine's loopback: what it installs, refuses, undoes and removes.
load ../lib/helpers.bash

setup_file() {
	command -v minisign >/dev/null || skip "no minisign"
	W=$(mktemp -d "${TMPDIR:-/tmp}/sbx-hosted.XXXXXX")
	export W
	minisign -G -W -p "$W/k.pub" -s "$W/k.sec" >/dev/null
	minisign -G -W -p "$W/other.pub" -s "$W/other.sec" >/dev/null
	mkdir "$W/www"
	python3 "$TOP/tests/lib/files_server.py" "$W/www" >"$W/port" 2>"$W/server.log" 3>&- 4>&- &
	echo $! >"$W/pid"
	until_ok 10 test -s "$W/port"
	URL=http://127.0.0.1:$(cat "$W/port")
	VERSION=$(cat "$TOP/VERSION")
	export URL VERSION
	release 0.0.9
	release "$VERSION"
	sed -e "s|^default_url=.*|default_url='$URL'|" -e "s|^default_version=.*|default_version='$VERSION'|" \
		-e "s|^release_key=.*|release_key='$(sed -n 2p "$W/k.pub")'|" "$TOP/installer/hosted.sh" >"$W/www/setup.sh"
}

teardown_file() {
	[ -n "${W:-}" ] || return 0
	kill "$(cat "$W/pid")"
	rm -rf "$W"
}

# A small release: the real client in the version under test, a script in its place in any other. The newest has one file more and one less.
release() {
	local n=sandbox-client-$1-linux-amd64 s=sandbox-server-$1-linux-amd64 t=$W/tree
	rm -rf "$t"
	mkdir -p "$t/$n/bin" "$t/$n/libexec/sandbox" "$t/$n/share/sandbox/skill/sandbox-platform" "$t/$s/bin" "$t/$s/libexec/sandbox" "$t/$s/share/sandbox/server" "$W/www/$1"
	if [ "$1" = "$VERSION" ]; then
		strip -o "$t/$n/bin/sandbox" "$BUILD/sandbox"
		echo new >"$t/$n/share/sandbox/new"
	else
		printf '#!/bin/sh\necho "sandbox %s"\n' "$1" >"$t/$n/bin/sandbox"
		echo old >"$t/$n/share/sandbox/old"
	fi
	printf '#!/bin/sh\necho "sandboxd %s"\n' "$1" >"$t/$s/bin/sandboxd"
	printf 'bridge %s\n' "$1" >"$t/$n/bin/sandbox-mcp"
	chmod 755 "$t/$n/bin"/* "$t/$s/bin"/*
	mkdir -p "$t/$s/lib/systemd/system"
	echo 'ExecStart=@BINDIR@/sandboxd' >"$t/$s/lib/systemd/system/sandboxd.service"
	echo "init $1" >"$t/$s/libexec/sandbox/sandbox-init-$1"
	echo "libc6 (>= 2.34)" >"$t/$s/share/sandbox/server/packages"
	echo "skill of $1" >"$t/$n/share/sandbox/skill/sandbox-platform/SKILL.md"
	tar -C "$t" -czf "$W/www/$1/$n.tar.gz" "$n"
	tar -C "$t" -czf "$W/www/$1/$s.tar.gz" "$s"
	sign "$1" "sandbox $1" k
}

# sign VERSION COMMENT KEY
sign() {
	(cd "$W/www/$1" && sha256sum ./*.tar.gz | sed 's|\./||' >SHA256SUMS && minisign -S -s "$W/$3.sec" -m SHA256SUMS -x SHA256SUMS.minisig -t "$2" >/dev/null)
}

setup() {
	T=$(mktemp -d "${TMPDIR:-/tmp}/sbx-hosted-t.XXXXXX")
	export HOME=$T/home P=$T/p
	mkdir "$HOME"
	unset XDG_CONFIG_HOME SANDBOX_SETUP_URL SANDBOX_SETUP_KEY
	need_amd64
}

teardown() {
	grep -o "$T/[^ ]*" /proc/mounts | sort -r | while read -r m; do umount -l "$m"; done
	rm -rf "$T"
}

need_amd64() {
	[ "$(uname -m)" = x86_64 ] || skip "the releases made here are for x86_64"
}

need_root() {
	[ "$(id -u)" -eq 0 ] || skip "not root"
}

# hosted ARG…: as users do, the text on standard input.
hosted() {
	timeout 60 sh -s -- "$@" <"$W/www/setup.sh"
}

# Everything below a folder but the folder itself.
below() {
	(cd "$1" && find . -mindepth 1 | sort)
}

# A folder of links to the programs named, to be the whole PATH.
only_tools() {
	mkdir -p "$T/tools"
	local t
	for t in sh bash cat cp sed grep mv rm mkdir rmdir ln find sort head tail od tr tar gzip id uname getconf pwd chmod wc dirname touch ls kill ldd sha256sum mktemp "$@"; do
		ln -sf "$(command -v "$t")" "$T/tools/$t"
	done
}

@test "every shell installs, replaces itself and removes all of it" {
	local s
	for s in dash 'busybox sh' bash 'bash --posix' zsh ksh; do
		rm -rf "$T/x"
		# shellcheck disable=SC2086
		run timeout 60 $s -s -- --prefix "$T/x/a b/p" --server <"$W/www/setup.sh"
		echo "$s: $output"
		[ "$status" -eq 0 ]
		[ "$("$T/x/a b/p/bin/sandbox" --version)" = "sandbox $VERSION" ]
		[ "$("$T/x/a b/p/bin/sandboxd")" = "sandboxd $VERSION" ]
		[ -z "$(find "$T/x" -name '.sandbox-setup*')" ]
		[ "$(cat "$T/x/a b/p/lib/systemd/system/sandboxd.service")" = "ExecStart=$T/x/a b/p/bin/sandboxd" ]
		# shellcheck disable=SC2086
		run timeout 60 $s -s -- --prefix "$T/x/a b/p" --uninstall <"$W/www/setup.sh"
		echo "$s: $output"
		[ "$status" -eq 0 ]
		[ ! -e "$T/x" ]
	done
	[ -z "$(below "$HOME")" ]
}

@test "a dry run says what would be done and does nothing" {
	run -0 hosted --dry-run --server --prefix "$P"
	[[ $output == *"version $VERSION for amd64 from $URL"*"sandboxd"*"below $P"*"$P/lib/systemd/system"*"no user is made"*"nothing was changed"* ]]
	[ ! -e "$P" ]
	run -0 hosted --prefix "$P"
	run -0 hosted --uninstall --dry-run --prefix "$P"
	[[ $output == *"  $P/bin/sandbox"* ]]
	[ -x "$P/bin/sandbox" ]
}

@test "what cannot be understood is said in one line, with a status of its own" {
	run -2 --separate-stderr hosted --frob
	[ "$output$stderr" = "setup: unknown option '--frob'; see --help" ]
	run -2 --separate-stderr hosted frob
	[ "$stderr" = "setup: unknown argument 'frob'; see --help" ]
	run -2 --separate-stderr hosted --version
	[ "$stderr" = "setup: --version needs a value; see --help" ]
}

@test "a copy cut off anywhere does nothing" {
	local size n
	size=$(stat -c %s "$W/www/setup.sh")
	mkdir "$T/cwd"
	cd "$T/cwd"
	for ((n = 1; n < size - 1; n += n > size - 60 ? 1 : ${CUT_STEP:-499})); do
		head -c "$n" "$W/www/setup.sh" >"$T/cut"
		sh <"$T/cut" >"$T/out" 2>/dev/null || true
		[ ! -s "$T/out" ] || { echo "at $n of $size: $(cat "$T/out")"; return 1; }
	done
	[ -z "$(below "$HOME")" ]
	[ -z "$(below "$T/cwd")" ]
}

@test "wrong sums, wrong signatures and other releases' signatures stop it before anything is there" {
	local v=7.0.0 tool
	for tool in minisign openssl; do
		only_tools curl "$tool"
		[ "$tool" = minisign ] || rm -f "$T/tools/minisign"
		release $v
		run -0 env PATH="$T/tools" sh "$W/www/setup.sh" --prefix "$T/good-$tool" --version $v --no-mcp
		echo damaged >>"$W/www/$v/sandbox-client-$v-linux-amd64.tar.gz"
		run -1 env PATH="$T/tools" sh "$W/www/setup.sh" --prefix "$P" --version $v
		[[ $output == *"does not have the checksum of its release; nothing was installed"* ]]
		release $v
		echo "$(printf 'f%.0s' {1..64})  x.tar.gz" >>"$W/www/$v/SHA256SUMS"
		run -1 env PATH="$T/tools" sh "$W/www/setup.sh" --prefix "$P" --version $v
		[[ $output == *"the signature of $URL/$v/SHA256SUMS is wrong"* ]]
		sign $v "sandbox $v" other
		run -1 env PATH="$T/tools" sh "$W/www/setup.sh" --prefix "$P" --version $v
		[[ $output == *"the signature of"*"is wrong"* ]]
		sign $v "sandbox 6.9" k
		run -1 env PATH="$T/tools" sh "$W/www/setup.sh" --prefix "$P" --version $v
		[[ $output == *"is signed as another release"* ]]
		# The comment is signed as well.
		sed -i "3s/6.9/$v/" "$W/www/$v/SHA256SUMS.minisig"
		run -1 env PATH="$T/tools" sh "$W/www/setup.sh" --prefix "$P" --version $v
		[[ $output == *"the signature of"*"is wrong"* ]]
		rm -rf "$W/www/$v"
	done
	[ ! -e "$P" ]
	only_tools curl
	rm -f "$T/tools/minisign" "$T/tools/openssl"
	run -1 env PATH="$T/tools" sh "$W/www/setup.sh" --prefix "$P"
	[[ $output == *"install minisign, or openssl 3"* ]]
	[ ! -e "$P" ]
}

@test "a download that fails or is cut leaves nothing, and says so" {
	[ -z "${CUT_STEP:-}" ] || hosted --prefix "$T/kept" --no-mcp
	run -1 hosted --prefix "$P" --version 3.3.3
	[[ $output == *"setup: cannot download $URL/3.3.3/SHA256SUMS"*404* ]]
	[ ! -e "$P" ]
	release 3.3.3
	local a n size step=${CUT_STEP:-}
	for a in sandbox-client-3.3.3-linux-amd64.tar.gz SHA256SUMS SHA256SUMS.minisig; do
		a=$W/www/3.3.3/$a
		size=$(stat -c %s "$a")
		# The first bytes, the last, and a few between; every so many where there is time (tests/full/installer.bats).
		for n in 0 1 $(seq $((${step:-size / 3} + 1)) "${step:-$((size / 3))}" $((size - 2))) $((size - 1)); do
			echo "$n" >"$a.cut"
			run -1 hosted --prefix "$P" --version 3.3.3
			[[ $output == *"setup: cannot download $URL/3.3.3/${a##*/}"* || $output == *"does not have the checksum"* ]]
			[ ! -e "$P" ]
			# Over an installation: that stays.
			if [ -n "$step" ]; then
				run -1 hosted --prefix "$T/kept" --version 3.3.3
				[ "$("$T/kept/bin/sandbox" --version)" = "sandbox $VERSION" ]
			fi
		done
		rm "$a.cut"
	done
	rm -rf "$W/www/3.3.3"
}

@test "wget alone will do, as will a curl that may not write files" {
	only_tools wget minisign
	run -0 env PATH="$T/tools" sh "$W/www/setup.sh" --prefix "$P" --no-mcp
	[ "$("$P/bin/sandbox" --version)" = "sandbox $VERSION" ]
	cat >"$T/tools/curl" <<-SH
		#!/bin/sh
		for a; do [ "\$a" != -o ] || exit 23; done
		exec $(command -v curl) "\$@"
	SH
	chmod +x "$T/tools/curl"
	rm "$T/tools/wget"
	run -0 env PATH="$T/tools" sh "$W/www/setup.sh" --prefix "$T/q" --no-mcp
	[ -x "$T/q/bin/sandbox" ]
	rm -f "$T/tools/tar" "$T/tools/curl"
	run -1 env PATH="$T/tools" sh "$W/www/setup.sh" --prefix "$T/r"
	[[ $output == *"this needs, and does not find: tar curl (or wget)"* ]]
}

@test "where releases may come from" {
	run -1 hosted --url http://example.com --prefix "$P"
	[[ $output == *"only https, or http on this machine's loopback"* ]]
	run -1 hosted --url http://127.0.0.1.example.com --prefix "$P"
	[[ $output == *"only https"* ]]
	run -1 hosted --url http://localhost@example.com --prefix "$P"
	[[ $output == *"setup: "* ]]
	run -1 hosted --version ../1 --prefix "$P"
	[[ $output == *"is no version"* ]]
	# From loopback nobody is sent elsewhere by another scheme.
	mkdir -p "$W/www/5.5.5"
	echo "ftp://127.0.0.1/x" >"$W/www/5.5.5/SHA256SUMS.to"
	only_tools curl minisign
	run -1 env PATH="$T/tools" sh "$W/www/setup.sh" --prefix "$P" --version 5.5.5
	[[ $output == *"cannot download"* ]]
	rm -r "$W/www/5.5.5"
	[ ! -e "$P" ]
}

# fake PROGRAM OUTPUT
fake() {
	mkdir -p "$T/fake"
	printf '#!/bin/sh\necho "%s"\n' "$2" >"$T/fake/$1"
	chmod +x "$T/fake/$1"
}

@test "machines without a release are named" {
	export PATH=$T/fake:$PATH
	fake uname riscv64
	run -1 hosted --prefix "$P"
	[[ $output == *"releases for Linux only"* ]]
	rm "$T/fake/uname"
	fake getconf 32
	run -1 hosted --prefix "$P"
	[[ $output == *"its programs are 32-bit"* ]]
	printf '#!/bin/sh\n[ "$1" = LONG_BIT ] && echo 64 && exit\nexit 1\n' >"$T/fake/getconf"
	fake ldd "musl libc (x86_64)"
	run -1 hosted --prefix "$P"
	[[ $output == *"this system has musl: build from source"* ]]
	fake ldd "ldd (GNU libc) 2.31"
	run -1 hosted --prefix "$P"
	[[ $output == *"glibc 2.34 or newer, and this system has 2.31"* ]]
	[ ! -e "$P" ]
}

@test "places that cannot be written or run from are named, and stay as they are" {
	need_root
	mkdir "$P"
	: >"$T/file"
	run -1 hosted --prefix "$T/file/x"
	[[ $output == *"$T/file is not a directory"* ]]
	chmod 755 "$T"
	run -1 setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/nonexistent sh -s -- --prefix "$P/deep" <"$W/www/setup.sh"
	[[ $output == *"you cannot write in $P; run me as root, or give another place with --prefix DIR"* ]]
	mount -t tmpfs -o ro none "$P"
	run -1 hosted --prefix "$P"
	[[ $output == *"cannot install below $P"* ]]
	umount "$P"
	mount -t tmpfs -o noexec none "$P"
	run -1 hosted --prefix "$P"
	[[ $output == *"is $P mounted noexec?"* ]]
	[ -z "$(below "$P")" ]
	umount "$P"
	# The folder for temporary files does not matter.
	run -0 unshare -m sh -c 'mount -t tmpfs -o noexec none /tmp 2>/dev/null; mkdir -p "$1"; TMPDIR=/nowhere/at\ all sh -s -- --prefix "$1" <&3' - /var/tmp/sbx-hosted-$$ 3<"$W/www/setup.sh"
	[ "$(/var/tmp/sbx-hosted-$$/bin/sandbox --version)" = "sandbox $VERSION" ]
	rm -rf /var/tmp/sbx-hosted-$$
}

@test "a full disk leaves the version that was there" {
	need_root
	mkdir "$P"
	mount -t tmpfs -o size=3m none "$P"
	run -0 hosted --prefix "$P" --version 0.0.9 --no-mcp
	before=$(below "$P" | grep -v '^./fill')
	dd if=/dev/zero of="$P/fill" bs=64k status=none || true
	rm -f "$P/fill.2"
	run -1 hosted --prefix "$P" --no-mcp
	echo "$output"
	[[ $output == *"setup: "* ]]
	[ "$("$P/bin/sandbox" --version)" = "sandbox 0.0.9" ]
	[ "$before" = "$(below "$P" | grep -v '^./fill')" ]
	rm "$P/fill"
	# Room for the download, none for the unpacked programs.
	dd if=/dev/zero of="$P/fill" bs=1k count=$(($(df --output=avail -k "$P" | tail -1) - 400)) status=none
	run -1 hosted --prefix "$P" --no-mcp
	echo "$output"
	[ "$("$P/bin/sandbox" --version)" = "sandbox 0.0.9" ]
	[ "$before" = "$(below "$P" | grep -v '^./fill')" ]
}

@test "an upgrade replaces, drops what is gone, keeps old inits, and is undone when the new one does not run" {
	run -0 hosted --prefix "$P" --version 0.0.9 --server --no-mcp
	[ -f "$P/share/sandbox/old" ]
	local before
	before=$(cd "$P" && find . -type f ! -name manifest -exec sha256sum {} + | sort)
	# A release whose program does not say its version.
	release 8.0.0
	mkdir -p "$T/t"
	tar -C "$T/t" -xzf "$W/www/8.0.0/sandbox-client-8.0.0-linux-amd64.tar.gz"
	printf '#!/bin/sh\ncase $0 in */.sandbox-setup.*) echo "sandbox 8.0.0" ;; *) exit 1 ;; esac\n' >"$T/t/sandbox-client-8.0.0-linux-amd64/bin/sandbox"
	tar -C "$T/t" -czf "$W/www/8.0.0/sandbox-client-8.0.0-linux-amd64.tar.gz" sandbox-client-8.0.0-linux-amd64
	sign 8.0.0 "sandbox 8.0.0" k
	run -1 hosted --prefix "$P" --version 8.0.0 --server --no-mcp
	[[ $output == *"sandbox does not run below $P"* ]]
	[ "$before" = "$(cd "$P" && find . -type f ! -name manifest -exec sha256sum {} + | sort)" ]
	[ -z "$(find "$P" -name '.sandbox-setup*')" ]
	rm -rf "$W/www/8.0.0"
	# The client alone: the server stays what it was.
	run -0 hosted --prefix "$P" --no-mcp
	[[ $output == *"replaces version 0.0.9"* ]]
	[ "$("$P/bin/sandbox" --version)" = "sandbox $VERSION" ]
	[ "$("$P/bin/sandboxd")" = "sandboxd 0.0.9" ]
	[ ! -e "$P/share/sandbox/old" ]
	run -0 hosted --prefix "$P" --server --no-mcp
	[ "$("$P/bin/sandboxd")" = "sandboxd $VERSION" ]
	[ -f "$P/libexec/sandbox/sandbox-init-0.0.9" ]
	run -0 hosted --prefix "$P" --uninstall
	[ ! -e "$P" ]
}

@test "what a killed setup left is undone by the next" {
	run -0 hosted --prefix "$P" --version 0.0.9 --no-mcp
	mkdir "$T/fake"
	# Renames three files into place, then the machine is gone.
	cat >"$T/fake/mv" <<-SH
		#!/bin/bash
		case "\$*" in
		*.sandbox-setup.*/tree/*" $P/"*)
			echo x >>"$T/count"
			[ "\$(wc -l <"$T/count")" -lt 3 ] || kill -KILL \$PPID
			;;
		esac
		exec $(command -v mv) "\$@"
	SH
	chmod +x "$T/fake/mv"
	run env PATH="$T/fake:$PATH" sh "$W/www/setup.sh" --prefix "$P" --no-mcp
	[ "$status" -eq 137 ]
	[ -n "$(find "$P" -maxdepth 1 -name '.sandbox-setup*')" ]
	# That it is undone shows where the next run fails too.
	run -1 hosted --prefix "$P" --version 3.3.3
	[[ $output == *"undoing what an earlier setup left behind"* ]]
	[ "$("$P/bin/sandbox" --version)" = "sandbox 0.0.9" ]
	[ "$(cat "$P/bin/sandbox-mcp")" = "bridge 0.0.9" ]
	run -0 hosted --prefix "$P" --no-mcp
	run -0 hosted --prefix "$P" --uninstall
	[ ! -e "$P" ]
}

@test "files of others are not replaced unasked, changed ones are not removed" {
	mkdir -p "$P/bin"
	echo mine >"$P/bin/sandbox-mcp"
	run -1 hosted --prefix "$P"
	[[ $output == *"$P/bin/sandbox-mcp is there and was not put there by me"* ]]
	[ "$(below "$P")" = $'./bin\n./bin/sandbox-mcp' ]
	run -0 hosted --prefix "$P" --force --no-mcp
	[ "$(cat "$P/bin/sandbox-mcp")" = "bridge $VERSION" ]
	echo edited >"$P/share/sandbox/new"
	run -0 hosted --prefix "$P" --uninstall
	[[ $output == *"$P/share/sandbox/new was changed since it was installed, and stays"* ]]
	[ "$(find "$P" -type f)" = "$P/share/sandbox/new" ]
	run -1 hosted --prefix "$P" --uninstall
	[[ $output == *"nothing was installed below $P by me"* ]]
}

@test "agents found get the bridge and the skill, and lose them again" {
	mkdir -p "$T/fake" "$HOME/.claude" "$HOME/.cursor" "$HOME/.codex/skills/sandbox-platform"
	echo own >"$HOME/.codex/skills/sandbox-platform/SKILL.md"
	local before
	before=$(below "$HOME")
	run -0 hosted --prefix "$P"
	[[ $output == *"gave the skill to .claude"* ]]
	[[ $output == *".codex/skills/sandbox-platform is there already and stays"* ]]
	[ "$(cat "$HOME/.claude/skills/sandbox-platform/SKILL.md")" = "skill of $VERSION" ]
	[ "$(jq -r .mcpServers.sandbox.command "$HOME/.cursor/mcp.json")" = "$P/bin/sandbox-mcp" ]
	# Once more: the same again, its own skill replaced.
	run -0 hosted --prefix "$P"
	run -0 hosted --prefix "$P" --uninstall
	[ "$(jq -c . "$HOME/.cursor/mcp.json")" = '{"mcpServers":{}}' ]
	[ "$before" = "$(below "$HOME" | grep -v mcp.json)" ]
	[ ! -e "$P" ]
	run -0 hosted --prefix "$P" --no-mcp --no-skill
	[ "$before" = "$(below "$HOME" | grep -v mcp.json)" ]
}

@test "the way to PATH is said for the user's shell, rc files stay" {
	local before
	echo mine | tee "$HOME/.bashrc" "$HOME/.zshrc" "$HOME/.profile" >/dev/null
	before=$(cd "$HOME" && sha256sum .[a-z]*)
	SHELL=/usr/bin/fish run -0 hosted --prefix "$P" --no-mcp
	[[ $output == *"fish_add_path $P/bin"* ]]
	SHELL=/bin/zsh run -0 hosted --prefix "$P" --no-mcp
	[[ $output == *"export PATH=\"$P/bin:\$PATH\"' >>~/.zshrc"* ]]
	PATH=$P/bin:$PATH run -0 hosted --prefix "$P" --no-mcp
	[[ $output != *"is not on your PATH"* ]]
	[ "$before" = "$(cd "$HOME" && sha256sum .[a-z]*)" ]
}
