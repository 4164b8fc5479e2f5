#!/usr/bin/env bats
# An image that one worker has is brought to another, whose engine is another one.

load ../lib/helpers
load ../lib/tls
load ../lib/fleet
load ../lib/registry

setup_file() {
	need_engine
	[ "$(id -u)" -eq 0 ] || skip "not root: a second engine needs it"
	command -v dockerd >/dev/null || skip "dockerd is not installed"
	export FLEET_RUNTIME=docker
	FLEET=$(mktemp -d "${TMPDIR:-/tmp}/fleet.XXXXXX")
	export FLEET ENGINE2=$FLEET/engine2/s
	second_engine
	fleet_start
	fleet_worker w1 --set "policy.allowed_registries=*"
	fleet_worker w2 --set "policy.allowed_registries=*" --set "worker.docker_socket=$ENGINE2"
	until_ok 60 link_up w1
	until_ok 60 link_up w2
}

teardown_file() {
	local id
	[ -n "${FLEET:-}" ] || return 0
	for id in $(docker -H "unix://$ENGINE2" ps -aq 2>/dev/null); do docker -H "unix://$ENGINE2" rm -f "$id" >/dev/null 2>&1 || true; done
	# The first big:1 has lost its name to the second.
	for id in $(cat "$FLEET/orphan" 2>/dev/null) big:1; do docker rmi "$id" >/dev/null 2>&1 || true; done
	registry_stop "$FLEET/registry"
	if [ -e "$FLEET/engine2/dockerd.pid" ]; then
		kill "$(cat "$FLEET/engine2/dockerd.pid")" 2>/dev/null && sbx_gone "$(cat "$FLEET/engine2/dockerd.pid")"
	fi
	fleet_stop
}

second_engine() {
	mkdir -p "$FLEET/engine2"
	dockerd --bridge=none --iptables=false --ip6tables=false --data-root "$FLEET/engine2/data" --exec-root "$FLEET/engine2/exec" \
		-H "unix://$ENGINE2" -p "$FLEET/engine2/file.pid" >"$FLEET/engine2/log" 2>&1 </dev/null 3>&- 4>&- &
	echo $! >"$FLEET/engine2/dockerd.pid"
	until_ok 60 docker -H "unix://$ENGINE2" info >/dev/null 2>&1
}

digest_on() {
	sandbox image ls --json --node "$1" | jq -r --arg n "$2" '.[] | select(.name == $n) | .digest'
}

@test "an image goes to another worker, is the same there, and sandboxes are made of it" {
	local image=${IMAGE%:latest}:latest
	[ -z "$(digest_on w2 "$image")" ]
	sandbox image push "$IMAGE" w2
	[ "$(digest_on w2 "$image")" = "$(digest_on w1 "$image")" ]
	sandbox node drain w1
	id=$(timeout 60 sandbox create -q --image "$IMAGE" --memory 64m --disk 64m)
	sandbox exec "$id" -- true
	sandbox delete "$id"
	sandbox node undrain w1
	# What is there is left alone; --all means every one.
	sandbox image push --all "$IMAGE" | grep -q "^$image "
}

@test "many megabytes pass whole" {
	mkdir "$FLEET/big"
	head -c 40000000 /dev/urandom >"$FLEET/big/data"
	tar -C "$FLEET/big" -cf "$FLEET/big.tar" .
	sandbox image import --node w1 "$FLEET/big.tar" big:1
	sandbox image push big:1 --from w1 w2
	[ "$(digest_on w2 big:1)" = "$(digest_on w1 big:1)" ]
	digest_on w1 big:1 >"$FLEET/orphan"
	# Another image of that name is replaced.
	echo more >"$FLEET/big/more"
	tar -C "$FLEET/big" -cf - . | sandbox image import --node w1 - big:1
	[ "$(digest_on w2 big:1)" != "$(digest_on w1 big:1)" ]
	sandbox image push big:1 --from w1 --all
	[ "$(digest_on w2 big:1)" = "$(digest_on w1 big:1)" ]
	[ -z "$(find "$FLEET/controller" -size +1M -name '*image*')" ]
}

@test "what cannot be pushed is refused with its reason" {
	run sandbox image push nothing:1 w2
	[ "$status" -eq 3 ]
	[[ $output == *"no connected node has an image 'nothing:1'"* ]]
	run sandbox image push "$IMAGE" nowhere
	[ "$status" -eq 3 ]
	run sandbox image push "$IMAGE"
	[[ $status -ne 0 && $output == *"--all"* ]]
	run sandbox image push "$(digest_on w1 big:1)" w2
	[[ $status -ne 0 && $output == *"a name with a tag"* ]]
	run sandbox api -d - POST /v1/images/push <<<'{"image":"big:1","to":[]}'
	[[ $status -ne 0 && $output == *"name a node"* ]]
	# A worker that dies meanwhile is named.
	fleet_kill w2 KILL
	run timeout 60 sandbox image push big:1 w2
	[[ $status -ne 0 && $output == *"w2"* ]]
	fleet_worker w2 --set "policy.allowed_registries=*" --set "worker.docker_socket=$ENGINE2"
	until_ok 60 link_up w2
}

@test "a private image is private there too" {
	command -v docker-registry >/dev/null || skip "docker-registry is not installed"
	registry_start "$FLEET/registry"
	registry_push "$IMAGE" priv/app:1
	sandbox image login "$REGISTRY" -u puller --password-stdin <<<"$REGISTRY_PASSWORD"
	sandbox image pull --node w1 "$REGISTRY/priv/app:1"
	sandbox image push "$REGISTRY/priv/app:1" w2
	grep -qx "$REGISTRY/priv/app" "$FLEET/w2/private-images"
	sandbox node drain w1
	run timeout 60 sandbox --tenant blue create -q --image "$REGISTRY/priv/app:1" --memory 64m --disk 64m
	[[ $status -ne 0 && $output == *"is private"* ]]
	sandbox node undrain w1
}
