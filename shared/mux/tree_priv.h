/* Inside of tree_read.c and tree_write.c: further names of one file, and extended attributes. */
#ifndef SANDBOX_MUX_TREE_PRIV_H
#define SANDBOX_MUX_TREE_PRIV_H

#include "shared/base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Files with more than one name that went along, by device and inode. At most LIMIT_FILES_LINKS_MAX: files beyond are sent once per name. */
struct tree_links {
	struct tree_link {
		uint64_t dev, ino;
		char *path; /* NULL: the slot is free */
	} *slots;
	size_t cap, len; /* cap is a power of two */
};

void tree_links_done(struct tree_links *l);
void tree_links_add(struct tree_links *l, uint64_t dev, uint64_t ino, const char *path);
/* The path it went under; NULL when it did not. */
const char *tree_links_find(const struct tree_links *l, uint64_t dev, uint64_t ino);

/* Appends a record for each attribute of the users' namespace. 0, 1 when one was left out, -1 with errno when none can be listed. */
int tree_xattrs_read(int fd, struct buf *out);

#endif
