/*
 * Which images of this machine are not everybody's: a repository that once needed a login for a pull is private from then on, and who
 * names an image of it is let have it only when its registry says so. Kept in the state directory. Any thread.
 */
#ifndef SANDBOX_DAEMON_WORKER_RIGHTS_H
#define SANDBOX_DAEMON_WORKER_RIGHTS_H

#include "shared/base/buf.h"
#include "shared/base/error.h"
#include "shared/base/mem.h"
#include "shared/crypto/secret.h"

#include <stdbool.h>

struct rights;
/* An unreadable file is an error: without it private images would be everybody's. */
int rights_new(const char *state_dir, struct rights **ret, struct error *err);
void rights_free(struct rights *r);

/* The repository of this image (a reference, no id) is private from now on; on disk when this returns. ERR_NO_CAPACITY at the
 * limit PRIVATE_REPOSITORIES; nothing is changed by a failure. */
int rights_mark(struct rights *r, const char *image, struct error *err);
bool rights_private(struct rights *r, const char *image);
/* What its registry is to be asked about before somebody uses an image that is here, of these names: a reference to free, or NULL: it is
 * everybody's. ERR_FORBIDDEN: it was asked for by its id, and nothing tells whose it is. */
int rights_question(struct rights *r, const char *image, const struct strv *names, char **ret, struct error *err);
/* Whether the registry has let this login have it a moment ago; and that it just did. */
bool rights_fresh(struct rights *r, const char *image, const struct secret *login);
void rights_note(struct rights *r, const char *image, const struct secret *login);

#endif
