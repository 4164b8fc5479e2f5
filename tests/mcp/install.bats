#!/usr/bin/env bats
# Registering the bridge with clients: one entry is added, everything else stays byte for byte, no token is written.
load ../lib/helpers.bash

setup() {
	export HOME=$BATS_TEST_TMPDIR/home SANDBOX_TOKEN=secret-token
	unset XDG_CONFIG_HOME XDG_RUNTIME_DIR SANDBOX_URL
	mkdir -p "$HOME" "$BATS_TEST_TMPDIR/bin"
	export PATH=$BATS_TEST_TMPDIR/bin:$BUILD:/usr/bin:/bin
}

# A client program that writes down how it was called; "mcp get" finds nothing at first.
fake() {
	cat >"$BATS_TEST_TMPDIR/bin/$1" <<SH
#!/bin/sh
for a; do printf '%s|' "\$a"; done >>"$BATS_TEST_TMPDIR/calls"
echo >>"$BATS_TEST_TMPDIR/calls"
case "\$*" in "mcp get sandbox") exit ${2:-1} ;; esac
SH
	chmod +x "$BATS_TEST_TMPDIR/bin/$1"
}

@test "clients with a command of their own are told by it" {
	fake claude
	fake codex
	fake gemini
	fake code
	run -0 --separate-stderr sandbox --json --server unix:///run/x.sock mcp install
	[ "$(jq -r '.[] | select(.state == "added") | .client' <<<"$output" | sort | tr '\n' ' ')" = "claude codex gemini vscode " ]
	[ "$(jq -r '.[] | select(.state == "absent") | .client' <<<"$output" | sort | tr '\n' ' ')" = "cursor goose opencode " ]
	grep -qxF "mcp|add|--scope|user|--transport|stdio|sandbox|--env|SANDBOX_URL=unix:///run/x.sock|--|$BUILD/sandbox-mcp|" "$BATS_TEST_TMPDIR/calls"
	grep -qxF "mcp|add|sandbox|--env|SANDBOX_URL=unix:///run/x.sock|--|$BUILD/sandbox-mcp|" "$BATS_TEST_TMPDIR/calls"
	grep -qxF "mcp|add|--scope|user|-e|SANDBOX_URL=unix:///run/x.sock|sandbox|$BUILD/sandbox-mcp|" "$BATS_TEST_TMPDIR/calls"
	grep -q '^--add-mcp|{"name":"sandbox","type":"stdio"' "$BATS_TEST_TMPDIR/calls"
	run -1 grep -r secret-token "$BATS_TEST_TMPDIR"
}

@test "an entry that is there stays" {
	fake claude 0
	run -0 --separate-stderr sandbox --json mcp install --client claude
	[ "$(jq -r '.[0].state' <<<"$output")" = unchanged ]
	run -1 grep add "$BATS_TEST_TMPDIR/calls"
}

@test "files get one entry and keep the rest" {
	mkdir -p "$HOME/.cursor" "$HOME/.config/opencode" "$HOME/.config/goose" "$HOME/.config/Code/User"
	printf '{\n  "theme" : "dark",   "n": 1.50,\n  "mcpServers": {\n    "other": { "command": "x", "sandbox": 1 }\n  }\n}\n' >"$HOME/.cursor/mcp.json"
	printf '{"$schema":"https://opencode.ai/config.json"}' >"$HOME/.config/opencode/opencode.json"
	printf '# mine\nGOOSE_MODEL: x\nextensions:\n  developer:\n    enabled: true\nlast: 1\n' >"$HOME/.config/goose/config.yaml"
	chmod 0640 "$HOME/.cursor/mcp.json"
	run -0 --separate-stderr sandbox --json mcp install
	[ "$(jq -r '.[] | select(.state == "added") | .client' <<<"$output" | sort | tr '\n' ' ')" = "cursor goose opencode vscode " ]
	[ "$(jq -r .mcpServers.sandbox.command "$HOME/.cursor/mcp.json")" = "$BUILD/sandbox-mcp" ]
	grep -qF '"theme" : "dark",   "n": 1.50,' "$HOME/.cursor/mcp.json"
	[ "$(jq -c .mcpServers.other "$HOME/.cursor/mcp.json")" = '{"command":"x","sandbox":1}' ]
	[ "$(stat -c %a "$HOME/.cursor/mcp.json")" = 640 ]
	[ "$(jq -r '.mcp.sandbox.command[0] + .["$schema"]' "$HOME/.config/opencode/opencode.json")" = "$BUILD/sandbox-mcphttps://opencode.ai/config.json" ]
	[ "$(jq -r .servers.sandbox.type "$HOME/.config/Code/User/mcp.json")" = stdio ]
	[ "$(stat -c %a "$HOME/.config/Code/User/mcp.json")" = 600 ]
	grep -qx '# mine' "$HOME/.config/goose/config.yaml"
	[ "$(grep -A1 '^extensions:' "$HOME/.config/goose/config.yaml" | tail -n 1)" = '  sandbox:' ]
	grep -qx '  developer:' "$HOME/.config/goose/config.yaml"
	grep -qx 'last: 1' "$HOME/.config/goose/config.yaml"
	before=$(cd "$HOME" && find . -type f -exec sha256sum {} + | sort)
	run -0 --separate-stderr sandbox --json mcp install
	[ "$(jq -r '[.[] | select(.state == "unchanged")] | length' <<<"$output")" = 4 ]
	[ "$before" = "$(cd "$HOME" && find . -type f -exec sha256sum {} + | sort)" ]
}

@test "what is not plain JSON is refused with the text to add, and not touched" {
	mkdir -p "$HOME/.cursor"
	printf '{ // mine\n "mcpServers": {} }\n' >"$HOME/.cursor/mcp.json"
	before=$(sha256sum "$HOME/.cursor/mcp.json")
	run -1 --separate-stderr sandbox mcp install --client cursor
	[[ $output == *"sandbox mcp config cursor"* ]]
	[ "$before" = "$(sha256sum "$HOME/.cursor/mcp.json")" ]
	printf '{"mcpServers": [1]}' >"$HOME/.cursor/mcp.json"
	run -1 --separate-stderr sandbox mcp install --client cursor
	[ "$(cat "$HOME/.cursor/mcp.json")" = '{"mcpServers": [1]}' ]
}

@test "a dry run changes nothing" {
	fake claude
	mkdir -p "$HOME/.cursor"
	run -0 --separate-stderr sandbox --json mcp install --dry-run
	[ "$(jq -r '.[] | select(.state == "would add") | .client' <<<"$output" | sort | tr '\n' ' ')" = "claude cursor " ]
	[ -z "$(ls -A "$HOME/.cursor")" ]
	run -1 grep add "$BATS_TEST_TMPDIR/calls"
}

@test "a file that is a link stays one" {
	mkdir -p "$HOME/.cursor" "$HOME/dotfiles"
	echo '{}' >"$HOME/dotfiles/mcp.json"
	ln -s ../dotfiles/mcp.json "$HOME/.cursor/mcp.json"
	run -0 sandbox mcp install --client cursor
	[ -L "$HOME/.cursor/mcp.json" ]
	[ "$(jq -r .mcpServers.sandbox.command "$HOME/dotfiles/mcp.json")" = "$BUILD/sandbox-mcp" ]
}

@test "configurations can be printed for every client" {
	for c in claude gemini cursor generic; do
		run -0 --separate-stderr sandbox mcp config "$c"
		[ "$(jq -r .mcpServers.sandbox.command <<<"$output")" = "$BUILD/sandbox-mcp" ]
	done
	run -0 --separate-stderr sandbox mcp config
	jq -e .mcpServers.sandbox <<<"$output"
	run -0 --separate-stderr sandbox mcp config opencode
	jq -e '.mcp.sandbox.enabled' <<<"$output"
	run -0 --separate-stderr sandbox mcp config vscode
	jq -e '.servers.sandbox.type == "stdio"' <<<"$output"
	run -0 --separate-stderr sandbox --server unix:///s.sock mcp config codex
	[[ $output == *'[mcp_servers.sandbox]'*'SANDBOX_URL = "unix:///s.sock"'* ]]
	[[ $output != *secret-token* ]]
	run -0 --separate-stderr sandbox mcp config goose
	[[ $output == "extensions:"* ]]
	run -2 sandbox mcp config nobody
	[[ $output == *"claude, codex, gemini"* ]]
	run -0 --separate-stderr sandbox --server unix:///s.sock mcp-config
	[ "$(jq -c . <<<"$output")" = '{"mcpServers":{"sandbox":{"command":"sandbox-mcp","args":[],"env":{"SANDBOX_URL":"unix:///s.sock"}}}}' ]
}

@test "uninstall takes out the one entry and leaves the file as it was" {
	mkdir -p "$HOME/.cursor" "$HOME/.config/opencode" "$HOME/.config/goose"
	printf '{\n  "theme" : "dark",   "n": 1.50,\n  "mcpServers": {\n    "other": { "command": "x", "sandbox": 1 }\n  }\n}\n' >"$HOME/.cursor/mcp.json"
	printf '{"mcp":{}}' >"$HOME/.config/opencode/opencode.json"
	printf '# mine\nextensions:\n  developer:\n    enabled: true\nlast: 1\n' >"$HOME/.config/goose/config.yaml"
	before=$(cd "$HOME" && find . -type f -exec sha256sum {} + | sort)
	run -0 --separate-stderr sandbox mcp install
	[ "$before" != "$(cd "$HOME" && find . -type f -exec sha256sum {} + | sort)" ]
	run -0 --separate-stderr sandbox --json mcp uninstall --dry-run
	[ "$(jq -r '[.[] | select(.state == "would remove")] | length' <<<"$output")" = 3 ]
	run -0 --separate-stderr sandbox --json mcp uninstall
	[ "$(jq -r '.[] | select(.state == "removed") | .client' <<<"$output" | sort | tr '\n' ' ')" = "cursor goose opencode " ]
	[ "$before" = "$(cd "$HOME" && find . -type f -exec sha256sum {} + | sort)" ]
	# The last of several members: the comma before it goes too.
	printf '{"mcpServers": {"a": 1, "sandbox": {"command": "y"}}}' >"$HOME/.cursor/mcp.json"
	run -0 --separate-stderr sandbox mcp uninstall --client cursor
	[ "$(cat "$HOME/.cursor/mcp.json")" = '{"mcpServers": {"a": 1}}' ]
	fake claude 0
	run -0 --separate-stderr sandbox mcp uninstall --client claude
	grep -qxF "mcp|remove|--scope|user|sandbox|" "$BATS_TEST_TMPDIR/calls"
}
