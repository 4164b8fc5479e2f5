# Stopping and starting the private PostgreSQL of tests/lib/with-postgres, and a database of its own for a bats file.

need_postgres() {
	[ -n "${SANDBOX_TEST_PG_URL:-}" ] || skip "no PostgreSQL (run below tests/lib/with-postgres)"
}

pg_as() {
	if [ "$(id -u)" -eq 0 ]; then
		(cd / && setpriv --reuid=postgres --regid=postgres --clear-groups "$@")
	else
		"$@"
	fi
}

pg_ctl() {
	pg_as "$SANDBOX_TEST_PG_BIN/pg_ctl" -D "$SANDBOX_TEST_PG_DIR/data" -l "$SANDBOX_TEST_PG_DIR/server.log" -w -t 60 "$@" >/dev/null 2>&1 3>&- 4>&-
}

pg_sql() {
	"$SANDBOX_TEST_PG_BIN/psql" "${SANDBOX_TEST_PG_URL/dbname=postgres/dbname=${2:-postgres}}" -qAtX -c "$1"
}

# A database; PG_URL is its address without blanks.
pg_database() {
	pg_sql "CREATE DATABASE $1"
	export PG_URL="postgresql://sandbox@/$1?host=$SANDBOX_TEST_PG_DIR"
}

pg_drop() {
	pg_sql "DROP DATABASE IF EXISTS $1 WITH (FORCE)"
}
