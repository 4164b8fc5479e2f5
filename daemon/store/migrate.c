/*
 * Numbered migrations. A release only expands the schema (adds tables and columns with defaults), the next one contracts it,
 * so that two neighbouring versions can work on one database. Each runs in one transaction with its number.
 */
#include "daemon/store/internal.h"

#include "daemon/store/migrations/0001_base.h"
#include "daemon/store/migrations/0002_detached.h"
#include "daemon/store/migrations/0003_events.h"
#include "daemon/store/migrations/0004_identity.h"
#include "daemon/store/migrations/0005_pools.h"
#include "daemon/store/migrations/0006_tunnels.h"
#include "daemon/store/migrations/0007_fleet.h"
#include "daemon/store/migrations/0008_secrets.h"
#include "daemon/store/migrations/0009_registries.h"
#include "shared/base/mem.h"

static const struct {
	int64_t version;
	const char *name;
	const char *sql;
} migrations[] = {
	{ 1, "base", migration_0001_base },
	{ 2, "detached", migration_0002_detached },
	{ 3, "events", migration_0003_events },
	{ 4, "identity", migration_0004_identity },
	{ 5, "pools", migration_0005_pools },
	{ 6, "tunnels", migration_0006_tunnels },
	{ 7, "fleet", migration_0007_fleet },
	{ 8, "secrets", migration_0008_secrets },
	{ 9, "registries", migration_0009_registries },
};

static int last_version(struct db_tx *tx, int64_t *ret, char *name, size_t n, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_MIGRATION_LAST);
	int rc = db_step(s, err);
	if (rc < 0)
		return -1;
	*ret = rc ? db_i64(s, 0) : 0;
	copy_text(name, n, rc ? db_text(s, 1) : "");
	db_reset(s);
	return 0;
}

static int apply(struct db_tx *tx, size_t i, int64_t now, struct error *err)
{
	if (db_script(tx, migrations[i].sql, err) != 0)
		return error_wrap(err, "migration %s", migrations[i].name);
	struct db_stmt *s = db_query(tx, Q_MIGRATION_ADD);
	db_bind_i64(s, 1, migrations[i].version);
	db_bind_text(s, 2, migrations[i].name);
	db_bind_i64(s, 3, now);
	return db_run(s, NULL, err);
}

int store_migrate(struct db *db, int64_t now, int64_t *ret_version, struct error *err)
{
	auto_tx *tx = NULL;
	char name[64];
	int64_t at = 0, known = migrations[ARRAY_LEN(migrations) - 1].version;
	/* The writer's lock is held from the look to the last change: a second daemon that starts at once waits and finds it done. */
	if (db_begin(db, DB_SCHEMA, &tx, err) != 0)
		return -1;
	struct db_stmt *lock = db_query(tx, Q_MIGRATION_LOCK);
	if (db_step(lock, err) < 0)
		return -1;
	db_reset(lock);
	if (db_script(tx, "CREATE TABLE IF NOT EXISTS migrations (version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, "
			  "applied_us BIGINT NOT NULL)", err) != 0 ||
	    last_version(tx, &at, name, sizeof(name), err) != 0)
		return -1;
	if (at > known)
		return error_set(err, ERR_CONFLICT,
				 "the store has schema %lld ('%s') and this sandboxd knows %lld: a newer version wrote it; run that "
				 "version, or give this one another store", (long long)at, name, (long long)known);
	for (size_t i = 0; i < ARRAY_LEN(migrations); i++)
		if (migrations[i].version > at && apply(tx, i, now, err) != 0)
			return -1;
	*ret_version = known;
	return db_commit(steal(&tx), err);
}
