# An image with real programs of this machine (curl, git, python3 with pip, node with npm where they are), their libraries, and busybox:
# tests that need them take no registry and no debootstrap.

# add_program ROOT PATH…: the file, and what the loader needs for it.
add_program() {
	local root=$1 p lib
	shift
	for p in "$@"; do
		mkdir -p "$root$(dirname "$p")"
		cp -L "$p" "$root$p"
		for lib in $(ldd "$p" 2>/dev/null | grep -o '/[^ ]*' | sort -u); do
			[ -e "$root$lib" ] && continue
			mkdir -p "$root$(dirname "$lib")"
			cp -L "$lib" "$root$lib"
		done
	done
}

add_python() {
	local root=$1 python lib wheel
	python=$(readlink -f /usr/bin/python3)
	lib=/usr/lib/$(basename "$python")
	add_program "$root" "$python"
	ln -s "$(basename "$python")" "$root/usr/bin/python3"
	mkdir -p "$root$lib"
	tar -C "$lib" --exclude=__pycache__ --exclude=test --exclude=tests --exclude=idlelib --exclude=tkinter --exclude='config-*' --exclude=pydoc_data \
		--exclude=lib2to3 -cf - . | tar -C "$root$lib" -xf -
	for p in "$root$lib"/lib-dynload/_ssl*.so "$root$lib"/lib-dynload/_hashlib*.so; do
		add_program "$root" "${p#"$root"}"
	done
	wheel=$(find /usr/share/python-wheels /usr/lib/python3*/ensurepip -name 'pip-*.whl' 2>/dev/null | head -n 1)
	if [ -n "$wheel" ]; then cp "$wheel" "$root/pip.whl"; fi
}

add_npm() {
	local root=$1 npm
	npm=$(dirname "$(dirname "$(readlink -f "$(command -v npm)")")")
	add_program "$root" "$(readlink -f "$(command -v node)")"
	mkdir -p "$root/npm"
	tar -C "$npm" --exclude=docs --exclude=man -cf - . | tar -C "$root/npm" -xf -
}

# apt-get as Debian has it, with nothing installed.
add_apt() {
	local root=$1
	add_program "$root" /usr/bin/apt-get /usr/bin/dpkg /usr/lib/apt/methods/http /usr/lib/apt/methods/store /usr/lib/apt/methods/copy /usr/lib/apt/methods/file
	mkdir -p "$root"/etc/apt/apt.conf.d "$root"/etc/apt/preferences.d "$root"/etc/apt/trusted.gpg.d "$root"/var/lib/apt/lists/partial "$root"/var/cache/apt/archives/partial \
		"$root"/var/lib/dpkg/updates "$root"/var/log/apt "$root"/usr/share
	cp -r /usr/share/dpkg "$root/usr/share/dpkg"
	: >"$root/var/lib/dpkg/status"
	echo 'deb [trusted=yes] http://apt.test/debian ./' >"$root/etc/apt/sources.list"
	echo 'APT::Sandbox::User "root";' >"$root/etc/apt/apt.conf.d/root"
}

# busybox_root ROOT: a root file system with busybox under all its names.
busybox_root() {
	local root=$1 applet
	mkdir -p "$root/bin" "$root/tmp" "$root/etc" "$root/run" "$root/workspace" "$root/usr/bin" "$root/usr/lib" "$root/dev" "$root/proc" "$root/sys"
	cp "$(command -v busybox)" "$root/bin/busybox"
	"$root/bin/busybox" --list | grep -vx busybox | while read -r applet; do ln -s busybox "$root/bin/$applet"; done
	printf 'root:x:0:0:root:/tmp:/bin/sh\n' >"$root/etc/passwd"
}

import_root() {
	tar -C "$1" -cf - . | docker import -c 'LABEL io.sandbox.test=1' - "$2" >/dev/null
	rm -rf "$1"
}

# glibc_image NAME: busybox and the libraries that programs built elsewhere need, as a small Debian has them.
glibc_image() {
	local root lib
	root=$(mktemp -d)
	busybox_root "$root"
	ln -s /bin/env "$root/usr/bin/env"
	add_program "$root" "$(readlink -f "$(command -v node)")"
	for lib in libpthread.so.0 libdl.so.2 librt.so.1 libatomic.so.1; do
		lib=$(ldconfig -p | sed -n "s|.*$lib .*=> ||p" | head -n 1)
		[ -z "$lib" ] || add_program "$root" "$lib"
	done
	rm "$root$(readlink -f "$(command -v node)")"
	import_root "$root" "$1"
}

# python_image NAME: Python alone, as `python` too.
python_image() {
	local root
	root=$(mktemp -d)
	busybox_root "$root"
	add_python "$root"
	ln -s python3 "$root/usr/bin/python"
	import_root "$root" "$1"
}

# tools_image NAME [FILE…]: makes the image; FILEs go into its root, and the programs of TOOLS_PROGRAMS to where they are here.
tools_image() {
	local root name=$1 git
	shift
	root=$(mktemp -d)
	busybox_root "$root"
	add_program "$root" /usr/bin/curl /usr/bin/git
	git=$(git --exec-path)
	add_program "$root" "$git/git-remote-http"
	ln -s git-remote-http "$root$git/git-remote-https"
	add_python "$root"
	! command -v npm >/dev/null || add_npm "$root"
	[ ! -x /usr/bin/apt-get ] || add_apt "$root"
	# shellcheck disable=SC2086
	[ -z "${TOOLS_PROGRAMS:-}" ] || add_program "$root" $TOOLS_PROGRAMS
	if [ $# -gt 0 ]; then cp "$@" "$root/"; fi
	import_root "$root" "$name"
}
