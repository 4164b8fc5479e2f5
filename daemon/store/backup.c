/* Copies of an SQLite store: see backup.h. SQLite's own backup copies pages of one moment, whoever writes meanwhile. */
#include "daemon/store/backup.h"

#include "daemon/store/internal.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

enum { BUSY_MS = 10 * 1000, PAGES_A_STEP = 256 };

static void close_handle(sqlite3 **h)
{
	sqlite3_close(*h);
}
#define auto_sqlite __attribute__((cleanup(close_handle))) sqlite3

static int fail(sqlite3 *h, const char *path, struct error *err)
{
	int sys = h ? sqlite3_system_errno(h) : 0;
	if (sys == ENOSPC || sys == EDQUOT || (h && (sqlite3_errcode(h) & 0xff) == SQLITE_FULL))
		return error_set(err, ERR_UNAVAILABLE, "the disk that holds %s is full", path);
	return error_set(err, ERR_SYSTEM, "%s: %s", path, h ? sqlite3_errmsg(h) : "out of memory");
}

static int open_file(const char *path, int flags, sqlite3 **ret, struct error *err)
{
	int rc = sqlite3_open_v2(path, ret, flags | SQLITE_OPEN_PRIVATECACHE, NULL);
	if (rc != SQLITE_OK)
		return fail(*ret, path, err);
	sqlite3_extended_result_codes(*ret, 1);
	sqlite3_busy_timeout(*ret, BUSY_MS);
	return 0;
}

/* The first column of the first row as text; false when there is none. */
static bool first(sqlite3 *h, const char *sql, char *ret, size_t n)
{
	sqlite3_stmt *s = NULL;
	bool got = sqlite3_prepare_v2(h, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW;
	if (got)
		snprintf(ret, n, "%s", (const char *)sqlite3_column_text(s, 0));
	sqlite3_finalize(s);
	return got;
}

static int check_ours(sqlite3 *h, const char *path, struct error *err)
{
	char mark[32];
	if (!first(h, "PRAGMA application_id", mark, sizeof(mark)))
		return error_set(err, ERR_SYSTEM, "%s is not a store: %s", path, sqlite3_errmsg(h));
	if (strtol(mark, NULL, 10) != STORE_APPLICATION_ID)
		return error_set(err, ERR_SYSTEM, "%s is no store of sandboxd", path);
	return 0;
}

static int check_whole(sqlite3 *h, const char *path, struct error *err)
{
	char said[256];
	if (!first(h, "PRAGMA integrity_check(1)", said, sizeof(said)))
		return fail(h, path, err);
	return strcmp(said, "ok") == 0 ? 0 : error_set(err, ERR_SYSTEM, "%s is damaged: %s", path, said);
}

/* A writer between two steps makes SQLite begin again by itself; that ends, since each step is long next to a transaction. */
static int copy_pages(sqlite3 *from, sqlite3 *to, const char *path, struct error *err)
{
	sqlite3_backup *b = sqlite3_backup_init(to, "main", from, "main");
	int64_t until = clock_mono_ms() + BUSY_MS;
	int rc = SQLITE_OK;
	if (!b)
		return fail(to, path, err);
	while (rc == SQLITE_OK || ((rc == SQLITE_BUSY || rc == SQLITE_LOCKED) && clock_mono_ms() < until)) {
		if (rc != SQLITE_OK)
			sqlite3_sleep(20);
		rc = sqlite3_backup_step(b, PAGES_A_STEP);
	}
	sqlite3_backup_finish(b);
	return rc == SQLITE_DONE ? 0 : fail(to, path, err);
}

static int sync_file(const char *path, struct error *err)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && fsync(fd) == 0 ? 0 : error_errno(err, "writing %s", path);
}

/* A store's copy as one file without a journal beside it. */
static int copy_store(const char *from, const char *to, struct error *err)
{
	auto_sqlite *in = NULL;
	auto_sqlite *out = NULL;
	char mode[16];
	if (access(from, F_OK) != 0)
		return error_set(err, ERR_NOT_FOUND, "there is no store at %s", from);
	if (open_file(from, SQLITE_OPEN_READWRITE, &in, err) != 0 || check_ours(in, from, err) != 0)
		return -1;
	if (open_file(to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &out, err) != 0 || copy_pages(in, out, to, err) != 0)
		return -1;
	if (!first(out, "PRAGMA journal_mode=DELETE", mode, sizeof(mode)))
		return fail(out, to, err);
	return check_whole(out, to, err) == 0 ? sync_file(to, err) : -1;
}

/* Beside its goal under another name until it is whole. */
static int copy_to(const char *from, const char *to, struct error *err)
{
	auto_free char *partial = xasprintf("%s.partial", to);
	unlink(partial);
	auto_close int fd = open(partial, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_errno(err, "creating %s", partial);
	if (copy_store(from, partial, err) == 0) {
		if (rename(partial, to) == 0)
			return 0;
		error_errno(err, "renaming %s", partial);
	}
	unlink(partial);
	return -1;
}

int store_backup(const char *path, const char *to, struct error *err)
{
	if (access(to, F_OK) == 0)
		return error_set(err, ERR_CONFLICT, "%s exists; name a new file", to);
	return copy_to(path, to, err);
}

/* With its journal, which belongs to it. */
static int move_away(const char *path, char **ret_kept, struct error *err)
{
	static const char *const parts[] = { "-wal", "-shm", "" };
	auto_free char *kept = xasprintf("%s.before-restore", path);
	if (access(path, F_OK) != 0)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		auto_free char *from = xasprintf("%s%s", path, parts[i]), *to = xasprintf("%s%s", kept, parts[i]);
		unlink(to);
		if (rename(from, to) != 0 && errno != ENOENT)
			return error_errno(err, "renaming %s", from);
	}
	*ret_kept = steal(&kept);
	return 0;
}

int store_restore(const char *from, const char *state_dir, const char *path, char **ret_kept, struct error *err)
{
	auto_close int lock = -1;
	auto_free char *fresh = xasprintf("%s.restored", path), *kept = NULL;
	if (store_lock_dir(state_dir, &lock, err) != 0 || copy_to(from, fresh, err) != 0)
		return -1;
	int rc = move_away(path, &kept, err);
	if (rc == 0 && rename(fresh, path) != 0)
		rc = error_errno(err, "renaming %s", fresh);
	if (rc != 0)
		unlink(fresh);
	else
		*ret_kept = steal(&kept);
	return rc;
}
