/* Descriptors and files. Every descriptor opened here is close-on-exec. */
#ifndef SANDBOX_BASE_IO_H
#define SANDBOX_BASE_IO_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <dirent.h>
#include <sys/types.h>

void close_fdp(int *fd); /* closes when >= 0, sets -1, keeps errno */
#define auto_close __attribute__((cleanup(close_fdp)))

void close_dirp(DIR **dir);
#define auto_dir __attribute__((cleanup(close_dirp)))

static inline int steal_fd(int *fd)
{
	int v = *fd;
	*fd = -1;
	return v;
}

/* Reads or writes exactly n bytes on a blocking descriptor, over EINTR and short transfers.
 * io_read_full returns the bytes read (less only at EOF), -1 on error. io_write_full returns 0 or -1. */
ssize_t io_read_full(int fd, void *p, size_t n);
int io_write_full(int fd, const void *p, size_t n);
int io_set_nonblock(int fd, bool on);

/* Reads a whole regular file of at most max bytes. ERR_NOT_FOUND, ERR_TOO_LARGE, ERR_SYSTEM. */
int io_read_file(const char *path, size_t max, struct buf *ret, struct error *err);
/* Replaces a file: temp file in the same directory (0600 until it is complete, then exactly mode), write, fsync when sync, rename. */
int io_write_file_atomic(const char *path, const void *p, size_t n, mode_t mode, bool sync, struct error *err);
/* mkdir -p; directories made get exactly mode. An existing one is left as it is. */
int io_mkdirs(const char *path, mode_t mode, struct error *err);
/* rm -r without following links, staying on one file system. A missing path is success; ERR_CONFLICT when something is mounted inside. */
int io_remove_tree(const char *path, struct error *err);
/* The same for a name in a directory, which may be an O_PATH one. */
int io_remove_tree_at(int dir, const char *name, struct error *err);
/* Opens `path` below dir ("" is dir itself): no component may be a link, none leads out. Close-on-exec. -1 with errno. */
int io_open_beneath(int dir, const char *path, int flags);

/* Listening / connected unix stream sockets, for paths of any length (through /proc/self/fd when longer than sun_path).
 * Listening replaces a socket file nobody accepts on any more; ERR_CONFLICT when somebody does, or when the path is no socket.
 * Connecting: ERR_UNREACHABLE when nobody listens (errno in err->sys), ERR_FORBIDDEN when the file's mode says no. */
int io_listen_unix(const char *path, mode_t mode, int backlog, struct error *err);
int io_connect_unix(const char *path, struct error *err);

/* The peer of a unix socket. pid may be 0 when it lives in another namespace. */
struct peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};
/* Fails on sockets of other families (there SO_PEERCRED succeeds with nonsense). */
int io_peer(int fd, struct peer *ret, struct error *err);
/* The process is gone, is exiting, or was killed and has not noticed yet: what it holds will be free soon. */
bool io_process_ending(pid_t pid);

#endif
