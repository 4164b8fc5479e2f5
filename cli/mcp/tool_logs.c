/* Tool for output in pages: an attach stream that is left when a page is full. The window it grants is the page, so memory is bounded. */
#include "cli/mcp/mcp.h"

#include "cli/ending.h"
#include "cli/muxconn.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>

enum { PAGE_MS = 15 * 1000, WINDOW_MIN = 64 * 1024 };

struct page {
	struct muxconn conn; /* first: the handler's ctx */
	uint32_t id;
	size_t max;
	struct buf data[2];
	uint64_t start[2], now[2]; /* offsets: of the first byte kept; of what there was when the page began */
	uint64_t skipped[2];       /* bytes asked for that are no longer kept */
	bool accepted, closed;
	enum mux_error error;
	char message[ERROR_TEXT_MAX];
	enum outcome outcome;
	int exit_code;
};

static const enum mux_field gap_field[2] = { MUX_F_GAP_OUT, MUX_F_GAP_ERR };
static const enum mux_field offset_field[2] = { MUX_F_OFFSET_OUT, MUX_F_OFFSET_ERR };

static void on_accepted(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct page *p = ctx;
	p->accepted = true;
	for (unsigned i = 0; i < 2; i++) {
		uint64_t at = tlv_u64(fields, gap_field[i], p->start[i]);
		p->now[i] = tlv_u64(fields, offset_field[i], 0);
		p->skipped[i] = at > p->start[i] ? at - p->start[i] : 0;
		p->start[i] = at;
		mux_rebase_recv(m, stream, MUX_STDOUT + i, at);
	}
}

static void on_data(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *data, size_t n)
{
	struct page *p = ctx;
	(void)m;
	(void)stream;
	(void)offset;
	if (channel != MUX_STDOUT && channel != MUX_STDERR)
		return;
	struct buf *b = &p->data[channel - MUX_STDOUT];
	size_t room = p->max - b->len;
	buf_add(b, data, n < room ? n : room);
}

/* Bytes vanished behind what this page holds: it ends there, and the next one tells. */
static void on_control(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct page *p = ctx;
	(void)m;
	(void)stream;
	for (unsigned i = 0; i < 2; i++) {
		uint64_t at = tlv_u64(fields, gap_field[i], 0);
		if (at == 0)
			continue;
		if (p->data[i].len == 0) {
			p->skipped[i] += at - p->start[i];
			p->start[i] = at;
		} else {
			p->now[i] = p->start[i] + p->data[i].len;
		}
	}
}

static void on_closed(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct page *p = ctx;
	auto_free char *message = NULL;
	(void)m;
	(void)stream;
	p->closed = true;
	p->error = (enum mux_error)(tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE) & 0xff);
	uint64_t outcome = tlv_u64(fields, MUX_F_OUTCOME, OUTCOME_NONE);
	p->outcome = outcome < OUTCOME_COUNT ? (enum outcome)outcome : OUTCOME_LOST;
	p->exit_code = (int)(tlv_u64(fields, MUX_F_EXIT_CODE, 0) & 0xff);
	if (tlv_str(fields, MUX_F_MESSAGE, sizeof(p->message) - 1, &message, NULL) == 0 && message)
		snprintf(p->message, sizeof(p->message), "%s", message);
}

static const struct mux_handler handler = { .accepted = on_accepted, .data = on_data, .control = on_control, .closed = on_closed };

static bool full(const struct page *p)
{
	if (!p->accepted)
		return false;
	for (unsigned i = 0; i < 2; i++)
		if (p->data[i].len < p->max && p->start[i] + p->data[i].len < p->now[i])
			return false;
	return true;
}

static int loop(struct tool_call *c, struct page *p, struct error *err)
{
	int64_t until = clock_mono_ms() + PAGE_MS;
	while (!p->closed && !full(p)) {
		struct pollfd fds[2] = { [1] = { .fd = c->cli.interrupt, .events = POLLIN } };
		muxconn_poll(&p->conn, &fds[0]);
		int64_t left = until - clock_mono_ms();
		if (left <= 0 || poll(fds, 2, (int)left) == 0)
			return error_set(err, ERR_TIMEOUT, "the server sent no output in time");
		if (fds[1].revents)
			return error_set(err, ERR_TIMEOUT, "the call was cancelled");
		enum muxconn_state state = muxconn_ready(&p->conn, fds[0].revents, err);
		if (state == MUXCONN_BROKEN)
			return -1;
		if (state == MUXCONN_GONE && !p->closed && !full(p))
			return error_set(err, ERR_UNAVAILABLE, "the connection to the server ended");
	}
	return 0;
}

static int read_page(struct tool_call *c, struct page *p, const struct tlv *open, struct error *err)
{
	struct dialler d = session_dialler(&c->cli);
	muxconn_start(&p->conn, &handler);
	p->id = mux_open(p->conn.mux, open, (uint32_t)(p->max > WINDOW_MIN ? p->max : WINDOW_MIN), err);
	if (!p->id)
		return -1;
	for (unsigned i = 0; i < 2; i++)
		mux_rebase_recv(p->conn.mux, p->id, MUX_STDOUT + i, p->start[i]);
	if (muxconn_dial(&p->conn, &d, false, 0, err) != 0 || loop(c, p, err) != 0)
		return -1;
	if (p->closed && !p->accepted)
		return error_set(err, ending_code(p->error), "%s", p->message[0] ? p->message : "the server refused to show this output");
	return 0;
}

/* --- the tool ----------------------------------------------------------------------------------------------------------- */

/* "OUT.ERR": the next byte of each stream. */
static void read_cursor(struct json_reader *args, struct page *p)
{
	auto_free char *text = NULL;
	json_get_str(args, "cursor", JSON_OPTIONAL, 64, &text);
	char *dot = text ? strchr(text, '.') : NULL;
	int64_t out = 0, errs = 0;
	if (dot)
		*dot = '\0';
	if (text && (!dot || parse_i64("cursor", text, 0, INT64_MAX, &out, NULL) != 0 || parse_i64("cursor", dot + 1, 0, INT64_MAX, &errs, NULL) != 0))
		json_fail(args, "cursor", "is not one that sandbox_exec or sandbox_logs gave out");
	p->start[0] = (uint64_t)out;
	p->start[1] = (uint64_t)errs;
}

static int read_args(struct json_reader *args, struct page *p, struct tlv *open)
{
	auto_free char *sandbox = NULL, *operation = NULL;
	int64_t max = MCP_OUTPUT_DEFAULT;
	json_get_str(args, "sandbox_id", JSON_OPTIONAL, 128, &sandbox);
	json_get_str(args, "operation_id", JSON_OPTIONAL, 64, &operation);
	json_get_i64(args, "max_bytes", JSON_OPTIONAL, 256, MCP_OUTPUT_MAX, &max);
	read_cursor(args, p);
	p->max = (size_t)max;
	if (json_end(args) != 0)
		return -1;
	if ((!operation || !*operation) == (!sandbox || !*sandbox))
		return json_fail(args, "operation_id", "give either operation_id or, for the start command, sandbox_id");
	tlv_add_u64(open, MUX_F_KIND, MUX_KIND_ATTACH);
	tlv_add_str(open, MUX_F_SANDBOX, sandbox);
	tlv_add_str(open, MUX_F_OPERATION, operation);
	tlv_add_u64(open, MUX_F_OFFSET_OUT, p->start[0]);
	tlv_add_u64(open, MUX_F_OFFSET_ERR, p->start[1]);
	return 0;
}

static cJSON *show(const struct page *p)
{
	static const char *const names[2] = { "stdout", "stderr" };
	cJSON *j = cJSON_CreateObject();
	uint64_t next[2];
	bool more = !p->closed;
	for (unsigned i = 0; i < 2; i++) {
		const struct buf *b = &p->data[i];
		/* A character that continues on the next page belongs there; what is no text at all must not stop the pages. */
		size_t n = p->closed && b->len < p->max ? b->len : utf8_cut(buf_str(b), b->len);
		n = n ? n : b->len;
		next[i] = p->start[i] + n;
		more |= n < b->len || next[i] < p->now[i];
		mcp_add_lossy(j, names[i], buf_str(b), n);
		if (p->skipped[i]) {
			auto_free char *key = xasprintf("%s_skipped_bytes", names[i]);
			json_add_i64(j, key, (int64_t)p->skipped[i]);
		}
	}
	auto_free char *cursor = xasprintf("%" PRIu64 ".%" PRIu64, next[0], next[1]);
	json_add_bool(j, "ended", p->closed && !more);
	if (more)
		json_add_str(j, "next_cursor", cursor);
	if (p->closed && p->outcome != OUTCOME_NONE) {
		json_add_str(j, "outcome", outcome_text(p->outcome));
		if (p->outcome == OUTCOME_EXITED)
			json_add_i64(j, "exit_code", p->exit_code);
	}
	return j;
}

static int run_logs(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	struct page p = { .conn = MUXCONN_INIT };
	auto_tlv open = TLV_INIT;
	if (read_args(args, &p, &open) != 0)
		return -1;
	int rc = read_page(c, &p, &open, err);
	if (rc == 0)
		ret->value = show(&p);
	muxconn_stop(&p.conn);
	buf_done(&p.data[0]);
	buf_done(&p.data[1]);
	return rc;
}

const struct tool tool_logs = {
	.name = "sandbox_logs", .title = "Read output", .hints = HINT_READ_ONLY | HINT_IDEMPOTENT,
	.description = "Read what a command wrote so far, a page at a time: of an operation, or of a sandbox's start command. Pass next_cursor back as cursor for "
		       "what follows. Of very long output only the beginning and the end are kept; skipped bytes are counted.",
	.properties = "\"operation_id\":{\"type\":\"string\"},"
		      "\"sandbox_id\":{\"type\":\"string\",\"description\":\"For its start command.\"},"
		      "\"cursor\":{\"type\":\"string\"},"
		      "\"max_bytes\":{\"type\":\"integer\",\"minimum\":256,\"maximum\":131072,\"default\":16384}",
	.required = "[]",
	.output = "\"stdout\":{\"type\":\"string\"},\"stderr\":{\"type\":\"string\"},\"ended\":{\"type\":\"boolean\"},\"next_cursor\":{\"type\":\"string\"},"
		  "\"outcome\":{\"type\":\"string\"},\"exit_code\":{\"type\":\"integer\"}",
	.run = run_logs,
};
