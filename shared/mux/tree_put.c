/* Single files, links and attributes of a tree that is being written: see tree_put.h. */
#include "shared/mux/tree_put.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { COPY = 256 * 1024, CREATE = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC };

/* --- files ----------------------------------------------------------------------------------------------------------------- */

/* A file without a name where the file system can do that (nothing to clean up, whatever happens), else one under a
 * temporary name, closed to others while it is incomplete. */
static int create_hidden(struct tree_write *w, int dir, unsigned mode)
{
	int fd = openat(dir, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, mode);
	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL))
		return fd;
	tree_put_temp_name(w->temp);
	return openat(dir, w->temp, CREATE, 0600);
}

int tree_put_file(struct tree_write *w, int dir, const struct record_entry *e, struct error *err)
{
	unsigned mode = e->mode & w->to.file_mode;
	w->temp[0] = '\0';
	w->named = tree_put_unseen(w, e->path);
	if (w->named)
		w->file = openat(dir, tree_put_name(w, e->path), CREATE, mode);
	if (w->file < 0) {
		w->named = false; /* not so, or the name came twice */
		w->file = create_hidden(w, dir, mode);
	}
	if (w->file < 0)
		return tree_put_failed_errno(w, err);
	tree_put_own(w, w->file, NULL);
	w->file_dir = dir;
	w->entry = *e;
	w->at = w->wrote = 0;
	return 0;
}

void tree_put_drop(struct tree_write *w)
{
	if (w->file < 0)
		return;
	if (w->temp[0])
		unlinkat(w->file_dir, w->temp, 0);
	else if (w->named)
		unlinkat(w->file_dir, tree_put_name(w, buf_str(&w->path)), 0);
	close_fdp(&w->file);
}

static int fail_file(struct tree_write *w, struct error *err)
{
	int r = tree_put_failed_errno(w, err);
	tree_put_drop(w);
	return r;
}

void tree_put_aborted(struct tree_write *w, const char *why)
{
	tree_put_failed(w, 0, why);
	tree_put_drop(w);
}

int tree_put_data(struct tree_write *w, const char *p, size_t n, struct error *err)
{
	while (w->file >= 0 && n > 0) {
		ssize_t put = pwrite(w->file, p, n, (off_t)w->at);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return fail_file(w, err);
		p += put;
		n -= (size_t)put;
		w->at += (uint64_t)put;
		w->wrote = w->at;
		w->counts.bytes += (uint64_t)put;
	}
	return 0;
}

int tree_put_hole(struct tree_write *w, uint64_t n, struct error *err)
{
	if (n > INT64_MAX - w->at)
		return error_set(err, ERR_PROTOCOL, "a file was sent that is larger than any");
	w->at += n;
	return 0;
}

/* Gives the complete file its name, in one step for whoever looks. */
static int publish(struct tree_write *w, const char *name)
{
	char self[40];
	if (w->named)
		return 0;
	if (!w->temp[0]) {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", w->file);
		if (linkat(AT_FDCWD, self, w->file_dir, name, AT_SYMLINK_FOLLOW) == 0)
			return 0;
		if (errno != EEXIST)
			return -1;
		tree_put_temp_name(w->temp);
		if (linkat(AT_FDCWD, self, w->file_dir, w->temp, AT_SYMLINK_FOLLOW) != 0) {
			w->temp[0] = '\0';
			return -1;
		}
	}
	return renameat(w->file_dir, w->temp, w->file_dir, name);
}

/* The mode last: incomplete, a file must not be more open than it will be. */
static int set_mode(struct tree_write *w)
{
	unsigned mode = w->entry.mode & w->to.file_mode;
	return (w->temp[0] || mode & w->umask) && fchmod(w->file, mode) != 0 ? -1 : 0;
}

int tree_put_end(struct tree_write *w, uint64_t size, struct error *err)
{
	struct timespec times[2] = { tree_put_time(&w->entry), tree_put_time(&w->entry) };
	if (w->file < 0)
		return 0;
	if (size > INT64_MAX)
		return error_set(err, ERR_PROTOCOL, "a file was sent that is larger than any");
	if ((w->wrote != size && ftruncate(w->file, (off_t)size) != 0) || set_mode(w) != 0 || futimens(w->file, times) != 0 ||
	    publish(w, tree_put_name(w, buf_str(&w->path))) != 0)
		return fail_file(w, err);
	close_fdp(&w->file);
	w->counts.entries++;
	w->counts.files++;
	return 0;
}

/* --- links ----------------------------------------------------------------------------------------------------------------- */

/* A new link stands under `made`; what had its name before goes. */
static int replace(struct tree_write *w, int dir, const struct record_entry *e, const char *made, struct error *err)
{
	if (renameat(dir, made, dir, tree_put_name(w, e->path)) == 0) {
		/* Between two names of one file rename does nothing, and says that it did. */
		unlinkat(dir, made, 0);
		w->counts.entries++;
		return 0;
	}
	int r = tree_put_failed_errno(w, err);
	unlinkat(dir, made, 0);
	return r;
}

static void finish_symlink(struct tree_write *w, int dir, const struct record_entry *e, const char *name)
{
	struct timespec times[2] = { tree_put_time(e), tree_put_time(e) };
	tree_put_own(w, dir, name);
	utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW);
}

int tree_put_symlink(struct tree_write *w, int dir, const struct record_entry *e, struct error *err)
{
	char temp[TREE_TEMP_MAX];
	const char *name = tree_put_name(w, e->path);
	if (symlinkat(e->target, dir, name) == 0) {
		finish_symlink(w, dir, e, name);
		w->counts.entries++;
		return 0;
	}
	tree_put_temp_name(temp);
	if (errno != EEXIST || symlinkat(e->target, dir, temp) != 0)
		return tree_put_failed_errno(w, err);
	finish_symlink(w, dir, e, temp);
	return replace(w, dir, e, temp, err);
}

/* Where no further names can be made, the contents once more. */
static int copy_contents(struct tree_write *w, int dir, const struct record_entry *e, const struct tree_place *from, struct error *err)
{
	auto_close int fd = openat(from->dir, from->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	auto_free char *bytes = xmalloc(COPY);
	ssize_t n;
	if (fd < 0)
		return tree_put_failed_errno(w, err);
	int r = tree_put_file(w, dir, e, err);
	while (r == 0 && w->file >= 0 && (n = read(fd, bytes, COPY)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		r = n < 0 ? fail_file(w, err) : tree_put_data(w, bytes, (size_t)n, err);
	}
	return r == 0 ? tree_put_end(w, w->at, err) : r;
}

int tree_put_hard_link(struct tree_write *w, int dir, const struct record_entry *e, const struct tree_place *from, struct error *err)
{
	char temp[TREE_TEMP_MAX];
	if (linkat(from->dir, from->name, dir, tree_put_name(w, e->path), 0) == 0) {
		w->counts.entries++;
		return 0;
	}
	tree_put_temp_name(temp);
	if (errno == EEXIST && linkat(from->dir, from->name, dir, temp, 0) == 0)
		return replace(w, dir, e, temp, err);
	if (errno == EPERM || errno == EMLINK || errno == EXDEV || errno == EOPNOTSUPP || errno == ENOSYS)
		return copy_contents(w, dir, e, from, err);
	return tree_put_failed_errno(w, err);
}

/* --- attributes ------------------------------------------------------------------------------------------------------------ */

void tree_put_xattr(struct tree_write *w, const char *name, const void *value, size_t n)
{
	int fd = w->file >= 0 ? w->file : w->entered;
	if (fd < 0 || w->no_xattrs || fsetxattr(fd, name, value, n, 0) == 0)
		return;
	auto_free char *text = xasprintf("extended attributes cannot be kept here: %s", strerror(errno));
	w->no_xattrs = errno == EOPNOTSUPP || errno == ENOSYS;
	tree_put_left_out(w, text);
}
