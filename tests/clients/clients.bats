#!/usr/bin/env bats
# Real clients from npm against the bridge: the official library, the inspector, and the agents' own programs. `make check-clients` runs
# it; it needs node and the npm registry, and keeps what it downloads in CLIENTS_DIR (a temporary directory when not set).
load ../lib/helpers.bash

setup_file() {
	command -v npm >/dev/null || skip "no npm"
	need_engine
	CLIENTS_DIR=${CLIENTS_DIR:-$BATS_FILE_TMPDIR/npm}
	export CLIENTS_DIR
	mkdir -p "$CLIENTS_DIR"
	if [ ! -d "$CLIENTS_DIR/node_modules/@modelcontextprotocol/sdk" ]; then
		(cd "$CLIENTS_DIR" && timeout 500 npm install --no-audit --no-fund --silent @modelcontextprotocol/sdk @modelcontextprotocol/inspector-cli \
			@anthropic-ai/claude-code @openai/codex @google/gemini-cli opencode-ai)
	fi
	# The inspector's package looks for its parent's description, which is not published with it.
	[ -e "$CLIENTS_DIR/node_modules/@modelcontextprotocol/package.json" ] ||
		echo '{"name":"inspector","version":"0.0.0"}' >"$CLIENTS_DIR/node_modules/@modelcontextprotocol/package.json"
	sbx_start
	export PATH=$CLIENTS_DIR/node_modules/.bin:$PATH
	# No client sees the tester's own files or reports home.
	export DISABLE_AUTOUPDATER=1 DISABLE_TELEMETRY=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 OPENCODE_DISABLE_AUTOUPDATE=1 CI=1
}

teardown_file() {
	[ -z "${SBX_DIR:-}" ] || sbx_stop
}

@test "the official library runs a sandbox's whole life" {
	cp "$TOP/tests/clients/sdk.mjs" "$CLIENTS_DIR/sdk.mjs"
	cd "$CLIENTS_DIR"
	run -0 timeout 90 node sdk.mjs "$BUILD/sandbox-mcp" "$IMAGE"
	[[ $output == *ok ]]
}

@test "the inspector lists and calls tools" {
	run -0 --separate-stderr timeout 60 mcp-inspector-cli --cli "$BUILD/sandbox-mcp" -e "SANDBOX_URL=$SANDBOX_URL" --method tools/list
	[ "$(jq -r '.tools[0].name' <<<"$output")" = sandbox_health ]
	run -0 --separate-stderr timeout 60 mcp-inspector-cli --cli "$BUILD/sandbox-mcp" -e "SANDBOX_URL=$SANDBOX_URL" --method tools/call --tool-name sandbox_list --tool-arg limit=5
	[ "$(jq -c .structuredContent <<<"$output")" = '{"sandboxes":[]}' ]
}

@test "claude registers the bridge and connects to it" {
	run -0 --separate-stderr timeout 60 sandbox --json mcp install --client claude
	[ "$(jq -r '.[0].state' <<<"$output")" = added ]
	run -0 timeout 60 claude mcp list
	[[ $output == *sandbox*Connected* ]]
	run -0 --separate-stderr timeout 60 sandbox --json mcp install --client claude
	[ "$(jq -r '.[0].state' <<<"$output")" = unchanged ]
}

@test "codex registers the bridge" {
	run -0 --separate-stderr timeout 60 sandbox --json mcp install --client codex
	[ "$(jq -r '.[0].state' <<<"$output")" = added ]
	run -0 timeout 60 codex mcp get sandbox
	[[ $output == *"$BUILD/sandbox-mcp"* ]]
	run -0 --separate-stderr timeout 60 sandbox --json mcp install --client codex
	[ "$(jq -r '.[0].state' <<<"$output")" = unchanged ]
}

@test "gemini registers the bridge" {
	run -0 --separate-stderr timeout 90 sandbox --json mcp install --client gemini
	[ "$(jq -r '.[0].state' <<<"$output")" = added ]
	[ "$(jq -r .mcpServers.sandbox.command "$HOME/.gemini/settings.json")" = "$BUILD/sandbox-mcp" ]
	run -0 --separate-stderr timeout 90 sandbox --json mcp install --client gemini
	[ "$(jq -r '.[0].state' <<<"$output")" = unchanged ]
}

@test "opencode finds the bridge and connects to it" {
	run -0 --separate-stderr timeout 60 sandbox --json mcp install --client opencode
	[ "$(jq -r '.[0].state' <<<"$output")" = added ]
	run -0 timeout 60 opencode mcp list
	[[ $output == *sandbox*connected* ]]
}
