/* Inside of tree_write.c (where things go) and tree_put.c (single files and links). */
#ifndef SANDBOX_MUX_TREE_PUT_H
#define SANDBOX_MUX_TREE_PUT_H

#include "shared/mux/tree.h"

#include <time.h>

enum { TREE_TEMP_MAX = 40, TREE_LOST_MAX = 4096 };

struct tree_write {
	struct tree_target to;
	struct tree_counts counts;
	unsigned umask;
	bool placed;
	bool top_given;    /* the top was there and was named itself: its mode is not ours to change */
	int parent;        /* of the top */
	char *top_name;
	struct buf top_path;
	int top;           /* when it is a directory */
	struct {           /* the outermost directory that was not there, until it is left */
		int dir;   /* where it stands; -1: there is none */
		int fd;
		char temp[TREE_TEMP_MAX];
		char *path;
	} aside;
	struct buf cached; /* path of the directory below */
	int cached_fd;
	int entered;       /* borrowed: the directory whose entry was the last record, or -1 */
	int file;          /* being written, or -1 */
	int file_dir;      /* borrowed */
	char temp[TREE_TEMP_MAX]; /* its name until it is complete; "": it has none, or its own already (named) */
	bool named;
	struct record_entry entry; /* of it; its strings are gone */
	struct buf path;   /* of the entry at hand */
	uint64_t at;       /* where the next bytes belong */
	uint64_t wrote;    /* where the file ends so far: less than `at` behind a hole */
	bool no_xattrs;    /* said once that they cannot be kept */
	struct strv lost;  /* paths that could not be stored: nothing may become a further name of an older file there */
};

struct tree_place {
	int dir;
	const char *name;
};

static inline struct timespec tree_put_time(const struct record_entry *e)
{
	return (struct timespec){ .tv_sec = (time_t)e->sec, .tv_nsec = (long)e->nsec };
}

/* tree_write.c */
const char *tree_put_name(const struct tree_write *w, const char *path);
/* Nobody else sees the place yet: what is made there can have its own name at once. */
bool tree_put_unseen(const struct tree_write *w, const char *path);
/* Gives dir/name, or the open file dir itself when name is NULL, to the target's user. */
void tree_put_own(const struct tree_write *w, int dir, const char *name);
void tree_put_temp_name(char out[static TREE_TEMP_MAX]);
void tree_put_left_out(struct tree_write *w, const char *text);
void tree_put_failed(struct tree_write *w, int sys, const char *text);
/* A full disk ends the copy (-1): every further file would fail too. */
int tree_put_failed_errno(struct tree_write *w, struct error *err);

/* tree_put.c; dir is borrowed and stays open until the next entry. */
int tree_put_file(struct tree_write *w, int dir, const struct record_entry *e, struct error *err);
int tree_put_data(struct tree_write *w, const char *p, size_t n, struct error *err);
int tree_put_hole(struct tree_write *w, uint64_t n, struct error *err);
int tree_put_end(struct tree_write *w, uint64_t size, struct error *err);
void tree_put_aborted(struct tree_write *w, const char *why);
void tree_put_drop(struct tree_write *w); /* an unfinished file */
int tree_put_symlink(struct tree_write *w, int dir, const struct record_entry *e, struct error *err);
int tree_put_hard_link(struct tree_write *w, int dir, const struct record_entry *e, const struct tree_place *from, struct error *err);
void tree_put_xattr(struct tree_write *w, const char *name, const void *value, size_t n);

#endif
