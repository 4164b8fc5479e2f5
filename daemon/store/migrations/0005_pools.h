/* Sandboxes started before anybody asked for one: a live row of the tenant "" belongs to nobody yet. */
#ifndef SANDBOX_DAEMON_STORE_MIGRATION_0005_H
#define SANDBOX_DAEMON_STORE_MIGRATION_0005_H

static const char migration_0005_pools[] =
	"ALTER TABLE sandboxes ADD COLUMN pool TEXT NOT NULL DEFAULT '';"
	/* All that a request must equal. */
	"ALTER TABLE sandboxes ADD COLUMN pool_key TEXT NOT NULL DEFAULT '';"
	"CREATE INDEX sandboxes_warm ON sandboxes (pool_key, id) WHERE live = 1 AND tenant = '';";

#endif
