/*
 * A schema of its own in the PostgreSQL that tests/lib/with-postgres started, and looking into it from outside.
 */
#ifndef TESTS_UNIT_PG_WORLD_H
#define TESTS_UNIT_PG_WORLD_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "shared/base/mem.h"

#include <libpq-fe.h>
#include <string.h>
#include <unistd.h>

#define PG_UNUSED __attribute__((unused))

/* The server of this run, NULL: none. */
PG_UNUSED static const char *pg_server(void)
{
	const char *url = getenv("SANDBOX_TEST_PG_URL");
	return url && *url ? url : NULL;
}

/* Whether this run's controllers are to use it. */
PG_UNUSED static bool on_pg(void)
{
	const char *store = getenv("SANDBOX_TEST_STORE");
	return store && strcmp(store, "postgresql") == 0 && pg_server();
}

PG_UNUSED static char *pg_ask(const char *url, const char *sql)
{
	PGconn *c = PQconnectdb(url);
	PGresult *r = PQexec(c, sql);
	ExecStatusType status = PQresultStatus(r);
	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		fail_msg("%s: %s", sql, PQerrorMessage(c));
	char *value = PQntuples(r) > 0 ? xstrdup(PQgetvalue(r, 0, 0)) : xstrdup("");
	PQclear(r);
	PQfinish(c);
	return value;
}

PG_UNUSED static void pg_run(const char *url, const char *sql)
{
	free(pg_ask(url, sql));
}

/* A new schema; the connection string that lands in it. */
PG_UNUSED static void pg_schema_new(char *url, size_t n)
{
	static int number;
	auto_free char *sql = xasprintf("CREATE SCHEMA t%d_%d", (int)getpid(), ++number);
	pg_run(pg_server(), sql);
	snprintf(url, n, "%s options='-c search_path=t%d_%d'", pg_server(), (int)getpid(), number);
}

PG_UNUSED static void pg_schema_drop(const char *url)
{
	const char *name = strstr(url, "search_path=");
	auto_free char *schema = xstrdup(name + strlen("search_path="));
	schema[strcspn(schema, "'")] = '\0';
	auto_free char *sql = xasprintf("SET client_min_messages = error; DROP SCHEMA %s CASCADE", schema);
	pg_run(pg_server(), sql);
}

#endif
