/* The connection that carries records, and the two directions of a copy put together. */
#include "cli/transfer_priv.h"

#include "cli/ending.h"
#include "cli/interrupt.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SHOW_MS = 200 };

/* --- the stream of records ------------------------------------------------------------------------------------------------- */

struct pipe_state {
	struct muxconn conn; /* first: the mux's ctx is this struct */
	const struct record_pipe *rq;
	uint32_t id;
	struct record_reader in;
	struct buf out;
	size_t out_at;
	bool accepted, produced, eof_sent;
	bool closed;
	int source_fd;     /* the producer waits for it; -1: it does not */
	int failed;        /* err is set */
	struct error err;
};

int record_failed(const struct record *r, struct error *err)
{
	char safe[ERROR_TEXT_MAX];
	const char *text = r->text && r->text[0] ? r->text : "the copy failed inside the sandbox";
	text_escape(text, strlen(text), safe, sizeof(safe));
	return error_set(err, ending_code((enum mux_error)r->code), "%s", safe);
}

static void on_accepted(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct pipe_state *s = ctx;
	(void)m;
	(void)fields;
	if (stream == s->id)
		s->accepted = true;
}

static void on_data(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct pipe_state *s = ctx;
	if (stream != s->id || channel != MUX_STDIN)
		return;
	if (!s->failed && record_feed(&s->in, p, n, &s->err) != 0)
		s->failed = -1;
	mux_consumed(m, stream, channel, offset + n);
}

static void on_closed(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct pipe_state *s = ctx;
	auto_free char *text = NULL;
	(void)m;
	if (stream != s->id)
		return;
	s->closed = true;
	uint64_t code = tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE);
	if (code == MUX_ERR_NONE || s->failed || s->in.ended)
		return;
	tlv_str(fields, MUX_F_MESSAGE, ERROR_TEXT_MAX - 1, &text, NULL);
	struct record r = { .code = (unsigned)code, .text = text };
	s->failed = record_failed(&r, &s->err);
}

static const struct mux_handler handler = { .accepted = on_accepted, .data = on_data, .closed = on_closed };

static void send_out(struct pipe_state *s)
{
	while (s->out_at < s->out.len) {
		size_t n = mux_send(s->conn.mux, s->id, MUX_STDIN, s->out.data + s->out_at, s->out.len - s->out_at);
		if (n == 0)
			return;
		s->out_at += n;
	}
	buf_reset(&s->out);
	s->out_at = 0;
	if (s->produced && !s->eof_sent) {
		s->eof_sent = true;
		mux_eof(s->conn.mux, s->id, MUX_STDIN);
	}
}

static void produce(struct pipe_state *s)
{
	send_out(s);
	s->source_fd = -1;
	while (!s->produced && !s->failed && s->out.len == 0 && mux_sendable(s->conn.mux, s->id, MUX_STDIN) > 0) {
		enum produce r = s->rq->produce(s->rq->ctx, &s->out, &s->source_fd, &s->err);
		s->failed = r == PRODUCE_FAILED ? -1 : 0;
		s->produced = r == PRODUCE_ALL;
		send_out(s);
		if (r == PRODUCE_WAIT)
			return;
		copy_tick(s->rq->copy);
	}
}

static int interrupted(struct error *err)
{
	error_set(err, ERR_TIMEOUT, "interrupted; the copy is incomplete");
	err->sys = EINTR;
	return -1;
}

/* One turn of the loop. 1: go on, 0: all came, -1. */
static int turn(struct pipe_state *s, struct error *err)
{
	struct pollfd fds[3] = { { .fd = -1 }, { .fd = interrupt_fd(), .events = POLLIN }, { .fd = -1, .events = POLLIN } };
	if (s->accepted && s->rq->produce)
		produce(s);
	if (s->failed) {
		*err = s->err;
		return -1;
	}
	if (s->in.ended)
		return 0;
	if (s->closed)
		return error_set(err, ERR_PROTOCOL, "the sandbox ended the copy without saying how it went");
	muxconn_poll(&s->conn, &fds[0]);
	fds[2].fd = s->source_fd;
	poll(fds, 3, -1);
	if (interrupt_signal())
		return interrupted(err);
	enum muxconn_state state = fds[0].revents ? muxconn_ready(&s->conn, fds[0].revents, err) : MUXCONN_ALIVE;
	copy_tick(s->rq->copy);
	if (state == MUXCONN_GONE && !s->in.ended && !s->failed)
		return error_set(err, ERR_UNREACHABLE, "the connection to the server was lost; the copy is incomplete");
	return state == MUXCONN_BROKEN ? -1 : 1;
}

int record_pipe_run(const struct record_pipe *p, struct error *err)
{
	struct pipe_state s = { .rq = p, .out = BUF_INIT, .source_fd = -1, .err = ERROR_INIT };
	muxconn_start(&s.conn, &handler);
	record_reader_init(&s.in, p->on_record, p->ctx);
	s.id = mux_open(s.conn.mux, p->open, LIMIT_MUX_WINDOW, err);
	int r = s.id && muxconn_dial(&s.conn, &p->dialler, false, 0, err) == 0 ? 1 : -1;
	while (r > 0)
		r = turn(&s, err);
	record_reader_done(&s.in);
	buf_done(&s.out);
	muxconn_stop(&s.conn);
	return r;
}

/* --- one copy -------------------------------------------------------------------------------------------------------------- */

void copy_warn(const struct copy *c, const char *path, const char *text)
{
	char name[1024], why[ERROR_TEXT_MAX];
	auto_free char *top = path[0] ? NULL : c->from ? xasprintf("%s to %s", c->from, c->to) : xstrdup(".");
	if (top)
		path = top;
	text_escape(path, strlen(path), name, sizeof(name));
	text_escape(text, strlen(text), why, sizeof(why));
	out_warn(c->cli, "%s: %s", name, why);
}

void copy_tick(struct copy *c)
{
	char bytes[24], rate[24];
	int64_t now = clock_mono_ms();
	if (now - c->shown_ms < SHOW_MS)
		return;
	c->shown_ms = now;
	double seconds = (double)(now - c->began_ms + 1) / 1000.0;
	progress_update(&c->progress, "copied %llu files, %s, %s/s", (unsigned long long)c->stats->files,
			size_text((double)c->stats->bytes, bytes), size_text((double)c->stats->bytes / seconds, rate));
}

/* Deep trees hold a descriptor per level. */
static void allow_descriptors(void)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

static void copy_begin(struct copy *c, struct cli *cli, const char *from, const char *to, struct transfer_stats *stats)
{
	*c = (struct copy){ .cli = cli, .from = from, .to = to, .stats = stats, .began_ms = clock_mono_ms() };
	c->shown_ms = c->began_ms;
	*stats = (struct transfer_stats){ .entries = 0 };
	interrupt_watch();
	allow_descriptors();
	progress_begin(&c->progress, cli);
}

static void copy_end(struct copy *c)
{
	progress_end(&c->progress);
	free(c->top);
}

void transfer_stats_done(struct transfer_stats *s)
{
	cJSON_Delete(s->hashes);
	s->hashes = NULL;
}

static void open_fields(struct tlv *open, enum mux_kind kind, const char *sandbox, const char *path)
{
	tlv_add_u64(open, MUX_F_KIND, kind);
	tlv_add_str(open, MUX_F_SANDBOX, sandbox);
	tlv_add_str(open, MUX_F_PATH, path);
}

static int print_path(void *ctx, const struct record *r, struct error *err)
{
	struct copy *c = ctx;
	if (r->type == RECORD_FAIL)
		return record_failed(r, err);
	if (r->type != RECORD_ENTRY)
		return 0;
	char safe[8192];
	text_escape(r->entry.path, strlen(r->entry.path), safe, sizeof(safe));
	c->stats->entries++;
	if (!c->cli->json)
		out_line("%s", safe[0] ? safe : ".");
	return 0;
}

static int get_records(struct copy *c, const struct tlv *open, record_handler on_record, void *ctx, struct error *err)
{
	struct record_pipe p = { .open = open, .dialler = session_dialler(c->cli), .on_record = on_record, .ctx = ctx, .copy = c };
	return record_pipe_run(&p, err);
}

static int open_written(void *ctx, const char *path)
{
	return tree_writer_open(ctx, path);
}

static int get_tree(struct copy *c, const char *sandbox, const char *remote, const char *local, bool check, const struct tlv *open,
                    struct error *err)
{
	auto_free char *name = tree_name(remote);
	struct tree_writer *w = tree_writer_new(c, local, name);
	int r = get_records(c, open, tree_on_record, w, err);
	struct verify v = { .copy = c, .open_local = open_written, .ctx = w };
	if (r == 0 && check)
		r = verify_tree(&v, sandbox, remote, err);
	tree_writer_free(w);
	return r;
}

static int get_tar(struct copy *c, const char *remote, const struct tlv *open, struct error *err)
{
	auto_free char *name = tree_name(remote);
	struct tar_writer *w = tar_writer_new(c, name);
	int r = get_records(c, open, tar_on_record, w, err);
	if (r == 0)
		r = tar_writer_finish(w, err);
	tar_writer_free(w);
	return r;
}

int transfer_get(struct cli *cli, const char *sandbox, const char *remote, const char *local, const struct transfer_options *o,
                 struct transfer_stats *ret, struct error *err)
{
	struct copy c;
	int r;
	auto_tlv open = TLV_INIT;
	open_fields(&open, MUX_KIND_FILES_GET, sandbox, remote);
	if (o->dry_run)
		tlv_add_u64(&open, MUX_F_ACTION, FILES_ENTRIES_ONLY);
	copy_begin(&c, cli, remote, local, ret);
	if (o->dry_run)
		r = get_records(&c, &open, print_path, &c, err);
	else if (strcmp(local, "-") == 0)
		r = get_tar(&c, remote, &open, err);
	else
		r = get_tree(&c, sandbox, remote, local, o->verify, &open, err);
	copy_end(&c);
	return r;
}

/* --- into the sandbox ------------------------------------------------------------------------------------------------------ */

struct putting {
	struct copy *copy;
	const struct transfer_options *how;
	struct record_reader seen; /* by how->watch */
	enum produce (*produce)(void *source, struct buf *out, int *ret_fd, struct error *err);
	void *source;
};

static enum produce put_produce(void *ctx, struct buf *out, int *ret_fd, struct error *err)
{
	struct putting *p = ctx;
	size_t before = out->len;
	enum produce r = p->produce(p->source, out, ret_fd, err);
	/* Our own records are in order. */
	if (p->how->watch && r != PRODUCE_FAILED)
		record_feed(&p->seen, out->data + before, out->len - before, NULL);
	return r;
}

static int put_watch(void *ctx, const struct record *r, struct error *err)
{
	const struct putting *p = ctx;
	(void)err;
	p->how->watch(p->how->watch_ctx, r);
	return 0;
}

/* Answers of the receiver. */
static int put_on_record(void *ctx, const struct record *r, struct error *err)
{
	struct putting *p = ctx;
	switch (r->type) {
	case RECORD_SKIPPED:
		copy_trouble(p->copy, &(struct tree_trouble){ .loss = r->code ? TREE_FAILED : TREE_LEFT_OUT, .path = r->path, .text = r->text });
		return 0;
	case RECORD_FAIL:
		return record_failed(r, err);
	case RECORD_DONE:
		p->copy->stats->entries = r->entries;
		p->copy->top = xstrdup0(r->path);
		return 0;
	case RECORD_ENTRY:
	case RECORD_DATA:
	case RECORD_HOLE:
	case RECORD_END:
	case RECORD_ABORT:
	case RECORD_LEAVE:
	case RECORD_XATTR:
		break;
	}
	return error_set(err, ERR_PROTOCOL, "the sandbox sent records where only answers belong");
}

static int put_records(struct putting *p, const struct tlv *open, struct error *err)
{
	struct record_pipe rp = {
		.open = open, .dialler = session_dialler(p->copy->cli), .on_record = put_on_record, .produce = put_produce, .ctx = p,
		.copy = p->copy,
	};
	return record_pipe_run(&rp, err);
}

static int put_tar(struct copy *c, const struct tlv *open, struct error *err)
{
	struct tar_reader *t = tar_reader_new(c, STDIN_FILENO);
	static const struct transfer_options plain = { .verify = false };
	struct putting p = { .copy = c, .how = &plain, .produce = tar_produce, .source = t };
	int r = put_records(&p, open, err);
	tar_reader_free(t);
	return r;
}

static int open_source(void *ctx, const char *path)
{
	return tree_reader_open(ctx, path);
}

static int put_tree(struct copy *c, const char *sandbox, const char *local, const struct transfer_options *o, const struct tlv *open,
		    struct error *err)
{
	struct tree_reader *t;
	bool check = o->verify;
	if (tree_reader_new(c, local, &t, err) != 0)
		return -1;
	struct putting p = { .copy = c, .how = o, .produce = tree_produce, .source = t };
	record_reader_init(&p.seen, put_watch, &p);
	int r = put_records(&p, open, err);
	record_reader_done(&p.seen);
	uint64_t sent = c->stats->files;
	struct verify v = { .copy = c, .open_local = open_source, .ctx = t };
	if (r == 0 && check && c->top)
		r = verify_tree(&v, sandbox, c->top, err);
	if (r == 0 && check && c->stats->verified + c->stats->failed < sent)
		r = error_set(err, ERR_INTERNAL, "%llu of %llu files sent are not there", (unsigned long long)(sent - c->stats->verified),
			      (unsigned long long)sent);
	tree_reader_free(t);
	return r;
}

/* Takes t. */
static int read_source(struct tree_reader *t, record_handler take, void *ctx, struct error *err)
{
	enum produce r;
	int fd;
	struct record_reader in;
	record_reader_init(&in, take, ctx);
	do {
		auto_buf out = BUF_INIT;
		r = tree_produce(t, &out, &fd, err);
		if (r != PRODUCE_FAILED && record_feed(&in, buf_str(&out), out.len, err) != 0)
			r = PRODUCE_FAILED;
	} while (r == PRODUCE_MORE);
	record_reader_done(&in);
	tree_reader_free(t);
	return r == PRODUCE_FAILED ? -1 : 0;
}

static int list_source(struct copy *c, const char *local, struct error *err)
{
	struct tree_reader *t;
	return tree_reader_new_entries(c, local, &t, err) == 0 ? read_source(t, print_path, c, err) : -1;
}

int transfer_put(struct cli *cli, const char *sandbox, const char *local, const char *remote, const struct transfer_options *o,
                 struct transfer_stats *ret, struct error *err)
{
	struct copy c;
	int r;
	bool tar = strcmp(local, "-") == 0;
	auto_free char *name = tar ? NULL : tree_name(local);
	auto_tlv open = TLV_INIT;
	open_fields(&open, MUX_KIND_FILES_PUT, sandbox, remote);
	tlv_add_str(&open, MUX_F_NAME, name);
	copy_begin(&c, cli, local, remote, ret);
	if (o->dry_run)
		r = list_source(&c, local, err);
	else if (tar)
		r = put_tar(&c, &open, err);
	else
		r = put_tree(&c, sandbox, local, o, &open, err);
	copy_end(&c);
	return r;
}

/* --- only read ------------------------------------------------------------------------------------------------------------- */

struct reading {
	struct copy *copy;
	record_handler take;
	void *ctx;
};

static int read_record(void *ctx, const struct record *r, struct error *err)
{
	struct reading *g = ctx;
	if (r->type == RECORD_FAIL)
		return record_failed(r, err);
	if (r->type == RECORD_SKIPPED && r->code)
		copy_trouble(g->copy, &(struct tree_trouble){ .loss = TREE_FAILED, .path = r->path, .text = r->text });
	if (r->type == RECORD_ABORT)
		g->copy->stats->failed++;
	return g->take(g->ctx, r, err);
}

int transfer_records(struct cli *cli, const char *sandbox, const char *path, record_handler take, void *ctx, struct error *err)
{
	struct copy c;
	struct transfer_stats stats;
	struct tree_reader *t;
	struct reading g = { .copy = &c, .take = take, .ctx = ctx };
	auto_tlv open = TLV_INIT;
	int r = -1;
	copy_begin(&c, cli, path, "", &stats);
	if (sandbox) {
		open_fields(&open, MUX_KIND_FILES_GET, sandbox, path);
		r = get_records(&c, &open, read_record, &g, err);
	} else if (tree_reader_new(&c, path, &t, err) == 0) {
		r = read_source(t, read_record, &g, err);
	}
	copy_end(&c);
	if (r == 0 && stats.failed)
		r = error_set(err, ERR_SYSTEM, "%llu entries could not be read, so the comparison would be wrong", (unsigned long long)stats.failed);
	return r;
}
