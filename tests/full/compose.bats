#!/usr/bin/env bats
# The compose file as its guide says it: images built from the packages on a bare Debian, no registry, and then a remote first sandbox.
load ../lib/helpers.bash
load ../lib/tls.bash
load ../lib/debian_root.bash

setup_file() {
	need_engine
	[ "$(id -u)" -eq 0 ] || skip "not root"
	local p
	for p in docker-compose debootstrap dpkg-shlibdeps; do command -v $p >/dev/null || skip "no $p"; done
	W=$(mktemp -d "${TMPDIR:-/tmp}/sbx-compose.XXXXXX")
	export W COMPOSE_PROJECT_NAME=sbxcompose$$ SANDBOX_DOMAIN=sandbox.localhost
	chmod 755 "$W"
	export SANDBOX_BASE=$COMPOSE_PROJECT_NAME-base SANDBOX_POSTGRES_IMAGE=$COMPOSE_PROJECT_NAME-postgres SANDBOX_CADDY_IMAGE=$COMPOSE_PROJECT_NAME-caddy
	debian_root "$W/root"
	tar -C "$W/root" --numeric-owner -c . | docker import --change "LABEL sbx.test=$COMPOSE_PROJECT_NAME" - "$SANDBOX_BASE" >/dev/null
	rm -rf "$W/root"
	packages_of "$W/packages"
	mkdir "$W/compose"
	cp -r "$TOP"/installer/compose/. "$W/packages/"*.deb "$W/compose/"
	# Compose 1 knows no control group namespaces; an engine of its time has none either unless asked.
	! docker-compose version --short | grep -q ^1 || sed -i '/^    cgroup: host$/d' "$W/compose/compose.yaml"
	# What registries would give, with the same way of being told the user and the password.
	stand_in postgres 'postgresql' postgres-entry
	stand_in caddy 'caddy' caddy-entry
	export SANDBOX_HTTP_PORT SANDBOX_HTTPS_PORT SANDBOX_WORKER_DIR=$W/worker SANDBOX_DOCKER_SOCKET=$DOCKER_SOCKET SANDBOX_NODE=worker-1
	SANDBOX_HTTP_PORT=$(free_port)
	SANDBOX_HTTPS_PORT=$(free_port)
	# As on a machine with systemd: what is mounted below is shared.
	mkdir "$W/worker"
	mount --bind "$W/worker" "$W/worker"
	mount --make-shared "$W/worker"
	# The packages of the images come over this machine's network; `docker compose` is what this machine has of it.
	printf '%s\n' 'version: "3.4"' services: '  controller:' '    build: {network: host}' '  worker:' '    build: {network: host}' networks: \
		"  back: {driver_opts: {com.docker.network.bridge.name: sbc$$b}}" "  front: {driver_opts: {com.docker.network.bridge.name: sbc$$f}}" >"$W/compose/override.yaml"
	# An engine without rules of its own relies on the machine's, which may forward nothing.
	export BRIDGES="sbc$$b sbc$$f"
	bridges -I
	mkdir "$W/bin"
	printf '#!/bin/sh\nif [ "$1" = compose ]; then shift; cd "%s" && exec docker-compose -f compose.yaml -f override.yaml "$@"; fi\nexec %s "$@"\n' \
		"$W/compose" "$(command -v docker)" >"$W/bin/docker"
	chmod 755 "$W/bin/docker"
	export PATH=$W/bin:$PATH HOME=$W/home
	mkdir "$HOME"
}

teardown_file() {
	[ -n "${W:-}" ] || return 0
	local node c
	node=$(cat "$W/worker/state/node-id" 2>/dev/null || true)
	bridges -D
	timeout 200 docker compose down -v -t 20 >/dev/null 2>&1 || true
	if [ -n "$node" ]; then for c in $(docker ps -aq --filter "label=io.sandbox.node=$node"); do docker rm -f "$c" >/dev/null; done; fi
	grep -o "$W/[^ ]*" /proc/mounts | sort -r | while read -r c; do umount -l "$c"; done
	for c in base postgres caddy; do docker rmi -f "$COMPOSE_PROJECT_NAME-$c" >/dev/null 2>&1 || true; done
	docker rmi -f sandbox-controller sandbox-worker >/dev/null 2>&1 || true
	docker image prune -f --filter "label=sbx.test=$COMPOSE_PROJECT_NAME" >/dev/null 2>&1 || true
	rm -rf "$W"
}

# bridges -I|-D: what goes from container to container is let through, or no longer.
bridges() {
	local b
	command -v iptables >/dev/null || return 0
	for b in $BRIDGES; do iptables "$1" FORWARD -i "$b" -o "$b" -j ACCEPT 2>/dev/null || true; done
}

# stand_in NAME PACKAGE ENTRY
stand_in() {
	mkdir "$W/$1"
	entry "$3" >"$W/$1/entry"
	chmod 755 "$W/$1/entry"
	printf 'FROM %s\nRUN apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends %s\nCOPY entry /entry\nENTRYPOINT ["/entry"]\n' \
		"$SANDBOX_BASE" "$2" >"$W/$1/Dockerfile"
	timeout 600 docker build -q --network host -t "$COMPOSE_PROJECT_NAME-$1" "$W/$1" >"$W/$1.log" 2>&1 || { tail -n 20 "$W/$1.log"; return 1; }
}

entry() {
	case $1 in
	caddy-entry) printf '#!/bin/sh\nexport XDG_DATA_HOME=/data\nexec "$@"\n' ;;
	postgres-entry)
		cat <<-'SH'
			#!/bin/sh
			set -e
			bin=$(ls -d /usr/lib/postgresql/*/bin | head -n 1)
			data=/var/lib/postgresql/data
			mkdir -p $data /var/run/postgresql && chown -R postgres $data /var/run/postgresql
			as() { setpriv --reuid postgres --regid postgres --clear-groups "$@"; }
			if [ ! -s $data/PG_VERSION ]; then
				(umask 077; cat "$POSTGRES_PASSWORD_FILE" >/tmp/password; chown postgres /tmp/password)
				as $bin/initdb -D $data -U "$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 --auth-local=trust -E UTF8 >/dev/null
				rm /tmp/password
				echo "host all all all scram-sha-256" >>$data/pg_hba.conf
				as $bin/pg_ctl -D $data -w -o "-c listen_addresses=" start >/dev/null
				as $bin/createdb -U "$POSTGRES_USER" "$POSTGRES_DB" || true
				as $bin/pg_ctl -D $data -w stop >/dev/null
			fi
			exec setpriv --reuid postgres --regid postgres --clear-groups $bin/postgres -D $data -c 'listen_addresses=*'
		SH
		;;
	esac
}

# The ```sh blocks of the guide: number N.
guide() {
	awk -v n="$1" '/^```sh$/ { inside = ++i == n; next } /^```$/ { inside = 0 } inside' "$TOP/docs/guides/compose.md"
}

node_up() {
	docker compose exec -T controller sandbox node list --json=state 2>/dev/null | grep -q '"up"'
}

@test "the guide's commands bring a server up" {
	guide 1 >"$W/commands"
	[ "$(wc -l <"$W/commands")" -eq 6 ]
	run timeout 1200 bash -e -o pipefail "$W/commands" </dev/null
	[ "$status" -eq 0 ] || { echo "$output" | tail -n 40; false; }
	[[ $output != *password=* ]]
	until_ok 120 node_up || { docker compose logs --tail 20; false; }
}

@test "what decides has no rights, and no secret in its configuration at the engine" {
	local id
	id=$(docker compose ps -q controller)
	[ "$(docker inspect -f '{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.Privileged}}' "$id")" = "sandboxd true [ALL] false" ]
	run -0 docker exec "$id" sh -c 'grep ^CapBnd /proc/1/status; id -u; ls -ld /etc/sandbox-controller | cut -c 1-10'
	[[ $output == *"0000000000000000"*10001*drwx------* ]]
	local password
	password=$(docker exec "$id" cat /etc/sandbox-controller/db-password)
	[ "${#password}" -ge 32 ]
	run docker inspect $(docker compose ps -q)
	[[ $output != *"$password"* ]]
}

@test "somebody elsewhere runs a first sandbox through the public name" {
	guide 2 >"$W/commands"
	run -0 --separate-stderr timeout 60 bash -e "$W/commands"
	local token
	token=$(grep -o 'sbx_[A-Za-z0-9_-]*' <<<"$output" | head -n 1)
	[ -n "$token" ]
	until_ok 60 sh -c "docker compose exec -T proxy cat /data/caddy/pki/authorities/local/root.crt >'$W/root.crt' 2>/dev/null"
	export SANDBOX_URL=https://$SANDBOX_DOMAIN:$SANDBOX_HTTPS_PORT SANDBOX_CA_FILE=$W/root.crt SANDBOX_TOKEN=$token
	until_ok 60 curl -fsS --max-time 10 --cacert "$W/root.crt" "$SANDBOX_URL/readyz" -o "$W/ready"
	run -0 timeout 120 sandbox run --image "$IMAGE" --disk-mib 64 -- sh -c 'echo from $(hostname); df -h /workspace | tail -n 1'
	[[ $output == *"from sandbox"*/dev/loop* ]]
	sandbox create -q --image "$IMAGE" --disk-mib 64 --name kept
	sandbox exec kept -- sh -c 'echo here >/workspace/f'
	# A restart of either program leaves it alone.
	timeout 120 docker compose restart -t 20 worker controller >/dev/null 2>&1
	until_ok 120 sh -c '[ "$(timeout 20 sandbox exec kept -- cat /workspace/f 2>/dev/null)" = here ]'
	sandbox delete kept --wait
}
