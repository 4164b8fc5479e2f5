/* Look-ups on threads: see resolve.h. getaddrinfo cannot be interrupted, so the resolver's state outlives it as long as one runs. */
#include "daemon/egress/resolve.h"

#include "daemon/worker/mailbox.h"
#include "shared/base/mem.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREAD_STACK = 256 * 1024 };

struct lookup {
	struct lookup *next;
	struct resolver *owner;
	struct egress_target target;
	resolve_done done; /* NULL: cancelled; loop thread */
	void *ctx;
	struct addresses found;
	struct error err;
};

struct resolver {
	struct mailbox *mail;
	struct map hosts;
	pthread_mutex_t lock; /* guards the rest */
	struct lookup *first, **last;
	size_t queued;
	unsigned threads;
	bool closed;
};

static void add_host(struct map *hosts, const char *word, size_t n, const char *what, struct error *err)
{
	auto_free char *text = xstrndup(word, n);
	char *eq = strchr(text, '=');
	struct egress_target t;
	uint8_t bytes[16];
	if (eq)
		*eq = '\0';
	auto_free char *asked = xasprintf("%s:1", text);
	if (!eq || (inet_pton(AF_INET, eq + 1, bytes) != 1 && inet_pton(AF_INET6, eq + 1, bytes) != 1) ||
	    egress_target_parse(asked, 0, &t, NULL) != 0 || t.numeric)
		error_set(err, ERR_INVALID, "%s: '%.100s' is not NAME=ADDRESS", what, text);
	else
		map_set(hosts, t.host, eq + 1);
}

static int parse_hosts(const char *what, const char *text, struct map *ret, struct error *err)
{
	struct error e = ERROR_INIT;
	for (const char *p = text; *p && e.code == ERR_NONE;) {
		size_t n = strcspn(p, ", \t");
		if (n)
			add_host(ret, p, n, what, &e);
		p += n + (p[n] != '\0');
	}
	return e.code == ERR_NONE ? 0 : error_set(err, e.code, "%s", e.message);
}

int resolve_check_hosts(const char *what, const char *hosts, struct error *err)
{
	auto_map m = MAP_INIT;
	return parse_hosts(what, hosts, &m, err);
}

int resolver_new(struct mailbox *mail, const char *hosts, struct resolver **ret, struct error *err)
{
	struct resolver *r = xcalloc(1, sizeof(*r));
	r->mail = mail;
	r->last = &r->first;
	pthread_mutex_init(&r->lock, NULL);
	if (parse_hosts("egress.hosts", hosts, &r->hosts, err) != 0) {
		map_done(&r->hosts);
		free(r);
		return -1;
	}
	*ret = r;
	return 0;
}

static void destroy(struct resolver *r)
{
	map_done(&r->hosts);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

void resolver_free(struct resolver *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->closed = true;
	while (r->first) {
		struct lookup *l = r->first;
		r->first = l->next;
		free(l);
	}
	bool idle = r->threads == 0;
	pthread_mutex_unlock(&r->lock);
	if (idle)
		destroy(r);
}

/* --- asking --- */

static bool add_address(struct addresses *found, const struct sockaddr *sa, socklen_t n, uint16_t port)
{
	struct address a = { .len = n };
	if (found->len == RESOLVE_ADDRESSES_MAX || n > sizeof(a.sa))
		return false;
	memcpy(&a.sa, sa, n);
	if (sa->sa_family == AF_INET)
		a.sa.v4.sin_port = htons(port);
	else if (sa->sa_family == AF_INET6)
		a.sa.v6.sin6_port = htons(port);
	else
		return false;
	found->items[found->len++] = a;
	return true;
}

static int numeric(const char *text, uint16_t port, struct addresses *ret)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
		return add_address(ret, (const struct sockaddr *)&v4, sizeof(v4), port) ? 0 : -1;
	if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
		return add_address(ret, (const struct sockaddr *)&v6, sizeof(v6), port) ? 0 : -1;
	return -1;
}

static int ask(const struct egress_target *t, struct addresses *ret, struct error *err)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *all = NULL;
	int rc = getaddrinfo(t->host, NULL, &hints, &all);
	if (rc != 0)
		return error_set(err, rc == EAI_AGAIN ? ERR_UNAVAILABLE : ERR_NOT_FOUND, "the name %s is not found: %s", t->host, gai_strerror(rc));
	/* More than are looked at would be more than are checked: the rest is not used. */
	for (const struct addrinfo *i = all; i; i = i->ai_next)
		add_address(ret, i->ai_addr, i->ai_addrlen, t->port);
	freeaddrinfo(all);
	return ret->len > 0 ? 0 : error_set(err, ERR_NOT_FOUND, "the name %s has no address", t->host);
}

int resolve_now(struct resolver *r, const struct egress_target *t, struct addresses *ret, struct error *err)
{
	const char *fixed = t->numeric ? t->host : map_get(&r->hosts, t->host);
	struct addresses found = { .len = 0 };
	if (fixed ? numeric(fixed, t->port, &found) != 0 : ask(t, &found, err) != 0)
		return fixed ? error_set(err, ERR_INTERNAL, "%s is no address", fixed) : -1;
	*ret = found;
	return 0;
}

/* --- threads --- */

static void do_answer(void *arg)
{
	struct lookup *l = arg;
	if (l->done)
		l->done(l->ctx, &l->found, l->err.code == ERR_NONE ? NULL : &l->err);
	free(l);
}

static void *work(void *arg)
{
	struct resolver *r = arg;
	pthread_mutex_lock(&r->lock);
	while (r->first) {
		struct lookup *l = r->first;
		r->first = l->next;
		if (!r->first)
			r->last = &r->first;
		r->queued--;
		pthread_mutex_unlock(&r->lock);
		resolve_now(r, &l->target, &l->found, &l->err);
		pthread_mutex_lock(&r->lock);
		if (r->closed)
			free(l);
		else
			mailbox_post(r->mail, do_answer, l);
	}
	bool last = --r->threads == 0 && r->closed;
	pthread_mutex_unlock(&r->lock);
	if (last)
		destroy(r);
	return NULL;
}

/* With the lock. */
static void more_threads(struct resolver *r)
{
	pthread_attr_t attr;
	pthread_t thread;
	if (r->threads >= RESOLVE_THREADS)
		return;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attr, work, r) == 0)
		r->threads++;
	pthread_attr_destroy(&attr);
}

struct lookup *resolve_start(struct resolver *r, const struct egress_target *t, resolve_done done, void *ctx)
{
	struct lookup *l = xcalloc(1, sizeof(*l));
	*l = (struct lookup){ .owner = r, .target = *t, .done = done, .ctx = ctx };
	pthread_mutex_lock(&r->lock);
	bool room = r->queued < RESOLVE_QUEUE_MAX;
	if (room) {
		r->queued++;
		*r->last = l;
		r->last = &l->next;
		more_threads(r);
		room = r->threads > 0;
		if (!room) { /* it was the only one: nobody would take it */
			r->first = NULL;
			r->last = &r->first;
			r->queued = 0;
		}
	}
	pthread_mutex_unlock(&r->lock);
	if (room)
		return l;
	free(l);
	return NULL;
}

void resolve_cancel(struct lookup *l)
{
	l->done = NULL;
}
