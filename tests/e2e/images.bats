#!/usr/bin/env bats
# Private images of a real registry on a fleet's worker: logins of tenants, kept sealed and shown nowhere, and whether an image that the
# worker has already is everybody's.

load ../lib/helpers
load ../lib/tls
load ../lib/fleet
load ../lib/registry

setup_file() {
	need_engine
	command -v docker-registry >/dev/null || skip "docker-registry is not installed"
	export FLEET_RUNTIME=docker
	FLEET=$(mktemp -d "${TMPDIR:-/tmp}/fleet.XXXXXX")
	export FLEET
	registry_start "$FLEET/registry"
	registry_push "$IMAGE" priv/app:1
	fleet_start
	with_registries
	until_ok 60 node_is w1 up
}

teardown_file() {
	[ -n "${FLEET:-}" ] || return 0
	registry_stop "$FLEET/registry"
	fleet_stop
}

with_registries() {
	fleet_worker w1 --set "policy.allowed_registries=*"
	until_ok 60 link_up w1
}

login() {
	sandbox --tenant "$1" image login "$REGISTRY" -u "$2" --password-stdin <<<"$3"
}

# try TENANT IMAGE: creates and deletes.
try() {
	local id
	id=$(timeout 60 sandbox --tenant "$1" create -q --image "$2" --disk 64m --memory 64m) || return
	sandbox delete "$id"
}

@test "a private image is pulled with the tenant's login, and not with a wrong one or none" {
	run try red "$REGISTRY/priv/app:1"
	[ "$status" -ne 0 ]
	[[ $output == *"login"* ]]
	login red puller wrong-password
	run try red "$REGISTRY/priv/app:1"
	[ "$status" -ne 0 ]
	# Nor does what is refused take the name from others.
	[ ! -e "$FLEET/w1/private-images" ]
	run sandbox image login "$REGISTRY" --password-stdin <<<x
	[ "$status" -eq 2 ] || [[ $output == *"-u USER"* ]]
	login red puller "$REGISTRY_PASSWORD"
	try red "$REGISTRY/priv/app:1"
	sandbox --tenant red image logins | grep -q "$REGISTRY *red *puller"
}

@test "what the worker has already is private still: another tenant needs a login of its own" {
	local digest
	run try blue "$REGISTRY/priv/app:1"
	[ "$status" -ne 0 ]
	[[ $output == *"is private"* ]]
	# Nor by another name of it.
	digest=$(docker image inspect --format '{{join .RepoDigests "\n"}}' "$REGISTRY/priv/app:1" | grep "^$REGISTRY/")
	run try blue "$digest"
	[ "$status" -ne 0 ]
	[[ $output == *"is private"* ]]
	fleet_kill w1
	with_registries
	run try blue "$REGISTRY/priv/app:1"
	[ "$status" -ne 0 ]
	[[ $output == *"is private"* ]]
	try red "$REGISTRY/priv/app:1"
	login blue other "$REGISTRY_PASSWORD"
	try blue "$REGISTRY/priv/app:1"
	# Images that no login was needed for stay everybody's.
	try green "$IMAGE"
	sandbox --tenant red image logout "$REGISTRY"
	run try red "$REGISTRY/priv/app:1"
	[ "$status" -ne 0 ]
	[[ $output == *"without a login"* ]]
	run sandbox --tenant red image logout "$REGISTRY"
	[ "$status" -eq 3 ]
}

@test "an operator's pull uses the tenant's login, on the node that is named" {
	docker rmi "$REGISTRY/priv/app:1" >/dev/null
	run sandbox --tenant red image pull --node w1 "$REGISTRY/priv/app:1"
	[ "$status" -ne 0 ]
	login red puller "$REGISTRY_PASSWORD"
	sandbox --tenant red image pull --node w1 "$REGISTRY/priv/app:1"
	sandbox image ls --node w1 -q | grep -q "^$REGISTRY/priv/app:1$"
	run sandbox image ls --node nowhere
	[ "$status" -eq 3 ]
	# A registry that cannot be asked says nothing: who was not let in before is not let in.
	login blue other "$REGISTRY_PASSWORD-again"
	kill "$(cat "$REGISTRY_DIR/pid")"
	sbx_gone "$(cat "$REGISTRY_DIR/pid")"
	run try blue "$REGISTRY/priv/app:1"
	[ "$status" -ne 0 ]
	[[ $output == *"cannot be asked"* ]]
	sandbox image rm --node w1 "$REGISTRY/priv/app:1"
}

none() {
	! grep -qa "$REGISTRY_PASSWORD"
}

@test "a password is in no file, log, record, process or engine" {
	local pid marked
	if grep -rqs "$REGISTRY_PASSWORD" "$FLEET/controller" "$FLEET/w1"; then false; fi
	sandbox --json --tenant red image logins | none
	sandbox audit --json | none
	sandbox events --json | none
	for pid in controller w1; do
		none <"/proc/$(fleet_pid "$pid")/cmdline"
		none <"/proc/$(fleet_pid "$pid")/environ"
	done
	marked=$(cat "$FLEET/w1/private-images")
	[ "$marked" = "$REGISTRY/priv/app" ]
}
