/*
 * Reconciliation: records and reality, both ways. What is there is listed before the records are read: a record is
 * written before anything is made, so what has none then is truly left over. Sandboxes with a job in hand are the
 * job's. Other nodes' things carry another label and are never listed.
 */
#include "daemon/worker/warm.h"

#include "daemon/worker/exec.h"
#include "shared/crypto/secret_values.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <stdio.h>
#include <string.h>

struct pass {
	struct worker *w;
	struct owned_list owned;
	struct strv dirs;
	struct sandbox_list live;
	struct operation_list execs;
	struct idmap by_id; /* live sandboxes */
	bool skipped;       /* some had a job in hand, which may leave them as they should not be */
};

static void pass_done(struct pass *p)
{
	owned_list_done(&p->owned);
	strv_done(&p->dirs);
	sandbox_list_done(&p->live);
	operation_list_done(&p->execs);
	idmap_done(&p->by_id);
}

static int pass_read(struct pass *p, struct error *err)
{
	struct worker *w = p->w;

	if (w->o.runtime->ops->list_owned(w->o.runtime, &p->owned, err) != 0 || workspaces_list(w->spaces, &p->dirs, err) != 0)
		return -1;
	if (w->o.up->ops->desired(w->o.up, &w->node, &p->live, &p->execs, err) != 0)
		return -1;
	for (size_t i = 0; i < p->live.len; i++)
		idmap_put(&p->by_id, &p->live.items[i].id, &p->live.items[i]);
	return 0;
}

static void remove_leftover(struct pass *p, const struct id *sandbox)
{
	struct error err = ERROR_INIT;

	if (idmap_get(&p->by_id, sandbox))
		return;
	if (!worker_try_take(p->w, sandbox)) {
		p->skipped = true;
		return;
	}
	if (job_unmake(p->w, sandbox, OUTCOME_DELETED, &err) == 0)
		log_info("reconcile", "removed what no record knows sandbox=%s", sandbox->text);
	else
		log_warn("reconcile", "removing what no record knows sandbox=%s: %s", sandbox->text, err.message);
	worker_give(p->w, sandbox);
}

static void remove_leftovers(struct pass *p)
{
	struct id id;

	for (size_t i = 0; i < p->owned.len; i++)
		remove_leftover(p, &p->owned.items[i].sandbox_id);
	for (size_t i = 0; i < p->dirs.len; i++)
		if (id_parse(p->dirs.items[i], &id) == 0)
			remove_leftover(p, &id);
}

/* With its process 1 running: its link, its watch. False: not whole yet, since the controller could not be asked. */
static bool adopt(struct worker *w, const struct sandbox *x, pid_t pid)
{
	const struct id *sandbox = &x->id;
	struct error err = ERROR_INIT;
	auto_secret_values secrets = SECRET_VALUES_INIT;
	char io_dir[4096];

	rescue_thaw(w, sandbox);
	/* Their files are memory of the sandbox and still there. */
	bool fetched = secrets_fetch(w, x, &secrets, &err) == 0;
	if (!fetched && (err.code == ERR_UNAVAILABLE || err.code == ERR_TIMEOUT))
		return false;
	if (!fetched)
		log_error("reconcile", "its commands are refused, since its secrets are not here sandbox=%s: %s", sandbox->text, err.message);
	if (initlink_listen(w->o.links, sandbox, io_dir, sizeof(io_dir), &err) != 0) {
		log_error("reconcile", "the link of sandbox=%s: %s", sandbox->text, err.message);
		return true;
	}
	worker_deadline_moved(w, sandbox);
	initlink_expect(w->o.links, sandbox, pid, x->tier != TIER_CONTAINER);
	growth_watch(w, x);
	if (!x->spec.tenant[0])
		warm_restore(w, x, pid);
	network_refresh(w, x);
	if (fetched && x->spec.n_secrets > 0)
		execs_set_secrets(w->o.execs, sandbox, &secrets);
	if (watch_add(w->watch, sandbox, pid, &err) != 0)
		log_warn("reconcile", "sandbox=%s: %s", sandbox->text, err.message);
	return true;
}

static void report_gone(struct worker *w, const struct id *sandbox, const struct runtime_status *s)
{
	char why[128];

	job_why_ended(s, why, sizeof(why));
	job_gone(w, sandbox, why);
}

/* A record says running: is it? The list may be older than the record, so the runtime is asked about this one. */
static void check_running(struct pass *p, const struct sandbox *x)
{
	struct worker *w = p->w;
	struct runtime_status s;

	if (x->state != SANDBOX_RUNNING)
		return;
	if (!worker_try_take(w, &x->id)) {
		p->skipped = true;
		return;
	}
	if (watch_has(w->watch, &x->id)) {
		network_refresh(w, x);
		worker_give(w, &x->id);
		return;
	}
	if (!w->o.up->ops->wants_delete(w->o.up, &x->id) && w->o.runtime->ops->inspect(w->o.runtime, &x->id, &s, NULL) == 0) {
		if (s.state == RUNTIME_RUNNING)
			p->skipped |= !adopt(w, x, s.pid);
		else
			report_gone(w, &x->id, &s);
	}
	worker_give(w, &x->id);
}

/* Once, when the runtime first answers: commands that ran when the last daemon ended are taken over before their
 * sandboxes' links are accepted. */
static void recover_execs(struct pass *p)
{
	bool first;

	pthread_mutex_lock(&p->w->lock);
	first = !p->w->recovered;
	p->w->recovered = true;
	pthread_mutex_unlock(&p->w->lock);
	if (first)
		execs_recover(p->w->o.execs, &p->execs);
}

static int run_pass(struct worker *w, struct error *err)
{
	struct pass p = { .w = w };
	int rc = pass_read(&p, err);

	if (rc == 0) {
		recover_execs(&p);
		for (size_t i = 0; i < p.live.len; i++)
			check_running(&p, &p.live.items[i]);
		remove_leftovers(&p);
		if (p.skipped)
			worker_resync(w);
	}
	pass_done(&p);
	return rc;
}

int worker_reconcile(struct worker *w, struct error *err)
{
	struct error local = ERROR_INIT;
	int rc;

	pthread_mutex_lock(&w->reconciling);
	rc = run_pass(w, &local);
	pthread_mutex_unlock(&w->reconciling);
	pthread_mutex_lock(&w->lock);
	w->reconciled_ms = clock_mono_ms();
	snprintf(w->reconcile_error, sizeof(w->reconcile_error), "%s", local.message);
	pthread_mutex_unlock(&w->lock);
	return rc == 0 ? 0 : error_set(err, local.code, "%s", local.message);
}
