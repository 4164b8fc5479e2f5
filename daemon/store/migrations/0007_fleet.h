/* Nodes that join from elsewhere: their credentials, the link in force, whether they take work; and the tokens they join with. */
#ifndef SANDBOX_DAEMON_STORE_MIGRATION_0007_H
#define SANDBOX_DAEMON_STORE_MIGRATION_0007_H

static const char migration_0007_fleet[] =
	"ALTER TABLE nodes ADD COLUMN credential {ascii} NOT NULL DEFAULT '';"
	"ALTER TABLE nodes ADD COLUMN next_credential {ascii} NOT NULL DEFAULT '';"
	"ALTER TABLE nodes ADD COLUMN draining BIGINT NOT NULL DEFAULT 0;"
	"ALTER TABLE nodes ADD COLUMN joined_us BIGINT NOT NULL DEFAULT 0;"
	"ALTER TABLE nodes ADD COLUMN linked_us BIGINT NOT NULL DEFAULT 0;"
	"ALTER TABLE nodes ADD COLUMN link_epoch BIGINT NOT NULL DEFAULT 0;"
	"ALTER TABLE nodes ADD COLUMN link_controller TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE nodes ADD COLUMN session TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE nodes ADD COLUMN boot_id TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE nodes ADD COLUMN version TEXT NOT NULL DEFAULT '';"

	"CREATE TABLE join_tokens ("
	" id {ascii} NOT NULL PRIMARY KEY, name TEXT NOT NULL, hash {ascii} NOT NULL, pin TEXT NOT NULL,"
	" created_us BIGINT NOT NULL, created_by TEXT NOT NULL, expires_us BIGINT NOT NULL, used_us BIGINT NOT NULL);"
	"CREATE UNIQUE INDEX join_tokens_hash ON join_tokens (hash);";

#endif
