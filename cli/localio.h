/*
 * The local ends of a stream: standard input, output and error, read and written without ever blocking the poll loop and without
 * setting O_NONBLOCK on a descriptor that other processes share.
 *
 * How: sockets by MSG_DONTWAIT; pipes and terminals through an own non-blocking open of /proc/self/fd/N (a new file description,
 * so the shared one keeps its flags); regular files and other devices as they are, since they do not wait. Where the open fails
 * (another user's pipe) poll() decides, and writes are at most PIPE_BUF long, which a pipe reported writable takes at once.
 */
#ifndef SANDBOX_CLI_LOCALIO_H
#define SANDBOX_CLI_LOCALIO_H

#include "shared/base/buf.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum local_kind {
	LOCAL_DIRECT,
	LOCAL_SOCKET,
	LOCAL_SHARED,  /* a pipe or terminal; its own open is made at the first use */
	LOCAL_OWN,
	LOCAL_CAREFUL,
};

struct local_fd {
	int fd;     /* as given; -1: absent */
	int own;    /* the reopened one, or -1 */
	enum local_kind kind;
	bool write;
	bool terminal;
	bool null_device;
};

/* Looks at fd without changing it. A closed descriptor becomes absent. */
void local_open(struct local_fd *l, int fd, bool write);
void local_close(struct local_fd *l);
/* What to poll on. */
int local_pollfd(const struct local_fd *l);
/* Up to n bytes; 0 at the end; -1 with errno (EAGAIN: nothing now). */
ssize_t local_read(struct local_fd *l, void *p, size_t n);

/* An output with what its reader did not take yet. */
struct outlet {
	struct local_fd local;
	struct buf pending;
	size_t at;        /* bytes of pending already written */
	int error;        /* errno of the failed write; then everything is dropped */
};

void outlet_open(struct outlet *o, int fd);
void outlet_close(struct outlet *o);
/* Writes what the reader takes now and keeps the rest; the caller bounds it. -1 once o->error is set. */
int outlet_write(struct outlet *o, const void *p, size_t n);
/* Goes on with what is kept. */
int outlet_flush(struct outlet *o);
bool outlet_waiting(const struct outlet *o);
/* Bytes kept. */
size_t outlet_pending(const struct outlet *o);

#endif
