/*
 * One command towards sandbox-init: dialling it, its output into the spool, its stdin. What init sends is hostile: every
 * number is checked against what was granted before it is used.
 */
#include "daemon/worker/exec_priv.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <event2/event.h>
#include <limits.h>

enum { SIGNAL_MAX = 63 };

struct exec *exec_new(struct execs *e, const struct id *key, const struct spool_info *info)
{
	struct exec *x = xcalloc(1, sizeof(*x));

	x->all = e;
	x->key = *key;
	x->info = *info;
	x->held = !info->detached && !info->main;
	x->box = box_get(e, &info->sandbox);
	x->box_next = x->box->execs;
	x->box->execs = x;
	x->box->n_execs++;
	idmap_put(&e->table, key, x);
	return x;
}

static void unlink_from_box(struct exec *x)
{
	struct exec **at = &x->box->execs;

	while (*at != x)
		at = &(*at)->box_next;
	*at = x->box_next;
	x->box->n_execs--;
	box_release(x->all, x->box);
}

static void unlink_dirty(struct exec *x)
{
	struct exec **at = &x->all->dirty;

	while (*at && *at != x)
		at = &(*at)->dirty_next;
	if (*at)
		*at = x->dirty_next;
}

void exec_free(struct exec *x)
{
	stream_close(&x->init, NULL);
	idmap_remove(&x->all->table, &x->key);
	if (x->dirty)
		unlink_dirty(x);
	unlink_from_box(x);
	if (x->timer)
		event_free(x->timer);
	exec_forget_open(x);
	ring_done(&x->in.ring);
	spool_free(x->spool);
	free(x);
}

/* --- output --- */

struct spool *exec_spool(struct exec *x)
{
	char path[PATH_MAX];

	if (!x->spool) {
		live_dir_renew(x->all->live_dir, x->all->state_dir);
		if (spool_path(x->all, SPOOL_LIVE, &x->key, x->info.main, path, sizeof(path)) != 0)
			path[0] = '\0';
		x->spool = spool_create(path, &x->info);
	}
	return x->spool;
}

uint64_t exec_total(const struct exec *x, unsigned ch)
{
	return x->spool ? spool_total(x->spool, ch) : 0;
}

void exec_ack(struct exec *x, unsigned ch, uint64_t offset)
{
	if (offset > x->acked[ch]) {
		x->acked[ch] = offset;
		if (x->spool)
			spool_set_acked(x->spool, ch, offset);
	}
	if (x->init.m)
		mux_consumed(x->init.m, x->init.id, ch + MUX_STDOUT, x->acked[ch]);
}

void exec_let_go(struct exec *x)
{
	x->held = false;
	x->resume_by_ms = 0;
	for (unsigned ch = 0; ch < SPOOL_CHANNELS; ch++)
		exec_ack(x, ch, exec_total(x, ch));
}

static void warn_degraded(struct exec *x)
{
	if (x->warned || !spool_degraded(x->spool))
		return;
	x->warned = true;
	log_warn("exec", "output of operation=%s is kept in memory only, a restart would lose it: %s", x->key.text,
		 spool_degraded(x->spool));
}

static void init_data(struct stream *s, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct exec *x = container_of(s, struct exec, init);
	unsigned ch = channel - MUX_STDOUT;
	uint64_t total;

	if (channel == MUX_STDIN) {
		mux_consumed(s->m, s->id, channel, offset + n);
		return;
	}
	(void)exec_spool(x);
	total = exec_total(x, ch);
	if (offset > total)
		spool_skip(x->spool, ch, offset);
	else if (offset + n <= total)
		n = 0; /* sent again after a redial, for what no reader had acknowledged */
	else {
		p = (const char *)p + (total - offset);
		n -= (size_t)(total - offset);
	}
	spool_append(x->spool, ch, p, n);
	warn_degraded(x);
	exec_ack(x, ch, x->held ? x->acked[ch] : exec_total(x, ch));
	exec_settle(x);
}

static void init_eof(struct stream *s, unsigned channel)
{
	struct exec *x = container_of(s, struct exec, init);

	if (channel == MUX_STDIN)
		return;
	x->eof[channel - MUX_STDOUT] = true;
	exec_settle(x);
}

/* --- stdin --- */

static void stdin_pump(struct exec *x)
{
	struct stdin_pipe *in = &x->in;
	const void *p;
	size_t n;

	if (x->state != EXEC_RUNNING)
		return;
	while (in->sent < in->received) {
		n = ring_get(&in->ring, in->sent, in->received, &p);
		n = mux_send(x->init.m, x->init.id, MUX_STDIN, p, n);
		if (n == 0)
			return;
		in->sent += n;
	}
	if (in->eof && !in->eof_sent) {
		in->eof_sent = true;
		mux_eof(x->init.m, x->init.id, MUX_STDIN);
	}
}

int exec_stdin(struct exec *x, uint64_t offset, const void *p, size_t n)
{
	struct stdin_pipe *in = &x->in;

	if (offset > in->received)
		return -1;
	if (offset + n <= in->received || in->eof)
		return 0; /* sent again by a client that resumed */
	n -= (size_t)(in->received - offset);
	p = (const uint8_t *)p + (in->received - offset);
	if (in->received + n - in->acked > RING_SIZE)
		return -1;
	ring_put(&in->ring, in->received, p, n);
	in->received += n;
	stdin_pump(x);
	return 0;
}

void exec_stdin_eof(struct exec *x)
{
	x->in.eof = true;
	stdin_pump(x);
}

static void init_window(struct stream *s, unsigned channel, uint64_t consumed)
{
	struct exec *x = container_of(s, struct exec, init);

	if (channel != MUX_STDIN || consumed < x->in.acked || consumed > x->in.sent)
		return;
	x->in.acked = consumed;
	if (x->spool)
		spool_set_stdin(x->spool, consumed);
	if (x->owner && x->owner->accepted && x->owner->stream.m)
		mux_consumed(x->owner->stream.m, x->owner->stream.id, MUX_STDIN, consumed);
	stdin_pump(x);
}

/* --- control --- */

static void send_control(struct exec *x, enum mux_control_action action, enum mux_field f1, uint64_t v1, enum mux_field f2,
			 uint64_t v2)
{
	auto_tlv t = TLV_INIT;

	tlv_add_u64(&t, MUX_F_ACTION, action);
	if (f1)
		tlv_add_u64(&t, f1, v1);
	if (f2)
		tlv_add_u64(&t, f2, v2);
	mux_control(x->init.m, x->init.id, &t);
}

/* What waited for the stream, or for room in its queue: a client cannot make the queue grow. */
static void control_pump(struct exec *x)
{
	if (x->state != EXEC_RUNNING || mux_room(x->init.m) == 0)
		return;
	if (x->rows || x->cols)
		send_control(x, MUX_CONTROL_RESIZE, MUX_F_ROWS, x->rows, MUX_F_COLS, x->cols);
	x->rows = x->cols = 0;
	for (unsigned sig = 1; sig <= SIGNAL_MAX && x->signals; sig++) {
		if (x->signals & 1ULL << sig)
			send_control(x, MUX_CONTROL_SIGNAL, MUX_F_SIGNAL, sig, 0, 0);
		x->signals &= ~(1ULL << sig);
	}
}

void exec_signal(struct exec *x, unsigned sig)
{
	if (sig < 1 || sig > SIGNAL_MAX || x->state == EXEC_ENDED)
		return;
	x->signals |= 1ULL << sig;
	control_pump(x);
}

void exec_resize(struct exec *x, uint16_t rows, uint16_t cols)
{
	x->rows = rows;
	x->cols = cols;
	control_pump(x);
}

void exec_cancel(struct exec *x)
{
	struct spool_end end;

	if (x->state == EXEC_ENDED || x->canceling)
		return;
	x->canceling = true;
	exec_let_go(x);
	exec_due(x, 0);
	if (x->state == EXEC_RUNNING) {
		send_control(x, MUX_CONTROL_CANCEL, 0, 0, 0, 0);
	} else if (!x->delivered) {
		end = exec_end_text(OUTCOME_CANCELED, MUX_ERR_NONE, "canceled before it started");
		exec_end(x, &end);
	}
	exec_arm(x);
	exec_settle(x);
}

void exec_orphaned(struct exec *x)
{
	if (x->state == EXEC_ENDED || !x->held)
		return;
	x->resume_by_ms = clock_mono_ms() + LIMIT_RESUME_GRACE_MS;
	exec_arm(x);
}

/* --- the stream --- */

static void init_writable(struct stream *s)
{
	struct exec *x = container_of(s, struct exec, init);

	stdin_pump(x);
	control_pump(x);
}

/* After a RESUME: where init's stdin stands. -1: it claims what cannot be. */
static int take_stdin_offset(struct exec *x, const struct tlv *fields)
{
	struct stdin_pipe *in = &x->in;
	uint64_t offset = tlv_u64(fields, MUX_F_OFFSET_IN, in->acked);

	if (!x->resuming)
		return 0;
	if (!x->resumable) /* a new daemon: what came before is known to init alone */
		in->acked = in->received = offset;
	else if (offset < in->acked || offset > in->received)
		return -1;
	in->sent = offset;
	in->eof_sent = false;
	mux_rebase_send(x->init.m, x->init.id, MUX_STDIN, offset);
	return 0;
}

/* After a RESUME: where output goes on. Later than asked when init was told before that the bytes may go, and this
 * daemon has lost the spool they were in. */
static int take_output_offsets(struct exec *x, const struct tlv *fields)
{
	static const enum mux_field names[SPOOL_CHANNELS] = { MUX_F_OFFSET_OUT, MUX_F_OFFSET_ERR };

	for (unsigned ch = 0; ch < SPOOL_CHANNELS && x->resuming; ch++) {
		uint64_t offset = tlv_u64(fields, names[ch], x->asked[ch]);

		/* A reader may have acknowledged more since the question: what comes twice is dropped. */
		if (offset < x->asked[ch])
			return -1;
		if (offset > exec_total(x, ch)) {
			spool_skip(exec_spool(x), (enum spool_channel)ch, offset);
			log_warn("exec", "output is not whole operation=%s", x->key.text);
		}
		if (offset > x->acked[ch])
			x->acked[ch] = offset;
		mux_rebase_recv(x->init.m, x->init.id, ch + MUX_STDOUT, offset);
	}
	return 0;
}

static pid_t supervisor_of(const struct tlv *fields)
{
	uint64_t pid = tlv_u64(fields, MUX_F_SUPERVISOR, 0);

	return pid > 1 && pid <= INT32_MAX ? (pid_t)pid : 0;
}

static void init_accepted(struct stream *s, const struct tlv *fields)
{
	struct exec *x = container_of(s, struct exec, init);
	struct spool_end end;

	if (take_stdin_offset(x, fields) != 0 || take_output_offsets(x, fields) != 0) {
		end = exec_end_text(OUTCOME_LOST, MUX_ERR_LOST, "sandbox-init answered with offsets that cannot be");
		exec_end(x, &end);
		return;
	}
	x->state = EXEC_RUNNING;
	x->resumable = true;
	x->link_by_ms = 0;
	x->supervisor = supervisor_of(fields);
	if (x->canceling)
		send_control(x, MUX_CONTROL_CANCEL, 0, 0, 0, 0);
	else if (x->timeout_ms && !x->overdue_ms)
		exec_due(x, x->timeout_ms);
	stdin_pump(x);
	control_pump(x);
	exec_arm(x);
	for (struct reader *r = x->readers; r; r = r->next)
		reader_accept(r);
	exec_settle(x);
}

static void init_closed(struct stream *s, const struct tlv *fields)
{
	exec_end_from_init(container_of(s, struct exec, init), fields);
}

static void init_lost(struct stream *s, enum mux_error why)
{
	struct exec *x = container_of(s, struct exec, init);
	struct spool_end end;

	if (x->state == EXEC_ENDED)
		return;
	if (why == MUX_ERR_DELETED || why == MUX_ERR_EXPIRED) {
		end = why == MUX_ERR_DELETED ? exec_end_text(OUTCOME_DELETED, why, "sandbox deleted")
					     : exec_end_text(OUTCOME_EXPIRED, why, "sandbox expired");
		exec_end(x, &end);
		return;
	}
	exec_wait_link(x, LIMIT_LINK_WAIT_MS);
}

static const struct stream_ops init_ops = {
	.accepted = init_accepted,
	.data = init_data,
	.eof = init_eof,
	.window = init_window,
	.closed = init_closed,
	.lost = init_lost,
	.writable = init_writable,
};

void exec_wait_link(struct exec *x, int64_t wait_ms)
{
	x->state = EXEC_WAITING;
	if (!x->link_by_ms)
		x->link_by_ms = clock_mono_ms() + wait_ms;
	exec_arm(x);
}

/* Init sends again from what it may not forget yet; what the spool has of that is dropped on arrival, so the bytes
 * under way never outgrow the ring. */
static void resume_fields(const struct exec *x, struct tlv *t)
{
	tlv_add_u64(t, MUX_F_KIND, MUX_KIND_RESUME);
	tlv_add_str(t, MUX_F_OPERATION, x->key.text);
	tlv_add_u64(t, MUX_F_OFFSET_OUT, x->asked[SPOOL_OUT]);
	tlv_add_u64(t, MUX_F_OFFSET_ERR, x->asked[SPOOL_ERR]);
}

void exec_dial(struct exec *x)
{
	struct mux *m = initlink_mux(x->all->links, &x->box->sandbox);
	auto_tlv resume = TLV_INIT;
	struct error err = ERROR_INIT;
	struct spool_end end;
	uint32_t id;

	if (!m) {
		exec_wait_link(x, LIMIT_LINK_WAIT_MS);
		return;
	}
	x->resuming = x->delivered;
	memcpy(x->asked, x->acked, sizeof(x->asked));
	if (x->resuming)
		resume_fields(x, &resume);
	id = mux_open(m, x->resuming ? &resume : &x->open, LIMIT_MUX_WINDOW, &err);
	if (id == 0) {
		end = exec_end_text(x->resuming ? OUTCOME_LOST : OUTCOME_NOT_STARTED, MUX_ERR_RESOURCES, err.message);
		exec_end(x, &end);
		return;
	}
	stream_bind(&x->init, &init_ops, m, id);
	for (unsigned ch = 0; ch < SPOOL_CHANNELS; ch++)
		mux_rebase_recv(m, id, ch + MUX_STDOUT, x->asked[ch]);
	x->state = EXEC_OPENING;
	x->delivered = true;
	exec_forget_open(x);
	if (!x->link_by_ms)
		x->link_by_ms = clock_mono_ms() + LIMIT_LINK_WAIT_MS;
	exec_arm(x);
}
