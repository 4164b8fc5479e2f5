/* Sandboxes, operations and errors as the API's JSON: see model_json.h. Specs and commands are in spec_json.c. */
#include "shared/json/model_json.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>

enum { TEXT_MAX = 64 * 1024, OUTPUT_TEXT_MAX = LIMIT_JSON_BYTES_MAX };

static const char NIL_ID[] = "00000000-0000-0000-0000-000000000000";

static void add_id(cJSON *j, const char *key, const struct id *id)
{
	json_add_str(j, key, id->text[0] ? id->text : NIL_ID);
}

static void get_id(struct json_reader *r, const char *key, enum json_need need, struct id *ret)
{
	auto_free char *text = NULL;
	json_get_str(r, key, need, ID_TEXT_LEN, &text);
	if (text && strcmp(text, NIL_ID) == 0)
		*ret = (struct id){ "" };
	else if (text && id_parse(text, ret) != 0)
		json_fail(r, key, "is not an id");
}

static void get_time(struct json_reader *r, const char *key, enum json_need need, int64_t *ret)
{
	auto_free char *text = NULL;
	json_get_str(r, key, need, 64, &text);
	if (text && time_parse_rfc3339(text, ret) != 0)
		json_fail(r, key, "is not an RFC 3339 time");
}

/* Text for a fixed array: longer text is cut at a character. */
static void get_fixed(struct json_reader *r, const char *key, size_t size, char *ret)
{
	auto_free char *text = NULL;
	json_get_str(r, key, JSON_OPTIONAL, TEXT_MAX, &text);
	if (!text)
		return;
	size_t n = strlen(text);
	if (n >= size)
		n = utf8_cut(text, size - 1);
	memcpy(ret, text, n);
	ret[n] = '\0';
}

/* The stored decision is text of our own; one that cannot be read any more is left out rather than failing the answer. */
static void add_decision(cJSON *j, const char *text)
{
	cJSON *decision = NULL;
	if (text && json_parse(text, strlen(text), &decision, NULL) == 0)
		cJSON_AddItemToObject(j, "decision", decision);
}

cJSON *tunnel_to_json(const struct tunnel *t)
{
	cJSON *j = cJSON_CreateObject();
	add_id(j, "id", &t->id);
	json_add_i64(j, "container_port", t->port);
	json_add_str(j, "protocol", protocol_text(t->protocol));
	json_add_str(j, "subdomain", t->label);
	json_add_str(j, "hostname", t->hostname);
	json_add_str(j, "public_url", t->url);
	json_add_bool(j, "authenticated", t->auth != TUNNEL_AUTH_NONE);
	json_add_str(j, "state", tunnel_state_text(t->state));
	json_add_str(j, "failure", t->failure[0] ? t->failure : NULL);
	add_id(j, "sandbox_id", &t->sandbox);
	json_add_str(j, "auth", tunnel_auth_text(t->auth));
	json_add_str(j, "host_header", t->keep_host ? "keep" : "rewrite");
	json_add_time(j, "created_at", t->created_us);
	json_add_time(j, "expires_at", t->expires_us);
	return j;
}

cJSON *sandbox_to_json(const struct sandbox *s)
{
	cJSON *j = cJSON_CreateObject();
	add_id(j, "id", &s->id);
	json_add_str(j, "name", s->spec.name);
	cJSON_AddItemToObject(j, "spec", spec_to_json(&s->spec));
	json_add_str(j, "state", sandbox_state_text(s->state));
	add_id(j, "node_id", &s->node_id);
	json_add_str(j, "node_name", s->node_name[0] ? s->node_name : NULL);
	json_add_str(j, "isolation", isolation_text(tier_isolation(s->tier)));
	json_add_str(j, "tier", tier_text(s->tier));
	json_add_i64(j, "risk_score", s->risk_score);
	json_add_str(j, "image_digest", s->image_digest);
	json_add_bool(j, "unreachable", s->unreachable);
	json_add_time(j, "created_at", s->created_us);
	json_add_time(j, "updated_at", s->updated_us);
	json_add_time(j, "expires_at", s->expires_us);
	json_add_time(j, "ended_at", s->ended_us);
	json_add_str(j, "end_reason", s->end_reason == OUTCOME_NONE ? NULL : outcome_text(s->end_reason));
	json_add_str(j, "failure", s->failure);
	cJSON *tunnels = cJSON_AddArrayToObject(j, "tunnels");
	for (size_t i = 0; i < s->n_tunnels; i++)
		cJSON_AddItemToArray(tunnels, tunnel_to_json(&s->tunnels[i]));
	add_decision(j, s->decision);
	return j;
}

/* Servers of the original send isolation alone. */
static void get_tier(struct json_reader *r, enum tier *ret)
{
	enum isolation isolation = ISOLATION_CONTAINER;
	json_get_enum(r, "isolation", JSON_OPTIONAL, isolation, &isolation);
	*ret = isolation == ISOLATION_MICROVM ? TIER_MICROVM : TIER_CONTAINER;
	json_get_enum(r, "tier", JSON_OPTIONAL, tier, ret);
}

static void get_sandbox_spec(struct json_reader *r, const cJSON *j, struct sandbox *s)
{
	struct json_reader child;
	struct error err = ERROR_INIT;
	if (json_get_object(r, "spec", JSON_REQUIRED, &child) && spec_from_json(child.object, "spec", false, &s->spec, &err) != 0)
		json_fail(r, "spec", "%s", err.message);
	const cJSON *decision = cJSON_GetObjectItemCaseSensitive(j, "decision");
	if (cJSON_IsObject(decision))
		s->decision = json_print(decision);
}

int sandbox_from_json(const cJSON *j, const char *name, struct sandbox *ret, struct error *err)
{
	struct json_reader r;
	json_reader_init(&r, j, name, err);
	auto_sandbox s;
	sandbox_init(&s);
	uint32_t risk = 0;
	get_id(&r, "id", JSON_REQUIRED, &s.id);
	get_sandbox_spec(&r, j, &s);
	json_get_enum(&r, "state", JSON_REQUIRED, sandbox_state, &s.state);
	get_id(&r, "node_id", JSON_OPTIONAL, &s.node_id);
	get_fixed(&r, "node_name", sizeof(s.node_name), s.node_name);
	get_tier(&r, &s.tier);
	json_get_u32(&r, "risk_score", JSON_OPTIONAL, 0, UINT16_MAX, &risk);
	json_get_str(&r, "image_digest", JSON_OPTIONAL, TEXT_MAX, &s.image_digest);
	json_get_bool(&r, "unreachable", JSON_OPTIONAL, &s.unreachable);
	get_time(&r, "created_at", JSON_REQUIRED, &s.created_us);
	get_time(&r, "updated_at", JSON_REQUIRED, &s.updated_us);
	get_time(&r, "expires_at", JSON_REQUIRED, &s.expires_us);
	get_time(&r, "ended_at", JSON_OPTIONAL, &s.ended_us);
	json_get_enum(&r, "end_reason", JSON_OPTIONAL, outcome, &s.end_reason);
	json_get_str(&r, "failure", JSON_OPTIONAL, TEXT_MAX, &s.failure);
	if (!json_ok(&r))
		return -1;
	s.risk_score = (uint16_t)risk;
	sandbox_done(ret);
	*ret = s;
	sandbox_init(&s);
	return 0;
}

static bool capture_whole(const struct capture *c)
{
	return c->head.len + c->tail.len >= c->total;
}

/* Where the kept part of the tail begins: behind the rest of a character whose beginning is missing. */
static size_t tail_start(const struct buf *tail)
{
	size_t i = 0;
	while (i < 3 && i < tail->len && ((unsigned char)tail->data[i] & 0xc0) == 0x80)
		i++;
	return i;
}

/* A gap would cut characters on both sides and make text look like binary: those bytes are given up too. */
static void add_capture(cJSON *j, const char *key, const struct capture *c)
{
	auto_buf kept = BUF_INIT;
	if (capture_whole(c)) {
		buf_add(&kept, c->head.data, c->head.len);
		buf_add(&kept, c->tail.data, c->tail.len);
		json_add_bytes(j, key, kept.data, kept.len);
	} else {
		auto_free char *gap = xasprintf("%s_gap_at", key);
		size_t start = tail_start(&c->tail), head = c->head.len ? utf8_cut(c->head.data, c->head.len) : 0;
		buf_add(&kept, c->head.data, head);
		if (c->tail.len > start)
			buf_add(&kept, c->tail.data + start, c->tail.len - start);
		json_add_bytes(j, key, kept.data, kept.len);
		json_add_i64(j, gap, (int64_t)head);
	}
	auto_free char *bytes = xasprintf("%s_bytes", key);
	json_add_i64(j, bytes, (int64_t)c->total);
}

static cJSON *output_to_json(const struct result *r)
{
	cJSON *j = cJSON_CreateObject();
	json_add_i64(j, "exit_code", result_exit_status(r));
	add_capture(j, "stdout", &r->out);
	add_capture(j, "stderr", &r->err);
	json_add_bool(j, "truncated", r->truncated || !capture_whole(&r->out) || !capture_whole(&r->err));
	if (r->signal)
		json_add_i64(j, "signal", r->signal);
	else
		json_add_str(j, "signal", NULL);
	json_add_bool(j, "oom_killed", r->oom_killed);
	return j;
}

cJSON *operation_to_json(const struct operation *o)
{
	cJSON *j = cJSON_CreateObject();
	bool judged = o->result.outcome != OUTCOME_NONE;
	add_id(j, "id", &o->id);
	add_id(j, "sandbox_id", &o->sandbox_id);
	json_add_str(j, "kind", op_kind_text(o->kind));
	json_add_str(j, "state", op_state_text(o->state));
	json_add_str(j, "outcome", judged ? outcome_text(o->result.outcome) : NULL);
	if (o->kind == OPK_EXEC && o->command.argv.len)
		cJSON_AddItemToObject(j, "command", command_to_json(&o->command));
	cJSON_AddItemToObject(j, "output", o->has_result ? output_to_json(&o->result) : cJSON_CreateNull());
	json_add_str(j, "error", o->error);
	json_add_str(j, "error_code", o->error_code == ERR_NONE ? NULL : error_wire(o->error_code));
	json_add_str(j, "progress", o->progress);
	if (o->unreachable)
		json_add_bool(j, "unreachable", true);
	json_add_time(j, "created_at", o->created_us);
	json_add_time(j, "updated_at", o->updated_us);
	return j;
}

/* Splits what was kept at the gap again. */
static void get_capture(struct json_reader *r, const char *key, struct capture *c)
{
	auto_free char *text = NULL, *encoded = NULL;
	auto_free char *base64_key = xasprintf("%s_base64", key), *gap_key = xasprintf("%s_gap_at", key);
	auto_free char *bytes_key = xasprintf("%s_bytes", key);
	auto_buf kept = BUF_INIT;
	json_get_str(r, key, JSON_OPTIONAL, OUTPUT_TEXT_MAX, &text);
	json_get_str(r, base64_key, JSON_OPTIONAL, OUTPUT_TEXT_MAX, &encoded);
	if (encoded && base64_decode(encoded, &kept, NULL) != 0)
		json_fail(r, base64_key, "is not base64");
	else if (!encoded && text)
		buf_adds(&kept, text);
	int64_t gap = (int64_t)kept.len, total = (int64_t)kept.len;
	json_get_i64(r, gap_key, JSON_OPTIONAL, 0, (int64_t)kept.len, &gap);
	json_get_i64(r, bytes_key, JSON_OPTIONAL, 0, INT64_MAX, &total);
	if (!json_ok(r))
		return;
	buf_add(&c->head, kept.data, (size_t)gap);
	if (kept.len > (size_t)gap)
		buf_add(&c->tail, kept.data + gap, kept.len - (size_t)gap);
	c->total = (uint64_t)total;
}

static void get_output(struct json_reader *r, struct operation *o)
{
	struct json_reader output;
	if (!json_get_object(r, "output", JSON_OPTIONAL, &output))
		return;
	int64_t status = 0, sig = 0;
	json_get_i64(&output, "exit_code", JSON_REQUIRED, INT32_MIN, INT32_MAX, &status);
	json_get_i64(&output, "signal", JSON_OPTIONAL, 0, 128, &sig);
	json_get_bool(&output, "oom_killed", JSON_OPTIONAL, &o->result.oom_killed);
	json_get_bool(&output, "truncated", JSON_OPTIONAL, &o->result.truncated);
	get_capture(&output, "stdout", &o->result.out);
	get_capture(&output, "stderr", &o->result.err);
	o->has_result = json_ok(r);
	o->result.exit_code = (int)status;
	o->result.signal = (int)sig;
	if (o->result.outcome == OUTCOME_NONE) /* a server of the original: it has exit codes only */
		o->result.outcome = OUTCOME_EXITED;
}

static void get_command(struct json_reader *r, struct command *c)
{
	struct json_reader child;
	if (!json_get_object(r, "command", JSON_OPTIONAL, &child))
		return;
	int64_t seconds = 0;
	json_get_strv(&child, "argv", JSON_OPTIONAL, LIMIT_ARGS_MAX, LIMIT_JSON_BYTES_MAX, &c->argv);
	json_get_str(&child, "cwd", JSON_OPTIONAL, LIMIT_JSON_BYTES_MAX, &c->cwd);
	json_get_str(&child, "user", JSON_OPTIONAL, TEXT_MAX, &c->user);
	json_get_i64(&child, "timeout_seconds", JSON_OPTIONAL, 0, INT32_MAX, &seconds);
	json_get_bool(&child, "tty", JSON_OPTIONAL, &c->tty);
	c->timeout_ms = seconds * 1000;
}

int operation_from_json(const cJSON *j, const char *name, struct operation *ret, struct error *err)
{
	struct json_reader r;
	json_reader_init(&r, j, name, err);
	auto_operation o;
	operation_init(&o);
	auto_free char *code = NULL;
	get_id(&r, "id", JSON_REQUIRED, &o.id);
	get_id(&r, "sandbox_id", JSON_REQUIRED, &o.sandbox_id);
	json_get_enum(&r, "kind", JSON_OPTIONAL, op_kind, &o.kind);
	json_get_enum(&r, "state", JSON_REQUIRED, op_state, &o.state);
	json_get_enum(&r, "outcome", JSON_OPTIONAL, outcome, &o.result.outcome);
	get_command(&r, &o.command);
	get_output(&r, &o);
	json_get_str(&r, "error", JSON_OPTIONAL, TEXT_MAX, &o.error);
	json_get_str(&r, "error_code", JSON_OPTIONAL, 64, &code);
	json_get_str(&r, "progress", JSON_OPTIONAL, TEXT_MAX, &o.progress);
	json_get_bool(&r, "unreachable", JSON_OPTIONAL, &o.unreachable);
	get_time(&r, "created_at", JSON_REQUIRED, &o.created_us);
	get_time(&r, "updated_at", JSON_REQUIRED, &o.updated_us);
	if (!json_ok(&r))
		return -1;
	o.error_code = code ? error_from_wire(code) : ERR_NONE;
	operation_done(ret);
	*ret = o;
	operation_init(&o);
	return 0;
}

cJSON *error_to_json(const struct error *e, const char *request_id)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "code", error_wire(e->code));
	json_add_str(j, "message", e->message);
	json_add_str(j, "request_id", request_id);
	return j;
}

bool error_from_json(const cJSON *j, struct error *err)
{
	const cJSON *code = cJSON_GetObjectItemCaseSensitive(j, "code");
	const cJSON *message = cJSON_GetObjectItemCaseSensitive(j, "message");
	if (!cJSON_IsString(code) || !cJSON_IsString(message))
		return false;
	error_set(err, error_from_wire(code->valuestring), "%s", message->valuestring);
	return true;
}
