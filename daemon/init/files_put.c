/*
 * A tree into the sandbox. Below the top every directory is entered by name and never through a link; a file appears under
 * its name only when it is complete. An entry that cannot be stored is answered, and the transfer goes on.
 */
#include "daemon/init/files.h"

#include "shared/base/id.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/mux/kinds.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_SIZE = 256 * 1024, TEMP_MAX = 40 };

struct put {
	int fd;
	const struct files_request *request;
	int parent;             /* of the top */
	struct buf top_name;
	struct buf top_path;    /* for the answer */
	int top;                /* when it is a directory */
	bool top_given;         /* it was there before and was named itself: its mode is not ours to change */
	bool placed;
	struct buf cached;      /* path of the directory below */
	int cached_fd;
	int file;               /* the one being written */
	int file_dir;           /* borrowed */
	char temp[TEMP_MAX];
	struct record_entry entry; /* of it; strings are not kept */
	struct buf path;        /* of the entry at hand */
	uint64_t at;            /* where the next bytes belong */
	uint64_t wrote;         /* where the file ends so far: less than `at` behind a hole */
	uint64_t entries, bytes, failed;
	bool done;
};

/* --- answers --- */

static int answer(struct put *p, struct buf *b)
{
	int r = io_write_full(p->fd, buf_str(b), b->len);
	buf_done(b);
	return r;
}

static void failed(struct put *p, const char *why, int sys)
{
	struct buf b = BUF_INIT;
	p->failed++;
	record_add_text(&b, RECORD_SKIPPED, files_code(sys), buf_str(&p->path), why ? why : strerror(sys));
	answer(p, &b);
}

/* Ends the transfer. */
static int refuse(struct put *p, struct error *err, unsigned code, const char *path, const char *why)
{
	struct buf b = BUF_INIT;
	auto_free char *text = xasprintf("%s: %s", path, why);
	record_add_text(&b, RECORD_FAIL, code, NULL, text);
	answer(p, &b);
	return error_set(err, ERR_INVALID, "%s", why);
}

static int refuse_errno(struct put *p, struct error *err, const char *path)
{
	int sys = errno;
	return refuse(p, err, files_code(sys), path, strerror(sys));
}

/* --- places --- */

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* One component down, never through a link. */
static int step_into(int dir, const char *name)
{
	return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The directory that holds `path` (relative to the top); borrowed. The last one is remembered: trees come in order. */
static int directory_of(struct put *p, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;
	if (!*path)
		return p->parent;
	if (n == 0)
		return p->top;
	if (p->cached_fd >= 0 && p->cached.len == n && memcmp(p->cached.data, path, n) == 0)
		return p->cached_fd;
	close_fdp(&p->cached_fd);
	buf_reset(&p->cached);
	auto_close int at = fcntl(p->top, F_DUPFD_CLOEXEC, 3);
	auto_free char *copy = xstrndup(path, n);
	for (char *name = copy; name && at >= 0;) {
		char *end = strchr(name, '/');
		if (end)
			*end = '\0';
		int next = step_into(at, name);
		close(at);
		at = next;
		name = end ? end + 1 : NULL;
	}
	if (at < 0)
		return -1;
	buf_add(&p->cached, path, n);
	return p->cached_fd = steal_fd(&at);
}

static const char *name_of(const struct put *p, const char *path)
{
	return *path ? last_name(path) : buf_str(&p->top_name);
}

/* Random once, then counted: a name that is taken makes the entry fail, never overwrites. */
static void make_temp_name(char out[static TEMP_MAX])
{
	static uint64_t v;
	if (v == 0)
		random_bytes(&v, sizeof(v));
	snprintf(out, TEMP_MAX, ".sandbox-put-%016llx", (unsigned long long)v++);
}

/* Gives dir/name, or the open file dir itself when name is NULL, to the user. Where that is not allowed it stays root's:
 * the bytes matter more. */
static void own(const struct put *p, int dir, const char *name)
{
	const struct identity *who = &p->request->owner;
	if (who->uid == geteuid() && who->gid == getegid())
		return;
	if (fchownat(dir, name ? name : "", who->uid, who->gid, name ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH) < 0)
		return;
}

static struct timespec time_of(const struct record_entry *e)
{
	return (struct timespec){ .tv_sec = (time_t)e->sec, .tv_nsec = (long)e->nsec };
}

/* --- the top --- */

static int set_top(struct put *p, const char *dir, const char *name, struct error *err)
{
	p->parent = files_open_path(dir, O_PATH | O_DIRECTORY);
	if (p->parent < 0)
		return refuse_errno(p, err, dir);
	buf_adds(&p->top_name, name);
	buf_addf(&p->top_path, "%s%s%s", dir, dir[strlen(dir) - 1] == '/' ? "" : "/", name);
	return 0;
}

/* PATH is a directory: the top goes into it, or its contents do. */
static int place_into(struct put *p, const struct record_entry *e, struct error *err)
{
	const char *path = p->request->path, *name = p->request->name;
	struct stat st;
	if (!name) {
		if (e->kind != RECORD_DIRECTORY)
			return refuse(p, err, MUX_ERR_REFUSED, path, "it is a directory");
		p->top = files_open_path(path, O_RDONLY | O_DIRECTORY);
		if (p->top < 0)
			return refuse_errno(p, err, path);
		buf_adds(&p->top_path, path);
		p->top_given = true;
		return 0;
	}
	if (set_top(p, path, name, err) < 0)
		return -1;
	if (fstatat(p->parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (S_ISDIR(st.st_mode) != (e->kind == RECORD_DIRECTORY))
		return refuse(p, err, MUX_ERR_REFUSED, buf_str(&p->top_path),
			      S_ISDIR(st.st_mode) ? "a directory is in the way" : "it is there and no directory");
	return 0;
}

/* PATH names the top itself: something that is there and no directory, or nothing yet. */
static int place_at(struct put *p, const struct record_entry *e, bool there, struct error *err)
{
	auto_buf dir = BUF_INIT, name = BUF_INIT;
	auto_free char *real = there ? realpath(p->request->path, NULL) : NULL; /* a link the user named is the user's wish */
	const char *path = real ? real : p->request->path;
	bool slash;
	if (there && e->kind == RECORD_DIRECTORY)
		return refuse(p, err, MUX_ERR_REFUSED, path, "it is there and no directory");
	if (!files_split(path, &dir, &name, &slash))
		return refuse(p, err, MUX_ERR_NOT_FOUND, path, "no such directory");
	if (slash && e->kind != RECORD_DIRECTORY)
		return refuse(p, err, MUX_ERR_NOT_FOUND, path, there ? "it is no directory" : "no such directory");
	return set_top(p, buf_str(&dir), buf_str(&name), err);
}

static int place_top(struct put *p, const struct record_entry *e, struct error *err)
{
	struct stat st;
	p->placed = true;
	if (stat(p->request->path, &st) == 0)
		return S_ISDIR(st.st_mode) ? place_into(p, e, err) : place_at(p, e, true, err);
	if (errno != ENOENT)
		return refuse_errno(p, err, p->request->path);
	return place_at(p, e, false, err);
}

/* --- entries --- */

/* A file without a name where the file system can do that (nothing to clean up, whatever happens), else one under a
 * temporary name, closed to others while it is incomplete. */
static int create(struct put *p, int dir, unsigned mode)
{
	p->temp[0] = '\0';
	int fd = openat(dir, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, mode);
	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL))
		return fd;
	make_temp_name(p->temp);
	return openat(dir, p->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static void start_file(struct put *p, int dir, const struct record_entry *e)
{
	p->file = create(p, dir, e->mode & 01777);
	if (p->file < 0) {
		failed(p, NULL, errno);
		return;
	}
	own(p, p->file, NULL);
	p->file_dir = dir;
	p->entry = *e;
	p->at = p->wrote = 0;
}

static void drop_file(struct put *p)
{
	if (p->file < 0)
		return;
	if (p->temp[0])
		unlinkat(p->file_dir, p->temp, 0);
	close_fdp(&p->file);
}

static void fail_file(struct put *p)
{
	failed(p, NULL, errno);
	drop_file(p);
}

static void write_file(struct put *p, const void *data, size_t n)
{
	const char *at = data;
	while (p->file >= 0 && n > 0) {
		ssize_t w = pwrite(p->file, at, n, (off_t)p->at);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0) {
			fail_file(p);
			return;
		}
		at += w;
		n -= (size_t)w;
		p->at += (uint64_t)w;
		p->wrote = p->at;
		p->bytes += (uint64_t)w;
	}
}

/* Gives the complete file its name, in one step for whoever looks. */
static int publish(struct put *p, const char *name)
{
	char self[40];
	if (p->temp[0])
		return fchmod(p->file, p->entry.mode & 01777) < 0 ? -1 : renameat(p->file_dir, p->temp, p->file_dir, name);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", p->file);
	if (linkat(AT_FDCWD, self, p->file_dir, name, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	if (errno != EEXIST)
		return -1;
	make_temp_name(p->temp);
	if (linkat(AT_FDCWD, self, p->file_dir, p->temp, AT_SYMLINK_FOLLOW) < 0) {
		p->temp[0] = '\0';
		return -1;
	}
	return renameat(p->file_dir, p->temp, p->file_dir, name);
}

static void end_file(struct put *p, uint64_t size)
{
	struct timespec times[2] = { time_of(&p->entry), time_of(&p->entry) };
	if (p->file < 0)
		return;
	if ((p->wrote != size && ftruncate(p->file, (off_t)size) < 0) || futimens(p->file, times) < 0 ||
	    publish(p, name_of(p, buf_str(&p->path))) < 0) {
		fail_file(p);
		return;
	}
	close_fdp(&p->file);
	p->entries++;
}

static void make_link(struct put *p, int dir, const struct record_entry *e)
{
	struct timespec times[2] = { time_of(e), time_of(e) };
	char temp[TEMP_MAX];
	make_temp_name(temp);
	if (symlinkat(e->target, dir, temp) < 0) {
		failed(p, NULL, errno);
		return;
	}
	own(p, dir, temp);
	utimensat(dir, temp, times, AT_SYMLINK_NOFOLLOW);
	if (renameat(dir, temp, dir, name_of(p, e->path)) < 0) {
		failed(p, NULL, errno);
		unlinkat(dir, temp, 0);
		return;
	}
	p->entries++;
}

static void make_directory(struct put *p, int dir, const struct record_entry *e)
{
	const char *name = name_of(p, e->path);
	bool made = mkdirat(dir, name, 0700) == 0;
	if (made)
		own(p, dir, name);
	else if (errno != EEXIST) {
		failed(p, NULL, errno);
		return;
	}
	auto_close int fd = step_into(dir, name);
	if (fd < 0) {
		failed(p, made ? NULL : "something that is no directory is in the way", errno);
		return;
	}
	if (!*e->path)
		p->top = steal_fd(&fd);
	p->entries++;
}

static void leave_directory(struct put *p, const struct record_entry *e)
{
	struct timespec times[2] = { time_of(e), time_of(e) };
	if (!*e->path && p->top_given)
		return;
	int dir = directory_of(p, e->path);
	auto_close int fd = dir < 0 ? -1 : step_into(dir, name_of(p, e->path));
	if (fd < 0)
		return; /* it could not be made, which was said then */
	if (fchmod(fd, e->mode & 03777) < 0 || futimens(fd, times) < 0)
		failed(p, NULL, errno);
}

static int on_entry(struct put *p, const struct record_entry *e, struct error *err)
{
	drop_file(p); /* one that never ended */
	buf_reset(&p->path);
	buf_adds(&p->path, e->path);
	if (p->placed == !*e->path)
		return refuse(p, err, MUX_ERR_REFUSED, "the transfer", "its first entry, and only that, must be the top");
	if (!p->placed && place_top(p, e, err) < 0)
		return -1;
	if (!*e->path && p->top_given) {
		p->entries++;
		return 0;
	}
	if (*e->path && p->top < 0) {
		failed(p, "what holds it could not be made", ENOENT);
		return 0;
	}
	int dir = directory_of(p, e->path);
	if (dir < 0)
		failed(p, NULL, errno);
	else if (e->kind == RECORD_FILE)
		start_file(p, dir, e);
	else if (e->kind == RECORD_SYMLINK)
		make_link(p, dir, e);
	else
		make_directory(p, dir, e);
	return 0;
}

static int on_record(void *ctx, const struct record *r, struct error *err)
{
	struct put *p = ctx;
	switch (r->type) {
	case RECORD_ENTRY:
		return on_entry(p, &r->entry, err);
	case RECORD_DATA:
		write_file(p, r->data, r->len);
		return 0;
	case RECORD_HOLE:
		p->at += r->number;
		return p->at > INT64_MAX ? refuse(p, err, MUX_ERR_REFUSED, "the transfer", "a file is larger than any") : 0;
	case RECORD_END:
		end_file(p, r->number);
		return 0;
	case RECORD_ABORT:
		drop_file(p);
		return 0;
	case RECORD_LEAVE:
		drop_file(p);
		if (p->placed)
			leave_directory(p, &r->entry);
		return 0;
	case RECORD_DONE:
		drop_file(p);
		p->done = true;
		return 0;
	case RECORD_SKIPPED: /* what the sender could not read is its own affair */
	case RECORD_FAIL:
		return 0;
	}
	return 0;
}

/* Reads records to the end of the input. -1: it broke off, was broken, or was refused (then an answer was sent). */
static int receive(struct put *p, struct error *err)
{
	struct record_reader reader;
	auto_free char *bytes = xmalloc(READ_SIZE);
	ssize_t n = 0;
	int r = 0;
	record_reader_init(&reader, on_record, p);
	while (r == 0 && !reader.ended) {
		n = read(p->fd, bytes, READ_SIZE);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		r = record_feed(&reader, bytes, (size_t)n, err);
	}
	record_reader_done(&reader);
	return r < 0 || !p->done ? -1 : 0;
}

int files_put(int fd, void *request)
{
	struct put p = { .fd = fd, .request = request, .parent = -1, .top = -1, .cached_fd = -1, .file = -1 };
	struct error err = ERROR_INIT;
	struct buf b = BUF_INIT;
	umask(0);
	signal(SIGPIPE, SIG_IGN);
	if (receive(&p, &err) < 0) {
		drop_file(&p);
		if (err.code == ERR_PROTOCOL) {
			record_add_text(&b, RECORD_FAIL, MUX_ERR_REFUSED, NULL, err.message);
			answer(&p, &b);
		}
		return 1;
	}
	record_add_done(&b, p.entries, p.bytes, p.failed, buf_str(&p.top_path));
	return answer(&p, &b) < 0;
}
