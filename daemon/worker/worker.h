/*
 * The local worker: leases create and delete operations, drives the runtime and the workspaces on job threads,
 * reconciles, reports capacity. It holds no policy and no database.
 */
#ifndef SANDBOX_DAEMON_WORKER_H
#define SANDBOX_DAEMON_WORKER_H

#include "daemon/link/upstream.h"
#include "daemon/runtime/runtime.h"
#include "daemon/worker/exec.h"

#include <cjson/cJSON.h>

struct worker;
struct egress;
struct daemon_config;

/* The runtime this worker drives: the Docker Engine at worker.docker_socket. Makes STATE/node-id when there is none and
 * labels everything with it. Does not ask whether the engine answers. (With SANDBOX_TEST_RUNTIME=fake in the
 * environment: plain processes without any isolation, for tests; logged as an error and shown as failed by doctor.) */
int worker_runtime_new(const struct daemon_config *config, struct runtime **ret, struct error *err);
/* This machine's id, kept in STATE/node-id. */
int worker_node_id(const struct daemon_config *config, struct id *ret, struct error *err);

struct worker_options {
	const struct daemon_config *config;
	struct upstream *up;
	struct runtime *runtime;
	struct initlinks *links;
	struct execs *execs;
	struct egress *egress;
};

/* Probes, reconciles once (both directions), heartbeats, starts job threads. A runtime that does not answer is not an
 * error: the worker reports no tier, says why, and retries. */
int worker_start(const struct worker_options *o, struct worker **ret, struct error *err);
/* Stops the threads; finishes or requeues the job in hand; sandboxes stay. */
void worker_stop(struct worker *w);
/* After a reload of the configuration: the registries policy, capacity. Call it right after daemon_config_reload. */
void worker_reload(struct worker *w);
/* One reconciliation pass now: removes what is labelled ours without a record, reports what has a record and is gone. */
int worker_reconcile(struct worker *w, struct error *err);

/* Something without a record, or a record without its thing. */
struct leak {
	const char *kind; /* container, directory, mount, record */
	const char *name; /* container id, path, sandbox id */
	struct id owner;  /* the sandbox it was made for */
	const char *evidence;
};
typedef void (*worker_leak_fn)(void *ctx, const struct leak *leak);
/* Calls fn for each, after looking at everything; mends nothing. */
int worker_leaks(struct worker *w, worker_leak_fn fn, void *ctx, struct error *err);

/* Doctor's view: (ok | warn | fail, part, detail, what to do) rows. */
struct check_row {
	char part[32];
	char status[8];
	char detail[512];
	char remedy[512];
};
size_t worker_checks(struct worker *w, struct check_row *ret, size_t max);
/* The machine's images (they may block for long). A pull or an import answers the one image. */
int worker_images(struct worker *w, struct image_list *ret, struct error *err);
int worker_image_allowed(struct worker *w, const char *name, struct error *err); /* does not block */
int worker_image_remove(struct worker *w, const char *name, struct error *err);
int worker_image_pull(struct worker *w, const struct image_pull *p, struct image_list *ret, struct error *err);
/* For carrying an image from one worker to another. mark: it is private there too, from before it is there. */
int worker_image_save(struct worker *w, const char *name, image_sink sink, void *ctx, struct error *err);
int worker_image_mark(struct worker *w, const char *name, struct error *err);
int worker_image_load(struct worker *w, const char *name, int fd, struct image_list *ret, struct error *err);
int worker_image_import(struct worker *w, const char *name, int fd, struct image_list *ret, struct error *err);
/* A sandbox's deadline has moved: its process 1 is told, so that it ends in time without a daemon too. */
void worker_deadline_moved(struct worker *w, const struct id *sandbox);
/* What a sandbox with restricted egress tried (target NULL), or what a connection to target would meet: as egress_view and
 * egress_check in daemon/egress/egress.h. Any thread but the event loop's; ERR_NOT_FOUND. */
int worker_network(struct worker *w, const struct id *sandbox, const char *target, cJSON **ret, struct error *err);
/* What it may reach has changed; NULL: maybe of all. Returns when it is in force (any thread but the event loop's). */
void worker_network_changed(struct worker *w, const struct id *sandbox);
int worker_sandbox_stats(struct worker *w, const struct id *sandbox, struct runtime_stats *ret, struct error *err);

#endif
