/*
 * A tree out of the sandbox. Everything is reached from the directory above it by one name that is never a link; nothing
 * but regular files is opened for reading. What cannot be sent is said in a record, and the rest goes on.
 */
#include "daemon/init/files.h"

#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/mux/kinds.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
	OUT_FLUSH = 256 * 1024,
	DEPTH_MAX = 2048,   /* each level holds a descriptor */
	SIZELESS_MAX = 16 * 1024 * 1024, /* of a file that says it is empty, as those of /proc do */
};

struct get {
	int fd;
	bool entries_only, top_only;
	struct buf out;
	struct buf path; /* of the entry at hand, relative to the top */
	uint64_t entries, bytes, skipped;
	bool gone; /* nobody reads any more */
};

static void flush(struct get *g)
{
	if (!g->gone && io_write_full(g->fd, buf_str(&g->out), g->out.len) < 0)
		g->gone = true;
	buf_reset(&g->out);
}

static void flush_if_long(struct get *g)
{
	if (g->out.len >= OUT_FLUSH)
		flush(g);
}

static void skip(struct get *g, unsigned code, const char *why)
{
	g->skipped++;
	record_add_text(&g->out, RECORD_SKIPPED, code, buf_str(&g->path), why);
	flush_if_long(g);
}

static void skip_errno(struct get *g)
{
	int sys = errno;
	skip(g, files_code(sys), strerror(sys));
}

static void add_entry(struct get *g, enum record_type type, enum record_kind kind, const struct stat *st, const char *target)
{
	struct record_entry e = {
		.kind = kind,
		.mode = st->st_mode & 07777,
		.sec = st->st_mtim.tv_sec,
		.nsec = (uint32_t)st->st_mtim.tv_nsec,
		.size = kind == RECORD_FILE ? (uint64_t)st->st_size : 0,
		.path = buf_str(&g->path),
		.target = target,
	};
	g->entries += type == RECORD_ENTRY;
	record_add_entry(&g->out, type, &e);
	flush_if_long(g);
}

/* Reads at most n bytes at an offset into one DATA record. Bytes, 0 at the end, -1 with errno. */
static ssize_t add_data(struct get *g, int file, off_t at, size_t n)
{
	n = n < RECORD_DATA_MAX - RECORD_HEAD_LEN ? n : RECORD_DATA_MAX - RECORD_HEAD_LEN;
	char *p = buf_reserve(&g->out, RECORD_HEAD_LEN + n);
	ssize_t got;
	do {
		got = pread(file, p + RECORD_HEAD_LEN, n, at);
	} while (got < 0 && errno == EINTR);
	if (got <= 0)
		return got;
	record_put_head((uint8_t *)p, RECORD_DATA, (size_t)got);
	buf_commit(&g->out, RECORD_HEAD_LEN + (size_t)got);
	g->bytes += (uint64_t)got;
	flush_if_long(g);
	return got;
}

/* The next run of data at or behind `at`: from *ret_from to *ret_to. A file system that knows no holes is all data. */
static void next_run(int file, off_t at, off_t size, off_t *ret_from, off_t *ret_to)
{
	*ret_from = lseek(file, at, SEEK_DATA);
	if (*ret_from < 0)
		*ret_from = errno == ENXIO ? size : at;
	*ret_to = *ret_from < size ? lseek(file, *ret_from, SEEK_HOLE) : size;
	if (*ret_to <= *ret_from || *ret_to > size)
		*ret_to = size;
}

/* Sends the contents up to `size`; returns where they really ended, or -1. */
static off_t send_contents(struct get *g, int file, off_t size, bool sparse)
{
	off_t at = 0, from = 0, to = sparse ? 0 : size;
	while (at < size && !g->gone) {
		if (at >= to) {
			next_run(file, at, size, &from, &to);
			if (from > at)
				record_add_number(&g->out, RECORD_HOLE, (uint64_t)(from - at));
			at = from;
			continue;
		}
		ssize_t n = add_data(g, file, at, (size_t)(to - at));
		if (n < 0)
			return -1;
		if (n == 0)
			break; /* it shrank while it was read */
		at += n;
	}
	return at;
}

static void send_file(struct get *g, int dir, const char *name)
{
	struct stat st;
	auto_close int file = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (file < 0 || fstat(file, &st) < 0) {
		skip_errno(g);
		return;
	}
	if (!S_ISREG(st.st_mode)) {
		skip(g, 0, "it was replaced by something that is not a regular file");
		return;
	}
	add_entry(g, RECORD_ENTRY, RECORD_FILE, &st, NULL);
	if (g->entries_only)
		return;
	bool sizeless = st.st_size == 0;
	bool sparse = !sizeless && (off_t)st.st_blocks * 512 < st.st_size;
	off_t end = send_contents(g, file, sizeless ? SIZELESS_MAX : st.st_size, sparse);
	if (end < 0) {
		int sys = errno;
		g->skipped++;
		record_add_text(&g->out, RECORD_ABORT, 0, NULL, strerror(sys));
	} else {
		record_add_number(&g->out, RECORD_END, (uint64_t)end);
	}
	flush_if_long(g);
}

static void send_link(struct get *g, int dir, const char *name, const struct stat *st)
{
	char target[LIMIT_PATH_BYTES_MAX + 1];
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
	if (n <= 0) {
		skip_errno(g);
		return;
	}
	target[n] = '\0';
	add_entry(g, RECORD_ENTRY, RECORD_SYMLINK, st, target);
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

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a directory, sorted. -1 with errno. */
static int list(int fd, struct strv *ret)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;
	if (!d) {
		close_fdp(&copy);
		return -1;
	}
	errno = 0;
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			strv_add(ret, e->d_name);
	int sys = errno;
	closedir(d);
	errno = sys;
	if (ret->len)
		qsort(ret->items, ret->len, sizeof(*ret->items), by_name);
	return sys ? -1 : 0;
}

static void send_at(struct get *g, int dir, const char *name, dev_t parent_dev, int depth);

/* A directory that is open; its entry has not been sent. */
static void send_directory(struct get *g, int fd, dev_t parent_dev, int depth)
{
	auto_strv names = STRV_INIT;
	struct stat st;
	size_t len = g->path.len;
	bool shut = g->top_only && depth > 0;
	if (fstat(fd, &st) < 0 || (!shut && list(fd, &names) < 0)) {
		skip_errno(g);
		return;
	}
	if (depth > 0 && st.st_dev != parent_dev && is_kernel_fs(fd)) {
		skip(g, 0, "it is a file system of the kernel");
		return;
	}
	add_entry(g, RECORD_ENTRY, RECORD_DIRECTORY, &st, NULL);
	for (size_t i = 0; i < names.len && !g->gone; i++) {
		if (len)
			buf_addc(&g->path, '/');
		buf_adds(&g->path, names.items[i]);
		send_at(g, fd, names.items[i], st.st_dev, depth + 1);
		g->path.len = len;
		g->path.data[len] = '\0';
	}
	add_entry(g, RECORD_LEAVE, RECORD_DIRECTORY, &st, NULL);
}

static void open_directory(struct get *g, int dir, const char *name, dev_t parent_dev, int depth)
{
	auto_close int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		skip_errno(g);
	else if (depth >= DEPTH_MAX)
		skip(g, MUX_ERR_TOO_LARGE, "it is nested too deeply");
	else
		send_directory(g, fd, parent_dev, depth);
}

static void send_at(struct get *g, int dir, const char *name, dev_t parent_dev, int depth)
{
	struct stat st;
	if (g->path.len > LIMIT_PATH_BYTES_MAX) {
		g->path.data[LIMIT_PATH_BYTES_MAX] = '\0';
		skip(g, MUX_ERR_TOO_LARGE, "its path is too long");
	} else if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		skip_errno(g);
	} else if (S_ISREG(st.st_mode)) {
		send_file(g, dir, name);
	} else if (S_ISDIR(st.st_mode)) {
		open_directory(g, dir, name, parent_dev, depth);
	} else if (S_ISLNK(st.st_mode)) {
		send_link(g, dir, name, &st);
	} else {
		skip(g, 0, S_ISFIFO(st.st_mode) ? "it is a FIFO" : S_ISSOCK(st.st_mode) ? "it is a socket" : "it is a device");
	}
}

static int fail(struct get *g, int sys, const char *path)
{
	auto_free char *text = xasprintf("%s: %s", path, strerror(sys));
	record_add_text(&g->out, RECORD_FAIL, files_code(sys), NULL, text);
	flush(g);
	return 0;
}

static int send_top(struct get *g, const char *path)
{
	auto_buf dir_name = BUF_INIT, name = BUF_INIT;
	bool slash;
	struct stat st;
	if (!files_split(path, &dir_name, &name, &slash) || slash) {
		/* "/", "dir/", "dir/.": the directory it leads to, through a link too. */
		auto_close int fd = files_open_path(path, O_RDONLY | O_DIRECTORY);
		if (fd < 0)
			return -1;
		send_directory(g, fd, 0, 0);
		return 0;
	}
	auto_close int dir = files_open_path(buf_str(&dir_name), O_PATH | O_DIRECTORY);
	if (dir < 0 || fstatat(dir, buf_str(&name), &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	send_at(g, dir, buf_str(&name), 0, 0);
	return 0;
}

int files_get(int fd, void *request)
{
	const struct files_request *r = request;
	struct get g = { .fd = fd, .entries_only = r->entries_only, .top_only = r->top_only };
	if (send_top(&g, r->path) < 0)
		return fail(&g, errno, r->path);
	record_add_done(&g.out, g.entries, g.bytes, g.skipped, r->path);
	flush(&g);
	return g.gone;
}
