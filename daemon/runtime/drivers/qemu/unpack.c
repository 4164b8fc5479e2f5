/*
 * Tar (ustar, pax, GNU long names) to files. Every name is opened from the directory down by openat2 without links, so that no entry can
 * act through one that came before it. Devices are left out (the guest has its own), extended attributes too.
 */
#include "daemon/runtime/drivers/qemu/unpack.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCK = 512, META_MAX = 1024 * 1024, ENTRIES_MAX = 4 * 1024 * 1024, FS_BLOCK = 4096, MODE_BITS = 07777 };

struct entry {
	char type;
	char *name, *link;
	int64_t size, mtime;
	uid_t uid;
	gid_t gid;
	mode_t mode;
};

struct unpack {
	int dirfd;
	int64_t bytes_max;
	struct unpack_size size;
	uint8_t head[BLOCK];
	size_t head_len;
	struct entry e;
	int64_t left, pad;    /* of the entry's content */
	int file;             /* content goes there, or -1 */
	struct buf meta;      /* or there, when keep_meta */
	bool keep_meta;
	/* From what stands before an entry; NULL, -1: nothing. */
	char *next_name, *next_link;
	int64_t next_size, next_uid, next_gid;
	bool ended;
	struct error failed;
};

/* --- names --- */

/* Without leading dots and slashes; NULL for one that would leave. "" is the directory itself. */
static char *clean_name(const char *name)
{
	auto_buf out = BUF_INIT;

	while (*name) {
		size_t n = strcspn(name, "/");

		if (n == 2 && strncmp(name, "..", 2) == 0)
			return NULL;
		if (n > 0 && !(n == 1 && name[0] == '.')) {
			if (out.len > 0)
				buf_addc(&out, '/');
			buf_add(&out, name, n);
		}
		name += n + (name[n] == '/');
	}
	return out.len < PATH_MAX ? buf_steal(&out) : NULL;
}

static int open_below(int dirfd, const char *path, int flags)
{
	struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC), .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };

	return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
}

/* The directory that holds path, made with those above it when missing; ret_leaf points into path. */
static int open_parent(int dirfd, char *path, const char **ret_leaf)
{
	char *slash = strrchr(path, '/');
	int fd;

	*ret_leaf = slash ? slash + 1 : path;
	if (!slash)
		return open_below(dirfd, ".", O_PATH | O_DIRECTORY);
	*slash = '\0';
	fd = open_below(dirfd, path, O_PATH | O_DIRECTORY);
	if (fd < 0 && errno == ENOENT) {
		auto_free char *above = xstrdup(path);
		const char *leaf;
		auto_close int parent = open_parent(dirfd, above, &leaf);

		if (parent >= 0 && (mkdirat(parent, leaf, 0755) == 0 || errno == EEXIST))
			fd = open_below(dirfd, path, O_PATH | O_DIRECTORY);
	}
	*slash = '/';
	return fd;
}

int unpack_place(int dirfd, const char *path, bool is_dir, struct error *err)
{
	auto_free char *name = clean_name(path);
	const char *leaf;
	auto_close int parent = name && *name ? open_parent(dirfd, name, &leaf) : -1;
	auto_close int fd = -1;

	if (parent < 0)
		return name && (errno == ELOOP || errno == ENOTDIR) ? 0 : error_set(err, ERR_INVALID, "the image has no room for %s", path);
	if (is_dir)
		return mkdirat(parent, leaf, 0755) == 0 || errno == EEXIST ? 0 : error_errno(err, "making %s", path);
	fd = openat(parent, leaf, O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, 0644);
	return fd >= 0 || errno == EEXIST ? 0 : error_errno(err, "making %s", path);
}

/* --- heads --- */

static bool is_one_of(char type, const char *set)
{
	return type && strchr(set, type);
}

/* Octal text, or base 256 where the first bit is set. -1: neither. */
static int64_t number(const uint8_t *p, size_t n)
{
	int64_t v = 0;

	if (p[0] & 0x80) {
		for (size_t i = 1; i < n; i++) {
			if (v >> 55)
				return -1;
			v = v << 8 | p[i];
		}
		return p[0] == 0x80 ? v : -1;
	}
	while (n > 0 && *p == ' ')
		p++, n--;
	for (; n > 0 && *p >= '0' && *p <= '7'; p++, n--)
		v = v * 8 + (*p - '0');
	return n == 0 || *p == ' ' || *p == '\0' ? v : -1;
}

static bool sum_is_right(const uint8_t *h)
{
	int64_t sum = 0;

	for (int i = 0; i < BLOCK; i++)
		sum += i >= 148 && i < 156 ? ' ' : h[i];
	return number(h + 148, 8) == sum;
}

static char *field(const uint8_t *p, size_t n)
{
	return xstrndup((const char *)p, strnlen((const char *)p, n));
}

static char *head_name(const uint8_t *h)
{
	auto_free char *name = field(h, 100);
	auto_free char *prefix = memcmp(h + 257, "ustar\0", 6) == 0 ? field(h + 345, 155) : xstrdup("");

	return *prefix ? xasprintf("%s/%s", prefix, name) : steal(&name);
}

static int take_head(struct unpack *u, struct error *err)
{
	const uint8_t *h = u->head;
	struct entry *e = &u->e;

	if (!sum_is_right(h))
		return error_set(err, ERR_PROTOCOL, "the image's tar is damaged");
	*e = (struct entry){ .type = (char)h[156], .mode = (mode_t)number(h + 100, 8) & MODE_BITS, .uid = (uid_t)number(h + 108, 8),
		             .gid = (gid_t)number(h + 116, 8), .size = number(h + 124, 12), .mtime = number(h + 136, 12) };
	if (e->size < 0)
		return error_set(err, ERR_PROTOCOL, "the image's tar holds a wrong size");
	e->name = u->next_name ? steal(&u->next_name) : head_name(h);
	e->link = u->next_link ? steal(&u->next_link) : field(h + 157, 100);
	if (is_one_of(e->type, "xgLK"))
		return 0;
	e->size = u->next_size >= 0 ? u->next_size : e->size;
	e->uid = u->next_uid >= 0 ? (uid_t)u->next_uid : e->uid;
	e->gid = u->next_gid >= 0 ? (gid_t)u->next_gid : e->gid;
	return 0;
}

/* --- entries --- */

/* Owner first: changing it takes set-id bits away. */
static int set_attributes(const struct entry *e, int parent, const char *leaf, struct error *err)
{
	struct timespec t[2] = { { .tv_sec = e->mtime }, { .tv_sec = e->mtime } };

	if (fchownat(parent, leaf, e->uid, e->gid, AT_SYMLINK_NOFOLLOW) != 0)
		return error_errno(err, "setting the owner of %s", e->name);
	if (e->type != '2' && fchmodat(parent, leaf, e->mode, 0) != 0)
		return error_errno(err, "setting the mode of %s", e->name);
	(void)utimensat(parent, leaf, t, AT_SYMLINK_NOFOLLOW);
	return 0;
}

static int make_link(struct unpack *u, int parent, const char *leaf)
{
	auto_free char *target = clean_name(u->e.link);
	const char *target_leaf;
	auto_close int from = target && *target ? open_parent(u->dirfd, target, &target_leaf) : -1;

	return from < 0 ? -1 : linkat(from, target_leaf, parent, leaf, 0);
}

static int make_leaf(struct unpack *u, int parent, const char *leaf)
{
	struct stat st;
	bool there = fstatat(parent, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0;

	if (u->e.type == '5' && there && S_ISDIR(st.st_mode))
		return 0;
	if (there && unlinkat(parent, leaf, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) != 0)
		return -1;
	switch (u->e.type) {
	case '5':
		return mkdirat(parent, leaf, 0700);
	case '2':
		return symlinkat(u->e.link, parent, leaf);
	case '1':
		return make_link(u, parent, leaf);
	case '6':
		return mkfifoat(parent, leaf, 0600);
	default:
		u->file = openat(parent, leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		return u->file < 0 ? -1 : 0;
	}
}

static int count_entry(struct unpack *u, struct error *err)
{
	u->size.entries++;
	u->size.bytes += (u->e.size + FS_BLOCK - 1) / FS_BLOCK * FS_BLOCK + (u->e.type == '5' ? FS_BLOCK : 0);
	if (u->size.entries > ENTRIES_MAX || u->size.bytes > u->bytes_max || u->e.size > u->bytes_max)
		return error_set(err, ERR_TOO_LARGE, "the image has more than %lld MiB or %d files (image_max)", (long long)(u->bytes_max >> 20), ENTRIES_MAX);
	return 0;
}

static int make_entry(struct unpack *u, struct error *err)
{
	auto_free char *name = clean_name(u->e.name);
	const char *leaf;
	auto_close int parent = -1;

	if (!name)
		return error_set(err, ERR_INVALID, "the image's tar holds a name that leaves it");
	if (u->e.type && !is_one_of(u->e.type, "012567"))
		return 0;
	if (count_entry(u, err) != 0)
		return -1;
	if (!*name)
		return set_attributes(&u->e, u->dirfd, ".", err);
	parent = open_parent(u->dirfd, name, &leaf);
	if (parent < 0 || make_leaf(u, parent, leaf) != 0)
		return error_errno(err, "unpacking %.200s", name);
	return u->e.type == '1' ? 0 : set_attributes(&u->e, parent, leaf, err);
}

/* --- what stands before an entry --- */

static void take_number(struct unpack *u, const char *key, const char *text)
{
	int64_t *to = strcmp(key, "size") == 0 ? &u->next_size : strcmp(key, "uid") == 0 ? &u->next_uid : strcmp(key, "gid") == 0 ? &u->next_gid : NULL;

	if (to)
		*to = strtoll(text, NULL, 10);
}

static void forget_next(struct unpack *u)
{
	free(u->next_name);
	free(u->next_link);
	u->next_name = u->next_link = NULL;
	u->next_size = u->next_uid = u->next_gid = -1;
}

/* "LENGTH KEY=VALUE\n" records. */
static int take_pax(struct unpack *u, struct error *err)
{
	const char *p = buf_str(&u->meta), *end = p + u->meta.len;

	while (p < end) {
		char *after;
		unsigned long n = strtoul(p, &after, 10);
		const char *value = n > 0 && n <= (size_t)(end - p) && *after == ' ' ? memchr(after, '=', (size_t)(p + n - after)) : NULL;

		if (!value || p[n - 1] != '\n')
			return error_set(err, ERR_PROTOCOL, "the image's tar holds a malformed extended head");
		auto_free char *key = xstrndup(after + 1, (size_t)(value - after - 1));
		auto_free char *text = xstrndup(value + 1, (size_t)(p + n - value - 2));
		if (strcmp(key, "path") == 0 || strcmp(key, "linkpath") == 0) {
			char **to = *key == 'p' ? &u->next_name : &u->next_link;

			free(*to);
			*to = steal(&text);
		} else {
			take_number(u, key, text);
		}
		p += n;
	}
	return 0;
}

static int finish_content(struct unpack *u, struct error *err)
{
	struct timespec t[2] = { { .tv_sec = u->e.mtime }, { .tv_sec = u->e.mtime } };
	int rc = 0;

	if (u->file >= 0)
		(void)futimens(u->file, t);
	close_fdp(&u->file);
	if (u->keep_meta) {
		char **to = u->e.type == 'L' ? &u->next_name : &u->next_link;

		if (u->e.type == 'x') {
			rc = take_pax(u, err);
		} else {
			free(*to);
			*to = xstrdup(buf_str(&u->meta));
		}
		buf_reset(&u->meta);
		u->keep_meta = false;
	} else if (u->e.type != 'g') {
		forget_next(u);
	}
	free(u->e.name);
	free(u->e.link);
	u->e.name = u->e.link = NULL;
	return rc;
}

static int begin_entry(struct unpack *u, struct error *err)
{
	static const uint8_t zero[BLOCK];

	if (memcmp(u->head, zero, BLOCK) == 0) {
		u->ended = true;
		return 0;
	}
	if (take_head(u, err) != 0)
		return -1;
	if (is_one_of(u->e.type, "xLK")) {
		if (u->e.size > META_MAX)
			return error_set(err, ERR_TOO_LARGE, "the image's tar holds an extended head over %d bytes", META_MAX);
		u->keep_meta = true;
	} else if (u->e.type != 'g' && make_entry(u, err) != 0) {
		return -1;
	}
	/* Links and directories have no content, whatever their size field says. */
	u->left = is_one_of(u->e.type, "123456") ? 0 : u->e.size;
	u->pad = (BLOCK - u->left % BLOCK) % BLOCK;
	return u->left == 0 ? finish_content(u, err) : 0;
}

static int take_content(struct unpack *u, const uint8_t *p, size_t n, struct error *err)
{
	if (u->file >= 0 && io_write_full(u->file, p, n) != 0)
		return error_errno(err, "unpacking %.200s", u->e.name);
	if (u->keep_meta)
		buf_add(&u->meta, p, n);
	u->left -= (int64_t)n;
	return u->left == 0 ? finish_content(u, err) : 0;
}

static size_t least(int64_t a, size_t b)
{
	return a < (int64_t)b ? (size_t)a : b;
}

static int take_some(struct unpack *u, const uint8_t *p, size_t n, size_t *ret_used, struct error *err)
{
	size_t part;

	if (u->left > 0) {
		*ret_used = part = least(u->left, n);
		return take_content(u, p, part, err);
	}
	if (u->pad > 0) {
		*ret_used = part = least(u->pad, n);
		u->pad -= (int64_t)part;
		return 0;
	}
	*ret_used = part = least(BLOCK - (int64_t)u->head_len, n);
	memcpy(u->head + u->head_len, p, part);
	u->head_len += part;
	if (u->head_len < BLOCK)
		return 0;
	u->head_len = 0;
	return begin_entry(u, err);
}

int unpack_feed(struct unpack *u, const void *p, size_t n, struct error *err)
{
	const uint8_t *at = p;
	size_t used;

	while (n > 0 && !u->ended && !u->failed.code) {
		if (take_some(u, at, n, &used, &u->failed) != 0)
			break;
		at += used;
		n -= used;
	}
	return u->failed.code ? error_set(err, u->failed.code, "%s", u->failed.message) : 0;
}

struct unpack *unpack_new(int dirfd, int64_t bytes_max)
{
	struct unpack *u = xcalloc(1, sizeof(*u));

	u->dirfd = dirfd;
	u->bytes_max = bytes_max;
	u->file = -1;
	forget_next(u);
	return u;
}

int unpack_end(struct unpack *take_u, struct unpack_size *ret, struct error *err)
{
	struct unpack *u = take_u;
	int rc = 0;

	if (u->failed.code)
		rc = error_set(err, u->failed.code, "%s", u->failed.message);
	else if (!u->ended)
		rc = error_set(err, ERR_PROTOCOL, "the image's tar was cut off");
	else
		*ret = u->size;
	close_fdp(&u->file);
	buf_done(&u->meta);
	free(u->e.name);
	free(u->e.link);
	forget_next(u);
	free(u);
	return rc;
}
