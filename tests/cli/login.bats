#!/usr/bin/env bats
# login, logout, auth status: the token is kept for one server, and seen nowhere.

load ../lib/helpers

TOKEN=sbx_verysecretword42

setup() {
	D=$(mktemp -d "${TMPDIR:-/tmp}/sbx-login.XXXXXX")
	export HOME=$D/home SANDBOX_URL=https://h.example/pre/
	unset XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME SANDBOX_TOKEN SANDBOX_PASSPHRASE
	mkdir "$HOME"
	# A session of its own has no terminal that could be asked.
	SB="setsid -w timeout 20 sandbox"
}

teardown() {
	rm -rf "$D"
}

@test "a token goes in by standard input and is nowhere to be read" {
	(umask 000 && $SB login --token-stdin <<<"$TOKEN")
	[ "$(find "$HOME" -type d -printf '%m\n' | sort -u | xargs)" = "700 755" ] || [ "$(find "$HOME" -mindepth 1 -type d -printf '%m\n' | sort -u)" = 700 ]
	[ "$(find "$HOME" -type f -printf '%m\n' | sort -u)" = 600 ]
	run grep -r "$TOKEN" "$HOME"
	[ "$status" -eq 1 ]
	run $SB auth status
	[ "$status" -eq 0 ]
	[ "$output" = "https://h.example: a token from store, by key file" ]
	run $SB auth status --json
	[ "$(jq -r .origin <<<"$output")" = https://h.example ]
	$SB logout
	run $SB logout
	[ "$status" -eq 3 ]
	run $SB auth status
	[ "$status" -eq 4 ]
}

@test "tokens and keys are 0600 from their first instant" {
	command -v strace >/dev/null || skip "no strace here"
	strace -f -e trace=openat,open,creat,chmod,fchmod -o "$D/trace" sandbox login --token-stdin <<<"$TOKEN"
	# Every file made below HOME is made with that mode: none is opened wider and closed later.
	run grep -E 'O_CREAT' "$D/trace"
	[ "$status" -eq 0 ]
	! grep -E 'O_CREAT' <<<"$output" | grep -vE '0600\)'
}

@test "a token and a key that others could read are closed when they are used" {
	unset SANDBOX_TOKEN
	$SB login --token-stdin <<<"$TOKEN"
	find "$HOME" -type f -name 'https*' -exec chmod 644 {} +
	find "$HOME" -type f -name token.key -exec chmod 664 {} +
	run $SB list
	[ "$status" -eq 8 ] || [ "$status" -eq 1 ]
	[ "$(find "$HOME" -type f \( -name 'https*' -o -name token.key \) -printf '%m\n' | sort -u)" = 600 ]
}

@test "what is no token is refused, without repeating it" {
	local t
	for t in '' "$TOKEN with blanks" "$TOKEN"$'\n'"second" "$(head -c 5000 /dev/zero | tr '\0' x)"; do
		run $SB login --token-stdin <<<"$t"
		[ "$status" -eq 2 ]
		[[ $output != *"$TOKEN"* ]]
	done
	run $SB login </dev/null
	[ "$status" -eq 2 ]
	[[ $output == *"--token-stdin"* ]]
	run $SB login --token="$TOKEN"
	[ "$status" -eq 2 ]
	[[ $output != *"$TOKEN"* ]]
	run find "$HOME" -type f
	[ -z "$output" ]
}

@test "a socket of this machine needs no token, no server is an error with a way out" {
	SANDBOX_URL=unix:///x run $SB login --token-stdin <<<"$TOKEN"
	[ "$status" -eq 2 ]
	SANDBOX_URL='' run $SB login --token-stdin <<<"$TOKEN"
	[ "$status" -eq 2 ]
	[[ $output == *"context create"* ]]
}

@test "a home that cannot be written keeps nothing, and the environment's token still counts" {
	HOME=/proc run $SB login --token-stdin <<<"$TOKEN"
	[ "$status" -eq 1 ]
	run env -u HOME setsid -w timeout 10 sandbox login --token-stdin <<<"$TOKEN"
	[ "$status" -eq 2 ]
	HOME=/proc SANDBOX_TOKEN=$TOKEN run $SB auth status
	[ "$status" -eq 0 ]
	[[ $output == *SANDBOX_TOKEN* && $output != *"$TOKEN"* ]]
}

@test "logins at once leave one key and whole files" {
	local i
	for i in 1 2 3 4 5 6; do
		SANDBOX_URL=https://h$i.example sandbox login --token-stdin <<<"$TOKEN$i" &
		SANDBOX_URL=https://same.example sandbox login --token-stdin <<<"$TOKEN" &
	done
	wait
	[ "$(find "$HOME/.config/sandbox/tokens" -name 'https*' | wc -l)" -eq 7 ]
	[ -z "$(find "$HOME" -name '.tmp*')" ]
	for i in $HOME/.config/sandbox/tokens/https*; do jq -e .sealed "$i" >/dev/null; done
}

@test "a full disk keeps the old token" {
	[ "$(id -u)" -eq 0 ] || skip "mounting needs root"
	mkdir "$D/small"
	mount -t tmpfs -o size=64k none "$D/small"
	export XDG_CONFIG_HOME=$D/small
	sandbox login --token-stdin <<<"$TOKEN"
	cp "$D"/small/sandbox/tokens/https* "$D/before"
	dd if=/dev/zero of="$D/small/fill" bs=1k 2>/dev/null || true
	run $SB login --token-stdin <<<other
	local rc=$status
	cmp "$D/before" "$D"/small/sandbox/tokens/https*
	umount "$D/small"
	[ "$rc" -eq 1 ]
	[[ $output == *"No space left"* ]]
}

@test "on a terminal the token is asked for without being shown" {
	[ -x "$BUILD/tools/pty" ] || skip "tools are not built"
	run bash -c "printf 'expect Token for https://h.example: \nsend $TOKEN\\\\r\nend\n' | '$BUILD/tools/pty' 24x80 '$BUILD/sandbox' login"
	[[ $output != *"$TOKEN"* ]]
	[[ $output == *"status 0"* && $output == *"settings same"* ]]
	$SB auth status
}

@test "an interrupt at the question leaves the terminal as it was" {
	run bash -c "printf 'expect Token for https://h.example: \nsend \\x03\nend\n' | '$BUILD/tools/pty' 24x80 '$BUILD/sandbox' login"
	[[ $output == *"status 130"* && $output == *"settings same"* ]]
	run $SB auth status
	[ "$status" -ne 0 ]
}

@test "a program without libsodium's functions starts without libsodium" {
	run ldd "$BUILD/sandbox"
	[[ $output != *sodium* && $output != *curl* && $output != *ssl* ]]
}
