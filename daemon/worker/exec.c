/* The table of commands in hand and the calls from other threads, which are posted to the loop. */
#include "daemon/worker/exec_priv.h"

#include "daemon/worker/mailbox.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <event2/event.h>
#include <limits.h>

enum { CALL_MS = 10 * 1000 };

struct box *box_get(struct execs *e, const struct id *sandbox)
{
	struct box *b = idmap_get(&e->boxes, sandbox);

	if (!b) {
		b = xcalloc(1, sizeof(*b));
		b->sandbox = *sandbox;
		idmap_put(&e->boxes, sandbox, b);
	}
	return b;
}

void box_release(struct execs *e, struct box *b)
{
	/* Kept while the sandbox lives: its defaults are asked for again with the next command. */
	if (b->busy || b->execs || b->relays || b->dials || (!b->dropped && initlink_known(e->links, &b->sandbox)))
		return;
	idmap_remove(&e->boxes, &b->sandbox);
	defaults_free(b->defaults);
	secret_values_done(&b->secrets);
	free(b);
}

int spool_path(const struct execs *e, enum spool_place place, const struct id *key, bool main, char *out, size_t n)
{
	const char *prefix = main ? SPOOL_MAIN_PREFIX : "";

	if (place == SPOOL_LIVE)
		return snprintf(out, n, "%s/%s%s", e->live_dir, prefix, key->text) < (int)n ? 0 : -1;
	return snprintf(out, n, "%s/execs/%s%s", e->state_dir, prefix, key->text) < (int)n ? 0 : -1;
}

/* --- links --- */

static void on_link_up(void *ctx, const struct id *sandbox, struct mux *m)
{
	struct execs *e = ctx;
	struct box *b = idmap_get(&e->boxes, sandbox);

	if (!b)
		return;
	b->busy = true;
	for (struct exec *x = b->execs; x; x = x->box_next) {
		if (x->state == EXEC_WAITING)
			exec_dial(x);
	}
	relay_link_up(b, m);
	b->busy = false;
	box_release(e, b);
}

static void on_dirty(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	execs_settle_dirty(ctx);
}

struct execs *execs_new(struct event_base *base, struct upstream *up, struct initlinks *links, const char *state_dir)
{
	struct execs *e = xcalloc(1, sizeof(*e));
	struct error err = ERROR_INIT;
	auto_free char *dir = xasprintf("%s/execs", state_dir);

	pthread_mutex_init(&e->rescuer_lock, NULL);
	e->base = base;
	e->up = up;
	e->links = links;
	e->mail = initlinks_mailbox(links);
	e->state_dir = xstrdup(state_dir);
	e->ev_dirty = evtimer_new(base, on_dirty, e);
	if (!e->ev_dirty)
		abort();
	/* Without the directory output is kept in memory alone, and each command says so in the log. */
	if (io_mkdirs(dir, 0700, &err) != 0)
		log_error("exec", "%s", err.message);
	e->live_dir = live_dir_open(state_dir);
	if (!e->live_dir)
		e->live_dir = xstrdup(dir);
	initlinks_on_up(links, on_link_up, e);
	e->keeper = keeper_new(base, e->live_dir, dir);
	return e;
}

void execs_set_retention(struct execs *e, int64_t retention_ms)
{
	keeper_set_retention(e->keeper, retention_ms);
}

static void free_execs_of_table(struct execs *e)
{
	size_t n = e->table.len;
	void **all = idmap_values(&e->table);

	for (size_t i = 0; i < n; i++) {
		struct exec *x = all[i];

		/* Not closed: init keeps the command running and waits for the next daemon. */
		if (x->init.m)
			mux_set_user(x->init.m, x->init.id, NULL);
		x->init.m = NULL;
		exec_free(x);
	}
	free(all);
}

void execs_free(struct execs *e)
{
	void **all;
	size_t n;

	if (!e)
		return;
	mailbox_drain(e->mail);
	initlinks_on_up(e->links, NULL, NULL);
	free_execs_of_table(e);
	n = e->boxes.len;
	all = idmap_values(&e->boxes);
	for (size_t i = 0; i < n; i++) {
		struct box *b = all[i];

		b->busy = true;
		relay_end_all(b, MUX_ERR_UNAVAILABLE, "the daemon stops");
		dial_end_all(b, MUX_ERR_UNAVAILABLE, "the daemon stops");
		defaults_free(b->defaults);
		secret_values_done(&b->secrets);
		free(b);
	}
	free(all);
	keeper_free(e->keeper);
	live_dir_close(e->live_dir);
	event_free(e->ev_dirty);
	idmap_done(&e->table);
	idmap_done(&e->boxes);
	pthread_mutex_destroy(&e->rescuer_lock);
	free(e->live_dir);
	free(e->state_dir);
	free(e);
}

/* --- dropping a sandbox --- */

struct drop {
	struct execs *e;
	struct id sandbox;
	enum outcome why;
	char reason[SPOOL_TEXT_MAX + 1];
};

static void end_all(struct box *b, const struct spool_end *end)
{
	for (struct exec *x = b->execs; x; x = x->box_next) {
		if (x->state != EXEC_ENDED)
			exec_end(x, end);
	}
}

static void do_drop(void *arg)
{
	struct drop *d = arg;
	struct box *b = idmap_get(&d->e->boxes, &d->sandbox);
	struct spool_end end;

	if (d->why == OUTCOME_EXPIRED)
		end = exec_end_text(d->why, MUX_ERR_EXPIRED, "sandbox expired");
	else if (d->why == OUTCOME_DELETED)
		end = exec_end_text(d->why, MUX_ERR_DELETED, "sandbox deleted");
	else
		end = exec_end_text(OUTCOME_LOST, MUX_ERR_LOST, d->reason);
	if (b) {
		b->dropped = b->busy = true;
		end_all(b, &end);
		relay_end_all(b, (enum mux_error)end.mux_error, end.text);
		dial_end_all(b, (enum mux_error)end.mux_error, end.text);
		b->busy = false;
		box_release(d->e, b);
	}
}

static void do_drop_later(void *arg)
{
	do_drop(arg);
	free(arg);
}

void execs_drop(struct execs *e, const struct id *sandbox, enum outcome why, const char *reason)
{
	struct drop d = { .e = e, .sandbox = *sandbox, .why = why };

	if (reason)
		snprintf(d.reason, sizeof(d.reason), "the sandbox ended while the command ran: %s", reason);
	else
		snprintf(d.reason, sizeof(d.reason), "the sandbox ended by itself while the command ran");
	if (mailbox_call(e->mail, do_drop, &d, CALL_MS, NULL) != 0)
		mailbox_post(e->mail, do_drop_later, memcpy(xmalloc(sizeof(d)), &d, sizeof(d)));
}

/* --- an init that does not end what it has to --- */

void execs_on_late(struct execs *e, const struct execs_rescuer *r, void *ctx)
{
	pthread_mutex_lock(&e->rescuer_lock);
	e->rescuer = r;
	e->rescuer_ctx = ctx;
	pthread_mutex_unlock(&e->rescuer_lock);
}

void execs_starved(struct execs *e, const struct id *sandbox, pid_t supervisor, bool given_up)
{
	pthread_mutex_lock(&e->rescuer_lock);
	if (e->rescuer)
		e->rescuer->starved(e->rescuer_ctx, sandbox, supervisor, given_up);
	pthread_mutex_unlock(&e->rescuer_lock);
}

void execs_stuck(struct execs *e, const struct id *sandbox)
{
	pthread_mutex_lock(&e->rescuer_lock);
	if (e->rescuer)
		e->rescuer->stuck(e->rescuer_ctx, sandbox);
	pthread_mutex_unlock(&e->rescuer_lock);
}

/* --- commands without a reader --- */

struct detached {
	struct execs *e;
	struct exec_grant grant;
	struct command cmd;
};

static void do_start_detached(void *arg)
{
	struct detached *d = arg;

	exec_start(d->e, &d->grant, &d->cmd, 0, true, "");
	command_done(&d->cmd);
	free(d);
}

void execs_start_detached(struct execs *e, const struct exec_grant *grant, const struct command *cmd)
{
	struct detached *d = xcalloc(1, sizeof(*d));

	d->e = e;
	d->grant = *grant;
	command_init(&d->cmd);
	command_copy(&d->cmd, cmd);
	mailbox_post(e->mail, do_start_detached, d);
}

struct exec *exec_start(struct execs *e, const struct exec_grant *grant, const struct command *cmd, unsigned flags, bool detached,
			const char *owner)
{
	struct spool_info info = { .sandbox = grant->sandbox, .detached = detached };
	struct error err = ERROR_INIT;
	struct spool_end end;
	struct exec *x;

	snprintf(info.owner, sizeof(info.owner), "%s", owner);
	x = idmap_get(&e->table, &grant->operation);
	if (x) /* taken up by a recovery that saw it running: it is not started twice */
		return x;
	x = exec_new(e, &grant->operation, &info);
	if (x->box->n_execs > LIMIT_EXECS_PER_SANDBOX)
		error_set(&err, ERR_RATE_LIMITED, "%d commands run in this sandbox already, the limit", LIMIT_EXECS_PER_SANDBOX);
	else
		(void)exec_build_open(x, cmd, grant->writable_root, flags, &err);
	if (err.code != ERR_NONE) {
		end = exec_end_text(OUTCOME_NOT_STARTED, mux_error_of_code(err.code), err.message);
		end.code = err.code;
		exec_end(x, &end);
		return x;
	}
	if (detached)
		(void)exec_spool(x); /* at once: a restarted daemon tells by it that no client has to come back */
	exec_dial(x);
	return x;
}

struct main_start {
	struct execs *e;
	struct id sandbox;
	struct command cmd;
	bool writable_root;
};

static void do_start_main(void *arg)
{
	struct main_start *s = arg;
	struct spool_info info = { .sandbox = s->sandbox, .main = true, .detached = true };
	struct error err = ERROR_INIT;
	struct spool_end end;

	if (!idmap_get(&s->e->table, &s->sandbox)) {
		struct exec *x = exec_new(s->e, &s->sandbox, &info);

		(void)exec_spool(x);
		if (exec_build_open(x, &s->cmd, s->writable_root, MUX_OPEN_MAIN, &err) == 0) {
			exec_dial(x);
		} else {
			end = exec_end_text(OUTCOME_NOT_STARTED, mux_error_of_code(err.code), err.message);
			exec_end(x, &end);
		}
	}
	command_done(&s->cmd);
	free(s);
}

int execs_start_main(struct execs *e, const struct sandbox *s, struct error *err)
{
	struct main_start *m;

	if (s->spec.command.len == 0)
		return 0;
	m = xcalloc(1, sizeof(*m));
	m->e = e;
	m->sandbox = s->id;
	m->writable_root = s->spec.writable_root;
	command_init(&m->cmd);
	strv_copy(&m->cmd.argv, &s->spec.command);
	if (command_validate(&m->cmd, err) != 0) {
		command_done(&m->cmd);
		free(m);
		return error_wrap(err, "the start command");
	}
	mailbox_post(e->mail, do_start_main, m);
	return 0;
}

/* --- cancel --- */

struct cancel {
	struct execs *e;
	const struct id *operation;
	int signal;
	int result;
	struct error *err;
};

static void do_cancel(void *arg)
{
	struct cancel *c = arg;
	struct exec *x = idmap_get(&c->e->table, c->operation);

	if (!x || x->info.main) {
		c->result = error_set(c->err, ERR_NOT_FOUND, "operation %s is not a running command here", c->operation->text);
	} else if (x->state == EXEC_ENDED) {
		c->result = error_set(c->err, ERR_CONFLICT, "operation %s has ended", c->operation->text);
	} else {
		c->result = 0;
		if (c->signal > 0)
			exec_signal(x, (unsigned)c->signal);
		else
			exec_cancel(x);
	}
}

int execs_cancel(struct execs *e, const struct id *operation, int signal, struct error *err)
{
	struct cancel c = { .e = e, .operation = operation, .signal = signal, .result = -1, .err = err };

	if (mailbox_call(e->mail, do_cancel, &c, CALL_MS, err) != 0)
		return -1;
	return c.result;
}
