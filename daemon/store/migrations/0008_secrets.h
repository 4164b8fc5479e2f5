/* Secrets of tenants, sealed by a key that the store does not hold, and what a tenant's sandboxes may reach. */
#ifndef SANDBOX_DAEMON_STORE_MIGRATION_0008_H
#define SANDBOX_DAEMON_STORE_MIGRATION_0008_H

static const char migration_0008_secrets[] =
	"CREATE TABLE secrets ("
	" tenant {ascii} NOT NULL, name {ascii} NOT NULL, sealed {bytes} NOT NULL, size BIGINT NOT NULL,"
	" created_us BIGINT NOT NULL, updated_us BIGINT NOT NULL, updated_by TEXT NOT NULL,"
	" PRIMARY KEY (tenant, name));"

	"CREATE TABLE egress ("
	" tenant {ascii} NOT NULL PRIMARY KEY, rules TEXT NOT NULL, updated_us BIGINT NOT NULL);";

#endif
