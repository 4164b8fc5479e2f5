/* Shared by worker.c, jobs.c, create.c, reconcile.c, capacity.c, checks.c only. */
#ifndef SANDBOX_DAEMON_WORKER_PRIV_H
#define SANDBOX_DAEMON_WORKER_PRIV_H

#include "daemon/config.h"
#include "daemon/worker/idmap.h"
#include "daemon/worker/initlink.h"
#include "daemon/worker/open_net.h"
#include "daemon/worker/watch.h"
#include "daemon/worker/worker.h"
#include "daemon/worker/workspace.h"
#include "shared/base/slew.h"

#include <pthread.h>

/* What of the configuration a running worker uses; replaced whole by a reload. */
struct settings {
	int64_t create_timeout_ms;
	int64_t cpu_millis, memory, disk, pids, max_sandboxes;
};

/* Something a job thread is to do that is no lease. */
struct task {
	struct task *next;
	enum { TASK_EXITED, TASK_OVERGROWN, TASK_STARVED, TASK_STUCK, TASK_STALE, TASK_RETRY_DELETE, TASK_COMPLETE, TASK_DEADLINE, TASK_EXPIRED, TASK_DENIED } kind;
	struct id sandbox;
	pid_t inside;           /* STARVED */
	bool given_up;          /* STARVED */
	char *why;              /* STALE */
	struct lease lease;     /* RETRY_DELETE */
	char *detail;           /* DENIED */
	struct completion done; /* COMPLETE; its texts belong to the task */
	int64_t due_ms;         /* monotonic; not before */
	int64_t delay_ms;       /* the next pause */
	int64_t deadline_us;    /* DEADLINE */
};

struct worker {
	struct worker_options o;
	struct id node;
	char *init_path;
	struct workspaces *spaces;
	struct rights *rights;
	struct watch *watch;

	pthread_mutex_t lock;     /* guards everything below */
	pthread_cond_t wake;      /* work, tasks, stopping */
	pthread_cond_t changed;   /* in_hand, starting, threads */
	bool stopping;
	bool work;                /* a lease may be available */
	int64_t polled_ms;        /* when it was last asked for without a wake-up */
	unsigned threads, idle, starting;
	struct task *tasks;
	struct idmap in_hand;     /* sandboxes a job thread works on; values are not used */
	struct idmap writable;    /* struct growth of running sandboxes with a writable root */
	struct idmap warm;        /* struct warm of sandboxes that wait in a pool */
	struct idmap claimed;     /* those that did; values are not used */
	struct idmap in_rescue;   /* sandboxes whose processes are being ended from outside; values are not used */
	struct slew_clock clock;
	struct idmap deadlines;   /* int64_t, us of the controller's clock, of sandboxes here: enforced while no controller can be asked */
	struct settings settings;

	bool engine_up, probed, recovered;
	bool resync;              /* reconcile with the next round: the controller came back, or something was left undone */
	char engine[256];         /* name and version, or why it does not answer */
	struct runtime_probe probe;
	int64_t probed_ms, probe_pause_ms; /* the last time, and from then to the next where one is worth it */
	struct open_net *open_net;
	bool open_offered;
	char open_reason[256];    /* what its probe saw, or why it is not offered */
	int64_t open_probed_ms, closed_ms; /* when it was probed, and the controller's addresses were asked for */
	int64_t disk_total;       /* bytes offered for workspaces */
	int64_t reconciled_ms;
	char reconcile_error[256];
	pthread_mutex_t reconciling;
	pthread_t maintainer;
	int64_t pause_ms;         /* until its next round; its own once it runs */
	bool maintaining;
};

bool worker_stopping(struct worker *w);
/* Something was not done or not told, and only reconciliation sees it: it runs within a second instead of a minute. */
void worker_resync(struct worker *w);
struct settings worker_settings(struct worker *w);

/* One job at a time per sandbox: take waits for another's end, try does not. */
void worker_take(struct worker *w, const struct id *sandbox);
bool worker_try_take(struct worker *w, const struct id *sandbox);
void worker_give(struct worker *w, const struct id *sandbox);

/* Queues a task for a job thread (takes it). */
void worker_post(struct worker *w, struct task *take_t);
void task_free(struct task *t);
/* Starts job threads when none is idle. */
void worker_spawn(struct worker *w);

/* jobs.c: run what was leased or queued; free it. */
void job_lease(struct worker *w, struct lease *take_l);
void job_task(struct worker *w, struct task *take_t);
/* How a sandbox's process 1 ended, for people. */
void job_why_ended(const struct runtime_status *s, char *ret, size_t n);
/* A running sandbox ended, or has to, without anyone's delete: records its commands and it, takes everything away. */
void job_gone(struct worker *w, const struct id *sandbox, const char *why);
/* Takes everything of a sandbox away: commands, container, link, workspace, files. Repeatable. */
int job_unmake(struct worker *w, const struct id *sandbox, enum outcome why, struct error *err);
/* Reports the end of what was leased, now or when the controller takes it. failure NULL: done. */
void job_complete(struct worker *w, const struct lease *l, const char *digest, const struct error *failure);

/* create.c: makes a sandbox, or has one that waited become it, and reports. */
void job_create(struct worker *w, struct lease *l);

/* rescue.c: while it is started, late commands end: TASK_STARVED, then TASK_STUCK. */
void rescue_start(struct worker *w);
void rescue_stop(struct worker *w);
/* Ends, from outside, what descends from this process of the sandbox, as numbered there. False: nobody can, and process 1 has given up. */
bool rescue_starved(struct worker *w, const struct id *sandbox, pid_t inside, bool given_up);
/* For a sandbox that is taken over: a daemon that was killed at the wrong moment left its processes standing. */
void rescue_thaw(struct worker *w, const struct id *sandbox);

/*
 * growth.c: writable roots. Few engines bound them, so the daemon looks every few seconds and ends a sandbox whose root
 * outgrew its disk size.
 */
enum { WORKER_GROWTH_MS = 3 * 1000 };
void growth_watch(struct worker *w, const struct sandbox *s); /* nothing unless its root is writable */
void growth_forget(struct worker *w, const struct id *sandbox);
/* Looks at all of them; posts TASK_OVERGROWN. */
void growth_check(struct worker *w);

/*
 * offline.c: the controller ends what is due; while it cannot be asked, the worker does.
 */
enum { WORKER_OFFLINE_MS = 1000 };
void deadlines_note(struct worker *w, const struct id *sandbox, int64_t deadline_us); /* 0: forget */
int64_t deadlines_get(struct worker *w, const struct id *sandbox);                    /* 0: not known */
void deadlines_done(struct worker *w);
/* Posts TASK_EXPIRED for what is due. */
void offline_expire(struct worker *w);
/* What deadlines are compared with: a step of this machine's clock ends nothing. */
int64_t worker_now(struct worker *w);
/* The controller can be asked again: an on_connect of the upstream. */
int offline_over(void *ctx, struct error *err);

/* secrets.c: asks for them; gives a sandbox that is greeted all of them, its files as `user`. */
struct secret_values;
int secrets_fetch(struct worker *w, const struct sandbox *s, struct secret_values *ret, struct error *err);
int secrets_deliver(struct worker *w, const struct sandbox *s, const char *user, struct error *err);

/* images.c: every pull goes through here. And whether a sandbox's tenant may use its image, which is here under these names. ERR_FORBIDDEN. */
int image_fetch(struct worker *w, const struct image_pull *p, struct error *err);
int image_may_use(struct worker *w, const struct sandbox *s, const struct strv *names, struct error *err);

/* network.c: gives a sandbox that is greeted its way out, when it has one; or only what it may reach, again. */
int network_open(struct worker *w, const struct sandbox *s, struct error *err);
void network_refresh(struct worker *w, const struct sandbox *s);
/* The addresses of a controller elsewhere, by commas; six: also those of IPv6. Asks a resolver. */
void network_controller(const struct daemon_config *c, bool six, struct buf *out);
/* Now and then: the controller's addresses, the rules of open networks. On the maintainer's thread, and once before it starts. */
void network_maintain(struct worker *w);
void network_denied(void *ctx, const struct id *sandbox, const char *detail);

/* capacity.c */
/* How pressed this machine is, 0 to 1, and by what (may be NULL). */
double capacity_pressure(const char **ret_what);
int capacity_heartbeat(struct worker *w, struct error *err);
/* Which networks are offered, and why the others are not. */
void capacity_network(struct worker *w, struct node_report *r);
/* Computes what is offered of the disk, once the workspaces are known. */
void capacity_measure(struct worker *w);

/* worker.c: asks the engine, probes when it came (back); 0 when it answers and was probed. */
int worker_probe(struct worker *w, struct error *err);

#endif
