/*
 * What was changed in a sandbox's /workspace since it was filled, as git sees it. What was uploaded is remembered on this machine, as a
 * repository of our own below the user's state directory, so nothing that a sandbox can reach tells what was there before.
 */
#ifndef SANDBOX_CLI_CHANGES_H
#define SANDBOX_CLI_CHANGES_H

#include "cli/cli.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { CHANGES_MAX_DEFAULT_MIB = 1024 };

/* Copies the contents of a directory into /workspace and remembers them; dir NULL: remembers that nothing was there. Where that cannot be
 * remembered the copy still counts, with a warning. id: the sandbox's whole id. */
int changes_upload(struct cli *cli, const char *id, const char *dir, struct error *err);
/* Forgets what was remembered of a sandbox that is gone, and of those that must be by now. */
void changes_forget(const char *id);

struct changes;

struct changes_request {
	const char *sandbox; /* any reference */
	const char *base;    /* compare with this directory instead; NULL: with what was uploaded */
	uint64_t max_bytes;
};

/* Reads /workspace and compares. ERR_NOT_FOUND when nothing was remembered, or there is no git; ERR_TOO_LARGE. */
int changes_read(struct cli *cli, const struct changes_request *rq, struct changes **ret, struct error *err);
void changes_free(struct changes *c); /* NULL is fine */
bool changes_none(const struct changes *c);
/* The sandbox's name, or the end of its id. */
const char *changes_name(const struct changes *c);
/* The patch, byte for byte, as `git apply` takes it; in_terminal: made safe to look at. ERR_SYSTEM with err->sys EPIPE when the reader left. */
int changes_patch(const struct changes *c, int fd, bool in_terminal, struct error *err);
/* How much in which file, for people; what was left out. Paths are quoted as git does. */
int changes_summary(struct cli *cli, const struct changes *c, int fd, struct error *err);
/* {sandbox_id, base, files:[{path, insertions, deletions}], insertions, deletions, ignored}; numbers of a binary file are null. */
int changes_json(const struct changes *c, cJSON **ret, struct error *err);

#endif
