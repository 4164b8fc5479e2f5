/* Sandboxes started for a pool, on the worker's side: see warm.c. Any thread; none of these holds the worker's lock on return. */
#ifndef SANDBOX_DAEMON_WORKER_WARM_H
#define SANDBOX_DAEMON_WORKER_WARM_H

#include "daemon/worker/worker_priv.h"

/* One that waits. */
struct warm {
	struct id sandbox;
	enum tier tier;
	char *image, *digest; /* digest NULL: the runtime finds images itself */
	char *init;           /* what its sandbox-init is told from others by */
	pid_t pid;
	ino_t names;          /* of its host name space, 0: unknown */
};
void warm_free(struct warm *m);

/* It was just started; its files keep what a restarted worker wants to know. */
int warm_add(struct worker *w, const struct sandbox *s, const char *digest, pid_t pid, struct error *err);
/* It was found running after a restart. */
void warm_restore(struct worker *w, const struct sandbox *s, pid_t pid);
/* For a claim: it waits no more. NULL: it did not. The caller frees. */
struct warm *warm_take(struct worker *w, const struct id *sandbox);
bool warm_waits(struct worker *w, const struct id *sandbox);
/* It is unmade. */
void warm_forget(struct worker *w, const struct id *sandbox);
void warm_done(struct worker *w);

/* ERR_CONFLICT "recycled: …": a new one would be made of another image or sandbox-init. */
int warm_check(struct worker *w, const struct warm *m, const char *digest, struct error *err);
/* Posts TASK_STALE for all of which that is true. */
void warm_check_all(struct worker *w);
/* Its host name, and the hosts file's text. name NULL: nothing to do. */
int warm_name(const struct warm *m, const char *name, const char *hosts_file, const char *hosts, struct error *err);

#endif
