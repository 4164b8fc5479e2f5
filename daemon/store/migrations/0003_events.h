/* Readers of the outbox remember how far they have come; several controllers number their events. */
#ifndef SANDBOX_DAEMON_STORE_MIGRATION_0003_H
#define SANDBOX_DAEMON_STORE_MIGRATION_0003_H

static const char migration_0003_events[] =
	"CREATE TABLE marks (name {ascii} NOT NULL PRIMARY KEY, event_id {ascii} NOT NULL, updated_us BIGINT NOT NULL);"
	"{number_events}";

#endif
