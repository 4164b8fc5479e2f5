/*
 * Copying file trees in and out of a sandbox, over a stream of records (docs/protocol-mux.md, Files). The sandbox is not trusted: what it
 * sends is written below the destination only, and never through a link it made.
 */
#ifndef SANDBOX_CLI_TRANSFER_H
#define SANDBOX_CLI_TRANSFER_H

#include "cli/cli.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct record;

struct transfer_options {
	bool dry_run; /* print the paths, copy nothing */
	bool verify;  /* afterwards compare SHA-256 of every file on both sides */
	/* Of a tree that is put: shown each record before it is sent. NULL: nobody looks. */
	void (*watch)(void *ctx, const struct record *r);
	void *watch_ctx;
};

struct transfer_stats {
	uint64_t entries; /* files, directories and links */
	uint64_t files, bytes;
	uint64_t skipped;  /* of a kind that is not copied: FIFOs, sockets, devices */
	uint64_t failed;   /* entries that could not be read or stored; each was reported */
	uint64_t verified;
	cJSON *hashes;     /* with verify: [{path, sha256}], owned; NULL: none */
};

/*
 * local "-": a tar stream on standard output (get) or input (put). Placement is that of cp -a: into an existing directory under the
 * source's own name, its contents only when the source ends in "/.", else under the destination's name.
 * 0 also when single entries failed (stats tell); -1 when the copy as a whole did. An interrupt: ERR_TIMEOUT with err->sys EINTR.
 */
int transfer_get(struct cli *cli, const char *sandbox, const char *remote, const char *local, const struct transfer_options *o,
                 struct transfer_stats *ret, struct error *err);
int transfer_put(struct cli *cli, const char *sandbox, const char *local, const char *remote, const struct transfer_options *o,
                 struct transfer_stats *ret, struct error *err);
/* Names what stands in a directory of a sandbox (a path that ends in a slash), in order. Nothing is said and nothing copied. */
int transfer_list(struct cli *cli, const char *sandbox, const char *dir, void (*entry)(void *ctx, const char *name, bool directory),
                  void *ctx, struct error *err);
/* Gives every record of a tree inside, or of a local one (sandbox NULL), to `take`, which returns 0, or -1 with err to stop. What the tree
 * could not give was told to the user. */
int transfer_records(struct cli *cli, const char *sandbox, const char *path, int (*take)(void *ctx, const struct record *r, struct error *err),
                     void *ctx, struct error *err);
void transfer_stats_done(struct transfer_stats *s);

#endif
