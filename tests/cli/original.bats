#!/usr/bin/env bats
# The command shapes and answers that scripts written for the Rust original rely on, in the order of a sandbox's life.

load ../lib/helpers.bash
load ../lib/tls.bash

setup_file() {
	need_engine
	EDGE=$(free_port)
	export EDGE SANDBOX_TOKEN=unused-on-a-socket
	sbx_start --set "edge.listen=127.0.0.1:$EDGE"
}

teardown_file() {
	sbx_stop
}

# With the global options in front, as those scripts do.
cli() {
	timeout 120 sandbox --server "$SANDBOX_URL" "$@" 2>>"$BATS_TEST_TMPDIR/stderr"
}

# visit URL: the address as it was printed; names below localhost need no resolver.
visit() {
	local host=${1#http://}
	host=${host%%:*}
	curl --fail --silent --show-error --max-time 60 --resolve "$host:$EDGE:127.0.0.1" "$1"
}

@test "doctor, agents and the MCP entry" {
	cli --json doctor | jq -e '.status | IN("ok", "warn")'
	cli --json agent list | jq -e 'length == 7'
	cli mcp-config | jq -e '.mcpServers.sandbox.command == "sandbox-mcp"'
}

@test "the whole life of a sandbox with a public port" {
	local made id op seen first second url
	made=$(cli --json create --tenant original --image "$IMAGE" --cpu-millis 500 --memory-mib 256 --disk-mib 64 --pids 64 --ttl 600 --network restricted \
		--expose 3000=original-shapes --no-wait -- sh -c 'mkdir -p www && echo served >www/index.html && exec httpd -f -p 3000 -h www')
	id=$(jq -er .sandbox.id <<<"$made")
	cli --json wait "$(jq -er .operation.id <<<"$made")" --timeout 120 | jq -e '.state == "succeeded"'
	seen=$(cli --json inspect "$id")
	jq -e '.state == "running"' <<<"$seen"
	# At once: a server that is about to listen is waited for.
	[ "$(visit "$(jq -er '.tunnels[0].public_url' <<<"$seen")")" = served ]

	cli --json tunnel list "$id" | jq -e 'length == 1 and .[0].state == "active"'
	first=$(jq -er '.tunnels[0].id' <<<"$seen")
	op=$(cli --json tunnel delete "$id" "$first" --no-wait | jq -er .operation.id)
	cli --json wait "$op" --timeout 120 | jq -e '.state == "succeeded"'
	made=$(cli --json tunnel create "$id" --port 3000)
	second=$(jq -er .tunnel.id <<<"$made")
	url=$(jq -er .tunnel.public_url <<<"$made")
	[ "$(visit "$url")" = served ]
	cli --json tunnel delete "$id" "$second" | jq -e '.state == "succeeded"'

	cli --json exec "$id" --cwd /workspace --env MESSAGE=ready -- /bin/sh -c 'printf "%s\n" "$MESSAGE" >smoke.txt && cat smoke.txt' |
		jq -e '.output.exit_code == 0 and .output.stdout == "ready\n"'
	op=$(cli --json exec "$id" --no-wait -- /bin/sh -c 'printf "async-ok\n"' | jq -er .id)
	cli --json wait "$op" --timeout 120 | jq -e '.output.exit_code == 0 and .output.stdout == "async-ok\n"'
	run -7 cli --json exec "$id" -- /bin/sh -c 'printf "expected failure\n" >&2; exit 7'
	jq -e '.state == "failed" and .output.exit_code == 7 and .output.stderr == "expected failure\n"' <<<"$output"

	cli --json list --tenant original | jq -e --arg id "$id" 'any(.id == $id)'
	op=$(cli --json delete "$id" --no-wait | jq -er .id)
	cli --json wait "$op" --timeout 120 | jq -e '.state == "succeeded"'
	cli --json list --tenant original | jq -e 'length == 0'
	cli --json list --tenant original --all | jq -e 'any(.state == "stopped")'
}
