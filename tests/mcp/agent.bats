#!/usr/bin/env bats
# Agent profiles: what a careful request meets, and an agent's program run in a sandbox of its own.
load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start
	export PYTHONPATH=$TOP/tests/lib PYTHONDONTWRITEBYTECODE=1
	# An image with a program called codex, which shows what it was given.
	AGENT_IMAGE=sandbox-test-agent-$$:local
	export AGENT_IMAGE
	printf '#!/bin/sh\necho "codex at $PWD, home $HOME: $*"\nexit "${1#--exit=}"\n' >"$SBX_DIR/codex"
	chmod 755 "$SBX_DIR/codex"
	docker create --name "sandbox-test-agent-$$" "$IMAGE" true >/dev/null
	docker cp "$SBX_DIR/codex" "sandbox-test-agent-$$:/bin/codex" >/dev/null
	docker commit "sandbox-test-agent-$$" "$AGENT_IMAGE" >/dev/null
	docker rm "sandbox-test-agent-$$" >/dev/null
}

teardown_file() {
	sbx_stop
	docker rmi -f "$AGENT_IMAGE" >/dev/null 2>&1 || true
}

# What a profile asks for, less what this machine cannot give.
small() {
	small_of codex --image "$AGENT_IMAGE" "$@"
}

small_of() {
	timeout 60 sandbox agent run "$1" --network deny --no-needs-secrets --no-untrusted-repo --sensitivity internal --memory 256m --disk 64m \
		--cpus 0.5 --pids 64 "${@:2}"
}

@test "seven profiles are listed, the same over the command line and MCP" {
	run -0 --separate-stderr sandbox --json agent list
	[ "$(jq length <<<"$output")" = 7 ]
	jq -e 'all(.[]; (.default_image | length > 0) and (.secrets | length == 1) and (.egress | length > 0) and (.package == null) == (.version == null))' <<<"$output"
	echo "$output" >"$BATS_TEST_TMPDIR/list"
	run -0 --separate-stderr sandbox agent list -q
	[ "$(tr '\n' ' ' <<<"$output")" = "codex claude opencode pi aider goose commandcode " ]
	timeout 20 python3 - "$BATS_TEST_TMPDIR/list" <<'PY'
from mcp import *
b, agents = Bridge(), json.load(open(sys.argv[1]))
check(b.ok("sandbox_agent_list")["agents"] == agents)
check(json.loads(b.request("resources/read", {"uri": "sandbox://agents"})["result"]["contents"][0]["text"]) == {"agents": agents})
PY
}

@test "a profile as it stands is refused with the reasons where isolation or network are not offered" {
	run -125 --separate-stderr timeout 30 sandbox agent run codex --image "$AGENT_IMAGE"
	[ -z "$output" ]
	[[ $stderr == *microvm* ]]
	timeout 20 python3 - <<'PY'
from mcp import *
e = Bridge().error("sandbox_agent_run", agent="codex", image=os.environ["AGENT_IMAGE"])
check(e["code"] == "no_capacity" and e["decision"]["required_tier"] == "microvm" and e["decision"]["score"] >= 80, e)
PY
	run -0 --separate-stderr sandbox list -q
	[ -z "$output" ]
}

@test "unknown profiles, and programs that npm does not have, are said to be so" {
	run -125 --separate-stderr timeout 10 sandbox agent run nobody
	[[ $stderr == *"codex, claude, opencode, pi, aider, goose, commandcode"* ]]
	run -3 --separate-stderr timeout 10 sandbox agent build nobody
	run -2 --separate-stderr timeout 10 sandbox agent build aider
	[[ $stderr == *"paulgauthier/aider"* ]]
	run -125 --separate-stderr small_of codex --image nothing-of-this-name:local
	run -125 --separate-stderr small_of codex
	[[ $stderr == *"sandbox agent build codex"* ]]
}

@test "an agent runs with its arguments, its status comes back, the sandbox stays" {
	mkdir "$BATS_TEST_TMPDIR/src"
	echo content >"$BATS_TEST_TMPDIR/src/file"
	run -3 --separate-stderr small --name worker --upload "$BATS_TEST_TMPDIR/src" -- --exit=3 'a b'
	[ "$output" = "codex at /workspace, home /workspace/.home: --exit=3 a b" ]
	[ "$(sandbox exec worker -- cat /workspace/file)" = content ]
	run -0 --separate-stderr sandbox inspect worker --json
	[ "$(jq -r '.spec.agent + " " + .spec.labels["sandbox.dev/agent"]' <<<"$output")" = "codex codex" ]
	[ "$(jq -r .spec.signals.executes_generated_code <<<"$output")" = true ]
	timeout 60 sandbox delete worker
}

@test "without arguments only the sandbox is provided" {
	run -0 --separate-stderr small
	id=$output
	[[ $stderr == *"sandbox exec -t $id -w /workspace -- codex"* ]]
	[ "$(sandbox exec "$id" -w /workspace -- codex --exit=0)" = "codex at /workspace, home /workspace/.home: --exit=0" ]
	timeout 60 sandbox delete "$id"
}

@test "network restricted lets an agent reach its own hosts and what is added, nothing else" {
	run -0 --separate-stderr small --name narrow --network restricted --allow '!chatgpt.com' --allow registry.npmjs.org
	[[ $stderr == *"OPENAI_API_KEY"* ]]
	run -0 --separate-stderr sandbox inspect narrow --json
	jq -e '.spec.egress == ["!chatgpt.com", "registry.npmjs.org", "api.openai.com", "auth.openai.com", "chatgpt.com"]' <<<"$output"
	timeout 60 sandbox delete narrow
}

@test "over MCP: a sandbox with a home, and the command to start the agent with" {
	timeout 60 python3 - <<'PY'
from mcp import *
b = Bridge()
made = b.ok("sandbox_agent_run", agent="codex", image=os.environ["AGENT_IMAGE"], network="deny", needs_secrets=False, untrusted_repo=False, name="over")
argv = ["sh", "-c", 'test -d "$HOME" && exec "$@"', "sh", *made["agent_command"], "--exit=0", "a b"]
op = b.ok("sandbox_exec", sandbox_id="over", argv=argv, cwd="/workspace")["operation"]
check(op["output"]["stdout"] == "codex at /workspace, home /workspace/.home: --exit=0 a b\n", op)
check(b.ok("sandbox_delete", sandbox_id="over")["operation"]["state"] == "succeeded")
check(b.error("sandbox_agent_run", agent="codex", network="deny", allow=["a.test"])["code"] == "invalid_request")
check(b.error("sandbox_agent_run", agent="codex", image=os.environ["AGENT_IMAGE"], needs_secrets=False, secrets=["no such"])["code"] == "invalid_request")
PY
}
