/*
 * The records of file streams (docs/protocol-mux.md, Files): `type u8, 0 u8, 0 u16, length u32, payload`. Used by init's file
 * helper and by the CLI. A reader gets everything checked: names that could leave the tree never reach its handler.
 */
#ifndef SANDBOX_MUX_RECORDS_H
#define SANDBOX_MUX_RECORDS_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum record_type {
	RECORD_ENTRY = 1,
	RECORD_DATA = 2,
	RECORD_HOLE = 3,
	RECORD_END = 4,
	RECORD_ABORT = 5,
	RECORD_LEAVE = 6,
	RECORD_SKIPPED = 7,
	RECORD_DONE = 8,
	RECORD_FAIL = 9,
	RECORD_XATTR = 10,
};

enum record_kind { RECORD_FILE = 1, RECORD_DIRECTORY = 2, RECORD_SYMLINK = 3, RECORD_HARDLINK = 4 };

/* TOP_ONLY: the top and what stands in it, without contents and no further down. */
enum files_action { FILES_ALL = 0, FILES_ENTRIES_ONLY = 1, FILES_TOP_ONLY = 2 };

enum { RECORD_HEAD_LEN = 8, RECORD_DATA_MAX = 256 * 1024, RECORD_OTHER_MAX = 16 * 1024, RECORD_XATTR_MAX = 15 * 1024 };

/* Borrowed strings, NUL-terminated in what a reader hands out. */
struct record_entry {
	enum record_kind kind;
	unsigned mode; /* 07777 */
	uint32_t nsec;
	int64_t sec;
	uint64_t size;
	const char *path; /* relative; "" is the top */
	const char *target; /* of a symlink; the path in this tree that a hard link is a further name of; else "" */
};

/* One record as a reader sees it; members that its type does not have are zero. */
struct record {
	enum record_type type;
	struct record_entry entry; /* ENTRY, LEAVE */
	const void *data;          /* DATA: a piece of it; XATTR: the value */
	size_t len;
	const char *name;          /* XATTR */
	uint64_t number;           /* HOLE, END: bytes */
	unsigned code;             /* SKIPPED, FAIL: enum mux_error */
	const char *path;          /* SKIPPED; DONE: the top */
	const char *text;          /* SKIPPED, ABORT, FAIL: one line; not escaped */
	uint64_t entries, bytes, failed; /* DONE */
};

void record_put_head(uint8_t out[static RECORD_HEAD_LEN], enum record_type type, size_t n);
void record_add_entry(struct buf *b, enum record_type type, const struct record_entry *e);
void record_add_number(struct buf *b, enum record_type type, uint64_t v); /* HOLE, END */
void record_add_text(struct buf *b, enum record_type type, unsigned code, const char *path, const char *text); /* SKIPPED, ABORT, FAIL */
void record_add_done(struct buf *b, uint64_t entries, uint64_t bytes, uint64_t failed, const char *top);
/* An extended attribute of the file that is open, or of the directory that was entered by the record before. */
void record_add_xattr(struct buf *b, const char *name, const void *value, size_t n);
/* Only the users' own namespace is carried. */
bool record_xattr_valid(const char *name, size_t n);

/* Relative, no empty, "." or ".." component, no NUL, at most PATH_BYTES_MAX; "" is the top and valid. */
bool record_path_valid(const char *p, size_t n);

/* Returns 0, or -1 with err to stop reading. */
typedef int (*record_handler)(void *ctx, const struct record *r, struct error *err);

struct record_reader {
	record_handler handler;
	void *ctx;
	uint8_t head[RECORD_HEAD_LEN];
	size_t head_len;
	size_t left;      /* of the record at hand */
	struct buf body;  /* of a record that is not DATA */
	bool ended;       /* DONE or FAIL came: nothing may follow */
};

void record_reader_init(struct record_reader *r, record_handler handler, void *ctx);
void record_reader_done(struct record_reader *r);
/* Any cut of the stream. -1: broken records (ERR_PROTOCOL), or what the handler said. */
int record_feed(struct record_reader *r, const void *p, size_t n, struct error *err);

#endif
