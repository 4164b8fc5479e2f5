#!/usr/bin/env bats
# The daemon on PostgreSQL, and what becomes of it when the database goes away: calls are refused with 503 and Retry-After, it
# recovers by itself, and running commands do not notice.
# run-alone: it stops the PostgreSQL of the others

load ../lib/helpers.bash
load ../lib/postgres.bash

setup_file() {
	need_engine
	need_postgres
	pg_database "e2e_$$"
	export PG_NAME=e2e_$$
	sbx_start --set store.driver=postgresql --set "store.url=$PG_URL" --set store.timeout=2s --set policy.max_host_pressure=1
}

teardown_file() {
	[ -n "${PG_NAME:-}" ] || return 0
	pg_ctl status || pg_ctl start || true
	until_ok 15 ready
	sbx_stop
	pg_drop "$PG_NAME"
}

http() {
	curl -sS --max-time 20 --unix-socket "$SBX_DIR/d.sock" "$@"
}

ready() {
	[ "$(http -o /dev/null -w '%{http_code}' http://x/readyz)" = 200 ]
}

works() {
	[ "$(timeout 20 sandbox exec "$1" -- echo yes 2>/dev/null)" = yes ]
}

@test "the life of a sandbox is in the database" {
	local id
	run -0 --separate-stderr sbx_create --name first
	id=$(echo "$output" | tail -n 1)
	run -0 timeout 20 sandbox exec first -- echo 'a b'
	[ "$output" = 'a b' ]
	run -3 timeout 20 sandbox exec first -- sh -c 'exit 3'
	[ "$(pg_sql "SELECT state FROM sandboxes WHERE id = '$id'" "$PG_NAME")" = running ]
	[ "$(pg_sql "SELECT COUNT(*) FROM operations WHERE kind = 'exec' AND ended_us > 0" "$PG_NAME")" = 2 ]
	[ ! -e "$SBX_DIR/state/store.db" ]
	[ "$(http http://x/healthz | jq -r .store)" = postgresql ]
	run -0 timeout 60 sandbox delete first --wait
	[ "$(pg_sql "SELECT state FROM sandboxes WHERE id = '$id'" "$PG_NAME")" = stopped ]
	[ "$(pg_sql "SELECT SUM(sandboxes) FROM nodes" "$PG_NAME")" = 0 ]
}

@test "twenty running commands outlive an immediate restart of the database" {
	local i fds
	run -0 --separate-stderr sbx_create --name busy
	works busy
	fds=$(daemon_fds)
	for i in $(seq 20); do
		timeout 60 sandbox exec busy -- sh -c "for n in 1 2 3 4 5 6; do echo $i-\$n; sleep 0.5; done; exit $i" >"$BATS_TEST_TMPDIR/$i" 2>"$BATS_TEST_TMPDIR/$i.err" 3>&- &
		eval "pid_$i=$!"
	done
	until_ok 15 all_begun
	pg_ctl -m immediate restart
	for i in $(seq 20); do
		local status=0 pid
		eval "pid=\$pid_$i"
		wait "$pid" || status=$?
		[ "$status" -eq "$i" ] || { cat "$BATS_TEST_TMPDIR/$i.err"; false; }
		[ "$(cat "$BATS_TEST_TMPDIR/$i")" = "$(printf "$i-%s\n" 1 2 3 4 5 6)" ]
	done
	until_ok 5 works busy
	until_ok 15 none_open
	[ "$(daemon_fds)" -le $((fds + 8)) ]
}

all_begun() {
	local i
	for i in $(seq 20); do
		[ -s "$BATS_TEST_TMPDIR/$i" ] || return 1
	done
}

none_open() {
	[ "$(pg_sql "SELECT COUNT(*) FROM operations WHERE ended_us = 0" "$PG_NAME")" = 0 ]
}

@test "while the database is away calls are refused at once; the rest goes on, and then all of it" {
	local start
	timeout 60 sandbox exec busy -- sh -c 'for n in 1 2 3 4 5 6 7 8; do echo $n; sleep 0.5; done' >"$BATS_TEST_TMPDIR/out" 3>&- &
	local pid=$!
	until_ok 10 test -s "$BATS_TEST_TMPDIR/out"
	# One that is to end while nothing can be recorded.
	timeout 20 sandbox exec --detach busy -- sleep 1
	pg_ctl -m immediate stop
	run -0 http -i http://x/v1/sandboxes
	[[ "$output" == *" 503 "* ]]
	[[ "$output" == *Retry-After:* ]]
	[[ "$output" == *'"unavailable"'* ]]
	[ "$(http -o /dev/null -w '%{http_code}' http://x/readyz)" = 503 ]
	[ "$(http -o /dev/null -w '%{http_code}' http://x/healthz)" = 200 ]
	start=$SECONDS
	run timeout 20 sandbox exec busy -- true
	[ "$status" -ne 0 ]
	run timeout 20 sandbox list
	[ "$status" -ne 0 ]
	[ $((SECONDS - start)) -le 4 ]
	sleep 4
	wait "$pid" || true
	[ "$(wc -l <"$BATS_TEST_TMPDIR/out")" -eq 8 ]
	pg_ctl start
	until_ok 5 ready
	until_ok 5 works busy
	until_ok 20 none_open
}

@test "connections that the server ends are no error for anybody" {
	local i
	for i in 1 2 3 4 5; do
		pg_sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sandboxd'" >/dev/null
		run -0 timeout 20 sandbox list -q
		works busy
	done
}

@test "deadlines are kept after an outage" {
	run -0 --separate-stderr sbx_create --name brief --ttl 3s
	pg_ctl -m fast stop
	sleep 3
	pg_ctl start
	until_ok 15 gone brief
}

gone() {
	[ "$(pg_sql "SELECT state FROM sandboxes WHERE name = '$1'" "$PG_NAME")" = stopped ]
}

@test "a daemon that starts before its database waits for it" {
	sbx_kill TERM
	pg_ctl -m fast stop
	(sleep 3; pg_ctl start) 3>&- &
	local starter=$!
	sbx_daemon
	wait "$starter"
	grep -q 'waiting for the store' "$SBX_DIR/log"
	works busy
}

@test "records are dumped while the daemon works and come back after a loss" {
	local id later dump=$BATS_TEST_TMPDIR/sandbox.dump
	id=$(sbx_create --name keeper)
	"$SANDBOX_TEST_PG_BIN/pg_dump" --format=custom --dbname="$PG_URL" --file="$dump"
	later=$(sbx_create --name later)
	sbx_kill TERM
	pg_drop "$PG_NAME"
	pg_sql "CREATE DATABASE $PG_NAME"
	"$SANDBOX_TEST_PG_BIN/pg_restore" --clean --if-exists --no-owner --dbname="$PG_URL" "$dump"
	sbx_daemon
	[ "$(sandbox inspect keeper --json | jq -r .id)" = "$id" ]
	until_ok 20 works keeper
	# What was made after the copy has no record: reconciliation removes it.
	run -3 timeout 20 sandbox inspect later
	until_ok 60 sh -c "[ -z \"\$(docker ps -aq --filter label=io.sandbox.id=$later)\" ]"
	timeout 60 sandbox delete keeper --wait
}

@test "nothing of a second driver or of a password is accepted silently" {
	run "$BUILD/sandboxd" --check-config --set store.driver=mysql
	[ "$status" -ne 0 ]
	[[ "$output" == *"store.driver: 'mysql' is not one of: sqlite, postgresql"* ]]
	run "$BUILD/sandboxd" --check-config --set store.driver=postgresql
	[ "$status" -ne 0 ]
	[[ "$output" == *"store.url is empty"* ]]
	run "$BUILD/sandboxd" --check-config --set store.url=postgresql://h/x
	[ "$status" -ne 0 ]
	[[ "$output" == *"store.driver is sqlite"* ]]
}
