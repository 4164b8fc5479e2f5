/*
 * The local worker: leases create and delete operations, drives the runtime and the workspaces on job threads,
 * reconciles, reports capacity. It holds no policy and no database.
 */
#ifndef SANDBOX_DAEMON_WORKER_H
#define SANDBOX_DAEMON_WORKER_H

#include "daemon/controller/controller.h"
#include "daemon/runtime/runtime.h"
#include "daemon/worker/exec.h"

struct worker;

struct worker_options {
	const struct daemon_config *config;
	struct controller *controller;
	struct runtime *runtime;
	struct initlinks *links;
	struct execs *execs;
};

/* Probes, reconciles once (both directions), heartbeats, starts job threads. A runtime that does not answer is not an
 * error: the worker reports no tier, says why, and retries. */
int worker_start(const struct worker_options *o, struct worker **ret, struct error *err);
/* Stops the threads; finishes or requeues the job in hand; sandboxes stay. */
void worker_stop(struct worker *w);
/* One reconciliation pass now: removes what is labelled ours without a record, reports what has a record and is gone. */
int worker_reconcile(struct worker *w, struct error *err);

/* Doctor's view: (ok | warn | fail, part, detail, what to do) rows. */
struct check_row {
	char part[32];
	char status[8];
	char detail[512];
	char remedy[512];
};
size_t worker_checks(struct worker *w, struct check_row *ret, size_t max);
struct runtime *worker_runtime(struct worker *w);
int worker_sandbox_stats(struct worker *w, const struct id *sandbox, struct runtime_stats *ret, struct error *err);

#endif
