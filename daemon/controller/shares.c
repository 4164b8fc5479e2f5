/* Shares: see shares.h. */
#include "daemon/controller/shares.h"

#include "daemon/controller/internal.h"

#include <string.h>

struct share {
	struct tunnel t;
	char who[sizeof(((struct caller *)0)->who)];
	struct share *next;
};

struct shares {
	pthread_mutex_t lock;
	struct share *first;
};

struct shares *shares_new(void)
{
	struct shares *s = xcalloc(1, sizeof(*s));
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

void shares_free(struct shares *s)
{
	struct share *next;
	if (!s)
		return;
	for (struct share *p = s->first; p; p = next) {
		next = p->next;
		free(p);
	}
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static bool same_caller(const struct share *s, const struct caller *who)
{
	return strcmp(s->who, who->who) == 0 && strcmp(s->t.tenant, who->tenant) == 0;
}

bool shares_hold(struct shares *all, const char *label)
{
	bool found = false;
	pthread_mutex_lock(&all->lock);
	for (const struct share *s = all->first; s; s = s->next)
		found = found || strcmp(s->t.label, label) == 0;
	pthread_mutex_unlock(&all->lock);
	return found;
}

static struct share *take_out(struct shares *all, struct share **at)
{
	struct share *s = *at;
	(void)all;
	*at = s->next;
	return s;
}

/* Under the lock. The caller's own of this label makes room for its successor. */
static int check(struct shares *all, const struct caller *who, const struct tunnel_offer *o, const char *label, struct id *ret_old, struct error *err)
{
	int64_t total = 0, own = 0;
	for (struct share **at = &all->first; *at;) {
		struct share *s = *at;
		bool same = strcmp(s->t.label, label) == 0;
		if (same && !same_caller(s, who))
			return error_set(err, ERR_CONFLICT, "subdomain: '%s' is taken: choose another", label);
		if (same) {
			*ret_old = s->t.id;
			free(take_out(all, at));
			continue;
		}
		total++;
		own += same_caller(s, who);
		at = &s->next;
	}
	if (own >= o->share_per_client)
		return error_set(err, ERR_RATE_LIMITED, "you share %lld ports and may share %lld (edge.share_per_client): end one first", (long long)own,
				 (long long)o->share_per_client);
	if (total >= o->share_max)
		return error_set(err, ERR_RATE_LIMITED, "this server carries as many shared ports as it may (edge.share_max): try again later");
	return 0;
}

static int claim(struct controller *c, const struct caller *who, const struct share_request *q, struct tunnel *t, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	if (change_begin(c, DB_WRITE, &ch, err) != 0 || tunnels_claim(&ch, who->tenant, q->label, t->label, err) != 0)
		return -1;
	t->created_us = ch.now;
	return change_commit(&ch, err);
}

/* The hard end: what is connected again goes on with the time that was left. */
static int set_end(struct controller *c, const struct share_request *q, int64_t ttl_ms, struct tunnel *t, struct error *err)
{
	int64_t ahead = store_wall(c->store, t->created_us) - t->created_us;
	t->expires_us = t->created_us + ttl_ms * 1000;
	if (q->until_us && q->until_us - ahead < t->expires_us)
		t->expires_us = q->until_us - ahead;
	if (t->expires_us > t->created_us)
		return 0;
	return error_set(err, ERR_EXPIRED, "the time of this shared port is over (edge.share_ttl)");
}

int controller_share_begin(struct controller *c, const struct caller *who, const struct share_request *q, struct tunnel *ret, struct id *ret_old,
			   struct error *err)
{
	struct tunnel_offer o = controller_tunnel_offer(c);
	struct tunnel t = { .id = id_new(), .port = q->port, .protocol = PROTOCOL_HTTP, .keep_host = q->keep_host, .state = TUNNEL_ACTIVE };
	if (access_may_mutate(who, err) != 0)
		return -1;
	if (!o.enabled || !o.share)
		return error_set(err, ERR_UNAVAILABLE, "this server shares no ports of its users' machines (edge.share is not set)");
	t.sandbox = t.id;
	snprintf(t.tenant, sizeof(t.tenant), "%s", who->tenant);
	if (claim(c, who, q, &t, err) != 0 || set_end(c, q, o.share_ttl_ms, &t, err) != 0)
		return -1;
	tunnel_address(&o, &t);
	struct share *s = xcalloc(1, sizeof(*s));
	s->t = t;
	snprintf(s->who, sizeof(s->who), "%s", who->who);
	*ret_old = (struct id){ .text = "" };
	pthread_mutex_lock(&c->shares->lock);
	int rc = check(c->shares, who, &o, t.label, ret_old, err);
	if (rc == 0) {
		s->next = c->shares->first;
		c->shares->first = s;
	}
	pthread_mutex_unlock(&c->shares->lock);
	if (rc != 0) {
		free(s);
		return -1;
	}
	hooks_routes(c->hooks);
	*ret = t;
	ret->expires_us = store_wall(c->store, t.expires_us);
	return 0;
}

void controller_share_end(struct controller *c, const struct id *share)
{
	struct share *gone = NULL;
	pthread_mutex_lock(&c->shares->lock);
	for (struct share **at = &c->shares->first; *at && !gone;) {
		if (id_eq(&(*at)->t.id, share))
			gone = take_out(c->shares, at);
		else
			at = &(*at)->next;
	}
	pthread_mutex_unlock(&c->shares->lock);
	if (gone)
		hooks_routes(c->hooks);
	free(gone);
}

void shares_routes(struct shares *all, tunnel_route_fn fn, void *ctx)
{
	pthread_mutex_lock(&all->lock);
	for (const struct share *s = all->first; s; s = s->next)
		fn(ctx, &(struct tunnel_route){ .tunnel = &s->t, .hash = "" });
	pthread_mutex_unlock(&all->lock);
}
