/* Commands that no client holds: a restarted daemon must not wait for one to come back, also when their spool is gone. */
#ifndef SANDBOX_DAEMON_STORE_MIGRATION_0002_H
#define SANDBOX_DAEMON_STORE_MIGRATION_0002_H

static const char migration_0002_detached[] = "ALTER TABLE operations ADD COLUMN detached BIGINT NOT NULL DEFAULT 0;";

#endif
