/* sandbox ps: the processes inside, as sandbox-init sees them. Every byte of the list is the sandbox's word: parsed as such. */
#include "cli/command.h"

#include "cli/ending.h"
#include "cli/interrupt.h"
#include "cli/muxconn.h"
#include "cli/output.h"
#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"

#include <errno.h>
#include <string.h>

enum { ANSWER_TIMEOUT_MS = 30 * 1000, FIELDS = 7, ERROR_LINE_MAX = 900 };

struct options {
	const char *ref;
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct options, ref, "id, name, or a unique start or end of the id"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox ps web", "what runs in it" },
	{ NULL, NULL },
};

/* One question over mux: an OPEN, answered by ACCEPT with TEXT or by CLOSE with an error. */
struct query {
	struct muxconn conn; /* first: the handler's ctx */
	struct buf text;
	bool answered, ended;
	struct error failure;
};

static void on_accepted(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct query *q = ctx;
	(void)m;
	(void)stream;
	size_t n = 0;
	const void *p = tlv_bytes(fields, MUX_F_TEXT, &n);
	if (p)
		buf_add(&q->text, p, n);
	q->answered = true;
}

static void on_closed(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct query *q = ctx;
	(void)m;
	(void)stream;
	q->ended = true;
	if (q->answered)
		return;
	size_t n = 0;
	const char *p = tlv_bytes(fields, MUX_F_MESSAGE, &n);
	enum mux_error code = (enum mux_error)tlv_u64(fields, MUX_F_ERROR, MUX_ERR_LOST);
	n = n > ERROR_LINE_MAX ? ERROR_LINE_MAX : n;
	error_set(&q->failure, ending_code(code), "%.*s", p ? (int)n : 0, p ? p : "");
	if (!p || !n)
		error_set(&q->failure, ending_code(code), "the sandbox does not answer");
}

static int pump(struct query *q, struct error *err)
{
	int64_t deadline = clock_mono_ms() + ANSWER_TIMEOUT_MS;
	while (!q->answered && !q->ended) {
		struct pollfd p[2] = { { 0 }, { .fd = interrupt_fd(), .events = POLLIN } };
		muxconn_poll(&q->conn, &p[0]);
		int64_t left = deadline - clock_mono_ms();
		if (left <= 0)
			return error_set(err, ERR_TIMEOUT, "the sandbox has not answered within %d s", ANSWER_TIMEOUT_MS / 1000);
		if (poll(p, 2, (int)left) <= 0)
			continue;
		enum muxconn_state s = muxconn_ready(&q->conn, p[0].revents, err);
		if (s == MUXCONN_BROKEN)
			return -1;
		if (s == MUXCONN_GONE && !q->answered && !q->ended)
			return error_set(err, ERR_UNREACHABLE, "the server closed the connection");
	}
	return 0;
}

static int ask(struct cli *cli, const char *ref, struct query *q, struct error *err)
{
	static const struct mux_handler handler = { .accepted = on_accepted, .closed = on_closed };
	struct dialler d = session_dialler(cli);
	auto_tlv open = TLV_INIT;
	tlv_add_u64(&open, MUX_F_KIND, MUX_KIND_PS);
	tlv_add_str(&open, MUX_F_SANDBOX, ref);
	muxconn_start(&q->conn, &handler);
	int rc = -1;
	if (mux_open(q->conn.mux, &open, 0, err) != 0 && muxconn_dial(&q->conn, &d, false, 0, err) == 0)
		rc = pump(q, err);
	muxconn_stop(&q->conn);
	if (rc == 0 && !q->answered) {
		*err = q->failure;
		rc = -1;
	}
	return rc;
}

static cJSON *number(const char *text)
{
	int64_t v;
	if (parse_i64("number", text, 0, INT64_C(1) << 53, &v, NULL) != 0)
		return cJSON_CreateNull();
	return cJSON_CreateNumber((double)v);
}

/* One line into an object; false when it is not one of the documented form. */
static bool parse_line(char *line, cJSON *list)
{
	static const char *const keys[FIELDS] = { "pid", "parent", "user", "state", "memory_kib", "cpu_ms", "command" };
	static const bool numeric[FIELDS] = { true, true, false, false, true, true, false };
	char *at = line, *field[FIELDS];
	for (int i = 0; i < FIELDS; i++) {
		field[i] = strsep(&at, "\t");
		if (!field[i])
			return false;
	}
	cJSON *o = cJSON_CreateObject();
	for (int i = 0; i < FIELDS; i++) {
		cJSON *v = numeric[i] ? number(field[i]) : NULL;
		if (v)
			cJSON_AddItemToObject(o, keys[i], v);
		else if (utf8_valid(field[i], strlen(field[i])))
			json_add_str(o, keys[i], field[i]);
		else
			json_add_bytes(o, keys[i], field[i], strlen(field[i]));
	}
	cJSON_AddItemToArray(list, o);
	return true;
}

static int parse_text(struct buf *text, cJSON *list, struct error *err)
{
	char *at = text->data;
	for (char *line; at && *at;) {
		line = strsep(&at, "\n");
		if (*line && !parse_line(line, list))
			return error_set(err, ERR_PROTOCOL, "the sandbox's process list is malformed");
	}
	return 0;
}

static void print_table(const cJSON *list)
{
	static const char *const head[FIELDS] = { "PID", "PARENT", "USER", "STATE", "MEMORY", "CPU", "COMMAND" };
	auto_table *t = table_new(FIELDS);
	const cJSON *p;
	for (size_t i = 0; i < FIELDS; i++)
		table_cell(t, head[i]);
	cJSON_ArrayForEach(p, list)
	{
		char size[24];
		table_cellf(t, "%.0f", json_number(p, "pid", 0));
		table_cellf(t, "%.0f", json_number(p, "parent", 0));
		table_cell(t, json_text(p, "user"));
		table_cell(t, json_text(p, "state"));
		table_cell(t, size_text(json_number(p, "memory_kib", 0) * 1024, size));
		table_cellf(t, "%.2fs", json_number(p, "cpu_ms", 0) / 1000);
		table_cell(t, json_text(p, "command"));
	}
	table_print(t);
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	struct query q = { .conn = MUXCONN_INIT };
	auto_json *list = cJSON_CreateArray();
	const cJSON *p;
	int rc = ask(cli, o->ref, &q, err);
	if (rc == 0)
		rc = parse_text(&q.text, list, err);
	buf_done(&q.text);
	if (rc != 0)
		return -1;
	if (cli->json)
		return out_json(cli, list, err);
	if (!cli->quiet) {
		print_table(list);
		return 0;
	}
	cJSON_ArrayForEach(p, list) out_line("%.0f", json_number(p, "pid", 0));
	return 0;
}

const struct verb verb_ps = {
	.name = "ps",
	.group = GROUP_INSIDE,
	.summary = "list the processes inside a sandbox",
	.manual = "The numbers are those inside the sandbox. The list comes from the sandbox's process 1, so nothing in the image is needed for "
		  "it. With --quiet only process ids are printed.",
	.positionals = positionals,
	.size = sizeof(struct options),
	.examples = examples,
	.run = run,
};
