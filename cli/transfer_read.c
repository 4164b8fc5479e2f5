/* A local tree as records, piece by piece: nothing is held but the names on the way down. Links are not followed below the top. */
#include "cli/transfer_priv.h"

#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 256 * 1024 };

struct level {
	int fd;
	struct stat st;
	struct strv names;
	size_t next;
	size_t path_len; /* of the directory */
};

struct tree_reader {
	struct copy *copy;
	bool entries_only;
	int parent;        /* where the top stands; -1 with top_fd */
	char *top_name;
	int top_fd;        /* the top, when it was named as a directory */
	bool begun, ended;
	struct level *levels;
	size_t depth, cap;
	struct buf path;   /* of the entry at hand, relative to the top */
	int file;          /* being sent, or -1 */
	bool sparse;
	off_t at, run_end, size;
};

/* --- the source's name ----------------------------------------------------------------------------------------------------- */

/* The last component without trailing slashes: its start, and length in *ret_n. */
static const char *last_component(const char *path, size_t *ret_n)
{
	size_t end = strlen(path), at;
	while (end > 0 && path[end - 1] == '/')
		end--;
	for (at = end; at > 0 && path[at - 1] != '/'; at--)
		continue;
	*ret_n = end - at;
	return path + at;
}

char *tree_source_name(const char *path)
{
	size_t n;
	const char *p = last_component(path, &n);
	bool none = n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.');
	return none ? NULL : xstrndup(p, n);
}

static int open_parent(const char *path, const char *name)
{
	auto_free char *dir = name == path ? xstrdup(".") : xstrndup(path, (size_t)(name - path));
	return open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int tree_reader_new(struct copy *c, const char *path, struct tree_reader **ret, struct error *err)
{
	size_t n;
	const char *name = last_component(path, &n);
	auto_free char *plain = tree_source_name(path);
	auto_close int parent = -1, top = -1;
	struct stat st;
	if (!plain || name[n] == '/')
		top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	else
		parent = open_parent(path, name);
	if (top < 0 && (parent < 0 || fstatat(parent, plain, &st, AT_SYMLINK_NOFOLLOW) != 0)) {
		error_errno(err, "%s", path);
		if (err && (err->sys == ENOENT || err->sys == ENOTDIR))
			err->code = ERR_NOT_FOUND;
		return -1;
	}
	struct tree_reader *t = xcalloc(1, sizeof(*t));
	t->copy = c;
	t->file = -1;
	t->top_name = steal(&plain);
	t->top_fd = steal_fd(&top);
	t->parent = steal_fd(&parent);
	*ret = t;
	return 0;
}

void tree_reader_entries_only(struct tree_reader *t)
{
	t->entries_only = true;
}

static void leave_level(struct tree_reader *t)
{
	struct level *l = &t->levels[--t->depth];
	close(l->fd);
	strv_done(&l->names);
}

void tree_reader_free(struct tree_reader *t)
{
	while (t->depth > 0)
		leave_level(t);
	close_fdp(&t->file);
	close_fdp(&t->parent);
	close_fdp(&t->top_fd);
	buf_done(&t->path);
	free(t->levels);
	free(t->top_name);
	free(t);
}

int tree_reader_open(struct tree_reader *t, const char *path)
{
	if (!*path)
		return t->top_fd >= 0 ? -1 : openat(t->parent, t->top_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_close int top = t->top_fd >= 0 ? fcntl(t->top_fd, F_DUPFD_CLOEXEC, 3)
					    : openat(t->parent, t->top_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return top < 0 ? -1 : open_beneath(top, path, O_RDONLY);
}

/* --- records --------------------------------------------------------------------------------------------------------------- */

static void add_entry(struct tree_reader *t, struct buf *out, enum record_type type, enum record_kind kind, const struct stat *st,
                      const char *target)
{
	struct record_entry e = {
		.kind = kind, .mode = st->st_mode & 07777, .sec = st->st_mtim.tv_sec, .nsec = (uint32_t)st->st_mtim.tv_nsec,
		.size = kind == RECORD_FILE ? (uint64_t)st->st_size : 0, .path = buf_str(&t->path), .target = target ? target : "",
	};
	record_add_entry(out, type, &e);
}

static void warn_errno(struct tree_reader *t)
{
	t->copy->stats->failed++;
	copy_warn(t->copy, buf_str(&t->path), strerror(errno));
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_names(int fd, struct strv *ret)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	if (!d) {
		close_fdp(&copy);
		return -1;
	}
	errno = 0;
	for (struct dirent *e; (e = readdir(d)) != NULL;) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			strv_add(ret, e->d_name);
	}
	int sys = errno;
	closedir(d);
	errno = sys;
	if (ret->len > 1)
		qsort(ret->items, ret->len, sizeof(*ret->items), by_name);
	return sys ? -1 : 0;
}

/* Goes down into an open directory and sends its entry. */
static void enter(struct tree_reader *t, struct buf *out, int take_fd)
{
	struct level l = { .fd = take_fd, .names = STRV_INIT, .path_len = t->path.len };
	if (fstat(l.fd, &l.st) != 0 || list_names(l.fd, &l.names) != 0) {
		warn_errno(t);
		close(l.fd);
		strv_done(&l.names);
		return;
	}
	if (t->depth == t->cap) {
		t->cap = t->cap ? 2 * t->cap : 16;
		t->levels = xrealloc(t->levels, t->cap, sizeof(*t->levels));
	}
	t->levels[t->depth++] = l;
	add_entry(t, out, RECORD_ENTRY, RECORD_DIRECTORY, &l.st, NULL);
}

static void start_file(struct tree_reader *t, struct buf *out, int dir, const char *name)
{
	struct stat st;
	auto_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0) {
		warn_errno(t);
		return;
	}
	if (!S_ISREG(st.st_mode)) {
		t->copy->stats->skipped++;
		copy_warn(t->copy, buf_str(&t->path), "skipped: not a regular file any more");
		return;
	}
	add_entry(t, out, RECORD_ENTRY, RECORD_FILE, &st, NULL);
	if (t->entries_only)
		return;
	t->size = st.st_size;
	t->at = 0;
	t->sparse = (off_t)st.st_blocks * 512 < st.st_size;
	t->run_end = t->sparse ? 0 : st.st_size;
	t->file = steal_fd(&fd);
}

static void send_link(struct tree_reader *t, struct buf *out, int dir, const char *name, const struct stat *st)
{
	char target[LIMIT_PATH_BYTES_MAX + 1];
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
	if (n <= 0) {
		warn_errno(t);
		return;
	}
	target[n] = '\0';
	add_entry(t, out, RECORD_ENTRY, RECORD_SYMLINK, st, target);
}

static void send_entry(struct tree_reader *t, struct buf *out, int dir, const char *name)
{
	struct stat st;
	if (t->path.len > LIMIT_PATH_BYTES_MAX) {
		errno = ENAMETOOLONG;
		warn_errno(t);
	} else if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		warn_errno(t);
	} else if (S_ISREG(st.st_mode)) {
		start_file(t, out, dir, name);
	} else if (S_ISLNK(st.st_mode)) {
		send_link(t, out, dir, name, &st);
	} else if (S_ISDIR(st.st_mode)) {
		int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			warn_errno(t);
		else
			enter(t, out, fd);
	} else {
		t->copy->stats->skipped++;
		copy_warn(t->copy, buf_str(&t->path), S_ISFIFO(st.st_mode) ? "skipped: a FIFO" : S_ISSOCK(st.st_mode) ? "skipped: a socket" : "skipped: a device");
	}
}

/* --- contents -------------------------------------------------------------------------------------------------------------- */

static void end_file(struct tree_reader *t, struct buf *out)
{
	record_add_number(out, RECORD_END, (uint64_t)t->at);
	close_fdp(&t->file);
	t->copy->stats->files++;
}

static void abort_file(struct tree_reader *t, struct buf *out)
{
	const char *why = strerror(errno);
	warn_errno(t);
	record_add_text(out, RECORD_ABORT, 0, NULL, why);
	close_fdp(&t->file);
}

/* Moves to the next run of data; a hole before it is sent as one. */
static void next_run(struct tree_reader *t, struct buf *out)
{
	off_t from = lseek(t->file, t->at, SEEK_DATA);
	if (from < 0)
		from = errno == ENXIO ? t->size : t->at;
	if (from > t->size)
		from = t->size;
	off_t to = from < t->size ? lseek(t->file, from, SEEK_HOLE) : t->size;
	if (from > t->at)
		record_add_number(out, RECORD_HOLE, (uint64_t)(from - t->at));
	t->at = from;
	t->run_end = to > from && to < t->size ? to : t->size;
}

static void send_contents(struct tree_reader *t, struct buf *out)
{
	if (t->at >= t->size) {
		end_file(t, out);
		return;
	}
	if (t->at >= t->run_end) {
		next_run(t, out);
		return;
	}
	size_t want = (size_t)(t->run_end - t->at), most = RECORD_DATA_MAX - RECORD_HEAD_LEN;
	want = want < most ? want : most;
	char *p = buf_reserve(out, RECORD_HEAD_LEN + want);
	ssize_t n;
	do {
		n = pread(t->file, p + RECORD_HEAD_LEN, want, t->at);
	} while (n < 0 && errno == EINTR);
	if (n < 0) {
		abort_file(t, out);
	} else if (n == 0) {
		end_file(t, out); /* it shrank while it was read */
	} else {
		record_put_head((uint8_t *)p, RECORD_DATA, (size_t)n);
		buf_commit(out, RECORD_HEAD_LEN + (size_t)n);
		t->at += n;
		t->copy->stats->bytes += (uint64_t)n;
	}
}

/* --- the walk -------------------------------------------------------------------------------------------------------------- */

static void begin(struct tree_reader *t, struct buf *out)
{
	t->begun = true;
	if (t->top_fd >= 0)
		enter(t, out, fcntl(t->top_fd, F_DUPFD_CLOEXEC, 3));
	else
		send_entry(t, out, t->parent, t->top_name);
}

static void set_path(struct tree_reader *t, size_t len)
{
	if (t->path.len > len)
		t->path.data[t->path.len = len] = '\0';
}

static void walk_on(struct tree_reader *t, struct buf *out)
{
	struct level *l = &t->levels[t->depth - 1];
	set_path(t, l->path_len);
	if (l->next == l->names.len) {
		add_entry(t, out, RECORD_LEAVE, RECORD_DIRECTORY, &l->st, NULL);
		leave_level(t);
		return;
	}
	const char *name = l->names.items[l->next++];
	if (t->path.len)
		buf_addc(&t->path, '/');
	buf_adds(&t->path, name);
	send_entry(t, out, l->fd, name);
}

enum produce tree_produce(void *reader, struct buf *out, int *ret_fd, struct error *err)
{
	struct tree_reader *t = reader;
	(void)ret_fd;
	while (out->len < CHUNK && !t->ended) {
		if (!t->begun)
			begin(t, out);
		else if (t->file >= 0)
			send_contents(t, out);
		else if (t->depth > 0)
			walk_on(t, out);
		else
			t->ended = true;
		if (t->begun && out->len == 0 && t->depth == 0 && t->file < 0 && !t->ended) {
			error_set(err, ERR_INVALID, "nothing of it can be copied");
			return PRODUCE_FAILED;
		}
	}
	if (!t->ended)
		return PRODUCE_MORE;
	record_add_done(out, 0, t->copy->stats->bytes, t->copy->stats->failed + t->copy->stats->skipped, "");
	return PRODUCE_ALL;
}
