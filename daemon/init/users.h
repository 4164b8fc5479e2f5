/* Who a command runs as: /etc/passwd and /etc/group read by a bounded parser of our own (no NSS, no libc database). */
#ifndef SANDBOX_INIT_USERS_H
#define SANDBOX_INIT_USERS_H

#include "shared/base/error.h"

#include <stddef.h>
#include <sys/types.h>

enum { IDENTITY_GROUPS_MAX = 64, IDENTITY_HOME_MAX = 512 };

struct identity {
	uid_t uid;
	gid_t gid;
	gid_t groups[IDENTITY_GROUPS_MAX];
	size_t group_count;
	char home[IDENTITY_HOME_MAX]; /* "/" when the passwd file names none */
};

/* The two files as text; NULL: no such file. Borrowed. */
struct user_files {
	const char *passwd;
	size_t passwd_len;
	const char *group;
	size_t group_len;
};

/* spec: "user", "user:group", each a name or a number; NULL or "": the user init itself runs as. A name is tried before a
 * number. A number that no file knows is taken as it is, with group 0. ERR_NOT_FOUND, ERR_INVALID with a line for people. */
int users_find(const struct user_files *files, const char *spec, struct identity *ret, struct error *err);
/* The same with the files of this root, of which at most 1 MiB each is read. */
int users_resolve(const char *spec, struct identity *ret, struct error *err);
/* The name of a uid in passwd text, copied to out; the number when it has none. Returns out. */
char *users_name(const struct user_files *files, uid_t uid, char *out, size_t n);
/* Reads a regular file of this root, at most max bytes; NULL when there is none. The caller frees. */
char *users_read(const char *path, size_t max, size_t *ret_len);

#endif
