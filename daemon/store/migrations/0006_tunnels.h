/* Public routes, and whom the names belong to that somebody chose. */
#ifndef SANDBOX_DAEMON_STORE_MIGRATION_0006_H
#define SANDBOX_DAEMON_STORE_MIGRATION_0006_H

static const char migration_0006_tunnels[] =
	"CREATE TABLE tunnels ("
	" id {ascii} NOT NULL PRIMARY KEY, sandbox_id {ascii} NOT NULL, tenant {ascii} NOT NULL, label {ascii} NOT NULL,"
	" port BIGINT NOT NULL, protocol TEXT NOT NULL, auth TEXT NOT NULL, hash TEXT NOT NULL, keep_host BIGINT NOT NULL,"
	" state TEXT NOT NULL, live BIGINT NOT NULL, failure TEXT, created_us BIGINT NOT NULL, expires_us BIGINT NOT NULL);"
	"CREATE UNIQUE INDEX tunnels_live_label ON tunnels (label) WHERE live = 1;"
	"CREATE INDEX tunnels_sandbox ON tunnels (sandbox_id);"
	"CREATE INDEX tunnels_due ON tunnels (expires_us) WHERE live = 1 AND expires_us > 0;"

	"CREATE TABLE tunnel_names (label {ascii} NOT NULL PRIMARY KEY, tenant {ascii} NOT NULL, until_us BIGINT NOT NULL);";

#endif
