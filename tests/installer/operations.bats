#!/usr/bin/env bats
# docs/operations.md, "Setting up PostgreSQL" and "A fleet": a controller, its database and two workers from nothing, by the commands and the
# configurations that stand there. Only what names a machine is another: addresses, and the folder /etc/sandbox.

load ../lib/helpers
load ../lib/tls
load ../lib/fleet
load ../lib/postgres

setup_file() {
	need_postgres
	fleet_start_dirs
	export ETC=$FLEET/etc SANDBOX_URL=unix://$FLEET/controller/d.sock
	mkdir "$ETC"
	make_cert "$FLEET/tls" server DNS:localhost,IP:127.0.0.1
	cp "$FLEET/tls/server.pem" "$FLEET/tls/server.key" "$ETC/"
	(umask 077 && echo "a-password" >"$ETC/db-password")
}

teardown_file() {
	[ -n "${FLEET:-}" ] || return 0
	fleet_stop
	pg_sql "DROP DATABASE IF EXISTS sandbox WITH (FORCE)"
}

# block N: the Nth ```ini block of the guide, with this machine's names.
block() {
	awk -v n="$1" '/^```ini$/ { inside = ++i == n; next } /^```$/ { inside = 0 } inside' "$TOP/docs/operations.md" |
		sed -e "s|/etc/sandbox/|$ETC/|; s|0\.0\.0\.0:8443|127.0.0.1:$FLEET_PORT|; s|controller\.internal:8443|localhost:$FLEET_PORT|" \
			-e "s|^url = postgresql://sandbox@[^/]*/sandbox?.*|url = postgresql://sandbox@/sandbox?host=$SANDBOX_TEST_PG_DIR|"
}

# The line of the guide that begins so.
line() {
	grep -m 1 "^$1" "$TOP/docs/operations.md"
}

# sandboxd with a configuration file, as fleet_run starts it; what tests set besides is where its files and Docker are.
serve() {
	fleet_run "$1" --config "$ETC/$1.conf"
}

# worker NAME: step 2 on the controller, step 3 on the worker's machine.
worker() {
	(umask 077 && sandbox node token -q "$1" >"$ETC/join-token")
	block 2 | sed "s/^name = .*/name = $1/" >"$ETC/$1.conf"
	SANDBOX_TEST_RUNTIME=fake serve "$1"
	rm "$ETC/join-token"
	[ "$(stat -c %a "$FLEET/$1/node-credential")" = 600 ]
}

@test "the database, by the guide's line" {
	[ "$(line createuser)" = "createuser --pwprompt sandbox" ]
	# Its server here has the user already.
	run -0 env PGHOST="$SANDBOX_TEST_PG_DIR" PGUSER=sandbox PATH="$SANDBOX_TEST_PG_BIN:$PATH" sh -c "$(line createdb)"
}

@test "the controller, and nobody works for it yet" {
	block 1 >"$ETC/controller.conf"
	grep -q '^role = controller' "$ETC/controller.conf"
	run -0 "$BUILD/sandboxd" --check-config --config "$ETC/controller.conf"
	serve controller
	grep -q 'store=postgresql' "$FLEET/controller/log"
	[ -z "$(sandbox node list -q)" ]
	curl -fsS --max-time 10 --cacert "$FLEET/tls/ca.pem" "https://localhost:$FLEET_PORT/readyz" | jq -e '.store == "postgresql"'
}

@test "two workers by a token each, and what is created lands on them" {
	local i
	worker rack-1
	worker rack-2
	until_ok 60 node_is rack-1 up
	until_ok 60 node_is rack-2 up
	for i in 1 2 3 4; do sandbox create -q --image any --name "box$i"; done
	[ "$(sandbox list --json=node_name | jq -r '.[].node_name' | sort | uniq -c | wc -l)" -eq 2 ]
	[ "$(sandbox exec -w / box1 -- echo here)" = here ]
	sandbox node inspect --json rack-1 | jq -e '.region == "eu-1" and .labels.disk == "ssd"'
	# Started again without the token: the credential is enough.
	fleet_kill rack-2
	SANDBOX_TEST_RUNTIME=fake serve rack-2
	until_ok 60 node_is rack-2 up
}
