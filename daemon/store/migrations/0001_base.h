/*
 * The first schema. Times are microseconds, enums their wire words, flags 0 or 1, ids text. `rid` is the id backwards,
 * so that a reference by an id's last digits is a range of an index.
 */
#ifndef SANDBOX_DAEMON_STORE_MIGRATION_0001_H
#define SANDBOX_DAEMON_STORE_MIGRATION_0001_H

static const char migration_0001_base[] =
	"CREATE TABLE nodes ("
	" id {ascii} NOT NULL PRIMARY KEY, name TEXT NOT NULL, region TEXT NOT NULL,"
	" cpu_millis BIGINT NOT NULL, memory_mib BIGINT NOT NULL, disk_mib BIGINT NOT NULL, pids BIGINT NOT NULL,"
	" max_sandboxes BIGINT NOT NULL,"
	" used_cpu_millis BIGINT NOT NULL DEFAULT 0, used_memory_mib BIGINT NOT NULL DEFAULT 0,"
	" used_disk_mib BIGINT NOT NULL DEFAULT 0, used_pids BIGINT NOT NULL DEFAULT 0,"
	" sandboxes BIGINT NOT NULL DEFAULT 0,"
	" offers TEXT NOT NULL, seen_us BIGINT NOT NULL);"

	"CREATE TABLE sandboxes ("
	" id {ascii} NOT NULL PRIMARY KEY, rid {ascii} NOT NULL, tenant {ascii} NOT NULL, name {ascii},"
	" state TEXT NOT NULL, live BIGINT NOT NULL, node_id {ascii} NOT NULL, node_name TEXT NOT NULL,"
	" tier TEXT NOT NULL, risk_score BIGINT NOT NULL, writable_root BIGINT NOT NULL,"
	" created_us BIGINT NOT NULL, updated_us BIGINT NOT NULL, expires_us BIGINT NOT NULL,"
	" ended_us BIGINT NOT NULL, end_reason TEXT NOT NULL, delete_op {ascii},"
	" image_digest TEXT, failure TEXT, decision TEXT, spec TEXT NOT NULL);"
	"CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes (tenant, name) WHERE live = 1;"
	"CREATE INDEX sandboxes_name ON sandboxes (name);"
	"CREATE INDEX sandboxes_rid ON sandboxes (rid);"
	"CREATE INDEX sandboxes_tenant ON sandboxes (tenant, id);"
	"CREATE INDEX sandboxes_live ON sandboxes (id) WHERE live = 1;"
	"CREATE INDEX sandboxes_live_tenant ON sandboxes (tenant, id) WHERE live = 1;"
	"CREATE INDEX sandboxes_live_node ON sandboxes (node_id, id) WHERE live = 1;"
	"CREATE INDEX sandboxes_due ON sandboxes (expires_us) WHERE live = 1 AND state <> 'stopping';"
	"CREATE INDEX sandboxes_ended ON sandboxes (ended_us) WHERE live = 0;"

	/* What a live sandbox holds of its node; gone when the sandbox has ended. */
	"CREATE TABLE reservations ("
	" sandbox_id {ascii} NOT NULL PRIMARY KEY, node_id {ascii} NOT NULL,"
	" cpu_millis BIGINT NOT NULL, memory_mib BIGINT NOT NULL, disk_mib BIGINT NOT NULL, pids BIGINT NOT NULL,"
	" anti_affinity {bytes});"

	/* Each command writes here twice and waits for it, so there are few indexes: every one is another page to write. */
	"CREATE TABLE operations ("
	" id {ascii} NOT NULL PRIMARY KEY, sandbox_id {ascii} NOT NULL, node_id {ascii} NOT NULL,"
	" tenant {ascii} NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL, attempt BIGINT NOT NULL,"
	" not_before_us BIGINT NOT NULL, boot_id TEXT NOT NULL,"
	" created_us BIGINT NOT NULL, updated_us BIGINT NOT NULL, ended_us BIGINT NOT NULL,"
	" has_result BIGINT NOT NULL, outcome TEXT NOT NULL, exit_code BIGINT NOT NULL, signal BIGINT NOT NULL,"
	" oom_killed BIGINT NOT NULL, truncated BIGINT NOT NULL, out_total BIGINT NOT NULL, err_total BIGINT NOT NULL,"
	" error_code TEXT, error TEXT, actor TEXT,"
	" argv {bytes}, env_keys {bytes}, cwd {bytes}, run_user TEXT, timeout_ms BIGINT NOT NULL, tty BIGINT NOT NULL) {clustered};"
	"CREATE INDEX operations_sandbox ON operations (sandbox_id, id);"
	"CREATE INDEX operations_tenant ON operations (tenant, id);"
	"CREATE INDEX operations_open ON operations (node_id, sandbox_id) WHERE ended_us = 0;"

	/* Apart from operations, so that lists do not read past them; no row when nothing was written. */
	"CREATE TABLE outputs ("
	" operation_id {ascii} NOT NULL PRIMARY KEY,"
	" out_head {bytes}, out_tail {bytes}, err_head {bytes}, err_tail {bytes});"

	/* The outbox: written in the transaction that made it true. The id is the message id and the order. */
	"CREATE TABLE events ("
	" id {ascii} NOT NULL PRIMARY KEY, type TEXT NOT NULL, tenant {ascii} NOT NULL, sandbox_id {ascii} NOT NULL,"
	" operation_id {ascii}, detail TEXT, actor TEXT, created_us BIGINT NOT NULL, published_us BIGINT NOT NULL) {clustered};"

	"CREATE TABLE idempotency ("
	" tenant {ascii} NOT NULL, route {ascii} NOT NULL, idem_key {ascii} NOT NULL, body_hash BIGINT NOT NULL,"
	" sandbox_id {ascii} NOT NULL, operation_id {ascii} NOT NULL, created_us BIGINT NOT NULL,"
	" PRIMARY KEY (tenant, route, idem_key)) {clustered};"
	"CREATE INDEX idempotency_created ON idempotency (created_us);";

#endif
