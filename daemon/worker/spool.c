/*
 * Layout: one page of head, then the head areas of both channels, then the rings. Every counter that a reader after a
 * crash relies on is moved in an order that never promises bytes which are not there: floor up, bytes, total up.
 */
#include "daemon/worker/spool_priv.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SPOOL_VERSION = 2, FLAG_MAIN = 1, FLAG_DETACHED = 2, FLAG_PARTIAL = 4, FLAG_FINISHED = 8 };

static const char MAGIC[8] = "sbspool";

_Static_assert(sizeof(struct file_head) <= PAGE, "the head is one page");
_Static_assert(LIMIT_SPOOL_RING >= LIMIT_MUX_WINDOW, "what a reader has not acknowledged must fit the ring");
_Static_assert(MARKS_HEAD * sizeof(struct spool_mark) % STEP_MARKS == 0 && MARKS_RING * sizeof(struct spool_mark) % STEP_MARKS == 0, "whole steps");
_Static_assert(HEAD % STEP_HEAD == 0 && RING % STEP_RING == 0 && STEP_HEAD % PAGE == 0, "areas are whole steps");

static size_t area_size(unsigned area)
{
	static const size_t sizes[AREAS / SPOOL_CHANNELS] = { HEAD, RING, MARKS_HEAD * sizeof(struct spool_mark),
							     MARKS_RING * sizeof(struct spool_mark) };
	return sizes[area / SPOOL_CHANNELS];
}

size_t spool_area_start(unsigned area)
{
	size_t at = PAGE;
	for (unsigned a = 0; a < area; a++)
		at += area_size(a);
	return at;
}

static size_t area_step(unsigned area)
{
	static const size_t steps[AREAS / SPOOL_CHANNELS] = { STEP_HEAD, STEP_RING, STEP_MARKS, STEP_MARKS };
	return steps[area / SPOOL_CHANNELS];
}

static void degrade(struct spool *s, const char *why, int sys)
{
	if (!s->degraded[0])
		snprintf(s->degraded, sizeof(s->degraded), "%s: %s", why, strerror(sys));
}

/* fallocate, or writing zeros where the file system cannot. 0 or an errno. */
static int reserve_blocks(int fd, size_t start, size_t n)
{
	static const char zeros[PAGE];

	if (fallocate(fd, 0, (off_t)start, (off_t)n) == 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != ENOSYS)
		return errno;
	for (size_t done = 0; done < n; done += PAGE) {
		if (pwrite(fd, zeros, PAGE, (off_t)(start + done)) != PAGE)
			return errno ? errno : ENOSPC;
	}
	return 0;
}

/* The rest of an area, from its reserved part on, becomes plain memory. */
static void detach_area(struct spool *s, unsigned area, int sys)
{
	uint8_t *at = s->map + spool_area_start(area) + s->reserved[area];
	size_t n = area_size(area) - s->reserved[area];

	if (mmap(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		abort();
	atomic_fetch_or(&s->head->flags, FLAG_PARTIAL);
	s->reserved[area] = area_size(area);
	degrade(s, "no room for the spool", sys);
}

void spool_reserve(struct spool *s, unsigned area, size_t end)
{
	size_t step = area_step(area);

	while (s->reserved[area] < end) {
		int sys = reserve_blocks(s->fd, spool_area_start(area) + s->reserved[area], step);

		if (sys != 0) {
			detach_area(s, area, sys);
			return;
		}
		s->reserved[area] += step;
	}
}

static struct spool *spool_new(int take_fd)
{
	struct spool *s = xcalloc(1, sizeof(*s));
	int flags = take_fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;

	s->fd = take_fd;
	s->map = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, flags, take_fd, 0);
	if (s->map == MAP_FAILED)
		abort();
	s->head = (struct file_head *)(void *)s->map;
	if (take_fd < 0) {
		for (unsigned a = 0; a < AREAS; a++)
			s->reserved[a] = area_size(a);
	}
	return s;
}

/* A new file with its first page and first step reserved; -1 with errno. */
static int create_file(const char *path)
{
	auto_close int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int sys;

	if (fd < 0)
		return -1;
	(void)flock(fd, LOCK_EX | LOCK_NB);
	if (ftruncate(fd, FILE_SIZE) != 0)
		return -1;
	sys = reserve_blocks(fd, 0, PAGE + STEP_HEAD);
	if (sys != 0) {
		(void)unlink(path);
		errno = sys;
		return -1;
	}
	return steal_fd(&fd);
}

struct spool *spool_create(const char *path, const struct spool_info *info)
{
	int fd = path ? create_file(path) : -1, sys = errno;
	struct spool *s = spool_new(fd);

	if (fd < 0 && path)
		degrade(s, "no spool file", sys);
	else if (fd >= 0)
		s->reserved[0] = STEP_HEAD;
	s->info = *info;
	s->head->version = SPOOL_VERSION;
	atomic_store(&s->head->flags, (info->main ? FLAG_MAIN : 0u) | (info->detached ? FLAG_DETACHED : 0u));
	memcpy(s->head->sandbox, info->sandbox.text, sizeof(s->head->sandbox));
	memcpy(s->head->owner, info->owner, sizeof(s->head->owner));
	for (unsigned c = 0; c < SPOOL_CHANNELS; c++)
		atomic_store(&s->head->ch[c].floor, HEAD);
	/* Last: a file without its magic is not a spool. */
	memcpy(s->head->magic, MAGIC, sizeof(MAGIC));
	return s;
}

static size_t round_up(uint64_t n, size_t step)
{
	return (size_t)((n + step - 1) / step * step);
}

static size_t marks_reserved(unsigned area, uint64_t count)
{
	uint64_t most = area_size(area) / sizeof(struct spool_mark);
	return round_up((count < most ? count : most) * sizeof(struct spool_mark), STEP_MARKS);
}

static void derive_reserved(struct spool *s)
{
	for (unsigned c = 0; c < SPOOL_CHANNELS; c++) {
		uint64_t total = atomic_load(&s->head->ch[c].total);
		uint64_t ring = total > HEAD ? total - HEAD : 0;

		s->reserved[c] = total >= HEAD ? HEAD : round_up(total, STEP_HEAD);
		s->reserved[AREA_RING + c] = ring >= RING ? RING : round_up(ring, STEP_RING);
		s->reserved[AREA_MARKS_HEAD + c] = marks_reserved(AREA_MARKS_HEAD + c, atomic_load(&s->head->ch[c].head_marks));
		s->reserved[AREA_MARKS_RING + c] = marks_reserved(AREA_MARKS_RING + c, atomic_load(&s->head->ch[c].ring_marks));
	}
	if (s->reserved[0] == 0)
		s->reserved[0] = STEP_HEAD;
}

static bool head_sane(struct file_head *h)
{
	if (memcmp(h->magic, MAGIC, sizeof(MAGIC)) != 0 || h->version != SPOOL_VERSION)
		return false;
	if (h->sandbox[ID_TEXT_LEN] != '\0' || !id_valid(h->sandbox) || h->owner[SPOOL_OWNER_MAX] != '\0' ||
	    h->text[SPOOL_TEXT_MAX] != '\0')
		return false;
	for (unsigned c = 0; c < SPOOL_CHANNELS; c++) {
		uint64_t total = atomic_load(&h->ch[c].total), floor = atomic_load(&h->ch[c].floor);

		if (floor < HEAD || (total > floor && total - floor > RING) || atomic_load(&h->ch[c].acked) > total)
			return false;
	}
	if (h->outcome < 0 || h->outcome >= OUTCOME_COUNT || h->code < 0 || h->code >= ERR_COUNT)
		return false;
	return !(atomic_load(&h->flags) & FLAG_PARTIAL);
}

int spool_open(const char *path, struct spool **ret, struct error *err)
{
	auto_close int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	struct spool *s;

	if (fd < 0 && errno == ENOENT)
		return error_set(err, ERR_NOT_FOUND, "no output is kept in %s", path);
	if (fd < 0 || fstat(fd, &st) != 0)
		return error_errno(err, "opening %s", path);
	if (!S_ISREG(st.st_mode) || st.st_size != FILE_SIZE)
		return error_set(err, ERR_INVALID, "%s is not a spool", path);
	(void)flock(fd, LOCK_EX | LOCK_NB);
	s = spool_new(steal_fd(&fd));
	if (!head_sane(s->head) || !spool_marks_sane(s)) {
		spool_free(s);
		return error_set(err, ERR_INVALID, "%s is not a whole spool of this version", path);
	}
	derive_reserved(s);
	s->info.main = (atomic_load(&s->head->flags) & FLAG_MAIN) != 0;
	s->info.detached = (atomic_load(&s->head->flags) & FLAG_DETACHED) != 0;
	memcpy(s->info.sandbox.text, s->head->sandbox, sizeof(s->info.sandbox.text));
	memcpy(s->info.owner, s->head->owner, sizeof(s->info.owner));
	*ret = s;
	return 0;
}

void spool_free(struct spool *s)
{
	if (!s)
		return;
	munmap(s->map, FILE_SIZE);
	close_fdp(&s->fd);
	free(s);
}

const char *spool_degraded(const struct spool *s)
{
	return s->degraded[0] ? s->degraded : NULL;
}

const struct spool_info *spool_info(const struct spool *s)
{
	return &s->info;
}

/* Where offset lives, and in *ret_n how many bytes follow it there. */
static uint8_t *place(const struct spool *s, enum spool_channel ch, uint64_t offset, size_t *ret_n)
{
	size_t at;

	if (offset < HEAD) {
		*ret_n = HEAD - (size_t)offset;
		return s->map + spool_area_start(ch) + offset;
	}
	at = (size_t)((offset - HEAD) % RING);
	*ret_n = RING - at;
	return s->map + spool_area_start(AREA_RING + ch) + at;
}

static void append_piece(struct spool *s, enum spool_channel ch, uint64_t total, const void *p, size_t n)
{
	size_t room;
	uint8_t *to = place(s, ch, total, &room);
	uint64_t end = total + n;

	spool_mark_arrival(s, ch, total);
	if (total < HEAD) {
		spool_reserve(s, ch, (size_t)end);
	} else {
		spool_reserve(s, AREA_RING + ch, end - HEAD > RING ? RING : (size_t)(end - HEAD));
		if (end > (uint64_t)HEAD + RING &&
		    atomic_load_explicit(&s->head->ch[ch].floor, memory_order_relaxed) < end - RING)
			atomic_store_explicit(&s->head->ch[ch].floor, end - RING, memory_order_release);
	}
	memcpy(to, p, n);
	atomic_store_explicit(&s->head->ch[ch].total, end, memory_order_release);
}

void spool_append(struct spool *s, enum spool_channel ch, const void *p, size_t n)
{
	while (n > 0) {
		uint64_t total = spool_total(s, ch);
		size_t piece;

		(void)place(s, ch, total, &piece);
		if (piece > n)
			piece = n;
		append_piece(s, ch, total, p, piece);
		p = (const char *)p + piece;
		n -= piece;
	}
}

void spool_skip(struct spool *s, enum spool_channel ch, uint64_t offset)
{
	uint64_t total = spool_total(s, ch);

	if (offset <= total)
		return;
	/* The gap may begin inside the head area: what follows must not be read from there. */
	if (total < HEAD) {
		spool_reserve(s, ch, HEAD);
		atomic_store(&s->head->ch[ch].head_from, offset < HEAD ? offset : HEAD);
	}
	if (offset > HEAD) {
		spool_reserve(s, AREA_RING + ch, RING);
		atomic_store(&s->head->ch[ch].floor, offset);
	}
	atomic_store_explicit(&s->head->ch[ch].total, offset, memory_order_release);
}

uint64_t spool_total(const struct spool *s, enum spool_channel ch)
{
	return atomic_load_explicit(&s->head->ch[ch].total, memory_order_acquire);
}

uint64_t spool_next(const struct spool *s, enum spool_channel ch, uint64_t from)
{
	uint64_t floor = atomic_load_explicit(&s->head->ch[ch].floor, memory_order_acquire);
	uint64_t head_from = atomic_load_explicit(&s->head->ch[ch].head_from, memory_order_acquire);

	if (from < head_from)
		from = head_from;
	if (from < HEAD)
		return from;
	return from < floor ? floor : from;
}

size_t spool_read(const struct spool *s, enum spool_channel ch, uint64_t offset, const void **ret)
{
	uint64_t total = spool_total(s, ch);
	size_t n;

	if (offset >= total || spool_next(s, ch, offset) != offset)
		return 0;
	*ret = place(s, ch, offset, &n);
	return n > total - offset ? (size_t)(total - offset) : n;
}

void spool_set_acked(struct spool *s, enum spool_channel ch, uint64_t offset)
{
	atomic_store_explicit(&s->head->ch[ch].acked, offset, memory_order_relaxed);
}

uint64_t spool_acked(const struct spool *s, enum spool_channel ch)
{
	return atomic_load_explicit(&s->head->ch[ch].acked, memory_order_relaxed);
}

void spool_set_stdin(struct spool *s, uint64_t consumed)
{
	atomic_store_explicit(&s->head->stdin_consumed, consumed, memory_order_relaxed);
}

uint64_t spool_stdin(const struct spool *s)
{
	return atomic_load_explicit(&s->head->stdin_consumed, memory_order_relaxed);
}

void spool_finish(struct spool *s, const struct spool_end *end)
{
	struct file_head *h = s->head;

	h->outcome = (int32_t)end->outcome;
	h->exit_code = end->exit_code;
	h->signal = end->signal;
	h->oom_killed = end->oom_killed;
	h->truncated = end->truncated;
	h->code = (int32_t)end->code;
	h->mux_error = end->mux_error;
	memcpy(h->text, end->text, sizeof(h->text));
	atomic_fetch_or(&h->flags, FLAG_FINISHED);
}

bool spool_finished(const struct spool *s, struct spool_end *ret)
{
	const struct file_head *h = s->head;

	if (!(atomic_load(&h->flags) & FLAG_FINISHED))
		return false;
	if (ret) {
		*ret = (struct spool_end){ .outcome = (enum outcome)h->outcome,
					   .exit_code = h->exit_code,
					   .signal = h->signal,
					   .oom_killed = h->oom_killed,
					   .truncated = h->truncated,
					   .code = (enum error_code)h->code,
					   .mux_error = h->mux_error };
		memcpy(ret->text, h->text, sizeof(ret->text));
	}
	return true;
}

/* Adds [from, to), which must be readable. */
static void copy_out(const struct spool *s, enum spool_channel ch, uint64_t from, uint64_t to, struct buf *b)
{
	const void *p;
	size_t n;

	while (from < to && (n = spool_read(s, ch, from, &p)) > 0) {
		if (n > to - from)
			n = (size_t)(to - from);
		buf_add(b, p, n);
		from += n;
	}
}

bool spool_capture(const struct spool *s, enum spool_channel ch, struct capture *ret)
{
	uint64_t total = spool_total(s, ch);
	uint64_t head_end = total < HEAD ? total : HEAD;
	uint64_t tail_from = total > LIMIT_OUTPUT_TAIL_MAX ? total - LIMIT_OUTPUT_TAIL_MAX : 0;

	if (tail_from < head_end)
		tail_from = head_end;
	tail_from = spool_next(s, ch, tail_from);
	buf_reset(&ret->head);
	buf_reset(&ret->tail);
	copy_out(s, ch, spool_next(s, ch, 0), head_end, &ret->head);
	if (tail_from < total)
		copy_out(s, ch, tail_from, total, &ret->tail);
	ret->total = total;
	return ret->head.len + ret->tail.len != total;
}
