# A bare Debian for the long suites: debootstrap's smallest, with the package sources of this machine.

# debian_root DIR: as root, over the network; $SANDBOX_TEST_DEBIAN_TAR, when set, is kept between runs.
debian_root() {
	local dir=$1 suite sources
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mkdir -p "$dir"
	if [ -n "${SANDBOX_TEST_DEBIAN_TAR:-}" ] && [ -f "$SANDBOX_TEST_DEBIAN_TAR" ]; then
		tar -C "$dir" --numeric-owner -xf "$SANDBOX_TEST_DEBIAN_TAR"
		return
	fi
	# The first archive that this machine's apt uses.
	sources=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | head -n 1)
	timeout 900 debootstrap --variant=minbase "$suite" "$dir" "${sources:-http://deb.debian.org/debian}" >"$dir.log" 2>&1 || { tail -n 5 "$dir.log"; return 1; }
	rm -rf "$dir"/var/cache/apt/archives/*.deb
	[ -z "${SANDBOX_TEST_DEBIAN_TAR:-}" ] || tar -C "$dir" --numeric-owner -cf "$SANDBOX_TEST_DEBIAN_TAR" .
}

# packages_of DIR: the release's packages of the build under test, into DIR.
packages_of() {
	local arch
	arch=$(dpkg --print-architecture)
	mkdir -p "$1"
	ln -sfn "$BUILD" "$1/.b-$arch"
	SANDBOX_DIST_BUILD=$1/.b timeout 600 "$TOP/installer/dist" --out "$1" "$arch" >"$1/.log" 2>&1 || { cat "$1/.log"; return 1; }
}
