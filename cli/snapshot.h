/*
 * A tree, as it comes record by record, written into a git repository as a commit. Its files never get names on this machine: contents go
 * to `git fast-import` as they are, without filters or attributes. Left out: .git at any depth, an agent's home (/.home of the workspace),
 * lost+found, and what the .gitignore files of a directory of this machine name.
 */
#ifndef SANDBOX_CLI_SNAPSHOT_H
#define SANDBOX_CLI_SNAPSHOT_H

#include "cli/git.h"
#include "shared/mux/records.h"

#include <stdint.h>

struct snapshot_request {
	const struct git *git;   /* outlives it */
	const char *branch;      /* becomes refs/heads/BRANCH */
	const char *rules;       /* a directory with the .gitignore files that count, absolute */
	uint64_t max_bytes;      /* of all contents together */
};

struct snapshot_counts {
	uint64_t files, bytes, ignored;
};

struct snapshot;

int snapshot_begin(const struct snapshot_request *rq, struct snapshot **ret, struct error *err);
/* A record_handler; SKIPPED and DONE mean nothing to it. ERR_TOO_LARGE over max_bytes or LIMIT_SNAPSHOT_FILES. */
int snapshot_record(void *snapshot, const struct record *r, struct error *err);
/* The commit exists. */
int snapshot_end(struct snapshot *s, struct snapshot_counts *ret, struct error *err);
void snapshot_free(struct snapshot *s); /* drops what is not ended; NULL is fine */

#endif
