#!/usr/bin/env bats
# What is released, made from the build under test: the same bytes each time, packages that say what they need, and the way from a
# release on a server to a first sandbox and back to nothing. Whole rebuilds and the other architecture: tests/full/dist.bats.
load ../lib/helpers.bash

setup_file() {
	command -v minisign >/dev/null && command -v dpkg-shlibdeps >/dev/null || skip "no minisign or dpkg-dev"
	W=$(mktemp -d "${TMPDIR:-/tmp}/sbx-dist.XXXXXX")
	ARCH=$(dpkg --print-architecture)
	VERSION=$(cat "$TOP/VERSION")
	export W ARCH VERSION
	ln -s "$BUILD" "$W/b-$ARCH"
	minisign -G -W -p "$W/k.pub" -s "$W/k.sec" >/dev/null
	mkdir "$W/www"
	python3 "$TOP/tests/lib/files_server.py" "$W/www" >"$W/port" 2>"$W/server.log" 3>&- 4>&- &
	echo $! >"$W/pid"
	until_ok 10 test -s "$W/port"
	URL=http://127.0.0.1:$(cat "$W/port")
	export URL
	SANDBOX_DIST_BUILD=$W/b SOURCE_DATE_EPOCH=1700000000 timeout 300 "$TOP/installer/release.sh" --url "$URL" --key "$W/k.sec" --public-key "$W/k.pub" --out "$W/www" "$ARCH" >"$W/log" 2>&1 ||
		{ cat "$W/log"; return 1; }
}

teardown_file() {
	[ -n "${W:-}" ] || return 0
	kill "$(cat "$W/pid")"
	chattr -R -i "$W" 2>/dev/null || true
	rm -rf "$W"
}

@test "packed again the archives and packages are the same to the byte" {
	mkdir -p "$W/again"
	SANDBOX_DIST_BUILD=$W/b SOURCE_DATE_EPOCH=1700000000 timeout 300 "$TOP/installer/dist" --out "$W/again" "$ARCH"
	cmp "$W/again/SHA256SUMS" "$W/www/$VERSION/SHA256SUMS"
	[ "$(wc -l <"$W/again/SHA256SUMS")" -eq 4 ]
	tar -tvzf "$W/again/sandbox-client-$VERSION-linux-$ARCH.tar.gz" | awk '$2 != "0/0" || $4 != "2023-11-14" { print; bad = 1 } END { exit bad }'
}

@test "the packages need what their programs link, and install together" {
	local p f
	cd "$W/www/$VERSION"
	for p in sandbox sandboxd; do
		f=${p}_${VERSION}_$ARCH.deb
		[ "$(dpkg-deb -f "$f" Package Version Architecture | tr '\n' ' ')" = "Package: $p Version: $VERSION Architecture: $ARCH " ]
		[[ $(dpkg-deb -f "$f" Depends) == *libc6* && $(dpkg-deb -f "$f" Depends) == *libcjson1* ]]
		mkdir -p "$W/tree"
		dpkg-deb -x "$f" "$W/tree"
		dpkg-deb -e "$f" "$W/control-$p"
		(cd "$W/tree" && md5sum --quiet -c "$W/control-$p/md5sums")
	done
	# Every library a program links belongs to a package of its Depends.
	for f in "$W"/tree/usr/bin/sandboxd "$W"/tree/usr/bin/sandbox; do
		for lib in $(readelf -d "$f" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p'); do
			p=$(dpkg -S "*/$lib" | head -n 1 | sed 's/:.*//')
			dpkg-deb -f "${f##*/}_${VERSION}_$ARCH.deb" Depends | grep -qw -e "$p" || { echo "$f needs $lib of $p"; return 1; }
		done
	done
	[ "$("$W/tree/usr/bin/sandboxd" --version)" = "sandboxd $VERSION" ]
	[ -x "$W/tree/usr/libexec/sandbox/sandbox-init-$VERSION" ]
	[ -f "$W/tree/usr/share/bash-completion/completions/sandbox" ]
	# Units of every role with the place of the programs filled in, examples, and what compose needs.
	for f in "$TOP"/installer/systemd/*.service; do
		grep -q '^ExecStart=/usr/bin/sandboxd' "$W/tree/usr/lib/systemd/system/${f##*/}"
	done
	for f in "$TOP"/installer/*.conf.example; do cmp "$f" "$W/tree/usr/share/sandbox/server/${f##*/}"; done
	diff -r "$TOP/installer/compose" "$W/tree/usr/share/sandbox/server/compose"
	for f in postinst prerm postrm; do sh -n "$W/control-sandboxd/$f"; done
	if [ "$(id -u)" -eq 0 ]; then timeout 60 apt-get -s install ./*.deb | grep -q "^Inst sandboxd"; fi
}

@test "from a release to a first sandbox, and back to nothing" {
	need_engine
	local T=$W/user
	mkdir -p "$T/home"
	export HOME=$T/home XDG_RUNTIME_DIR=$T/run XDG_STATE_HOME=$T/state XDG_CONFIG_HOME=$T/config PATH=/usr/sbin:/usr/bin:/sbin:/bin
	unset SANDBOX_URL SHELL # services and containers have none
	mkdir -m 0700 "$XDG_RUNTIME_DIR"
	run -0 sh -c "curl -fsSL '$URL/setup.sh' | sh -s -- --prefix '$T/p' --server"
	[ "$("$T/p/bin/sandbox" --version)" = "sandbox $VERSION" ]
	MANPATH=$T/p/share/man man -w sandbox-run 2>/dev/null || [ -f "$T/p/share/man/man1/sandbox-run.1" ]
	# The daemon of the release, on a state directory and a socket of this test.
	"$T/p/bin/sandboxd" --set "daemon.state_dir=$T/d" --set "daemon.socket=$T/d.sock" --set "worker.docker_socket=$DOCKER_SOCKET" --set worker.gvisor_runtime= \
		--set policy.max_host_pressure=1 >"$T/log" 2>&1 </dev/null 3>&- 4>&- &
	local pid=$!
	until_ok 60 test -S "$T/d.sock"
	run timeout 60 "$T/p/bin/sandbox" --server "unix://$T/d.sock" run --image "$IMAGE" --disk-mib 64 -- echo from a release
	echo "$output; $(cat "$T/log")"
	[ "${lines[-1]}" = "from a release" ] || { kill "$pid"; false; }
	# Installed anew while its daemon and a sandbox run, as an upgrade does, and over an upgrade that is undone: neither notices.
	local box="$T/p/bin/sandbox --server unix://$T/d.sock" inode
	$box create -q --name live --image "$IMAGE" --disk-mib 64
	inode=$(stat -c %i "$T/p/bin/sandboxd")
	run -0 sh -c "curl -fsSL '$URL/setup.sh' | sh -s -- --prefix '$T/p' --server"
	[ "$inode" != "$(stat -c %i "$T/p/bin/sandboxd")" ]
	[ "$($box exec live -- echo on)" = on ]
	inode=$(stat -c %i "$T/p/bin/sandboxd")
	chattr +i "$T/p/share/sandbox/manifest" 2>/dev/null || true
	run sh -c "curl -fsSL '$URL/setup.sh' | sh -s -- --prefix '$T/p' --server"
	if lsattr "$T/p/share/sandbox/manifest" 2>/dev/null | grep -q '^....i'; then
		chattr -i "$T/p/share/sandbox/manifest"
		[ "$status" -eq 1 ]
		[ "$inode" = "$(stat -c %i "$T/p/bin/sandboxd")" ]
	fi
	[ "$($box exec live -- echo still)" = still ]
	$box delete live --wait
	kill "$pid"
	wait "$pid" || true
	run -0 sh -c "curl -fsSL '$URL/setup.sh' | sh -s -- --prefix '$T/p' --uninstall"
	[ ! -e "$T/p" ]
}
