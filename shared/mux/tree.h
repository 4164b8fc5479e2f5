/*
 * File trees and records (records.h): a tree read as records, and records written as a tree. For init's file helper and the CLI, each of which
 * must take what the other sends for hostile: a writer stays below the place it was given, and neither follows a link below a tree's top.
 */
#ifndef SANDBOX_MUX_TREE_H
#define SANDBOX_MUX_TREE_H

#include "shared/base/buf.h"
#include "shared/base/error.h"
#include "shared/mux/records.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Something that did not go along; the rest does. */
struct tree_trouble {
	enum tree_loss {
		TREE_LEFT_OUT, /* of a kind that is not copied, or a property that cannot be kept here */
		TREE_FAILED,   /* an entry could not be read or stored */
		TREE_CUT,      /* the contents of a file could not be read to their end; an ABORT record says so too */
	} loss;
	const char *path;      /* below the top, "" is the top; any bytes */
	int sys;               /* errno, or 0 */
	const char *text;      /* one line */
};

/* --- reading --- */

struct tree_source {
	const char *path;
	int (*open_path)(const char *path, int flags); /* the path itself, its links followed; always close-on-exec */
	void (*trouble)(void *ctx, const struct tree_trouble *t);
	void *ctx;
	bool entries_only, top_only; /* enum files_action */
	bool kernel_files;           /* leave out the kernel's file systems below the top, and read its files that say they are empty */
};

struct tree_counts {
	uint64_t entries, files, bytes;
};

struct tree_read;
/* The name a path's top goes by: NULL when only its contents are meant ("dir/.", ".", "/"). Caller frees. */
char *tree_name(const char *path);
/* A path that ends in "/", "/." or "/.." means the directory it leads to, through a link too; else the last component itself.
 * ERR_NOT_FOUND, ERR_SYSTEM (err->sys). The source is copied, its strings are not. */
int tree_read_new(const struct tree_source *s, struct tree_read **ret, struct error *err);
void tree_read_free(struct tree_read *t);
/* Appends some records (some 256 KiB at most). False: that was all; the caller adds DONE. */
bool tree_read_some(struct tree_read *t, struct buf *out);
const struct tree_counts *tree_read_counts(const struct tree_read *t);
/* Opens what stands at a path of the tree, for reading. -1 with errno. */
int tree_read_open(struct tree_read *t, const char *path);

/* --- writing --- */

struct tree_target {
	const char *path; /* by the rules of cp -a */
	const char *name; /* the source's, for an existing directory; NULL: contents only */
	int (*open_path)(const char *path, int flags);
	void (*trouble)(void *ctx, const struct tree_trouble *t);
	void *ctx;
	unsigned file_mode, dir_mode; /* the bits that are kept */
	bool owned;                   /* what is made is given to uid and gid, where that is allowed */
	uid_t uid;
	gid_t gid;
};

struct tree_write;
/* Nothing is touched before the first record. The target is copied, its strings are not. */
struct tree_write *tree_write_new(const struct tree_target *to);
/*
 * Takes a record of the sender: all but DONE and FAIL, which are the caller's. -1 ends the copy: the place cannot be written (ERR_NOT_FOUND,
 * ERR_CONFLICT, ERR_INVALID, or err->sys), the disk is full, or the records are no tree (ERR_PROTOCOL).
 */
int tree_write_record(struct tree_write *w, const struct record *r, struct error *err);
/* The sender said DONE: what was built aside gets its name. ERR_PROTOCOL when nothing at all came. */
int tree_write_finish(struct tree_write *w, struct error *err);
/* Without a finish: removes what was being built. */
void tree_write_free(struct tree_write *w);
const struct tree_counts *tree_write_counts(const struct tree_write *w);
/* The path of the top that was written; "" before. */
const char *tree_write_top(const struct tree_write *w);
/* As tree_read_open, in the written tree. */
int tree_write_open(struct tree_write *w, const char *path);

#endif
