/* Deadlines: expiry, retries of removals, retention; and moving a deadline. The timer belongs to the daemon's main. */
#include "daemon/controller/internal.h"
#include "daemon/store/tunnels.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"

#include <inttypes.h>

enum {
	BATCH = 32,                       /* sandboxes that expire in one transaction */
	PRUNE_PASSES = 8,                 /* transactions of one reap; more is for the next */
	SOON_US = 50 * 1000,              /* until the next pass when there is more */
	RETRY_US = 1000 * 1000,           /* after a failure of the store */
	PRUNE_GRAIN_US = 1000 * 1000,     /* ends within this are pruned together */
	PRUNE_AT_LEAST_US = 600 * 1000 * 1000, /* records over the count limits do not wait longer */
};

int controller_extend(struct controller *c, const struct caller *who, const char *ref, int64_t ttl_ms, struct sandbox *ret, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct sandbox_head h;
	char label[LABEL_MAX], when[RFC3339_MAX];
	int64_t max_ms = controller_settings(c).max_ttl_ms, min_ms = LIMIT_TTL_MIN_SECONDS * INT64_C(1000);
	if (access_may_mutate(who, err) != 0)
		return -1;
	if (ttl_ms < min_ms || ttl_ms > max_ms)
		return error_set(err, ERR_INVALID, "ttl_seconds: must be from %" PRId64 " to %" PRId64, min_ms / 1000, max_ms / 1000);
	if (change_begin(c, DB_WRITE, &ch, err) != 0 || change_lookup(&ch, who, ref, &h, err) != 0 ||
	    quota_check_ttl(c, ch.tx, h.tenant, ttl_ms, err) != 0)
		return -1;
	if (!sandbox_live(h.state))
		return lookup_ended(ch.tx, &h, err);
	if (h.state == SANDBOX_STOPPING && h.end_reason != OUTCOME_EXPIRED)
		return error_set(err, ERR_CONFLICT, "sandbox %s is being deleted", lookup_label(&h, label));
	if (h.state == SANDBOX_STOPPING || h.expires_us <= ch.now)
		return error_set(err, ERR_EXPIRED, "sandbox %s expired at %s", lookup_label(&h, label), time_rfc3339(h.expires_us, when));
	if (store_sandbox_set_expiry(ch.tx, &h, ch.now + ttl_ms * 1000, ch.now, err) != 0 || lookup_load(c, ch.tx, &h.id, ret, err) != 0)
		return -1;
	change_event(&ch, &h, "sandbox.extended", time_rfc3339(h.expires_us, when), who->who);
	change_wake(&ch, h.expires_us);
	return change_commit(&ch, err);
}

/* --- the pass --- */

static int by_id(const void *a, const void *b)
{
	return strcmp(((const struct sandbox_head *)a)->id.text, ((const struct sandbox_head *)b)->id.text);
}

/* All locks first, in one order for all daemons; then each row as it is now. Returns how many are still due. */
static int lock_due(struct change *ch, struct sandbox_head *due, int n, struct error *err)
{
	int kept = 0;
	if (n <= 0 || !store_shared(ch->c->store))
		return n;
	qsort(due, (size_t)n, sizeof(*due), by_id);
	for (int i = 0; i < n; i++)
		if (store_lock_sandbox(ch->tx, &due[i].id, err) != 0)
			return -1;
	for (int i = 0; i < n; i++) {
		struct sandbox_head h;
		int rc = store_sandbox_head(ch->tx, &due[i].id, &h, err);
		if (rc < 0)
			return -1;
		if (rc == 1 && sandbox_live(h.state) && h.state != SANDBOX_STOPPING && h.expires_us <= ch->now)
			due[kept++] = h;
	}
	return kept;
}

/* One batch of what is due. *ret_n: how many there were. */
static int expire_batch(struct controller *c, int *ret_n, struct error *err)
{
	struct sandbox_head due[BATCH];
	auto_change ch = CHANGE_INIT;
	if (change_begin(c, DB_SYNCED, &ch, err) != 0)
		return -1;
	*ret_n = lock_due(&ch, due, store_sandbox_due(ch.tx, ch.now, due, BATCH, err), err);
	for (int i = 0; i < *ret_n; i++)
		if (delete_begin(&ch, &due[i], OUTCOME_EXPIRED, NULL, err) != 0)
			return -1;
	if (*ret_n <= 0)
		return *ret_n;
	return change_commit(&ch, err);
}

/* Looks first without the writer's cost. */
static int next_due(struct controller *c, int64_t *ret, struct error *err)
{
	auto_tx *tx = NULL;
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	return store_sandbox_next_due(tx, ret, err);
}

static int expire(struct controller *c, int64_t *ret_next, struct error *err)
{
	for (;;) {
		int n = 0;
		if (next_due(c, ret_next, err) != 0)
			return -1;
		if (*ret_next == 0 || *ret_next > store_now(c->store))
			return 0;
		if (expire_batch(c, &n, err) != 0)
			return -1;
		if (n == 0) /* the deadline was moved in between */
			return next_due(c, ret_next, err);
	}
}

static void sooner(int64_t *at, int64_t other)
{
	if (other && (*at == 0 || other < *at))
		*at = other;
}

struct retries {
	int64_t now, next;
	struct id due[BATCH];
	size_t n_due;
};

static void note_retry(void *ctx, const struct id *node, int64_t not_before_us)
{
	struct retries *r = ctx;
	if (not_before_us > r->now) {
		sooner(&r->next, not_before_us);
		return;
	}
	for (size_t i = 0; i < r->n_due; i++)
		if (id_eq(&r->due[i], node))
			return;
	if (r->n_due < BATCH)
		r->due[r->n_due++] = *node;
}

static int retry(struct controller *c, int64_t *next, struct error *err)
{
	struct retries r = { .now = store_now(c->store) };
	{
		auto_tx *tx = NULL;
		if (store_begin(c->store, DB_READ, &tx, err) != 0 || store_op_retries(tx, note_retry, &r, err) != 0)
			return -1;
	}
	for (size_t i = 0; i < r.n_due; i++)
		hooks_work(c->hooks, &r.due[i]);
	sooner(next, r.next);
	return 0;
}

static int prune_once(struct controller *c, int64_t before, bool *more, struct error *err)
{
	auto_tx *tx = NULL;
	int64_t audit_before = store_now(c->store) - LIMIT_AUDIT_DAYS * 24LL * 3600 * 1000000;
	if (store_begin(c->store, DB_WRITE, &tx, err) != 0 || store_prune(tx, before, more, err) != 0 ||
	    store_audit_prune(tx, audit_before, more, err) != 0 || store_tunnel_prune(tx, store_now(c->store), err) != 0)
		return -1;
	return db_commit(steal(&tx), err);
}

static int oldest_end(struct controller *c, int64_t *ret, struct error *err)
{
	auto_tx *tx = NULL;
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	return store_oldest_end(tx, ret, err);
}

static int prune(struct controller *c, int64_t *next, struct error *err)
{
	int64_t retention_us = controller_settings(c).retention_ms * 1000, now = store_now(c->store), oldest = 0;
	bool more = true;
	for (int i = 0; i < PRUNE_PASSES && more; i++)
		if (prune_once(c, now - retention_us, &more, err) != 0)
			return -1;
	if (oldest_end(c, &oldest, err) != 0)
		return -1;
	if (more)
		sooner(next, now + SOON_US);
	if (oldest) {
		/* Old and still unfinished, or ended late: then looking again soon is enough. */
		int64_t at = oldest + retention_us + PRUNE_GRAIN_US, first = now + PRUNE_GRAIN_US;
		at = at > first ? at : first;
		sooner(next, at < now + PRUNE_AT_LEAST_US ? at : now + PRUNE_AT_LEAST_US);
	}
	return 0;
}

int64_t controller_reap(struct controller *c)
{
	struct error err = ERROR_INIT;
	int64_t next = 0, other = 0;
	hooks_begin_wake(c->hooks);
	queue_serve(c, &other);
	if (!store_leads(c->store)) {
		/* Another daemon does it, and this one is told when it has become the one. Retries of removals are each
		 * daemon's own, and which nodes are away each sees for itself. */
		if (doubts_settle(c, &err) != 0 || retry(c, &next, &err) != 0 || strand_look(c, &next, &err) != 0)
			next = store_now(c->store) + RETRY_US;
		sooner(&next, other);
		next = hooks_end_wake(c->hooks, next);
		return next ? store_wall(c->store, next) : 0;
	}
	if (doubts_settle(c, &err) != 0 || expire(c, &next, &err) != 0 || tunnels_expire(c, &next, &err) != 0 || retry(c, &next, &err) != 0 ||
	    strand_look(c, &next, &err) != 0 || pools_keep(c, &other, &err) != 0 || prune(c, &next, &err) != 0) {
		/* A database that went away has been reported where it was noticed. */
		log_line(err.code == ERR_UNAVAILABLE && store_shared(c->store) ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN, "reaper", "%s", err.message);
		next = store_now(c->store) + RETRY_US;
	}
	sooner(&next, other);
	next = hooks_end_wake(c->hooks, next);
	return next ? store_wall(c->store, next) : 0;
}
