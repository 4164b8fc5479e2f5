/* Deadlines while no controller can be asked, and the first steps when one can again: see worker_priv.h. */
#include "daemon/worker/worker_priv.h"

#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

/* The controller goes first where it can: it may have moved the deadline a moment ago. */
enum { GRACE_US = 2 * 1000 * 1000 };

int64_t worker_now(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	int64_t now = slew_clock_read(&w->clock, slew_boot_us(), clock_wall_us());
	pthread_mutex_unlock(&w->lock);
	return now;
}

void deadlines_note(struct worker *w, const struct id *sandbox, int64_t deadline_us)
{
	pthread_mutex_lock(&w->lock);
	int64_t *at = idmap_get(&w->deadlines, sandbox);
	if (deadline_us == 0) {
		idmap_remove(&w->deadlines, sandbox);
		free(at);
	} else {
		if (!at) {
			at = xmalloc(sizeof(*at));
			idmap_put(&w->deadlines, sandbox, at);
		}
		*at = deadline_us;
	}
	pthread_mutex_unlock(&w->lock);
}

int64_t deadlines_get(struct worker *w, const struct id *sandbox)
{
	pthread_mutex_lock(&w->lock);
	const int64_t *at = idmap_get(&w->deadlines, sandbox);
	int64_t us = at ? *at : 0;
	pthread_mutex_unlock(&w->lock);
	return us;
}

void deadlines_done(struct worker *w)
{
	size_t n = w->deadlines.len;
	auto_free void **all = idmap_values(&w->deadlines);
	for (size_t i = 0; i < n; i++)
		free(all[i]);
	idmap_done(&w->deadlines);
}

static struct task *expired_task(const struct id *sandbox)
{
	struct task *t = xcalloc(1, sizeof(*t));
	t->kind = TASK_EXPIRED;
	t->sandbox = *sandbox;
	return t;
}

void offline_expire(struct worker *w)
{
	struct task *due = NULL;
	int64_t now = worker_now(w);
	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; i < w->deadlines.cap; i++) {
		const struct idmap_slot *s = &w->deadlines.slots[i];
		if (!s->key.text[0] || !s->value || *(const int64_t *)s->value + GRACE_US > now)
			continue;
		struct task *t = expired_task(&s->key);
		t->next = due;
		due = t;
	}
	pthread_mutex_unlock(&w->lock);
	while (due) {
		struct task *t = due;
		due = t->next;
		log_info("worker", "sandbox=%s its time is over, and no controller says so", t->sandbox.text);
		deadlines_note(w, &t->sandbox, 0);
		worker_post(w, t);
	}
}

int offline_over(void *ctx, struct error *err)
{
	struct worker *w = ctx;
	struct sandbox_list live;
	struct operation_list execs;
	if (w->o.up->ops->desired(w->o.up, &w->node, &live, &execs, err) != 0)
		return -1;
	for (size_t i = 0; i < live.len; i++)
		deadlines_note(w, &live.items[i].id, live.items[i].expires_us);
	execs_recover(w->o.execs, &execs);
	sandbox_list_done(&live);
	operation_list_done(&execs);
	pthread_mutex_lock(&w->lock);
	w->recovered = w->resync = true;
	w->pause_ms = 0;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	return 0;
}
