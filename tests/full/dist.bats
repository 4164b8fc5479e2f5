#!/usr/bin/env bats
# Releases from two whole builds in two places are the same to the byte, for both architectures; the programs for arm64 start.
load ../lib/helpers.bash

setup_file() {
	command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64 >/dev/null || skip "no gcc-aarch64-linux-gnu or qemu-user"
	W=$(mktemp -d "${TMPDIR:-/tmp}/sbx-fulldist.XXXXXX")
	VERSION=$(cat "$TOP/VERSION")
	export W VERSION SOURCE_DATE_EPOCH=1700000000 SANDBOX_SYSROOT=$W/sysroot
}

teardown_file() {
	[ -z "${W:-}" ] || rm -rf "$W"
}

@test "two builds in two places give the same bytes" {
	timeout 900 "$TOP/installer/dist" --out "$W/one" amd64 arm64
	mkdir -p "$W/copy/of the tree"
	(cd "$TOP" && tar --exclude=./build --exclude=./dist --exclude=./.git -cf - .) | tar -C "$W/copy/of the tree" -xf -
	mv "$W/copy/of the tree" "$W/copy/tree"
	timeout 900 "$W/copy/tree/installer/dist" --out "$W/two" amd64 arm64
	cmp "$W/one/SHA256SUMS" "$W/two/SHA256SUMS"
	[ "$(wc -l <"$W/one/SHA256SUMS")" -eq 8 ]
}

@test "the programs for arm64 start" {
	mkdir "$W/x"
	for a in client server; do tar -C "$W/x" --strip-components=1 -xzf "$W/one/sandbox-$a-$VERSION-linux-arm64.tar.gz"; done
	run -0 qemu-aarch64 -L "$SANDBOX_SYSROOT-arm64" "$W/x/bin/sandbox" --version
	[ "$output" = "sandbox $VERSION" ]
	run -0 qemu-aarch64 -L "$SANDBOX_SYSROOT-arm64" "$W/x/bin/sandboxd" --version
	[ "$output" = "sandboxd $VERSION" ]
	run qemu-aarch64 "$W/x/libexec/sandbox/sandbox-init-$VERSION"
	[[ $output == *"usage: sandbox-init"* ]]
}
