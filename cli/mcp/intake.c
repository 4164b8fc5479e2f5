/* From bytes to messages: lines, arrays of messages, and who answers each. */
#include "cli/mcp/bridge.h"

#include "shared/base/mem.h"

#include <string.h>

static void answer_failure(struct bridge *b, struct batch *batch, const char *id, const struct rpc_failure *f)
{
	auto_buf text = BUF_INIT;
	rpc_add_error(&text, id, f);
	bridge_answer(b, batch, buf_str(&text), text.len);
}

static void request(struct bridge *b, struct batch *batch, cJSON **message, const struct rpc_message *m, const char *raw, size_t n)
{
	struct rpc_failure f = { .code = RPC_INVALID_REQUEST };
	auto_buf result = BUF_INIT, text = BUF_INIT;
	if (calls_has_id(b, m->id)) {
		rpc_fail(&f, RPC_INVALID_REQUEST, "a request with this id is still being answered");
	} else if (strcmp(m->method, "tools/call") == 0) {
		if (calls_start(b, batch, message, m, raw, n, &f)) {
			if (batch)
				batch->waiting++;
			return;
		}
	} else if (mcp_method(m->method, m->params, &b->version, &result, &f)) {
		rpc_add_result(&text, m->id, buf_str(&result), result.len);
		bridge_answer(b, batch, buf_str(&text), text.len);
		return;
	}
	answer_failure(b, batch, m->id, &f);
}

static void notification(struct bridge *b, const struct rpc_message *m, const char *raw, size_t n)
{
	if (strcmp(m->method, "notifications/cancelled") != 0)
		return;
	const char *params = rpc_raw_member(raw, n, "params", &n);
	const char *id = params ? rpc_raw_member(params, n, "requestId", &n) : NULL;
	if (!id)
		return;
	auto_free char *copy = xstrndup(id, n);
	calls_cancel(b, copy);
}

/* raw is the message's own text. */
static void message(struct bridge *b, struct batch *batch, cJSON **j, const char *raw, size_t n)
{
	struct rpc_message m;
	struct rpc_failure f = { .code = RPC_INVALID_REQUEST };
	if (!rpc_read(*j, raw, n, &m, &f))
		answer_failure(b, batch, m.id, &f);
	else if (m.kind == RPC_REQUEST)
		request(b, batch, j, &m, raw, n);
	else if (m.kind == RPC_NOTIFICATION)
		notification(b, &m, raw, n);
	rpc_message_done(&m);
}

static void array(struct bridge *b, cJSON *j, const char *raw, size_t n)
{
	struct rpc_failure f;
	if (!b->version.batches || !j->child) {
		rpc_fail(&f, RPC_INVALID_REQUEST, j->child ? "arrays of messages are not part of the protocol version agreed on"
							   : "an empty array is no message");
		answer_failure(b, NULL, NULL, &f);
		return;
	}
	struct batch *batch = xcalloc(1, sizeof(*batch));
	batch->waiting = 1;
	size_t at = 0, len;
	for (const char *p; (p = rpc_raw_element(raw, n, &at, &len)) != NULL && j->child;) {
		cJSON *one = cJSON_DetachItemViaPointer(j, j->child);
		message(b, batch, &one, p, len);
		cJSON_Delete(one);
	}
	if (--batch->waiting == 0)
		batch_finish(b, batch);
}

static void line(struct bridge *b, const char *p, size_t n)
{
	auto_json *j = NULL;
	struct error err = ERROR_INIT;
	struct rpc_failure f;
	while (n > 0 && (p[n - 1] == '\r' || p[n - 1] == ' ' || p[n - 1] == '\t'))
		n--;
	if (n == 0)
		return;
	if (json_parse(p, n, &j, &err) != 0) {
		rpc_fail(&f, err.code == ERR_TOO_LARGE ? RPC_INVALID_REQUEST : RPC_PARSE_ERROR, "not a message: %.240s", err.message);
		answer_failure(b, NULL, NULL, &f);
	} else if (cJSON_IsArray(j)) {
		array(b, j, p, n);
	} else {
		message(b, NULL, &j, p, n);
	}
}

static void line_too_long(struct bridge *b)
{
	struct rpc_failure f;
	rpc_fail(&f, RPC_INVALID_REQUEST, "a message may have at most %d bytes", (int)LINE_MAX_BYTES);
	answer_failure(b, NULL, NULL, &f);
	buf_done(&b->line);
	b->line = (struct buf)BUF_INIT_MAX(LINE_MAX_BYTES + 1);
	b->skipping = true;
}

static void end_of_line(struct bridge *b)
{
	if (!b->skipping)
		line(b, buf_str(&b->line), b->line.len);
	b->skipping = false;
	if (b->line.cap > 64 * 1024)
		buf_done(&b->line);
	else
		buf_reset(&b->line);
	b->line.max = LINE_MAX_BYTES + 1;
}

void intake(struct bridge *b, const char *p, size_t n)
{
	while (n > 0) {
		const char *nl = memchr(p, '\n', n);
		size_t len = nl ? (size_t)(nl - p) : n;
		if (!b->skipping) {
			buf_add(&b->line, p, len);
			if (b->line.overflow || b->line.len > LINE_MAX_BYTES)
				line_too_long(b);
		}
		if (!nl)
			return;
		end_of_line(b);
		p += len + 1;
		n -= len + 1;
	}
}
