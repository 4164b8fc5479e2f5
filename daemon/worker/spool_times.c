/*
 * When the bytes of a spool arrived: marks beside them, at most one a millisecond. The first 64 KiB have a table of their own, which is
 * full at some point (later bytes of it then count as having come with the last mark); the ring's marks go with its bytes, and sooner when
 * there are more of them than places: for such bytes no time is known.
 */
#include "daemon/worker/spool_priv.h"

#include "shared/base/clock.h"

enum { APART_US = 1000 };

static struct spool_mark *head_mark(const struct spool *s, unsigned ch, uint64_t i)
{
	return (struct spool_mark *)(void *)(s->map + spool_area_start(AREA_MARKS_HEAD + ch)) + i;
}

static struct spool_mark *ring_mark(const struct spool *s, unsigned ch, uint64_t i)
{
	return (struct spool_mark *)(void *)(s->map + spool_area_start(AREA_MARKS_RING + ch)) + i % MARKS_RING;
}

static uint64_t load(const _Atomic uint64_t *v)
{
	return atomic_load_explicit(v, memory_order_acquire);
}

/* The time of the newest mark; 0 without one. */
static int64_t last_time(const struct spool *s, unsigned ch)
{
	uint64_t head = load(&s->head->ch[ch].head_marks), ring = load(&s->head->ch[ch].ring_marks);
	if (ring > 0)
		return ring_mark(s, ch, ring - 1)->time_us;
	return head > 0 ? head_mark(s, ch, head - 1)->time_us : 0;
}

static void add_head(struct spool *s, unsigned ch, const struct spool_mark *m)
{
	uint64_t n = load(&s->head->ch[ch].head_marks);
	if (n == MARKS_HEAD)
		return;
	spool_reserve(s, AREA_MARKS_HEAD + ch, (size_t)(n + 1) * sizeof(*m));
	*head_mark(s, ch, n) = *m;
	atomic_store_explicit(&s->head->ch[ch].head_marks, n + 1, memory_order_release);
}

static void add_ring(struct spool *s, unsigned ch, const struct spool_mark *m)
{
	uint64_t n = load(&s->head->ch[ch].ring_marks), first = load(&s->head->ch[ch].ring_first), floor = load(&s->head->ch[ch].floor);
	while (first + 1 < n && (n - first >= MARKS_RING || ring_mark(s, ch, first + 1)->offset <= floor))
		first++;
	atomic_store_explicit(&s->head->ch[ch].ring_first, first, memory_order_release);
	spool_reserve(s, AREA_MARKS_RING + ch, (size_t)(n < MARKS_RING ? n + 1 : MARKS_RING) * sizeof(*m));
	*ring_mark(s, ch, n) = *m;
	atomic_store_explicit(&s->head->ch[ch].ring_marks, n + 1, memory_order_release);
}

void spool_mark_arrival(struct spool *s, enum spool_channel ch, uint64_t offset)
{
	int64_t last = last_time(s, ch), now = clock_wall_us();
	/* The ring's first mark stands at its beginning: its bytes must not depend on the head's. */
	bool first = offset < HEAD ? last == 0 : load(&s->head->ch[ch].ring_marks) == 0;
	if (now < last)
		now = last; /* the clock was set back */
	if (!first && now - last < APART_US)
		return;
	if (offset < HEAD)
		add_head(s, ch, &(struct spool_mark){ offset, now });
	else
		add_ring(s, ch, &(struct spool_mark){ offset, now });
}

bool spool_marks_sane(const struct spool *s)
{
	for (unsigned c = 0; c < SPOOL_CHANNELS; c++) {
		uint64_t first = load(&s->head->ch[c].ring_first), n = load(&s->head->ch[c].ring_marks);
		if (load(&s->head->ch[c].head_marks) > MARKS_HEAD || first > n || n - first > MARKS_RING)
			return false;
	}
	return true;
}

/* --- looking up ------------------------------------------------------------------------------------------------------------ */

/* One table as a sorted sequence. */
struct table {
	const struct spool *s;
	unsigned ch;
	bool ring;
	uint64_t from, to;
};

static struct table table_of(const struct spool *s, unsigned ch, bool ring)
{
	struct table t = { .s = s, .ch = ch, .ring = ring };
	t.from = ring ? load(&s->head->ch[ch].ring_first) : 0;
	t.to = ring ? load(&s->head->ch[ch].ring_marks) : load(&s->head->ch[ch].head_marks);
	return t;
}

static const struct spool_mark *mark_at(const struct table *t, uint64_t i)
{
	return t->ring ? ring_mark(t->s, t->ch, i) : head_mark(t->s, t->ch, i);
}

/* The first mark that is behind an offset, or (by_time) not before a time. */
static uint64_t first_behind(const struct table *t, uint64_t offset, int64_t time_us, bool by_time)
{
	uint64_t from = t->from, to = t->to;
	while (from < to) {
		uint64_t mid = from + (to - from) / 2;
		const struct spool_mark *m = mark_at(t, mid);
		if (by_time ? m->time_us >= time_us : m->offset > offset)
			to = mid;
		else
			from = mid + 1;
	}
	return from;
}

int64_t spool_time(const struct spool *s, enum spool_channel ch, uint64_t offset, uint64_t *ret_end)
{
	struct table t = table_of(s, ch, offset >= HEAD);
	uint64_t next = first_behind(&t, offset, 0, false);
	*ret_end = next < t.to ? mark_at(&t, next)->offset : offset < HEAD ? HEAD : UINT64_MAX;
	return next > t.from ? mark_at(&t, next - 1)->time_us : 0;
}

uint64_t spool_since(const struct spool *s, enum spool_channel ch, int64_t time_us)
{
	for (int ring = 0; ring < 2; ring++) {
		struct table t = table_of(s, ch, ring != 0);
		uint64_t i = first_behind(&t, 0, time_us, true);
		if (i < t.to)
			return mark_at(&t, i)->offset;
	}
	return spool_total(s, ch);
}
