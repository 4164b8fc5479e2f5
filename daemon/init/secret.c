/* Secrets as files: into /run/secrets, and only where that is memory. */
#include "daemon/init/init.h"

#include "daemon/init/users.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PARENT "/run"
#define DIRECTORY "secrets"
#define FRESH ".new"

struct asked {
	char *name;
	struct identity owner;
	const void *value;
	size_t n;
};

static int parse(const struct tlv *t, struct asked *a, struct error *err)
{
	static const enum mux_field allowed[] = { MUX_F_KIND, MUX_F_WINDOW, MUX_F_NAME, MUX_F_USER, MUX_F_VALUE };
	auto_free char *user = NULL;
	if (tlv_only(t, allowed, ARRAY_LEN(allowed), err) < 0 || tlv_str(t, MUX_F_NAME, 255, &a->name, err) < 0 ||
	    tlv_str(t, MUX_F_USER, 256, &user, err) < 0)
		return -1;
	a->value = tlv_bytes(t, MUX_F_VALUE, &a->n);
	if (!a->name || !secret_file_valid(a->name) || !a->value)
		return error_set(err, ERR_INVALID, "a secret's file has no name or no value");
	return users_resolve(user, &a->owner, err);
}

static int open_directory(struct error *err)
{
	auto_close int parent = open(PARENT, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_PATH);
	struct statfs fs;
	if (parent < 0)
		return error_errno(err, PARENT);
	if (mkdirat(parent, DIRECTORY, 0755) < 0 && errno != EEXIST)
		return error_errno(err, PARENT "/" DIRECTORY);
	auto_close int dir = openat(parent, DIRECTORY, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_RDONLY);
	if (dir < 0 || fstatfs(dir, &fs) < 0)
		return error_errno(err, PARENT "/" DIRECTORY);
	if (fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC)
		return error_set(err, ERR_UNAVAILABLE, PARENT "/" DIRECTORY " is not in memory here: use the secret as a variable");
	return steal_fd(&dir);
}

static int fill(int dir, const struct asked *a, struct error *err)
{
	auto_close int fd = openat(dir, FRESH, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
	if (fd < 0 || io_write_full(fd, a->value, a->n) < 0 || fchown(fd, a->owner.uid, a->owner.gid) < 0 || fchmod(fd, 0400) < 0)
		return error_errno(err, "writing it");
	return renameat(dir, FRESH, dir, a->name) < 0 ? error_errno(err, "naming it") : 0;
}

static int put(const struct asked *a, struct error *err)
{
	auto_close int dir = open_directory(err);
	if (dir < 0)
		return -1;
	(void)unlinkat(dir, FRESH, 0);
	if (fill(dir, a, err) == 0)
		return 0;
	(void)unlinkat(dir, FRESH, 0);
	return -1;
}

void secret_open(struct init *in, uint32_t stream, const struct tlv *t)
{
	struct asked a = { .name = NULL };
	struct error err = ERROR_INIT;
	if (parse(t, &a, &err) < 0 || put(&a, &err) < 0)
		link_refuse(in, stream, MUX_ERR_IO, "%s", err.message);
	else
		mux_close(in->link.mux, stream, NULL);
	free(a.name);
}
