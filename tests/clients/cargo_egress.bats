#!/usr/bin/env bats
# cargo, as it is, through restricted egress: an index and a crate from a registry of the test's own.
# run-alone: its servers have the address of the other egress tests

load ../lib/helpers.bash
load ../lib/tls.bash
load ../lib/tools_image.bash
load ../lib/egress_world.bash

setup_file() {
	CARGO=$(command -v rustup >/dev/null && rustup which cargo || command -v cargo) || skip "no cargo on this machine"
	export CARGO TOOLS_PROGRAMS=$CARGO
	egress_setup
	local crate=$W/crate/demo-1.0.0
	mkdir -p "$crate/src" "$WWW/index/de/mo" "$WWW/crates"
	printf '[package]\nname = "demo"\nversion = "1.0.0"\n' >"$crate/Cargo.toml"
	echo 'pub fn x() {}' >"$crate/src/lib.rs"
	tar -C "$W/crate" -czf "$WWW/crates/demo-1.0.0.crate" demo-1.0.0
	echo '{"dl":"https://ok.test/crates/{crate}-{version}.crate"}' >"$WWW/index/config.json"
	printf '{"name":"demo","vers":"1.0.0","deps":[],"cksum":"%s","features":{},"yanked":false}\n' "$(sha256sum <"$WWW/crates/demo-1.0.0.crate" | cut -c1-64)" >"$WWW/index/de/mo/demo"
}

teardown_file() {
	[ -z "${W:-}" ] || egress_teardown
}

@test "cargo resolves and downloads" {
	local script='mkdir -p p/src p/.cargo && cd p && : >src/lib.rs &&
		printf "[package]\nname = \"p\"\nversion = \"0.1.0\"\n[dependencies]\ndemo = { version = \"1\", registry = \"test\" }\n" >Cargo.toml &&
		printf "[registries.test]\nindex = \"sparse+https://ok.test/index/\"\n" >.cargo/config.toml &&
		'"$CARGO"' vendor vendor && cat vendor/demo/src/lib.rs'
	run -0 timeout 100 sandbox exec -w /tmp -e HOME=/tmp -e CARGO_HTTP_CAINFO=/ca.pem "$BOX" -- sh -c "$script"
	[ "${lines[-1]}" = "pub fn x() {}" ]
	grep -q '^443 ok.test ok.test GET /crates/demo-1.0.0.crate$' "$W/requests"
}
