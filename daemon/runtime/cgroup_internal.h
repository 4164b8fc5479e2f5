/* Shared by the files cgroup*.c only. */
#ifndef SANDBOX_DAEMON_CGROUP_INTERNAL_H
#define SANDBOX_DAEMON_CGROUP_INTERNAL_H

#include "daemon/runtime/cgroup.h"
#include "shared/base/buf.h"

#include <limits.h>

enum { CGROUP_TABLE_MAX = 4 * 1024 * 1024 };

/* A group as one controller sees it. */
struct cgroup_place {
	bool v2;
	char dir[PATH_MAX];
};

/* Where a hierarchy is mounted (from the text of a mountinfo file), and which group its root is. */
bool cgroup_mount_of(const char *mounts, const char *controller, bool v2, char *ret_root, char *ret_point, size_t n);
/* The group of one process (texts of its cgroup file and of a mountinfo file). -1: not mounted here. */
int cgroup_place_of(const char *table, const char *mounts, const char *controller, struct cgroup_place *ret);
bool cgroup_text(const struct cgroup_place *p, const char *file, struct buf *ret);
/* A whole-file number; "max" and version 1's huge values mean unlimited. */
bool cgroup_number(const struct cgroup_place *p, const char *file, int64_t *ret);
/* The value of a "key number" line, 0 when there is none. */
int64_t cgroup_keyed(const char *text, const char *key);
int cgroup_write(const char *dir, const char *file, const char *value, struct error *err);
/* From /proc/PID/stat; -1: gone. */
pid_t cgroup_parent_of(pid_t pid);

#endif
