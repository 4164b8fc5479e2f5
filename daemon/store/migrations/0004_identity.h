/* Tokens by the hash of their secret, the audit log, and what a tenant may hold. */
#ifndef SANDBOX_DAEMON_STORE_MIGRATION_0004_H
#define SANDBOX_DAEMON_STORE_MIGRATION_0004_H

static const char migration_0004_identity[] =
	"CREATE TABLE tokens ("
	" id {ascii} NOT NULL PRIMARY KEY, name TEXT NOT NULL, hash {ascii} NOT NULL, role TEXT NOT NULL, tenants TEXT NOT NULL,"
	" created_us BIGINT NOT NULL, created_by TEXT NOT NULL, expires_us BIGINT NOT NULL, revoked_us BIGINT NOT NULL,"
	" used_us BIGINT NOT NULL, used_from TEXT NOT NULL);"
	"CREATE UNIQUE INDEX tokens_hash ON tokens (hash);"
	"CREATE UNIQUE INDEX tokens_live_name ON tokens (name) WHERE revoked_us = 0;"

	"CREATE TABLE audit ("
	" id {ascii} NOT NULL PRIMARY KEY, at_us BIGINT NOT NULL, who TEXT NOT NULL, from_address TEXT NOT NULL, tenant TEXT NOT NULL,"
	" action TEXT NOT NULL, target TEXT NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL, request_id TEXT NOT NULL) {clustered};"

	"CREATE TABLE quotas ("
	" tenant {ascii} NOT NULL PRIMARY KEY, sandboxes BIGINT NOT NULL, cpu_millis BIGINT NOT NULL, memory_mib BIGINT NOT NULL,"
	" ttl_ms BIGINT NOT NULL, updated_us BIGINT NOT NULL);";

#endif
