/*
 * The spool of one exec: what a command wrote, bounded, in one memory-mapped file. While the command runs the file is
 * best on a file system in memory: it survives a killed daemon there as well, and no page fault waits for a journal.
 * What outlives the record is copied to the disk afterwards (spool_archive). Nothing is ever fsynced.
 *
 * Per channel: the first LIMIT_OUTPUT_HEAD_MAX bytes stay for good, after them a ring holds the last
 * LIMIT_SPOOL_RING bytes. Offsets are absolute. Blocks are reserved before they are written, because a page that finds
 * the disk full would kill the process; from then on the spool goes on in memory (spool_degraded). Beside the bytes stands
 * when they arrived, to the millisecond, bounded as they are.
 */
#ifndef SANDBOX_DAEMON_SPOOL_H
#define SANDBOX_DAEMON_SPOOL_H

#include "shared/base/error.h"
#include "shared/base/id.h"
#include "shared/model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct spool;

enum { SPOOL_CHANNELS = 2, SPOOL_OWNER_MAX = 191, SPOOL_TEXT_MAX = 511 };
/* Before the sandbox's id, in the name of a start command's spool. */
#define SPOOL_MAIN_PREFIX "main-"

enum spool_channel { SPOOL_OUT = 0, SPOOL_ERR = 1 };

/* What a restarted daemon must know and the store does not. */
struct spool_info {
	struct id sandbox;
	bool main;			 /* the sandbox's start command: no operation record */
	bool detached;			 /* no client holds it: output is acknowledged as it comes */
	char owner[SPOOL_OWNER_MAX + 1]; /* who may resume it */
};

/* How the command ended. */
struct spool_end {
	enum outcome outcome;
	int exit_code;
	int signal;
	bool oom_killed;
	bool truncated;	      /* bytes that init counted never came */
	enum error_code code; /* ERR_NONE, or why it did not start or was lost */
	int mux_error;	      /* enum mux_error, 0: none */
	char text[SPOOL_TEXT_MAX + 1];
};

/* Replaces a file of that name. Never fails: without a file (path NULL: none is wanted) it lives in memory alone. */
struct spool *spool_create(const char *path, const struct spool_info *info);
/* ERR_NOT_FOUND; ERR_INVALID: not a spool, another version, or one that outgrew its disk. */
int spool_open(const char *path, struct spool **ret, struct error *err);
void spool_free(struct spool *s); /* the file stays */
/* Why (part of) it is only in memory; NULL while the file holds everything. */
const char *spool_degraded(const struct spool *s);
const struct spool_info *spool_info(const struct spool *s);

void spool_append(struct spool *s, enum spool_channel ch, const void *p, size_t n);
/* Bytes up to offset never came and never will: the channel goes on there. */
void spool_skip(struct spool *s, enum spool_channel ch, uint64_t offset);
uint64_t spool_total(const struct spool *s, enum spool_channel ch);
/* The first offset at or after `from` that can be read or will be written. */
uint64_t spool_next(const struct spool *s, enum spool_channel ch, uint64_t from);
/* Bytes at offset that lie together; borrowed until the next append. 0 at the end and in a gap. */
size_t spool_read(const struct spool *s, enum spool_channel ch, uint64_t offset, const void **ret);

/* When the byte at offset arrived (wall clock, µs; 0: not known), and where another time begins. Times never go back. */
int64_t spool_time(const struct spool *s, enum spool_channel ch, uint64_t offset, uint64_t *ret_end);
/* The first byte that arrived at a time or later; the total when none did. It may be gone meanwhile: see spool_next. */
uint64_t spool_since(const struct spool *s, enum spool_channel ch, int64_t time_us);

/* What the foreground reader has acknowledged: a restarted daemon asks init to go on from here. */
void spool_set_acked(struct spool *s, enum spool_channel ch, uint64_t offset);
uint64_t spool_acked(const struct spool *s, enum spool_channel ch);
/* Stdin the command has consumed. */
void spool_set_stdin(struct spool *s, uint64_t consumed);
uint64_t spool_stdin(const struct spool *s);
void spool_finish(struct spool *s, const struct spool_end *end);
bool spool_finished(const struct spool *s, struct spool_end *ret); /* ret may be NULL */
/* Head and tail for the record. True when bytes between them are missing. */
bool spool_capture(const struct spool *s, enum spool_channel ch, struct capture *ret);

/* Copies a finished spool's file to another place and removes the first. Blocks on the disk: never on the event loop. */
int spool_archive(const char *from, const char *to, struct error *err);
/* Deletes spools in dir that nobody has open: those older than retention (a start command's only once ../sandboxes/<id> is
 * gone), then the oldest while the rest takes more than disk_max bytes. Blocks on the disk: never on the event loop. Returns how
 * many went. */
size_t spool_sweep(const char *dir, int64_t retention_ms, int64_t disk_max);

#endif
