/* The audit log and quotas: see identity.h. */
#include "daemon/controller/identity.h"

#include "daemon/controller/internal.h"
#include "shared/base/log.h"
#include "shared/base/parse.h"

enum { DETAIL_MAX = 512 };

void controller_audit(struct controller *c, const struct caller *who, const struct audit_entry *e)
{
	auto_tx *tx = NULL;
	struct error err = ERROR_INIT;
	char detail[DETAIL_MAX] = "", target[DETAIL_MAX] = "";
	/* Whatever a caller wrote is escaped once, here. */
	if (e->detail)
		text_escape(e->detail, strlen(e->detail), detail, sizeof(detail));
	if (e->target)
		text_escape(e->target, strlen(e->target), target, sizeof(target));
	struct audit_row row = {
		.at_us = store_now(c->store), .who = who->who, .from = who->from, .tenant = who->tenant, .action = e->action, .target = target,
		.outcome = e->code == ERR_NONE ? "ok" : error_wire(e->code), .detail = detail, .request_id = who->request_id,
	};
	if (store_begin(c->store, DB_WRITE, &tx, &err) != 0 || store_audit_add(tx, &row, &err) != 0 || db_commit(steal(&tx), &err) != 0)
		log_error("audit", "not written: who=\"%s\" from=%s action=%s target=\"%s\" outcome=%s: %s", who->who, who->from, e->action, target,
			  row.outcome, err.message);
}

static int may_read(const struct caller *who, struct error *err)
{
	if (who->role == ROLE_ADMIN && who->all_tenants)
		return 0;
	return error_set(err, ERR_FORBIDDEN, "only an admin may do this; %s is %s", who->who, role_text(who->role));
}

int controller_audit_each(struct controller *c, const struct caller *who, const struct audit_filter *f, audit_fn fn, void *ctx,
			  struct error *err)
{
	auto_tx *tx = NULL;
	if (may_read(who, err) != 0 || store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	return store_audit_each(tx, f, fn, ctx, err);
}

/* --- quotas --- */

static int64_t own_or(int64_t own, int64_t general)
{
	return own >= 0 ? own : general;
}

int quota_in_force(struct controller *c, struct db_tx *tx, const char *tenant, struct quota *ret, struct error *err)
{
	struct quota general = controller_settings(c).quota, own = { -1, -1, -1, -1 };
	if (store_quota_get(tx, tenant, &own, err) < 0)
		return -1;
	*ret = (struct quota){ own_or(own.sandboxes, general.sandboxes), own_or(own.cpu_millis, general.cpu_millis),
			       own_or(own.memory_mib, general.memory_mib), own_or(own.ttl_ms, general.ttl_ms) };
	return 0;
}

static int over(const char *tenant, const char *what, int64_t limit, int64_t used, int64_t more, struct error *err)
{
	if (limit < 0 || used + more <= limit)
		return 0;
	return error_set(err, ERR_NO_CAPACITY, "tenant '%s' is at its quota of %s: %lld allowed, %lld in use, %lld asked; delete something or ask an admin",
			 tenant, what, (long long)limit, (long long)used, (long long)more);
}

static int check_ttl(const struct quota *q, const char *tenant, int64_t ttl_ms, struct error *err)
{
	if (q->ttl_ms < 0 || ttl_ms <= q->ttl_ms)
		return 0;
	return error_set(err, ERR_INVALID, "ttl_seconds: tenant '%s' may ask for at most %lld", tenant, (long long)q->ttl_ms / 1000);
}

int quota_check_ttl(struct controller *c, struct db_tx *tx, const char *tenant, int64_t ttl_ms, struct error *err)
{
	struct quota q;
	return quota_in_force(c, tx, tenant, &q, err) == 0 ? check_ttl(&q, tenant, ttl_ms, err) : -1;
}

int quota_check(struct controller *c, struct db_tx *tx, const struct spec *s, struct error *err)
{
	struct quota q, used;
	if (quota_in_force(c, tx, s->tenant, &q, err) != 0 || check_ttl(&q, s->tenant, s->ttl_ms, err) != 0)
		return -1;
	if (q.sandboxes < 0 && q.cpu_millis < 0 && q.memory_mib < 0)
		return 0;
	if (store_quota_used(tx, s->tenant, &used, err) != 0 || over(s->tenant, "sandboxes", q.sandboxes, used.sandboxes, 1, err) != 0 ||
	    over(s->tenant, "CPU (thousandths of a core)", q.cpu_millis, used.cpu_millis, s->resources.cpu_millis, err) != 0)
		return -1;
	return over(s->tenant, "memory (MiB)", q.memory_mib, used.memory_mib, s->resources.memory_mib, err);
}

static int check_tenant(const struct caller *who, const char *tenant, struct error *err)
{
	if (!tenant_valid(tenant))
		return error_set(err, ERR_INVALID, "'%.80s' is not a tenant name", tenant);
	if (!access_visible(who, tenant))
		return error_set(err, ERR_FORBIDDEN, "you act in tenant '%s', not in '%s'", who->tenant, tenant);
	return 0;
}

int controller_quota(struct controller *c, const struct caller *who, const char *tenant, struct quota *ret, struct quota *ret_used,
		     struct error *err)
{
	auto_tx *tx = NULL;
	if (check_tenant(who, tenant, err) != 0 || store_begin(c->store, DB_READ, &tx, err) != 0 ||
	    quota_in_force(c, tx, tenant, ret, err) != 0)
		return -1;
	return store_quota_used(tx, tenant, ret_used, err);
}

int controller_quota_set(struct controller *c, const struct caller *who, const char *tenant, const struct quota *q, struct error *err)
{
	auto_tx *tx = NULL;
	if (may_read(who, err) != 0 || check_tenant(who, tenant, err) != 0 || store_begin(c->store, DB_SYNCED, &tx, err) != 0 ||
	    store_quota_put(tx, tenant, q, store_now(c->store), err) != 0)
		return -1;
	return db_commit(steal(&tx), err);
}
