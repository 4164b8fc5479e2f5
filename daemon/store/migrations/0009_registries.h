/* What tenants show to image registries, sealed by the key of their secrets. */
#ifndef SANDBOX_DAEMON_STORE_MIGRATION_0009_H
#define SANDBOX_DAEMON_STORE_MIGRATION_0009_H

static const char migration_0009_registries[] =
	"CREATE TABLE registry_logins ("
	" tenant {ascii} NOT NULL, registry {ascii} NOT NULL, username TEXT NOT NULL, sealed {bytes} NOT NULL,"
	" created_us BIGINT NOT NULL, updated_us BIGINT NOT NULL, updated_by TEXT NOT NULL,"
	" PRIMARY KEY (tenant, registry));";

#endif
