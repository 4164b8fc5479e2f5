#!/usr/bin/env bats
# Contexts, settings and project files: what counts, and that the files survive everything. No daemon takes part.

load ../lib/helpers

setup() {
	D=$(mktemp -d "${TMPDIR:-/tmp}/sbx-ctx.XXXXXX")
	export HOME=$D/home XDG_STATE_HOME=$D/s XDG_RUNTIME_DIR=$D/r
	unset XDG_CONFIG_HOME SANDBOX_URL SANDBOX_CONTEXT SANDBOX_TENANT
	mkdir -p "$HOME" "$D/work/deep"
	CONFIG=$HOME/.config/sandbox/config
	cd "$D/work"
}

teardown() {
	cd /
	if mountpoint -q "$D/small" 2>/dev/null; then umount "$D/small"; fi
	chmod -R u+w "$D" 2>/dev/null || true
	rm -rf "$D"
}

sb() {
	timeout 10 sandbox "$@"
}

# setting KEY [OPTIONS]: value and origin, as config list shows them.
setting() {
	local key=$1
	shift
	sb "$@" config list --json | jq -r --arg k "$key" '.[] | select(.key == $k) | "\(.value) <- \(.from)"'
}

@test "contexts are made, listed, shown, chosen, renamed and forgotten" {
	sb context create work --url HTTPS://Example.com:443/pre/ --tenant team
	sb context create home --url unix:///run/x.sock --use
	[ "$(sb context list -q | xargs)" = "work home" ]
	[ "$(sb context list --format '{{.name}} {{.current}} {{.url}}' | head -n 1)" = "work false https://example.com/pre" ]
	[ "$(sb context show --json=name,url)" = '{"name":"home","url":"unix:///run/x.sock"}' ]
	sb context use work
	sb context rename work job
	[ "$(sb context show --format '{{.name}}')" = job ]
	sb context delete job
	run sb context show
	[ "$status" -eq 3 ]
	[ "$(sb context list -q)" = home ]
}

@test "names and addresses that cannot work are refused before anything is written" {
	local n
	for n in '' 'a b' '*' '../x' 'x]' -x; do
		run sb context create --url https://h -- "$n"
		[ "$status" -eq 2 ] || { echo "$n: $status"; false; }
	done
	for n in 'https://u:secretword@h' ' https://h ' 'https://h?x' 'https://h:99999' 'https://é.example' 'ftp://h'; do
		run sb context create x --url "$n"
		[ "$status" -eq 2 ] || { echo "$n: $status"; false; }
		[[ $output != *secretword* ]]
	done
	[ ! -e "$CONFIG" ]
	sb context create x --url h
	run sb context create x --url h
	[ "$status" -eq 5 ]
	run sb context use nosuch
	[ "$status" -eq 3 ]
	run sb --context nosuch list
	[ "$status" -eq 3 ]
}

@test "flag beats environment beats context beats the local socket, and each says so" {
	[[ $(setting url) == "unix://"*"<- default" ]]
	sb context create work --url unix:///from/context --tenant team --use
	[ "$(setting url)" = "unix:///from/context <- context work" ]
	[ "$(setting tenant)" = "team <- context work" ]
	export SANDBOX_URL=unix:///from/env
	[ "$(setting url)" = "unix:///from/env <- SANDBOX_URL" ]
	[ "$(setting tenant)" = "null <- default" ]
	[ "$(setting url --server unix:///from/flag)" = "unix:///from/flag <- --server" ]
	[ "$(setting url --context work)" = "unix:///from/context <- context work" ]
	[ "$(SANDBOX_TENANT=other setting tenant --context work)" = "other <- SANDBOX_TENANT" ]
	unset SANDBOX_URL
	sb context create two --url unix:///from/two
	[ "$(SANDBOX_CONTEXT=two setting url)" = "unix:///from/two <- context two" ]
	[[ $(setting url --server '') == "unix://"*"<- --server" ]]
}

@test "set-server makes a first context, set and unset change the current one" {
	sb config set-server sandbox.example.com
	[ "$(sb context show --format '{{.name}} {{.url}}')" = "default https://sandbox.example.com" ]
	sb config set tenant team
	sb config unset tenant
	run sb config unset tenant
	[ "$status" -eq 3 ]
	run sb config set colour red
	[ "$status" -eq 2 ]
	[[ $output == *"url, tenant, token-helper, allow-http"* ]]
}

@test "directories are 0700 and files 0600 whatever the umask, also after a rewrite" {
	(umask 000 && sb context create a --url h && sb context create b --url h)
	[ "$(stat -c %a "$HOME/.config/sandbox")" = 700 ]
	[ "$(stat -c %a "$CONFIG")" = 600 ]
	chmod 644 "$CONFIG"
	(umask 000 && sb context use b)
	[ "$(stat -c %a "$CONFIG")" = 600 ]
}

@test "comments and hand-made lines survive a change" {
	mkdir -p "$HOME/.config/sandbox"
	printf '# by hand\n[cli]\n\n[context a]\n; note\nurl=https://h\n' >"$CONFIG"
	sb context use a
	printf '# by hand\n[cli]\ncontext = a\n\n[context a]\n; note\nurl=https://h\n' | diff - "$CONFIG"
}

@test "a config that is a link keeps being one" {
	mkdir -p "$HOME/.config/sandbox" "$D/dotfiles"
	: >"$D/dotfiles/config"
	ln -s "$D/dotfiles/config" "$CONFIG"
	sb context create a --url h
	[ -L "$CONFIG" ]
	grep -q 'context a' "$D/dotfiles/config"
	rm "$D/dotfiles/config"
	ln -sf "$D/nowhere/config" "$CONFIG"
	run sb context create b --url h
	[ "$status" -eq 1 ]
}

@test "a broken config is named by file and line, and does not stop help or version" {
	mkdir -p "$HOME/.config/sandbox"
	printf '[cli]\nnonsense\n' >"$CONFIG"
	run sb list
	[ "$status" -eq 2 ]
	[[ $output == *"$CONFIG:2:"* ]]
	sb help list
	sb list --help
	sb --version
}

@test "a full disk leaves the old file whole and says so" {
	[ "$(id -u)" -eq 0 ] || skip "mounting needs root"
	mkdir "$D/small"
	mount -t tmpfs -o size=64k none "$D/small"
	export XDG_CONFIG_HOME=$D/small
	sb context create a --url h
	sb context create b --url h
	cp "$D/small/sandbox/config" "$D/before"
	dd if=/dev/zero of="$D/small/fill" bs=1k 2>/dev/null || true
	run sb context use b
	[ "$status" -eq 1 ]
	[[ $output == *"No space left"* ]]
	cmp "$D/before" "$D/small/sandbox/config"
	[ -z "$(find "$D/small/sandbox" -name '.tmp*')" ]
	rm "$D/small/fill"
	sb context use b
	[ "$(sb context show --format '{{.name}}')" = b ]
}

@test "writers at once lose nothing" {
	local i
	for i in 1 2 3 4 5 6 7 8; do sb context create "c$i" --url h & done
	wait
	[ "$(sb context list -q | sort | xargs)" = "c1 c2 c3 c4 c5 c6 c7 c8" ]
}

@test "a home that cannot be written or is not set stops changes alone" {
	run env -u HOME timeout 10 sandbox context create a --url h
	[ "$status" -eq 2 ]
	[[ $output == *"HOME is not set"* ]]
	run env -u HOME SANDBOX_URL=unix:///nowhere timeout 10 sandbox list
	[ "$status" -eq 8 ]
	run env HOME=/proc timeout 10 sandbox context create a --url h
	[ "$status" -eq 1 ]
	run env HOME=/proc timeout 10 sandbox context list
	[ "$status" -eq 0 ]
}

@test "a project file gives defaults to create and run, and the line wins" {
	printf '[defaults]\nimage = alpine:3\nmemory = 512m\nlabel = a=1\nlabel = b=2\n[create]\nttl = 30m\n[run]\nttl = 5m\ngenerated-code = yes\n' >.sandbox.conf
	cd deep
	run --separate-stderr sb create --dry-run --memory 1g -l b=3
	jq -e '.spec | .image == "alpine:3" and .resources.memory_mib == 1024 and .ttl_seconds == 1800 and .labels == {a: "1", b: "3"}' <<<"${output#POST * }"
	[[ $stderr == *"defaults from "*"/work/.sandbox.conf:"*"image=alpine:3"* ]]
	run --separate-stderr sb run --dry-run -q -- true
	jq -e '.spec | .ttl_seconds == 300 and .signals.executes_generated_code' <<<"${output#POST * }"
	[ -z "$stderr" ]
	[ "$(setting defaults.image)" = "alpine:3 <- $D/work/.sandbox.conf:2" ]
}

@test "a project file that asks for what it may not, is refused; another's is left aside" {
	local line
	for line in 'env = AWS_SECRET_ACCESS_KEY' 'name = x' 'nonsense = 1' 'memory = lots' 'generated-code = maybe'; do
		printf '[defaults]\n%s\n' "$line" >.sandbox.conf
		run sb create --dry-run
		[ "$status" -eq 2 ] || { echo "$line: $status"; false; }
		[[ $output == *".sandbox.conf:2: "* ]]
	done
	printf '[elsewhere]\n' >.sandbox.conf
	run sb create --dry-run
	[ "$status" -eq 2 ]
	printf '[defaults]\nimage = x\n' >.sandbox.conf
	chmod 666 .sandbox.conf
	run sb create --dry-run
	[ "$status" -eq 0 ]
	[[ $output == *"warning: everybody may write"* && $output == *sandbox-base* ]]
	chmod 644 .sandbox.conf
	if [ "$(id -u)" -eq 0 ]; then
		chown 4242 .sandbox.conf
		run sb create --dry-run
		[ "$status" -eq 0 ]
		[[ $output == *"warning:"*"another user"* && $output == *sandbox-base* ]]
	fi
	sb create --help
}

@test "a dry run sends nothing, starts nothing and shows every request" {
	run --separate-stderr sb delete a b --dry-run
	[ "$status" -eq 0 ]
	[ "$output" = $'DELETE /v1/sandboxes/a\nDELETE /v1/sandboxes/b' ]
	[ -z "$stderr" ]
	[ "$(sb image rm x:1 y:2 --dry-run | wc -l)" -eq 2 ]
	[ "$(sb kill one two --dry-run | wc -l)" -eq 2 ]
	[ "$(sb extend web --ttl 2h --dry-run --json=method,body)" = '{"method":"POST","body":{"ttl_seconds":7200}}' ]
	[ "$(sb exec web --dry-run -- ls -l)" = 'exec web ["ls","-l"]' ]
	[ ! -e "$XDG_STATE_HOME" ]
	[ ! -e "$XDG_RUNTIME_DIR" ]
}

@test "templates print fields, escape what would drive a terminal, and name a field that is missing" {
	sb context create a --url h --tenant t --use
	[ "$(sb context show --format 'x{{ .name }}\t{{.tenant}}\\{{json .url}}')" = $'xa\tt\\"https://h"' ]
	[ "$(sb context show --format '{{json .}}' | jq -r .name)" = a ]
	run sb context show --format '{{.nosuch}}'
	[ "$status" -eq 2 ]
	[[ $output == *"nosuch"* ]]
	[ "$(sb context show --format '{{.name')" = '{{.name' ]
}

@test "the tree names every command and subcommand" {
	run sb --tree
	[ "$status" -eq 0 ]
	local v
	for v in run exec context config image; do grep -q "^$v" <<<"$output"; done
	grep -q '^  set-server' <<<"$output"
}
