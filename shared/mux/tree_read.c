/*
 * A tree as records, piece by piece: nothing is held but the names on the way down and the files that have further names. Everything is reached
 * from the directory above it by one name that is never a link; nothing but regular files is opened for reading.
 */
#include "shared/mux/tree.h"

#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/mux/tree_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
	CHUNK = 256 * 1024,
	DEPTH_MAX = 2048,                /* each level holds a descriptor */
	SIZELESS_MAX = 16 * 1024 * 1024, /* of a file that says it is empty, as those of /proc do */
};

struct level {
	int fd;
	struct stat st;
	struct strv names;
	size_t next;
	size_t path_len; /* of the directory */
};

struct tree_read {
	struct tree_source from;
	struct tree_counts counts;
	int parent;        /* where the top stands; -1 with top_fd */
	char *top_name;
	int top_fd;        /* the top, when it was named as a directory */
	bool begun;
	struct level *levels;
	size_t depth, cap;
	struct buf path;   /* of the entry at hand, relative to the top */
	int file;          /* being sent, or -1 */
	struct stat file_st;
	bool sparse;
	off_t at, run_end, size;
	struct tree_links links;
	bool no_xattrs;    /* the file system has none */
};

/* --- the top --------------------------------------------------------------------------------------------------------------- */

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

char *tree_name(const char *path)
{
	size_t n;
	const char *p = last_component(path, &n);
	bool none = n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.');
	return none ? NULL : xstrndup(p, n);
}

static int open_parent(const struct tree_source *s, const char *name)
{
	auto_free char *dir = name == s->path ? xstrdup(".") : xstrndup(s->path, (size_t)(name - s->path));
	return s->open_path(dir, O_PATH | O_DIRECTORY);
}

int tree_read_new(const struct tree_source *s, struct tree_read **ret, struct error *err)
{
	size_t n;
	const char *name = last_component(s->path, &n);
	auto_free char *plain = tree_name(s->path);
	auto_close int parent = -1, top = -1;
	struct stat st;
	if (!plain || name[n] == '/')
		top = s->open_path(s->path, O_RDONLY | O_DIRECTORY);
	else
		parent = open_parent(s, name);
	if (top < 0 && (parent < 0 || fstatat(parent, plain, &st, AT_SYMLINK_NOFOLLOW) != 0)) {
		error_errno(err, "%s", s->path);
		if (err && (err->sys == ENOENT || err->sys == ENOTDIR))
			err->code = ERR_NOT_FOUND;
		return -1;
	}
	struct tree_read *t = xcalloc(1, sizeof(*t));
	t->from = *s;
	t->file = -1;
	t->top_name = steal(&plain);
	t->top_fd = steal_fd(&top);
	t->parent = steal_fd(&parent);
	*ret = t;
	return 0;
}

static void leave_level(struct tree_read *t)
{
	struct level *l = &t->levels[--t->depth];
	close(l->fd);
	strv_done(&l->names);
}

void tree_read_free(struct tree_read *t)
{
	if (!t)
		return;
	while (t->depth > 0)
		leave_level(t);
	close_fdp(&t->file);
	close_fdp(&t->parent);
	close_fdp(&t->top_fd);
	buf_done(&t->path);
	tree_links_done(&t->links);
	free(t->levels);
	free(t->top_name);
	free(t);
}

const struct tree_counts *tree_read_counts(const struct tree_read *t)
{
	return &t->counts;
}

int tree_read_open(struct tree_read *t, const char *path)
{
	if (!*path)
		return t->top_fd >= 0 ? -1 : openat(t->parent, t->top_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_close int top = t->top_fd >= 0 ? fcntl(t->top_fd, F_DUPFD_CLOEXEC, 3)
					    : openat(t->parent, t->top_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return top < 0 ? -1 : io_open_beneath(top, path, O_RDONLY);
}

/* --- records --------------------------------------------------------------------------------------------------------------- */

static void lose(struct tree_read *t, enum tree_loss loss, int sys, const char *text)
{
	struct tree_trouble trouble = { .loss = loss, .path = buf_str(&t->path), .sys = sys, .text = text ? text : strerror(sys) };
	t->from.trouble(t->from.ctx, &trouble);
}

static void add_entry(struct tree_read *t, struct buf *out, enum record_type type, enum record_kind kind, const struct stat *st,
                      const char *target)
{
	bool contents = kind == RECORD_FILE || kind == RECORD_HARDLINK;
	struct record_entry e = {
		.kind = kind, .mode = st->st_mode & 07777, .sec = st->st_mtim.tv_sec, .nsec = (uint32_t)st->st_mtim.tv_nsec,
		.size = contents ? (uint64_t)st->st_size : 0, .path = buf_str(&t->path), .target = target ? target : "",
	};
	t->counts.entries += type == RECORD_ENTRY;
	record_add_entry(out, type, &e);
}

static void send_xattrs(struct tree_read *t, struct buf *out, int fd)
{
	if (t->no_xattrs || t->from.entries_only)
		return;
	int r = tree_xattrs_read(fd, out);
	if (r < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
		t->no_xattrs = true;
	else if (r != 0)
		lose(t, TREE_LEFT_OUT, 0, "one of its extended attributes is too large or cannot be read");
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_names(int fd, struct strv *ret)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	auto_dir DIR *d = copy < 0 ? NULL : fdopendir(copy);
	if (!d) {
		close_fdp(&copy);
		return -1;
	}
	errno = 0;
	for (struct dirent *e; (e = readdir(d)) != NULL;)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			strv_add(ret, e->d_name);
	if (errno)
		return -1;
	if (ret->len > 1)
		qsort(ret->items, ret->len, sizeof(*ret->items), by_name);
	return 0;
}

static bool is_kernel_fs(int fd)
{
	static const unsigned long magic[] = { 0x9fa0 /* proc */, 0x62656572 /* sysfs */, 0x27e0eb /* cgroup */, 0x63677270 /* cgroup2 */,
					       0x64626720 /* debugfs */, 0x74726163 /* tracefs */, 0x73636673 /* securityfs */ };
	struct statfs fs;
	if (fstatfs(fd, &fs) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(magic); i++)
		if ((unsigned long)fs.f_type == magic[i])
			return true;
	return false;
}

static bool crosses_into_kernel_fs(const struct tree_read *t, const struct level *l)
{
	return t->from.kernel_files && t->depth > 0 && l->st.st_dev != t->levels[t->depth - 1].st.st_dev && is_kernel_fs(l->fd);
}

/* Goes down into an open directory and sends its entry. */
static void enter(struct tree_read *t, struct buf *out, int take_fd)
{
	struct level l = { .fd = take_fd, .names = STRV_INIT, .path_len = t->path.len };
	bool shut = t->from.top_only && t->depth > 0;
	int sys = l.fd < 0 || fstat(l.fd, &l.st) != 0 || (!shut && list_names(l.fd, &l.names) != 0) ? errno : 0;
	if (sys) {
		lose(t, TREE_FAILED, sys, NULL);
	} else if (crosses_into_kernel_fs(t, &l)) {
		lose(t, TREE_LEFT_OUT, 0, "it is a file system of the kernel");
	} else if (t->depth >= DEPTH_MAX) {
		lose(t, TREE_FAILED, ENAMETOOLONG, "it is nested too deeply");
	} else {
		if (t->depth == t->cap) {
			t->cap = t->cap ? 2 * t->cap : 16;
			t->levels = xrealloc(t->levels, t->cap, sizeof(*t->levels));
		}
		add_entry(t, out, RECORD_ENTRY, RECORD_DIRECTORY, &l.st, NULL);
		send_xattrs(t, out, l.fd);
		t->levels[t->depth++] = l;
		return;
	}
	close_fdp(&l.fd);
	strv_done(&l.names);
}

/* A file whose contents went along under another name already. */
static bool send_hard_link(struct tree_read *t, struct buf *out, const struct stat *st)
{
	const char *earlier = st->st_nlink > 1 ? tree_links_find(&t->links, st->st_dev, st->st_ino) : NULL;
	if (earlier)
		add_entry(t, out, RECORD_ENTRY, RECORD_HARDLINK, st, earlier);
	return earlier != NULL;
}

static void start_file(struct tree_read *t, struct buf *out, int dir, const char *name)
{
	struct stat st;
	auto_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0) {
		lose(t, TREE_FAILED, errno, NULL);
		return;
	}
	if (!S_ISREG(st.st_mode)) {
		lose(t, TREE_LEFT_OUT, 0, "it was replaced by something that is not a regular file");
		return;
	}
	if (!t->from.entries_only && send_hard_link(t, out, &st))
		return;
	add_entry(t, out, RECORD_ENTRY, RECORD_FILE, &st, NULL);
	if (t->from.entries_only)
		return;
	send_xattrs(t, out, fd);
	t->file_st = st;
	t->size = st.st_size == 0 && t->from.kernel_files ? SIZELESS_MAX : st.st_size;
	t->at = 0;
	t->sparse = st.st_size > 0 && (off_t)st.st_blocks * 512 < st.st_size;
	t->run_end = t->sparse ? 0 : t->size;
	t->file = steal_fd(&fd);
}

static void send_link(struct tree_read *t, struct buf *out, int dir, const char *name, const struct stat *st)
{
	char target[LIMIT_PATH_BYTES_MAX + 1];
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
	if (n <= 0) {
		lose(t, TREE_FAILED, n < 0 ? errno : EINVAL, NULL);
		return;
	}
	target[n] = '\0';
	add_entry(t, out, RECORD_ENTRY, RECORD_SYMLINK, st, target);
}

static void send_entry(struct tree_read *t, struct buf *out, int dir, const char *name)
{
	struct stat st;
	if (t->path.len > LIMIT_PATH_BYTES_MAX) {
		t->path.data[LIMIT_PATH_BYTES_MAX] = '\0';
		lose(t, TREE_FAILED, ENAMETOOLONG, "its path is too long");
	} else if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		lose(t, TREE_FAILED, errno, NULL);
	} else if (S_ISREG(st.st_mode)) {
		start_file(t, out, dir, name);
	} else if (S_ISLNK(st.st_mode)) {
		send_link(t, out, dir, name, &st);
	} else if (S_ISDIR(st.st_mode)) {
		enter(t, out, openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	} else {
		lose(t, TREE_LEFT_OUT, 0, S_ISFIFO(st.st_mode) ? "it is a FIFO" : S_ISSOCK(st.st_mode) ? "it is a socket" : "it is a device");
	}
}

/* --- contents -------------------------------------------------------------------------------------------------------------- */

static void end_file(struct tree_read *t, struct buf *out)
{
	record_add_number(out, RECORD_END, (uint64_t)t->at);
	if (t->file_st.st_nlink > 1)
		tree_links_add(&t->links, t->file_st.st_dev, t->file_st.st_ino, buf_str(&t->path));
	close_fdp(&t->file);
	t->counts.files++;
}

static void abort_file(struct tree_read *t, struct buf *out)
{
	int sys = errno;
	lose(t, TREE_CUT, sys, NULL);
	record_add_text(out, RECORD_ABORT, 0, NULL, strerror(sys));
	close_fdp(&t->file);
}

/* Moves to the next run of data; a hole before it is sent as one. A file system that knows no holes is all data. */
static void next_run(struct tree_read *t, struct buf *out)
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

static void send_contents(struct tree_read *t, struct buf *out)
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
		t->counts.bytes += (uint64_t)n;
	}
}

/* --- the walk -------------------------------------------------------------------------------------------------------------- */

static void begin(struct tree_read *t, struct buf *out)
{
	t->begun = true;
	if (t->top_fd >= 0)
		enter(t, out, fcntl(t->top_fd, F_DUPFD_CLOEXEC, 3));
	else
		send_entry(t, out, t->parent, t->top_name);
}

static void set_path(struct tree_read *t, size_t len)
{
	if (t->path.len > len)
		t->path.data[t->path.len = len] = '\0';
}

static void walk_on(struct tree_read *t, struct buf *out)
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

bool tree_read_some(struct tree_read *t, struct buf *out)
{
	while (out->len < CHUNK) {
		if (!t->begun)
			begin(t, out);
		else if (t->file >= 0)
			send_contents(t, out);
		else if (t->depth > 0)
			walk_on(t, out);
		else
			return false;
	}
	return true;
}
