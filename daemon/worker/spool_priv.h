/* Inside of a spool: the file's layout, for spool.c (bytes) and spool_times.c (when they arrived). */
#ifndef SANDBOX_DAEMON_SPOOL_PRIV_H
#define SANDBOX_DAEMON_SPOOL_PRIV_H

#include "daemon/worker/spool.h"
#include "shared/base/limits.h"

#include <stdatomic.h>

enum { PAGE = 4096, HEAD = LIMIT_OUTPUT_HEAD_MAX, RING = LIMIT_SPOOL_RING, STEP_HEAD = 16 * 1024, STEP_RING = 256 * 1024 };
/* From a mark's offset on, up to the next one's, bytes arrived at its time. */
struct spool_mark {
	uint64_t offset;
	int64_t time_us; /* wall clock, never going back */
};
enum { MARKS_HEAD = 1024, MARKS_RING = 8192, STEP_MARKS = PAGE };

/* The file after its first page, in this order; one of each per channel. */
enum area { AREA_HEAD = 0, AREA_RING = 2, AREA_MARKS_HEAD = 4, AREA_MARKS_RING = 6, AREAS = 8 };
enum {
	FILE_SIZE = PAGE + SPOOL_CHANNELS * (HEAD + RING + (MARKS_HEAD + MARKS_RING) * (int)sizeof(struct spool_mark)),
};

struct file_head {
	char magic[8];
	uint32_t version;
	_Atomic uint32_t flags;
	char sandbox[ID_TEXT_LEN + 1];
	char owner[SPOOL_OWNER_MAX + 1];
	struct {
		_Atomic uint64_t total;
		_Atomic uint64_t floor; /* the ring is good from here; at least HEAD */
		_Atomic uint64_t acked;
		_Atomic uint64_t head_from; /* the head area is good from here */
		_Atomic uint64_t head_marks;
		_Atomic uint64_t ring_first, ring_marks; /* running counts: marks from the one to the other are kept */
	} ch[SPOOL_CHANNELS];
	_Atomic uint64_t stdin_consumed;
	int32_t outcome, exit_code, signal, code, mux_error;
	uint8_t oom_killed, truncated;
	char text[SPOOL_TEXT_MAX + 1];
};

struct spool {
	int fd; /* -1: memory only */
	uint8_t *map;
	struct file_head *head;
	struct spool_info info;
	size_t reserved[AREAS]; /* bytes of each area that may be written without fear */
	char degraded[128];
};

size_t spool_area_start(unsigned area);
/* Makes the first `end` bytes of an area writable without fear. */
void spool_reserve(struct spool *s, unsigned area, size_t end);
/* Bytes are about to be added at offset. */
void spool_mark_arrival(struct spool *s, enum spool_channel ch, uint64_t offset);
/* A mark table that can be trusted. */
bool spool_marks_sane(const struct spool *s);

#endif
