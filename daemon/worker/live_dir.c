/*
 * The place in memory for the spools of running commands: a directory of ours in /dev/shm, named after user and state
 * directory. Anybody may make names there, so only a directory that is ours and closed to others is used. Its note says
 * whose it is: the mount namespace (a number) and the state directory.
 */
#include "daemon/worker/exec_priv.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHM "/dev/shm"
#define OWNER_FILE "state-dir"

static bool is_ours(const char *dir)
{
	struct stat st;

	return lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0;
}

static unsigned long long mount_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/mnt", &st) == 0 ? (unsigned long long)st.st_ino : 0;
}

/* A daemon that was killed and whose state directory went later left its own behind. One that sees other mounts shares
 * /dev/shm all the same, and its state directory may well be where we cannot look. */
static void remove_if_orphan(const char *dir)
{
	auto_free char *note = xasprintf("%s/" OWNER_FILE, dir);
	auto_free char *here = xasprintf("%llu ", mount_namespace());
	auto_buf text = BUF_INIT;
	const char *state_dir;

	if (!is_ours(dir) || io_read_file(note, PATH_MAX + 32, &text, NULL) != 0 || strncmp(buf_str(&text), here, strlen(here)) != 0)
		return;
	state_dir = buf_str(&text) + strlen(here);
	if (state_dir[0] == '/' && access(state_dir, F_OK) != 0 && errno == ENOENT)
		(void)io_remove_tree(dir, NULL);
}

static void remove_orphans(const char *prefix)
{
	DIR *d = opendir(SHM);
	const struct dirent *e;

	while (d && (e = readdir(d))) {
		auto_free char *dir = xasprintf(SHM "/%s", e->d_name);

		if (strncmp(e->d_name, prefix, strlen(prefix)) == 0)
			remove_if_orphan(dir);
	}
	if (d)
		closedir(d);
}

static int write_note(const char *dir, const char *state_dir)
{
	auto_free char *note = xasprintf("%s/" OWNER_FILE, dir);
	auto_free char *text = xasprintf("%llu %s", mount_namespace(), state_dir);

	return io_write_file_atomic(note, text, strlen(text), 0600, false, NULL);
}

char *live_dir_open(const char *state_dir)
{
	auto_free char *prefix = xasprintf("sandboxd-%u-", (unsigned)geteuid()), *dir = NULL;
	uint64_t h = 1469598103934665603ULL;

	for (const char *p = state_dir; *p; p++)
		h = (h ^ (unsigned char)*p) * 1099511628211ULL;
	remove_orphans(prefix);
	dir = xasprintf(SHM "/%s%016llx", prefix, (unsigned long long)h);
	if ((mkdir(dir, 0700) != 0 && errno != EEXIST) || !is_ours(dir))
		return NULL;
	return write_note(dir, state_dir) == 0 ? steal(&dir) : NULL;
}

void live_dir_renew(const char *dir, const char *state_dir)
{
	if (access(dir, F_OK) != 0 && errno == ENOENT && mkdir(dir, 0700) == 0)
		(void)write_note(dir, state_dir);
}

void live_dir_close(const char *dir)
{
	auto_free char *note = xasprintf("%s/" OWNER_FILE, dir);
	DIR *d = opendir(dir);
	const struct dirent *e;
	bool used = false;

	while (d && (e = readdir(d)))
		used |= e->d_name[0] != '.' && strcmp(e->d_name, OWNER_FILE) != 0;
	if (d)
		closedir(d);
	if (used)
		return;
	(void)unlink(note);
	(void)rmdir(dir);
}
