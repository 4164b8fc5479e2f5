/* The tar format as far as copies need it: ustar headers, with pax records where they do not suffice. */
#ifndef SANDBOX_CLI_TAR_H
#define SANDBOX_CLI_TAR_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { TAR_BLOCK = 512 };

struct tar_entry {
	char type;         /* '0' file, '5' directory, '2' symlink, … */
	unsigned mode;
	uint64_t size;
	int64_t sec;
	uint32_t nsec;
	char *path, *link; /* owned by a reader's entry, borrowed in a writer's; never NULL there */
	bool sparse;       /* a sparse format this does not read */
	struct buf xattrs; /* extended attributes: a reader's as records (records.h), a writer's as tar_add_xattr made them */
};

void tar_add_xattr(struct buf *xattrs, const char *name, const void *value, size_t n);

/* Appends the header, preceded by a pax header where a name is long, a size huge, a time finer than a second, or
 * attributes are to be kept. */
void tar_add_header(struct buf *out, const struct tar_entry *e);

/* One header block: ERR_INVALID when its checksum is wrong. *ret_end: a block of zeros. path and link are new strings. */
int tar_parse_header(const unsigned char block[static TAR_BLOCK], struct tar_entry *ret, bool *ret_end, struct error *err);
/* Overrides the entry by the records of a pax header. */
int tar_apply_pax(const char *p, size_t n, struct tar_entry *e, struct error *err);

#endif
