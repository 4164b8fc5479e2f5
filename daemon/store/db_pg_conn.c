/*
 * Connections to PostgreSQL: a pool in pipeline mode, with deadlines on everything. While the server is away callers are
 * refused at once instead of queueing up: only one of them, and not more often than the back-off says, tries to connect.
 */
#include "daemon/store/db_pg.h"

#include "shared/base/clock.h"
#include "shared/base/id.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	BACKOFF_FIRST_MS = 50,
	BACKOFF_MOST_MS = 2000,
	CONNECT_SECONDS = 3,
	GRACE_MS = 1000,     /* the server's own time-out comes first: it says more */
	WORDS_MAX = 64,
	PASSWORD_MAX = 1024,
};

struct pg_pool {
	pthread_mutex_t lock;
	pthread_cond_t freed;
	struct pg_conn *idle;
	int open, most;
	size_t n_queries;
	int64_t timeout_ms;
	int64_t retry_ms;    /* monotonic; no attempt before, 0: the server is there */
	int64_t backoff_ms;
	char away[256];      /* why it is away */
	bool mended;         /* only pg_mend connects while it is away */
	char where[256];
	const char *words[WORDS_MAX + 1];
	char *values[WORDS_MAX + 1];
	size_t n_words;
	char options[160];
};

/* --- errors --- */

/* The first line, without libpq's prefix of host and port when it repeats itself. */
static void first_line(const char *text, char *out, size_t n)
{
	snprintf(out, n, "%s", text ? text : "");
	out[strcspn(out, "\n")] = '\0';
}

static bool is_state(const char *state, const char *const *list)
{
	for (; *list; list++)
		if (strncmp(state, *list, strlen(*list)) == 0)
			return true;
	return false;
}

/* States after which the same request may succeed later: connections, resources, shutdown, serialisation. */
static const char *const away_states[] = { "08", "53", "57P", "40", "55P03", "58", NULL };

int pg_fail(const struct pg_pool *p, PGconn *pg, const PGresult *r, const char *doing, struct error *err)
{
	const char *state = r ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
	const char *text = r ? PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY) : NULL;
	char line[256];
	first_line(text ? text : PQerrorMessage(pg), line, sizeof(line));
	if (!state)
		return error_set(err, ERR_UNAVAILABLE, "the database %s went away: %s", p->where, line[0] ? line : "connection lost");
	if (strcmp(state, "23505") == 0)
		return error_set(err, ERR_CONFLICT, "%s: %s", doing, line);
	if (strcmp(state, "57014") == 0)
		return error_set(err, ERR_UNAVAILABLE, "the database %s is too slow: a statement took over %lld ms", p->where, (long long)p->timeout_ms);
	if (strcmp(state, "25006") == 0)
		return error_set(err, ERR_UNAVAILABLE, "the database %s is read-only (a standby?): point store.url to the primary", p->where);
	if (strcmp(state, "53100") == 0)
		return error_set(err, ERR_UNAVAILABLE, "the disk of the database %s is full: free some space and try again", p->where);
	if (strcmp(state, "42501") == 0)
		return error_set(err, ERR_SYSTEM, "the database %s refuses: %s; its user needs CREATE on the schema and owns the tables", p->where, line);
	if (is_state(state, away_states))
		return error_set(err, ERR_UNAVAILABLE, "the database %s: %s", p->where, line);
	return error_set(err, ERR_INTERNAL, "%s: %s (%s, %s)", doing, line, state, p->where);
}

/* --- what the configuration says --- */

static void add_word(struct pg_pool *p, const char *word, const char *value)
{
	for (size_t i = 0; i < p->n_words; i++) {
		if (strcmp(p->words[i], word) == 0) {
			free(p->values[i]);
			p->values[i] = xstrdup(value);
			return;
		}
	}
	if (p->n_words == WORDS_MAX)
		return;
	p->words[p->n_words] = xstrdup(word);
	p->values[p->n_words++] = xstrdup(value);
}

static int read_url(struct pg_pool *p, const char *url, struct error *err)
{
	char *why = NULL;
	int rc = 0;
	PQconninfoOption *all = PQconninfoParse(url, &why);
	if (!all) {
		/* libpq quotes the text it does not understand, which may hold a password. */
		PQfreemem(why);
		return error_set(err, ERR_INVALID, "store.url is not a connection string of PostgreSQL (postgresql://user@host/name, or host=… dbname=…)");
	}
	for (PQconninfoOption *o = all; o->keyword && rc == 0; o++) {
		if (o->val && strcmp(o->keyword, "password") == 0)
			rc = error_set(err, ERR_INVALID, "store.url must not hold a password: put it into a file and set store.password_file, "
							 "or set PGPASSWORD");
		else if (o->val)
			add_word(p, o->keyword, o->val);
	}
	PQconninfoFree(all);
	return rc;
}

static int read_password(struct pg_pool *p, const char *path, struct error *err)
{
	struct stat st;
	auto_buf text = BUF_INIT;
	if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0007))
		return error_set(err, ERR_INVALID, "store.password_file: everybody may read %s: chmod 0600", path);
	if (io_read_file(path, PASSWORD_MAX, &text, err) != 0)
		return error_wrap(err, "store.password_file");
	auto_free char *word = xstrdup(buf_str(&text));
	word[strcspn(word, "\r\n")] = '\0';
	add_word(p, "password", word);
	explicit_bzero(word, strlen(word));
	if (text.data)
		explicit_bzero(text.data, text.len);
	return 0;
}

static const char *word_of(const struct pg_pool *p, const char *word, const char *otherwise)
{
	for (size_t i = 0; i < p->n_words; i++)
		if (strcmp(p->words[i], word) == 0)
			return p->values[i];
	return otherwise;
}

static void add_defaults(struct pg_pool *p)
{
	const char *given = word_of(p, "options", "");
	auto_free char *options = xasprintf("%s%s-c statement_timeout=%lld -c idle_in_transaction_session_timeout=%lld", given, *given ? " " : "",
					    (long long)p->timeout_ms, (long long)p->timeout_ms * 4);
	auto_free char *seconds = xasprintf("%d", CONNECT_SECONDS);
	static const char *const fixed[][2] = { { "application_name", "sandboxd" }, { "keepalives_idle", "10" }, { "keepalives_interval", "5" },
						{ "keepalives_count", "3" }, { "tcp_user_timeout", "15000" } };
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		if (!word_of(p, fixed[i][0], NULL))
			add_word(p, fixed[i][0], fixed[i][1]);
	if (!word_of(p, "connect_timeout", NULL))
		add_word(p, "connect_timeout", seconds);
	add_word(p, "options", options);
	add_word(p, "client_encoding", "UTF8");
	snprintf(p->where, sizeof(p->where), "%.80s/%.80s", word_of(p, "host", "(local)"), word_of(p, "dbname", word_of(p, "user", "(user's)")));
}

int pg_pool_new(const struct db_options *o, struct pg_pool **ret, struct error *err)
{
	struct pg_pool *p = xcalloc(1, sizeof(*p));
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->freed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	p->n_queries = o->n_queries;
	p->most = o->connections > 0 ? o->connections : 8;
	p->timeout_ms = o->timeout_ms > 0 ? o->timeout_ms : 5000;
	if (read_url(p, o->url, err) != 0 || (o->password_file && *o->password_file && read_password(p, o->password_file, err) != 0)) {
		pg_pool_free(p);
		return -1;
	}
	add_defaults(p);
	*ret = p;
	return 0;
}

static void free_conn(struct pg_conn *c)
{
	PQfinish(c->pg);
	free(c->prepared);
	free(c);
}

static void close_idle(struct pg_pool *p)
{
	while (p->idle) {
		struct pg_conn *next = p->idle->next;
		free_conn(p->idle);
		p->open--;
		p->idle = next;
	}
}

void pg_pool_free(struct pg_pool *p)
{
	if (!p)
		return;
	close_idle(p);
	for (size_t i = 0; i < p->n_words; i++) {
		explicit_bzero(p->values[i], strlen(p->values[i]));
		free(p->values[i]);
		free((char *)(uintptr_t)p->words[i]);
	}
	pthread_cond_destroy(&p->freed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

const char *pg_pool_where(const struct pg_pool *p)
{
	return p->where;
}

/* --- connecting --- */

/* "relation exists already, skipping" and the like are not for our log. */
static void ignore_notice(void *ctx, const char *text)
{
	(void)ctx;
	(void)text;
}

int pg_connect(struct pg_pool *p, PGconn **ret, struct error *err)
{
	PGconn *pg = PQconnectdbParams(p->words, (const char *const *)p->values, 0);
	if (!pg || PQstatus(pg) != CONNECTION_OK) {
		char line[256];
		first_line(pg ? PQerrorMessage(pg) : "out of memory", line, sizeof(line));
		error_set(err, ERR_UNAVAILABLE, "cannot connect to the database %s: %s", p->where, line);
		PQfinish(pg);
		return -1;
	}
	PQsetNoticeProcessor(pg, ignore_notice, NULL);
	*ret = pg;
	return 0;
}

static int open_conn(struct pg_pool *p, struct pg_conn **ret, struct error *err)
{
	PGconn *pg = NULL;
	if (pg_connect(p, &pg, err) != 0)
		return -1;
	PQsetnonblocking(pg, 1);
	if (!PQenterPipelineMode(pg)) {
		PQfinish(pg);
		return error_set(err, ERR_INTERNAL, "the database library has no pipelines");
	}
	struct pg_conn *c = xcalloc(1, sizeof(*c));
	c->pg = pg;
	c->pool = p;
	c->prepared = xcalloc(p->n_queries + 1, sizeof(*c->prepared));
	*ret = c;
	return 0;
}

/* Called locked: what a failed attempt means for the next ones. A tenth of jitter keeps many daemons apart. */
static void note_away(struct pg_pool *p, const char *why)
{
	bool first = p->retry_ms == 0;
	p->backoff_ms = p->backoff_ms ? p->backoff_ms * 2 : BACKOFF_FIRST_MS;
	if (p->backoff_ms > BACKOFF_MOST_MS)
		p->backoff_ms = BACKOFF_MOST_MS;
	int64_t jitter = (int64_t)(clock_mono_us() % (p->backoff_ms / 4 + 1));
	p->retry_ms = clock_mono_ms() + p->backoff_ms + jitter;
	snprintf(p->away, sizeof(p->away), "%s", why);
	if (first)
		log_warn("store", "%s", why);
}

static void note_there(struct pg_pool *p)
{
	if (p->retry_ms)
		log_info("store", "the database %s answers again", p->where);
	p->retry_ms = p->backoff_ms = 0;
}

/* Called locked with a place in the pool reserved; unlocks while it connects. */
static int connect_counted(struct pg_pool *p, struct pg_conn **ret, struct error *err)
{
	struct error local = ERROR_INIT;
	if (p->retry_ms) /* claims this attempt: others are refused until it is over or the next is due */
		p->retry_ms = clock_mono_ms() + CONNECT_SECONDS * 1000;
	p->open++;
	pthread_mutex_unlock(&p->lock);
	int rc = open_conn(p, ret, &local);
	pthread_mutex_lock(&p->lock);
	if (rc == 0) {
		note_there(p);
		return 0;
	}
	p->open--;
	note_away(p, local.message);
	pthread_cond_signal(&p->freed);
	if (err)
		*err = local;
	return -1;
}

static int wait_freed(struct pg_pool *p, int64_t deadline_ms)
{
	struct timespec t = { .tv_sec = deadline_ms / 1000, .tv_nsec = deadline_ms % 1000 * 1000000 };
	return pthread_cond_timedwait(&p->freed, &p->lock, &t);
}

/* Called locked. */
static int take_locked(struct pg_pool *p, struct pg_conn **ret, struct error *err)
{
	int64_t deadline = clock_mono_ms() + p->timeout_ms;
	for (;;) {
		if (p->idle) {
			*ret = p->idle;
			p->idle = p->idle->next;
			return 0;
		}
		if (p->retry_ms && (p->mended || clock_mono_ms() < p->retry_ms))
			return error_set(err, ERR_UNAVAILABLE, "%s", p->away);
		if (p->open < p->most)
			return connect_counted(p, ret, err);
		if (wait_freed(p, deadline) == ETIMEDOUT)
			return error_set(err, ERR_UNAVAILABLE, "all %d connections to the database %s are busy (store.connections)", p->most, p->where);
	}
}

void pg_pool_mended(struct pg_pool *p, bool mended)
{
	pthread_mutex_lock(&p->lock);
	p->mended = mended;
	pthread_mutex_unlock(&p->lock);
}

bool pg_mend(struct pg_pool *p)
{
	struct pg_conn *c = NULL;
	pthread_mutex_lock(&p->lock);
	bool away = p->retry_ms != 0;
	if (away && clock_mono_ms() >= p->retry_ms && p->open < p->most)
		connect_counted(p, &c, NULL);
	if (c) {
		c->next = p->idle;
		p->idle = c;
	}
	away = p->retry_ms != 0;
	pthread_mutex_unlock(&p->lock);
	return !away;
}

/* Reads what the end of the last transaction left; false: the connection is not usable any more. */
static bool settle(struct pg_conn *c)
{
	c->answer_ms = c->pool->timeout_ms + GRACE_MS; /* the server's own limit comes first, see GRACE_MS */
	while (c->owed > 0) {
		PGresult *r = NULL;
		if (pg_result(c, &r, NULL) != 0)
			return false;
		if (PQresultStatus(r) == PGRES_PIPELINE_SYNC)
			c->owed = 0;
		PQclear(r);
	}
	return true;
}

int pg_take(struct pg_pool *p, struct pg_conn **ret, struct error *err)
{
	for (;;) {
		struct pg_conn *c = NULL;
		pthread_mutex_lock(&p->lock);
		int rc = take_locked(p, &c, err);
		pthread_mutex_unlock(&p->lock);
		if (rc != 0)
			return -1;
		if (settle(c)) {
			*ret = c;
			return 0;
		}
		pg_drop(c, true);
	}
}

void pg_put(struct pg_conn *c)
{
	struct pg_pool *p = c->pool;
	if (PQstatus(c->pg) != CONNECTION_OK) {
		pg_drop(c, true);
		return;
	}
	pthread_mutex_lock(&p->lock);
	c->next = p->idle;
	p->idle = c;
	pthread_cond_signal(&p->freed);
	pthread_mutex_unlock(&p->lock);
}

void pg_drop(struct pg_conn *c, bool lost)
{
	struct pg_pool *p = c->pool;
	free_conn(c);
	pthread_mutex_lock(&p->lock);
	p->open--;
	if (lost)
		close_idle(p);
	pthread_cond_broadcast(&p->freed);
	pthread_mutex_unlock(&p->lock);
}

/* --- waiting for results --- */

static int no_answer(struct pg_conn *c, struct error *err)
{
	struct pg_pool *p = c->pool;
	char why[256];
	snprintf(why, sizeof(why), "the database %.160s did not answer within %lld ms", p->where, (long long)c->answer_ms);
	pthread_mutex_lock(&p->lock);
	note_away(p, why);
	pthread_mutex_unlock(&p->lock);
	return error_set(err, ERR_UNAVAILABLE, "%s", why);
}

int pg_result(struct pg_conn *c, PGresult **ret, struct error *err)
{
	int64_t deadline = clock_mono_ms() + c->answer_ms;
	for (;;) {
		int unsent = PQflush(c->pg);
		if (unsent < 0)
			return pg_fail(c->pool, c->pg, NULL, "", err);
		if (!PQisBusy(c->pg))
			break;
		struct pollfd p = { .fd = PQsocket(c->pg), .events = (short)(POLLIN | (unsent ? POLLOUT : 0)) };
		int64_t left = deadline - clock_mono_ms();
		if (p.fd < 0)
			return pg_fail(c->pool, c->pg, NULL, "", err);
		if (left <= 0)
			return no_answer(c, err);
		if (poll(&p, 1, (int)left) > 0 && !PQconsumeInput(c->pg))
			return pg_fail(c->pool, c->pg, NULL, "", err);
	}
	*ret = PQgetResult(c->pg);
	if (PQstatus(c->pg) == CONNECTION_OK)
		return 0;
	pg_fail(c->pool, c->pg, NULL, "", err);
	PQclear(*ret);
	return -1;
}
