/* Opening, locking, time: see store.h. The typed queries are in store_*.c. */
#include "daemon/store/internal.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/base/slew.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <libpq-fe.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

enum { HOLDER_ENDS_MS = 10 * 1000, HOLDER_POLL_US = 10 * 1000 };

struct store {
	struct db *db;
	struct bus *bus; /* NULL: not shared */
	int lock_fd;
	pthread_mutex_t clock_lock;
	struct slew_clock clock;
	char boot_id[64];
	char text[64];
};

const char *const store_queries[QUERY_COUNT] = {
#define Q(name, sql) [Q_##name] = sql,
#include "daemon/store/queries.def"
#undef Q
};

/* --- one daemon per state directory --- */

static void read_holder(int fd, char *out, size_t size)
{
	ssize_t n = pread(fd, out, size - 1, 0);
	out[n > 0 ? n : 0] = '\0';
	out[strspn(out, "0123456789")] = '\0';
}

/* A killed process keeps its lock until the last of its threads has left the kernel, which a busy disk delays. */
static bool take_lock(int fd)
{
	int64_t until = clock_mono_ms() + HOLDER_ENDS_MS;
	char pid[32];
	int64_t holder;
	while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK)
			return false;
		read_holder(fd, pid, sizeof(pid));
		if (parse_i64("lock", pid, 1, INT32_MAX, &holder, NULL) != 0 || !io_process_ending((pid_t)holder) || clock_mono_ms() > until) {
			errno = EWOULDBLOCK;
			return false;
		}
		usleep(HOLDER_POLL_US);
	}
	return true;
}

static int report_holder(int fd, const char *dir, struct error *err)
{
	char pid[32];
	read_holder(fd, pid, sizeof(pid));
	return error_set(err, ERR_CONFLICT, "another sandboxd (pid %s) uses %s: stop it, or give this one another daemon.state_dir",
			 pid[0] ? pid : "unknown", dir);
}

static int open_lock(const char *path, struct error *err)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0)
		return fd;
	if (errno == EROFS || errno == EACCES || errno == EPERM)
		return error_set(err, ERR_UNAVAILABLE, "%s cannot be written: %s", path, strerror(errno));
	return error_errno(err, "opening %s", path);
}

/* The lock is the descriptor's: it goes with the process, however that ends. The pid is only for the message. */
int store_lock_dir(const char *dir, int *ret_fd, struct error *err)
{
	if (io_mkdirs(dir, 0700, err) != 0)
		return -1;
	auto_free char *path = xasprintf("%s/lock", dir);
	auto_close int fd = open_lock(path, err);
	if (fd < 0)
		return -1;
	if (!take_lock(fd))
		return errno == EWOULDBLOCK ? report_holder(fd, dir, err) : error_errno(err, "locking %s", path);
	char pid[32];
	int n = snprintf(pid, sizeof(pid), "%-10d\n", (int)getpid());
	/* Fixed width, so that no digit of an older pid stays behind. On a full disk the lock still holds without the number. */
	if (pwrite(fd, pid, (size_t)n, 0) != n)
		pid[0] = '\0';
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* --- time --- */

int64_t store_now(struct store *s)
{
	pthread_mutex_lock(&s->clock_lock);
	int64_t now = slew_clock_read(&s->clock, slew_boot_us(), clock_wall_us());
	pthread_mutex_unlock(&s->clock_lock);
	return now;
}

int64_t store_wall(struct store *s, int64_t t)
{
	return t - store_now(s) + clock_wall_us();
}

/* Differs after each start of the machine. Where the kernel tells none, every start of the daemon counts as one. */
static void read_boot_id(char *out, size_t n)
{
	auto_buf text = BUF_INIT;
	if (io_read_file("/proc/sys/kernel/random/boot_id", 64, &text, NULL) == 0)
		copy_text(out, n, buf_str(&text));
	out[strcspn(out, "\n")] = '\0';
	if (!id_valid(out))
		copy_text(out, n, id_new().text);
}

const char *store_boot_id(const struct store *s)
{
	return s->boot_id;
}

/* --- open and close --- */

static int open_database(struct store *s, const struct store_options *o, struct error *err)
{
	struct db_options options = { .path = o->path, .url = o->url, .password_file = o->password_file, .connections = o->connections,
				      .timeout_ms = o->timeout_ms, .queries = store_queries, .n_queries = QUERY_COUNT };
	bool shared = o->url && *o->url;
	int64_t version = 0;
	if ((shared ? db_open_pg(&options, &s->db, err) : db_open_sqlite(&options, &s->db, err)) != 0 ||
	    store_migrate(s->db, store_now(s), &version, err) != 0)
		return -1;
	if (shared) {
		s->bus = bus_new(s->db);
		snprintf(s->text, sizeof(s->text), "postgresql, libpq %d.%d, schema %lld", PQlibVersion() / 10000, PQlibVersion() % 10000, (long long)version);
	} else {
		snprintf(s->text, sizeof(s->text), "sqlite %s, schema %lld", sqlite3_libversion(), (long long)version);
	}
	return 0;
}

int store_open(const struct store_options *options, struct store **ret, struct error *err)
{
	struct store *s = xcalloc(1, sizeof(*s));
	s->lock_fd = -1;
	pthread_mutex_init(&s->clock_lock, NULL);
	slew_clock_start(&s->clock, slew_boot_us(), clock_wall_us());
	read_boot_id(s->boot_id, sizeof(s->boot_id));
	if ((options->state_dir && store_lock_dir(options->state_dir, &s->lock_fd, err) != 0) ||
	    open_database(s, options, err) != 0) {
		store_close(s);
		return -1;
	}
	*ret = s;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	bus_free(s->bus);
	db_close(s->db);
	close_fdp(&s->lock_fd);
	pthread_mutex_destroy(&s->clock_lock);
	free(s);
}

const char *store_describe(const struct store *s)
{
	return s->text;
}

bool store_shared(const struct store *s)
{
	return s->bus != NULL;
}

int store_listen(struct store *s, store_news_fn fn, void *ctx, struct error *err)
{
	return s->bus ? bus_start(s->bus, fn, ctx, err) : 0;
}

void store_unlisten(struct store *s)
{
	if (s->bus)
		bus_stop(s->bus);
}

void store_tell(struct store *s, enum store_news what, const struct id *id)
{
	if (s->bus)
		bus_tell(s->bus, what, id);
}

bool store_leads(const struct store *s)
{
	return !s->bus || bus_leads(s->bus);
}

struct db_stats store_stats(const struct store *s)
{
	return db_stats(s->db);
}

int store_begin(struct store *s, enum db_mode mode, struct db_tx **ret, struct error *err)
{
	return db_begin(s->db, mode, ret, err);
}

int store_flush(struct store *s, struct error *err)
{
	return db_flush(s->db, err);
}

int store_ping(struct store *s, struct error *err)
{
	auto_tx *tx = NULL;
	if (db_begin(s->db, DB_READ, &tx, err) != 0)
		return -1;
	return db_step(db_query(tx, Q_STORE_PING), err) < 0 ? -1 : 0;
}

void store_reverse(const char *text, char *out, size_t out_size)
{
	size_t n = strlen(text);
	if (n >= out_size)
		n = out_size - 1;
	for (size_t i = 0; i < n; i++)
		out[i] = text[n - 1 - i];
	out[n] = '\0';
}

void store_pack(const struct strv *v, struct buf *out)
{
	for (size_t i = 0; i < v->len; i++)
		buf_add(out, v->items[i], strlen(v->items[i]) + 1);
}

void store_unpack(const void *p, size_t n, struct strv *out)
{
	const char *at = p;
	while (n > 0) {
		const char *end = memchr(at, '\0', n);
		size_t len = end ? (size_t)(end - at) : n;
		strv_take(out, xstrndup(at, len));
		n -= end ? len + 1 : len;
		at += end ? len + 1 : len;
	}
}
