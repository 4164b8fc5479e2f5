/* Commands, their streams and their results as fields of the mux: see codec.h. */
#include "daemon/link/codec.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>

enum { EXIT_MAX = 255, SIGNAL_MAX = 64 };

static int get_id(const struct tlv *t, enum mux_field f, struct id *ret, struct error *err)
{
	auto_free char *text = NULL;
	if (tlv_str(t, f, ID_TEXT_LEN, &text, err) != 0)
		return -1;
	return text && id_parse(text, ret) == 0 ? 0 : error_set(err, ERR_PROTOCOL, "an id is missing or is none");
}

/* --- results --- */

static void add_capture(struct tlv *out, enum mux_field head, enum mux_field tail, enum mux_field total, const struct capture *c)
{
	tlv_add_bytes(out, head, c->head.data ? c->head.data : "", c->head.len);
	tlv_add_bytes(out, tail, c->tail.data ? c->tail.data : "", c->tail.len);
	tlv_add_u64(out, total, c->total);
}

static void add_result(struct tlv *out, const struct result *r)
{
	tlv_add_u64(out, MUX_F_OUTCOME, r->outcome);
	tlv_add_u64(out, MUX_F_EXIT_CODE, (uint64_t)r->exit_code);
	tlv_add_u64(out, MUX_F_SIGNAL, (uint64_t)r->signal);
	tlv_add_u64(out, MUX_F_OOM, r->oom_killed);
	tlv_add_u64(out, MUX_F_TRUNCATED, r->truncated);
	add_capture(out, MUX_F_OUT_HEAD, MUX_F_OUT_TAIL, MUX_F_OFFSET_OUT, &r->out);
	add_capture(out, MUX_F_ERR_HEAD, MUX_F_ERR_TAIL, MUX_F_OFFSET_ERR, &r->err);
}

static int take_bytes(const struct tlv *t, enum mux_field f, size_t max, struct buf *to, struct error *err)
{
	size_t n = 0;
	const void *p = tlv_bytes(t, f, &n);
	if (n > max)
		return error_set(err, ERR_TOO_LARGE, "captured output of %zu bytes is over the limit", n);
	if (p)
		buf_add(to, p, n);
	return 0;
}

static int take_capture(const struct tlv *t, enum mux_field head, enum mux_field tail, uint64_t total, struct capture *c, struct error *err)
{
	if (take_bytes(t, head, LIMIT_OUTPUT_HEAD_MAX, &c->head, err) != 0 || take_bytes(t, tail, LIMIT_OUTPUT_TAIL_MAX, &c->tail, err) != 0)
		return -1;
	c->total = total;
	return c->head.len + c->tail.len <= total ? 0 : error_set(err, ERR_PROTOCOL, "more output is kept than there was");
}

static int take_result(const struct tlv *t, struct result *r, struct error *err)
{
	uint64_t outcome = tlv_u64(t, MUX_F_OUTCOME, OUTCOME_NONE), code = tlv_u64(t, MUX_F_EXIT_CODE, 0), sig = tlv_u64(t, MUX_F_SIGNAL, 0);
	if (outcome >= OUTCOME_COUNT || code > EXIT_MAX || sig > SIGNAL_MAX)
		return error_set(err, ERR_PROTOCOL, "the outcome of a command makes no sense");
	r->outcome = (enum outcome)outcome;
	r->exit_code = (int)code;
	r->signal = (int)sig;
	r->oom_killed = tlv_u64(t, MUX_F_OOM, 0) == 1;
	r->truncated = tlv_u64(t, MUX_F_TRUNCATED, 0) == 1;
	if (take_capture(t, MUX_F_OUT_HEAD, MUX_F_OUT_TAIL, tlv_u64(t, MUX_F_OFFSET_OUT, 0), &r->out, err) != 0)
		return -1;
	return take_capture(t, MUX_F_ERR_HEAD, MUX_F_ERR_TAIL, tlv_u64(t, MUX_F_OFFSET_ERR, 0), &r->err, err);
}

static void add_failure(struct tlv *out, enum error_code code, const char *text)
{
	if (code != ERR_NONE)
		tlv_add_str(out, MUX_F_CODE, error_wire(code));
	tlv_add_str(out, MUX_F_MESSAGE, text);
}

static int take_failure(const struct tlv *t, enum error_code *ret_code, char **ret_text, struct error *err)
{
	auto_free char *code = NULL;
	size_t n = 0;
	char text[ERROR_TEXT_MAX];
	const char *p = tlv_bytes(t, MUX_F_MESSAGE, &n);
	if (tlv_str(t, MUX_F_CODE, 64, &code, err) != 0)
		return -1;
	*ret_code = code ? error_from_wire(code) : ERR_NONE;
	*ret_text = p ? xstrdup(text_escape(p, n, text, sizeof(text))) : NULL;
	return 0;
}

void exec_report_to_tlv(const struct exec_report *r, struct tlv *out)
{
	tlv_add_str(out, MUX_F_OPERATION, r->operation.text);
	if (r->result)
		add_result(out, r->result);
	add_failure(out, r->code, r->error);
}

int exec_report_from_tlv(const struct tlv *t, struct exec_report *ret, struct error *err)
{
	struct exec_report r = { .result = NULL };
	char *text = NULL;
	struct result *result = NULL;
	int rc = get_id(t, MUX_F_OPERATION, &r.operation, err);
	if (rc == 0 && tlv_has(t, MUX_F_OUTCOME)) {
		result = xcalloc(1, sizeof(*result));
		result_init(result);
		rc = take_result(t, result, err);
	}
	if (rc == 0)
		rc = take_failure(t, &r.code, &text, err);
	r.result = result;
	r.error = text;
	if (rc == 0)
		*ret = r;
	else
		exec_report_done(&r);
	return rc;
}

void exec_report_done(struct exec_report *r)
{
	struct result *result = (struct result *)(uintptr_t)r->result;
	if (result)
		result_done(result);
	free(result);
	free((char *)(uintptr_t)r->error);
}

/* --- streams --- */

static void add_command(const struct node_stream *s, struct tlv *out)
{
	const struct command *c = s->command;
	unsigned flags = s->flags | (c->stdin_open ? MUX_OPEN_STDIN : 0U) | (c->tty ? MUX_OPEN_TTY : 0U) | (s->detached ? MUX_OPEN_DETACH : 0U);
	tlv_add_str(out, MUX_F_OPERATION, s->grant->operation.text);
	tlv_add_u64(out, MUX_F_DEADLINE_US, (uint64_t)s->grant->deadline_us);
	tlv_add_u64(out, MUX_F_KEEP_CAPS, s->grant->writable_root);
	tlv_add_u64(out, MUX_F_FLAGS, flags);
	tlv_add_u64(out, MUX_F_TIMEOUT_MS, (uint64_t)c->timeout_ms);
	tlv_add_u64(out, MUX_F_ROWS, c->rows);
	tlv_add_u64(out, MUX_F_COLS, c->cols);
	tlv_add_str(out, MUX_F_CWD, c->cwd);
	tlv_add_str(out, MUX_F_USER, c->user);
	for (size_t i = 0; i < c->argv.len; i++)
		tlv_add_str(out, MUX_F_ARG, c->argv.items[i]);
	for (size_t i = 0; i < c->env.len; i++)
		tlv_add_str(out, MUX_F_ENV, c->env.items[i]);
}

/* An ended one goes along: its output may be in the record alone. RUNNING: none of it is needed. */
static void add_operation(const struct operation *op, struct tlv *out)
{
	tlv_add_str(out, MUX_F_OPERATION, op->id.text);
	tlv_add_u64(out, MUX_F_ACTION, op->state);
	if (!op_ended(op->state))
		return;
	if (op->has_result)
		add_result(out, &op->result);
	add_failure(out, op->error_code, op->error);
}

void node_stream_to_tlv(const struct node_stream *s, struct tlv *out)
{
	size_t n;
	const void *raw;
	tlv_add_u64(out, MUX_F_KIND, s->kind);
	tlv_add_str(out, MUX_F_SANDBOX, s->sandbox.text);
	tlv_add_str(out, MUX_F_OWNER, s->owner);
	if (s->node)
		tlv_add_str(out, MUX_F_NODE, s->node->text);
	if (s->kind == MUX_KIND_EXEC) {
		add_command(s, out);
	} else if (s->kind == MUX_KIND_RESUME || s->kind == MUX_KIND_ATTACH) {
		tlv_add_u64(out, MUX_F_GAP_OUT, s->from[0]);
		tlv_add_u64(out, MUX_F_GAP_ERR, s->from[1]);
		if (s->times)
			tlv_add_u64(out, MUX_F_TIME_US, (uint64_t)s->since_us);
		if (s->operation)
			add_operation(s->operation, out);
	} else {
		raw = tlv_raw(s->fields, &n);
		tlv_add_bytes(out, MUX_F_INNER, raw, n);
	}
}

static int take_command(const struct tlv *t, struct node_stream *s, struct error *err)
{
	struct command *c = xcalloc(1, sizeof(*c));
	struct exec_grant *g = xcalloc(1, sizeof(*g));
	uint64_t flags = tlv_u64(t, MUX_F_FLAGS, 0);
	command_init(c);
	s->command = c;
	s->grant = g;
	s->flags = (unsigned)flags & MUX_OPEN_SHELL_FALLBACK;
	s->detached = flags & MUX_OPEN_DETACH;
	g->sandbox = s->sandbox;
	g->deadline_us = (int64_t)tlv_u64(t, MUX_F_DEADLINE_US, 0);
	g->writable_root = tlv_u64(t, MUX_F_KEEP_CAPS, 0) == 1;
	c->stdin_open = flags & MUX_OPEN_STDIN;
	c->tty = flags & MUX_OPEN_TTY;
	c->timeout_ms = (int64_t)(tlv_u64(t, MUX_F_TIMEOUT_MS, 0) & INT64_MAX);
	c->rows = (uint16_t)(tlv_u64(t, MUX_F_ROWS, 0) & UINT16_MAX);
	c->cols = (uint16_t)(tlv_u64(t, MUX_F_COLS, 0) & UINT16_MAX);
	if (get_id(t, MUX_F_OPERATION, &g->operation, err) != 0 ||
	    tlv_strv(t, MUX_F_ARG, LIMIT_ARGS_MAX, LIMIT_ARG_ONE_MAX, &c->argv, err) != 0 ||
	    tlv_strv(t, MUX_F_ENV, LIMIT_ENV_MAX, LIMIT_ARG_ONE_MAX, &c->env, err) != 0 ||
	    tlv_str(t, MUX_F_CWD, LIMIT_PATH_BYTES_MAX, &c->cwd, err) != 0 || tlv_str(t, MUX_F_USER, LIMIT_PATH_BYTES_MAX, &c->user, err) != 0)
		return -1;
	return command_validate(c, err);
}

static int take_operation(const struct tlv *t, struct node_stream *s, struct error *err)
{
	uint64_t state = tlv_u64(t, MUX_F_ACTION, OP_COUNT);
	s->from[0] = tlv_u64(t, MUX_F_GAP_OUT, 0);
	s->from[1] = tlv_u64(t, MUX_F_GAP_ERR, 0);
	s->times = tlv_has(t, MUX_F_TIME_US);
	s->since_us = (int64_t)(tlv_u64(t, MUX_F_TIME_US, 0) & INT64_MAX);
	if (!tlv_has(t, MUX_F_OPERATION))
		return 0;
	struct operation *op = xcalloc(1, sizeof(*op));
	operation_init(op);
	s->operation = op;
	op->kind = OPK_EXEC;
	op->sandbox_id = s->sandbox;
	if (state >= OP_COUNT)
		return error_set(err, ERR_PROTOCOL, "an operation without a state");
	op->state = (enum op_state)state;
	op->has_result = tlv_has(t, MUX_F_OUTCOME);
	if (get_id(t, MUX_F_OPERATION, &op->id, err) != 0 || (op->has_result && take_result(t, &op->result, err) != 0))
		return -1;
	return take_failure(t, &op->error_code, &op->error, err);
}

static int take_inner(const struct tlv *t, struct node_stream *s, struct error *err)
{
	size_t n = 0;
	const void *p = tlv_bytes(t, MUX_F_INNER, &n);
	struct tlv *inner = xcalloc(1, sizeof(*inner));
	s->fields = inner;
	if (!p)
		return error_set(err, ERR_PROTOCOL, "a stream without fields for sandbox-init");
	struct tlv view;
	if (tlv_parse(&view, p, n, err) != 0)
		return -1;
	buf_add(&inner->own, p, n);
	return tlv_u64(inner, MUX_F_KIND, 0) == s->kind ? 0 : error_set(err, ERR_PROTOCOL, "a stream of two kinds");
}

int node_stream_from_tlv(const struct tlv *t, struct node_stream *ret, struct error *err)
{
	struct node_stream s = { .kind = (enum mux_kind)tlv_u64(t, MUX_F_KIND, 0) };
	auto_free char *owner = NULL;
	int rc = get_id(t, MUX_F_SANDBOX, &s.sandbox, err) != 0 ? -1 : tlv_str(t, MUX_F_OWNER, STREAM_OWNER_MAX, &owner, err);
	if (rc == 0 && owner)
		memcpy(s.owner, owner, strlen(owner) + 1);
	if (rc == 0 && s.kind == MUX_KIND_EXEC)
		rc = take_command(t, &s, err);
	else if (rc == 0 && (s.kind == MUX_KIND_RESUME || s.kind == MUX_KIND_ATTACH))
		rc = take_operation(t, &s, err);
	else if (rc == 0)
		rc = take_inner(t, &s, err);
	if (rc == 0)
		*ret = s;
	else
		node_stream_done(&s);
	return rc;
}

void node_stream_done(struct node_stream *s)
{
	struct command *c = (struct command *)(uintptr_t)s->command;
	struct operation *op = (struct operation *)(uintptr_t)s->operation;
	struct tlv *fields = (struct tlv *)(uintptr_t)s->fields;
	if (c)
		command_done(c);
	if (op)
		operation_done(op);
	if (fields)
		tlv_done(fields);
	free(c);
	free(op);
	free(fields);
	free((struct exec_grant *)(uintptr_t)s->grant);
}
