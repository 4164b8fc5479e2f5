/*
 * News between daemons that share one PostgreSQL: one connection that listens, tells (LISTEN, NOTIFY: coalesced, outside every
 * transaction, where it would cost all of them) and holds the advisory lock of the one daemon that leads. Whatever is lost on
 * the way is found by NEWS_ANY, which comes from time to time and after each reconnect.
 */
#include "daemon/store/internal.h"

#include "daemon/store/db_pg.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CHANNEL "sandbox_news"
#define TRY_TO_LEAD "SELECT pg_try_advisory_lock(73083405, hashtext(current_schema()))"

enum {
	TICK_MS = 2000,          /* leading is tried this often */
	MEND_MS = 200,           /* … and connecting, while the server is away */
	LOOK_MS = 10 * 1000,     /* NEWS_ANY while connected; each TICK_MS while only this connection is not */
	PENDING_MAX = 2048,      /* more news than this are lost: the others look for themselves */
	PAYLOAD_MAX = 7900,      /* PostgreSQL takes less than 8000 bytes */
};

struct news {
	char what;
	struct id id;
};

struct bus {
	struct pg_pool *pool;
	PGconn *pg;
	pthread_t thread;
	bool running;
	atomic_bool stop, leads;
	int wakeup;
	store_news_fn fn;
	void *ctx;
	pthread_mutex_t lock;
	struct news *pending;
	size_t n_pending;
};

struct bus *bus_new(struct db *db)
{
	struct bus *b = xcalloc(1, sizeof(*b));
	b->pool = db_pg_pool(db);
	b->wakeup = -1;
	pthread_mutex_init(&b->lock, NULL);
	return b;
}

void bus_free(struct bus *b)
{
	if (!b)
		return;
	bus_stop(b);
	free(b->pending);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

bool bus_leads(const struct bus *b)
{
	return atomic_load(&b->leads);
}

static void wake(struct bus *b)
{
	uint64_t one = 1;
	if (write(b->wakeup, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_error("store", "waking up failed: %m");
}

void bus_tell(struct bus *b, enum store_news what, const struct id *id)
{
	struct news n = { .what = (char)what };
	if (id)
		n.id = *id;
	pthread_mutex_lock(&b->lock);
	bool known = !b->running || b->n_pending >= PENDING_MAX;
	for (size_t i = 0; i < b->n_pending && !known; i++)
		known = b->pending[i].what == n.what && strcmp(b->pending[i].id.text, n.id.text) == 0;
	if (!known) {
		if (b->n_pending % 64 == 0)
			b->pending = xrealloc(b->pending, b->n_pending + 64, sizeof(*b->pending));
		b->pending[b->n_pending++] = n;
	}
	bool first = !known && b->n_pending == 1;
	pthread_mutex_unlock(&b->lock);
	if (first)
		wake(b);
}

/* --- the thread --- */

static void disconnect(struct bus *b)
{
	atomic_store(&b->leads, false);
	PQfinish(b->pg);
	b->pg = NULL;
}

/* Runs one statement; *ret_true: whether its first value is true. False: the connection was lost and is closed. */
static bool run(struct bus *b, const char *sql, const char *value, bool *ret_true)
{
	PGresult *r = PQexecParams(b->pg, sql, value ? 1 : 0, NULL, &value, NULL, NULL, 0);
	ExecStatusType status = PQresultStatus(r);
	bool good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
	if (ret_true)
		*ret_true = status == PGRES_TUPLES_OK && PQntuples(r) == 1 && PQgetvalue(r, 0, 0)[0] == 't';
	PQclear(r);
	if (!good)
		disconnect(b);
	return good;
}

static void try_to_lead(struct bus *b)
{
	bool leads = false;
	if (!b->pg || bus_leads(b) || !run(b, TRY_TO_LEAD, NULL, &leads) || !leads)
		return;
	atomic_store(&b->leads, true);
	log_info("store", "this daemon reaps and publishes for all on %s", pg_pool_where(b->pool));
	b->fn(b->ctx, NEWS_DEADLINE, &(struct id){ .text = "" });
}

static void look(struct bus *b)
{
	b->fn(b->ctx, NEWS_ANY, &(struct id){ .text = "" });
}

static void mend(struct bus *b)
{
	if (b->pg)
		return;
	if (pg_connect(b->pool, &b->pg, NULL) != 0) {
		b->pg = NULL;
		return;
	}
	/* Listen first, then look: what happens in between is seen by one of them. */
	if (run(b, "LISTEN " CHANNEL, NULL, NULL)) {
		try_to_lead(b);
		look(b);
	}
}

static void hear_payload(struct bus *b, const char *text)
{
	while (*text) {
		struct news n = { .what = *text++ };
		size_t len = strcspn(text, " ");
		snprintf(n.id.text, sizeof(n.id.text), "%.*s", (int)len, text);
		text += len + (text[len] == ' ');
		if (strchr("owde", n.what) && (!n.id.text[0] || id_valid(n.id.text)))
			b->fn(b->ctx, (enum store_news)n.what, &n.id);
	}
}

static void hear(struct bus *b)
{
	PGnotify *n;
	if (!PQconsumeInput(b->pg)) {
		disconnect(b);
		return;
	}
	while ((n = PQnotifies(b->pg))) {
		if (n->be_pid != PQbackendPID(b->pg))
			hear_payload(b, n->extra);
		PQfreemem(n);
	}
}

/* What is told while there is no connection is lost: the others look for themselves. */
static void tell_pending(struct bus *b)
{
	pthread_mutex_lock(&b->lock);
	struct news *list = b->pending;
	size_t n = b->n_pending;
	b->pending = NULL;
	b->n_pending = 0;
	pthread_mutex_unlock(&b->lock);
	auto_buf text = BUF_INIT;
	for (size_t i = 0; i < n && b->pg; i++) {
		buf_addf(&text, "%s%c%s", text.len ? " " : "", list[i].what, list[i].id.text);
		if (i + 1 == n || text.len > PAYLOAD_MAX - sizeof(struct news)) {
			run(b, "SELECT pg_notify('" CHANNEL "', $1)", buf_str(&text), NULL);
			buf_reset(&text);
		}
	}
	free(list);
}

static void drain(int fd)
{
	uint64_t n;
	if (read(fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		log_error("store", "reading a wake-up failed: %m");
}

/* Returns when the next one is due. */
static int64_t tick(struct bus *b, int64_t *look_ms)
{
	bool there = pg_mend(b->pool);
	int64_t now = clock_mono_ms();
	if (there) {
		mend(b);
		try_to_lead(b);
	}
	if (there && now >= *look_ms) {
		look(b);
		*look_ms = now + (b->pg ? LOOK_MS : TICK_MS);
	}
	return clock_mono_ms() + (there && b->pg ? TICK_MS : MEND_MS);
}

static void *bus_thread(void *arg)
{
	struct bus *b = arg;
	int64_t next = 0, look_ms = clock_mono_ms() + LOOK_MS;
	while (!atomic_load(&b->stop)) {
		int64_t left = next - clock_mono_ms();
		if (left <= 0) {
			next = tick(b, &look_ms);
			continue;
		}
		bool had = b->pg != NULL;
		struct pollfd p[] = { { .fd = b->wakeup, .events = POLLIN }, { .fd = b->pg ? PQsocket(b->pg) : -1, .events = POLLIN } };
		poll(p, ARRAY_LEN(p), (int)left);
		if (p[0].revents) {
			drain(b->wakeup);
			tell_pending(b);
		}
		if (b->pg && p[1].revents)
			hear(b);
		if (had && !b->pg)
			next = 0;
	}
	disconnect(b);
	return NULL;
}

int bus_start(struct bus *b, store_news_fn fn, void *ctx, struct error *err)
{
	b->fn = fn;
	b->ctx = ctx;
	b->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (b->wakeup < 0)
		return error_errno(err, "creating a wake-up");
	atomic_store(&b->stop, false);
	int rc = pthread_create(&b->thread, NULL, bus_thread, b);
	if (rc != 0) {
		errno = rc;
		close_fdp(&b->wakeup);
		return error_errno(err, "starting the store's listener");
	}
	pthread_mutex_lock(&b->lock);
	b->running = true;
	pthread_mutex_unlock(&b->lock);
	pg_pool_mended(b->pool, true);
	return 0;
}

void bus_stop(struct bus *b)
{
	pthread_mutex_lock(&b->lock);
	bool running = b->running;
	b->running = false;
	pthread_mutex_unlock(&b->lock);
	if (!running)
		return;
	pg_pool_mended(b->pool, false);
	atomic_store(&b->stop, true);
	wake(b);
	pthread_join(b->thread, NULL);
	close_fdp(&b->wakeup);
}
