/* A tar stream unpacked below a directory of ours. The tar is hostile: no name leaves the directory or goes through a link. */
#ifndef SANDBOX_QEMU_UNPACK_H
#define SANDBOX_QEMU_UNPACK_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct unpack;

struct unpack_size {
	int64_t bytes; /* rounded up to blocks of a file system */
	int64_t entries;
};

/* dirfd: an empty directory, borrowed. bytes_max: of all files together, else ERR_TOO_LARGE. */
struct unpack *unpack_new(int dirfd, int64_t bytes_max);
/* -1 with the reason; every later call fails with it too. */
int unpack_feed(struct unpack *u, const void *p, size_t n, struct error *err);
/* At the end of the stream; frees. -1: it had failed, or was cut off. */
int unpack_end(struct unpack *take_u, struct unpack_size *ret, struct error *err);

/* A directory or an empty file that must be there to be mounted over. One that the image leads elsewhere by a link is left alone. */
int unpack_place(int dirfd, const char *path, bool is_dir, struct error *err);

#endif
