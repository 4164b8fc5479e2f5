/* Streams as the controller established them: see execs_open. Each is answered by a reader or a relay. */
#include "daemon/worker/exec_priv.h"

#include "daemon/link/node_port.h"
#include "shared/base/mem.h"

static int open_exec(struct execs *e, struct mux *m, uint32_t stream, const struct node_stream *what)
{
	static const uint64_t start[SPOOL_CHANNELS];
	struct exec *x = exec_start(e, what->grant, what->command, what->flags, what->detached, what->owner);
	struct reader *r = reader_new(x, m, stream);

	if (what->detached) {
		r->starter = true;
		return 0;
	}
	reader_take_over(r, start);
	/* At once: the client can send its stdin, and resume should this connection break. */
	if (x->state != EXEC_ENDED)
		reader_accept(r);
	return 0;
}

/* In hand, or ended and read back. NULL with err. */
static struct exec *find_exec(struct execs *e, const struct node_stream *what, struct error *err)
{
	const struct id *key = what->operation ? &what->operation->id : &what->sandbox;
	struct exec *x = idmap_get(&e->table, key);

	if (x)
		return x;
	return what->operation ? exec_load_ended(e, what->operation, err) : exec_load_main(e, key, err);
}

static int open_attach(struct execs *e, struct mux *m, uint32_t stream, const struct node_stream *what, struct error *err)
{
	struct exec *x = find_exec(e, what, err);
	struct reader *r;

	if (!x)
		return -1;
	r = reader_new(x, m, stream);
	reader_follow(r, what);
	reader_accept(r);
	exec_settle(x);
	return 0;
}

/* Its output below what the client has may be gone by design, its output above must not be. */
static int may_resume(const struct node_stream *what, const struct exec *x, struct error *err)
{
	const uint64_t *from = what->from;

	if (x->info.owner[0] && strcmp(x->info.owner, what->owner) != 0)
		return error_set(err, ERR_FORBIDDEN, "only who started a command may resume it; attach to watch it");
	if (x->info.detached)
		return error_set(err, ERR_CONFLICT, "a detached command cannot be resumed; attach to it");
	for (unsigned ch = 0; ch < SPOOL_CHANNELS; ch++) {
		if (x->spool && from[ch] < exec_total(x, ch) &&
		    spool_next(x->spool, (enum spool_channel)ch, from[ch]) != from[ch])
			return error_set(err, ERR_NOT_FOUND, "output from offset %llu on is no longer kept",
					 (unsigned long long)from[ch]);
	}
	return 0;
}

static int open_resume(struct execs *e, struct mux *m, uint32_t stream, const struct node_stream *what, struct error *err)
{
	struct exec *x = find_exec(e, what, err);
	struct reader *r;

	if (!x)
		return -1;
	if (may_resume(what, x, err) != 0) {
		exec_settle(x);
		return -1;
	}
	r = reader_new(x, m, stream);
	reader_take_over(r, what->from);
	/* After a restart the stdin offset comes from init: answered when it is known. */
	if (x->resumable || x->state == EXEC_ENDED)
		reader_accept(r);
	exec_settle(x);
	return 0;
}

/* Files appear as the image's user would make them, unless the caller names one. */
static void add_defaults(const struct node_stream *what, const struct defaults *d, struct tlv *out)
{
	size_t n;
	const void *raw = tlv_raw(what->fields, &n);

	buf_add(&out->own, raw, n);
	if (what->kind != MUX_KIND_FILES_GET && what->kind != MUX_KIND_FILES_PUT)
		return;
	if (!tlv_has(what->fields, MUX_F_USER))
		tlv_add_str(out, MUX_F_USER, d->user);
	if (!tlv_has(what->fields, MUX_F_CWD))
		tlv_add_str(out, MUX_F_CWD, d->cwd);
}

static int open_relay(struct execs *e, struct mux *m, uint32_t stream, const struct node_stream *what, struct error *err)
{
	struct box *b = box_get(e, &what->sandbox);
	const struct defaults *d = box_defaults(e, b, err);
	auto_tlv out = TLV_INIT;

	if (!d) {
		box_release(e, b);
		return -1;
	}
	uint64_t port = what->kind == MUX_KIND_DIAL ? tlv_u64(what->fields, MUX_F_PORT, 0) : 0;
	if (port > 0 && port <= UINT16_MAX && dial_open(e, b, m, stream, (uint16_t)port))
		return 0;
	add_defaults(what, d, &out);
	relay_open(e, b, m, stream, &out);
	return 0;
}

static int open_watch(struct execs *e, struct mux *m, uint32_t stream, const struct node_stream *what)
{
	relay_watch(e, box_get(e, &what->sandbox), m, stream);
	return 0;
}

int execs_open(struct execs *e, struct mux *m, uint32_t stream, const struct node_stream *what, struct error *err)
{
	switch (what->kind) {
	case MUX_KIND_EXEC:
		return open_exec(e, m, stream, what);
	case MUX_KIND_RESUME:
		return open_resume(e, m, stream, what, err);
	case MUX_KIND_ATTACH:
		return open_attach(e, m, stream, what, err);
	case MUX_KIND_FILES_GET:
	case MUX_KIND_FILES_PUT:
	case MUX_KIND_DIAL:
	case MUX_KIND_PS:
		return open_relay(e, m, stream, what, err);
	case MUX_KIND_WATCH:
		return open_watch(e, m, stream, what);
	case MUX_KIND_DEADLINE:
	case MUX_KIND_SHARE:
	case MUX_KIND_CALL:
	case MUX_KIND_SECRET:
	case MUX_KIND_PROXY:
	case MUX_KIND_EGRESS:
		break;
	}
	return error_set(err, ERR_INVALID, "this kind of stream is not known here: update the worker");
}
