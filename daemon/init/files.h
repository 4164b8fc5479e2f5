/* The file helper: what an OPEN of files asks, and the two directions. Runs in a process of its own, with blocking calls. */
#ifndef SANDBOX_INIT_FILES_H
#define SANDBOX_INIT_FILES_H

#include "daemon/init/users.h"
#include "shared/base/buf.h"
#include "shared/mux/records.h"

struct files_request {
	char *path; /* absolute */
	char *name; /* put: the source's name; NULL: contents only */
	bool entries_only, top_only;
	struct identity owner; /* put */
};

/* Both return the exit status of the helper. */
int files_get(int fd, void *request);
int files_put(int fd, void *request);

/* Opens a path of this root with its links followed, but no magic ones of /proc. -1 with errno. */
int files_open_path(const char *path, int flags);
/* enum mux_error of an errno, and of an error of a tree. */
unsigned files_code(int sys);
unsigned files_error_code(const struct error *err);

#endif
