#!/usr/bin/env bats
# npm, as it is, through restricted egress.
# run-alone: its servers have the address of the other egress tests

load ../lib/helpers.bash
load ../lib/tls.bash
load ../lib/tools_image.bash
load ../lib/egress_world.bash

setup_file() {
	egress_setup
}

teardown_file() {
	egress_teardown
}

@test "npm installs" {
	inside test -f /npm/bin/npm-cli.js || skip "no npm on this machine"
	run -0 inside sh -c 'mkdir -p n && cd n && echo "{}" >package.json && NODE_EXTRA_CA_CERTS=/ca.pem node /npm/bin/npm-cli.js install --no-audit --no-fund --registry https://npm.test/ demo && cat node_modules/demo/package.json'
	[[ "$output" == *'"name":"demo"'* ]]
}
