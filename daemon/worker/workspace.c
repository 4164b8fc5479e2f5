/* Workspaces: the image, its loop device and its mount as one thing that is made whole or not at all. */
#include "daemon/worker/workspace.h"

#include "daemon/worker/loop.h"
#include "daemon/worker/trash.h"
#include "daemon/worker/workspace_image.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PROBE_MIB = 16, UNMOUNT_TRIES = 50, UNMOUNT_POLL_US = 2000, STACKED_MAX = 8, TRASH_MS = 10 * 1000, MIB = 1024 * 1024 };

/* A tmpfs that holds all of the sandbox's memory would end in out-of-memory kills instead of ENOSPC. */
enum { MEMORY_SHARE_NUM = 3, MEMORY_SHARE_DEN = 4 };

struct workspaces {
	char *sandboxes, *templates, *probe;
	struct trash *trash;
	pthread_mutex_t lock; /* mode, why */
	enum workspace_mode mode;
	char why[256];
};

struct workspaces *workspaces_new(const char *state_dir)
{
	struct workspaces *w = xcalloc(1, sizeof(*w));

	w->sandboxes = xasprintf("%s/sandboxes", state_dir);
	w->templates = xasprintf("%s/templates", state_dir);
	w->probe = xasprintf("%s/probe", state_dir);
	auto_free char *trash = xasprintf("%s/trash", state_dir);
	w->trash = trash_new(trash);
	w->mode = WORKSPACE_MODE_MEMORY;
	snprintf(w->why, sizeof(w->why), "not probed yet");
	pthread_mutex_init(&w->lock, NULL);
	return w;
}

void workspaces_free(struct workspaces *w)
{
	if (!w)
		return;
	trash_free(w->trash);
	pthread_mutex_destroy(&w->lock);
	free(w->sandboxes);
	free(w->templates);
	free(w->probe);
	free(w);
}

const char *workspace_mode_text(enum workspace_mode m)
{
	switch (m) {
	case WORKSPACE_MODE_NONE:
		return "none";
	case WORKSPACE_MODE_LOOP:
		return "loop";
	case WORKSPACE_MODE_ENGINE:
		return "engine";
	case WORKSPACE_MODE_MEMORY:
		return "memory";
	}
	return "?";
}

void workspaces_set_mode(struct workspaces *w, enum workspace_mode mode, const char *why)
{
	pthread_mutex_lock(&w->lock);
	w->mode = mode;
	snprintf(w->why, sizeof(w->why), "%s", why);
	pthread_mutex_unlock(&w->lock);
}

enum workspace_mode workspaces_mode(struct workspaces *w, char *ret_why, size_t n)
{
	enum workspace_mode m;

	pthread_mutex_lock(&w->lock);
	m = w->mode;
	if (ret_why)
		snprintf(ret_why, n, "%s", w->why);
	pthread_mutex_unlock(&w->lock);
	return m;
}

char *workspaces_dir(const struct workspaces *w, const struct id *sandbox)
{
	return xasprintf("%s/%s", w->sandboxes, sandbox->text);
}

/* Only a numeric USER is known without reading the image's passwd file, which is the sandbox's matter. */
static void owner_of(const char *user, uid_t *ret_uid, gid_t *ret_gid)
{
	const char *colon = strchr(user, ':');
	auto_free char *name = xstrndup(user, colon ? (size_t)(colon - user) : strlen(user));
	int64_t uid, gid;

	*ret_uid = 0;
	*ret_gid = 0;
	if (parse_i64("user", name, 0, UINT32_MAX - 1, &uid, NULL) != 0)
		return;
	*ret_uid = (uid_t)uid;
	if (colon && parse_i64("group", colon + 1, 0, UINT32_MAX - 1, &gid, NULL) == 0)
		*ret_gid = (gid_t)gid;
}

static int unmount(const char *dir, struct error *err)
{
	int busy = 0;

	for (int i = 0; i < STACKED_MAX;) {
		if (umount2(dir, UMOUNT_NOFOLLOW) == 0) {
			i++;
			continue;
		}
		if (errno == EINVAL || errno == ENOENT || errno == EPERM)
			return 0; /* not a mount, or not root: then there never was one */
		if (errno != EBUSY)
			return error_errno(err, "unmounting %s", dir);
		if (busy++ < UNMOUNT_TRIES) {
			usleep(UNMOUNT_POLL_US);
			continue;
		}
		/* Last resort: out of the tree now, gone with its last user. */
		if (umount2(dir, MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
			return error_errno(err, "unmounting %s", dir);
		return 0;
	}
	return 0;
}

static int drop_in(struct workspaces *w, const char *base, struct error *err)
{
	auto_free char *dir = xasprintf("%s/workspace", base);
	auto_free char *image = xasprintf("%s/workspace.img", base);

	if (unmount(dir, err) != 0)
		return -1;
	if (trash_take(w->trash, image, err) != 0)
		return -1;
	if (rmdir(dir) != 0 && errno != ENOENT)
		return error_errno(err, "deleting %s", dir);
	return 0;
}

static int prepare_root(const char *dir, const struct workspace_mount *m, struct error *err)
{
	auto_free char *lost = xasprintf("%s/lost+found", dir);

	rmdir(lost); /* templates lack it, mostly */
	if (chown(dir, m->uid, m->gid) != 0 || chmod(dir, 0777) != 0)
		return error_errno(err, "preparing %s", dir);
	return 0;
}

/* What is in a workspace need not survive the host: its syncs need not wait for the host's disk, nor its journal for data. */
static int mount_device(const char *device, const char *dir, struct error *err)
{
	const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOATIME;
	if (mount(device, dir, "ext4", flags, "nodiscard,barrier=0,data=writeback") == 0)
		return 0;
	/* An image of an earlier release has no journal, and refuses to hear of one. */
	if (errno != EINVAL || mount(device, dir, "ext4", flags, "nodiscard,barrier=0") != 0)
		return error_errno(err, "mounting %s on %s", device, dir);
	return 0;
}

/* An engine mount cannot set the owner: it is set by mounting here for a moment. The device stays through `device_fd`. */
static int mount_image(const char *base, bool keep, struct workspace_mount *m, const char *device, struct error *err)
{
	auto_free char *dir = xasprintf("%s/workspace", base);

	if (mkdir(dir, 0700) != 0 && errno != EEXIST)
		return error_errno(err, "creating %s", dir);
	if (mount_device(device, dir, err) != 0)
		return -1;
	if (prepare_root(dir, m, err) != 0) {
		unmount(dir, NULL);
		return -1;
	}
	if (!keep)
		return unmount(dir, err);
	snprintf(m->source, sizeof(m->source), "%s", dir);
	return 0;
}

/* Room that the trash still holds is as good as free. */
static int make_image(struct workspaces *w, uint32_t mib, const char *image, int *ret_fd, struct error *err)
{
	auto_free char *template_path = NULL;
	struct error local = ERROR_INIT;

	if (workspace_template(w->templates, mib, &template_path, err) != 0)
		return -1;
	if (workspace_image(template_path, image, ret_fd, &local) == 0)
		return 0;
	if (local.code == ERR_NO_CAPACITY && trash_drain(w->trash, TRASH_MS))
		return workspace_image(template_path, image, ret_fd, err);
	return error_set(err, local.code, "%s", local.message);
}

static int make_in(struct workspaces *w, const char *base, uint32_t mib, bool keep, struct workspace_mount *m, int *ret_hold, struct error *err)
{
	auto_free char *image = xasprintf("%s/workspace.img", base);
	auto_close int image_fd = -1, device_fd = -1;
	char device[64];

	if (io_mkdirs(base, 0700, err) != 0 || drop_in(w, base, err) != 0 || make_image(w, mib, image, &image_fd, err) != 0)
		return -1;
	if (loop_attach(image_fd, image, &device_fd, device, sizeof(device), err) != 0 || mount_image(base, keep, m, device, err) != 0) {
		close_fdp(&device_fd);
		drop_in(w, base, NULL);
		return -1;
	}
	*ret_hold = -1;
	if (keep)
		return 0;
	snprintf(m->source, sizeof(m->source), "%s", device);
	*ret_hold = steal_fd(&device_fd);
	return 0;
}

static void memory_mount(const struct workspace_request *r, struct workspace_mount *m)
{
	uint32_t most = r->memory_mib * MEMORY_SHARE_NUM / MEMORY_SHARE_DEN;

	m->kind = WORKSPACE_TMPFS;
	m->size_bytes = (int64_t)(r->disk_mib < most ? r->disk_mib : most) * MIB;
}

int workspace_make(struct workspaces *w, const struct workspace_request *r, struct workspace_mount *ret, int *ret_hold, struct error *err)
{
	enum workspace_mode mode = workspaces_mode(w, NULL, 0);
	auto_free char *base = workspaces_dir(w, &r->sandbox);
	struct workspace_mount m = { .kind = WORKSPACE_NONE, .size_bytes = (int64_t)r->disk_mib * MIB };
	int hold = -1;

	owner_of(r->image_user ? r->image_user : "", &m.uid, &m.gid);
	switch (mode) {
	case WORKSPACE_MODE_NONE:
		break;
	case WORKSPACE_MODE_MEMORY:
		memory_mount(r, &m);
		break;
	case WORKSPACE_MODE_LOOP:
		m.kind = WORKSPACE_DIR;
		break;
	case WORKSPACE_MODE_ENGINE:
		m.kind = WORKSPACE_DEVICE;
		break;
	}
	bool image = mode == WORKSPACE_MODE_LOOP || mode == WORKSPACE_MODE_ENGINE;
	if (image && make_in(w, base, r->disk_mib, mode == WORKSPACE_MODE_LOOP, &m, &hold, err) != 0)
		return error_wrap(err, "the workspace");
	*ret = m;
	*ret_hold = hold;
	return 0;
}

int workspace_drop(struct workspaces *w, const struct id *sandbox, struct error *err)
{
	auto_free char *base = workspaces_dir(w, sandbox);

	return drop_in(w, base, err);
}

int workspaces_probe_make(struct workspaces *w, struct workspace_mount *ret, struct error *err)
{
	struct workspace_mount m = { .kind = WORKSPACE_DIR, .size_bytes = (int64_t)PROBE_MIB * MIB };
	int hold = -1;

	if (geteuid() != 0)
		return error_set(err, ERR_FORBIDDEN, "the daemon does not run as root, so it cannot mount");
	if (make_in(w, w->probe, PROBE_MIB, true, &m, &hold, err) != 0)
		return -1;
	*ret = m;
	return 0;
}

void workspaces_probe_drop(struct workspaces *w)
{
	drop_in(w, w->probe, NULL);
}

int workspaces_list(struct workspaces *w, struct strv *ret, struct error *err)
{
	DIR *dir = opendir(w->sandboxes);
	struct strv found = STRV_INIT;

	if (!dir && errno != ENOENT)
		return error_errno(err, "opening %s", w->sandboxes);
	for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
		if (id_valid(e->d_name))
			strv_add(&found, e->d_name);
	if (dir)
		closedir(dir);
	*ret = found;
	return 0;
}

int workspaces_space(struct workspaces *w, int64_t *ret_free, int64_t *ret_held, struct error *err)
{
	auto_strv ids = STRV_INIT;
	struct statvfs fs;
	int64_t held = 0;

	if (io_mkdirs(w->sandboxes, 0700, err) != 0)
		return -1;
	if (statvfs(w->sandboxes, &fs) != 0)
		return error_errno(err, "looking at the file system of %s", w->sandboxes);
	if (workspaces_list(w, &ids, err) != 0)
		return -1;
	for (size_t i = 0; i < ids.len; i++) {
		auto_free char *image = xasprintf("%s/%s/workspace.img", w->sandboxes, ids.items[i]);
		struct stat st;

		if (stat(image, &st) == 0)
			held += (int64_t)st.st_blocks * 512;
	}
	*ret_free = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
	*ret_held = held;
	return 0;
}
