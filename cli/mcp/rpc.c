/* The envelope of JSON-RPC: see rpc.h. Ids travel as the text they came in, so that no number is rounded on its way back. */
#include "cli/mcp/rpc.h"

#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ID_MAX = 256 };

void rpc_fail(struct rpc_failure *f, enum rpc_code code, const char *fmt, ...)
{
	va_list ap;
	f->code = code;
	va_start(ap, fmt);
	vsnprintf(f->message, sizeof(f->message), fmt, ap);
	va_end(ap);
}

/* --- finding text inside valid JSON ------------------------------------------------------------------------------- */

static size_t skip_space(const char *p, size_t n, size_t i)
{
	while (i < n && strchr(" \t\r\n", p[i]) && p[i])
		i++;
	return i;
}

static size_t string_end(const char *p, size_t n, size_t i)
{
	for (i++; i < n && p[i] != '"'; i++)
		i += p[i] == '\\';
	return i < n ? i + 1 : n;
}

static size_t value_end(const char *p, size_t n, size_t i)
{
	size_t depth = 0;
	while (i < n) {
		char c = p[i];
		if (c == '"') {
			i = string_end(p, n, i);
		} else if (depth == 0 && (c == ',' || c == '}' || c == ']')) {
			break;
		} else {
			depth += c == '{' || c == '[';
			depth -= c == '}' || c == ']';
			i++;
		}
		if (depth == 0 && i > 0 && (p[i - 1] == '}' || p[i - 1] == ']' || p[i - 1] == '"'))
			break;
	}
	return i < n ? i : n;
}

static const char *trimmed(const char *p, size_t from, size_t to, size_t *ret_n)
{
	while (to > from && strchr(" \t\r\n", p[to - 1]))
		to--;
	*ret_n = to - from;
	return p + from;
}

const char *rpc_raw_member(const char *raw, size_t n, const char *key, size_t *ret_n)
{
	size_t want = strlen(key), i = skip_space(raw, n, 0);
	if (i >= n || raw[i] != '{')
		return NULL;
	i = skip_space(raw, n, i + 1);
	while (i < n && raw[i] == '"') {
		size_t end = string_end(raw, n, i);
		bool hit = end - i == want + 2 && memcmp(raw + i + 1, key, want) == 0;
		size_t at = skip_space(raw, n, skip_space(raw, n, end) + 1);
		size_t stop = value_end(raw, n, at);
		if (hit && at < stop)
			return trimmed(raw, at, stop, ret_n);
		i = skip_space(raw, n, stop);
		if (i < n && raw[i] == ',')
			i = skip_space(raw, n, i + 1);
	}
	return NULL;
}

const char *rpc_raw_element(const char *raw, size_t n, size_t *at, size_t *ret_n)
{
	size_t i = skip_space(raw, n, *at);
	if (i < n && (raw[i] == '[' || raw[i] == ',') )
		i = skip_space(raw, n, i + 1);
	if (i >= n || raw[i] == ']')
		return NULL;
	size_t stop = value_end(raw, n, i);
	*at = skip_space(raw, n, stop);
	return trimmed(raw, i, stop, ret_n);
}

/* --- reading -------------------------------------------------------------------------------------------------------- */

void rpc_message_done(struct rpc_message *m)
{
	free(m->id);
	m->id = NULL;
}

/* Strings and whole numbers are ids; the text is kept as it came. */
static bool read_id(const cJSON *j, const char *raw, size_t n, char **ret)
{
	size_t len = 0;
	const char *text = rpc_raw_member(raw, n, "id", &len);
	bool whole = cJSON_IsNumber(j) && (j->valuedouble >= 9e15 || j->valuedouble <= -9e15 || j->valuedouble == (double)(long long)j->valuedouble);
	if (!text || len > ID_MAX || (!cJSON_IsString(j) && !whole))
		return false;
	*ret = xstrndup(text, len);
	return true;
}

static bool refuse(struct rpc_failure *f, const char *why)
{
	rpc_fail(f, RPC_INVALID_REQUEST, "%s", why);
	return false;
}

bool rpc_read(const cJSON *j, const char *raw, size_t n, struct rpc_message *m, struct rpc_failure *f)
{
	*m = (struct rpc_message){ .kind = RPC_NOTIFICATION };
	if (!cJSON_IsObject(j))
		return refuse(f, "a message is a JSON object");
	const cJSON *id = cJSON_GetObjectItemCaseSensitive(j, "id");
	const cJSON *method = cJSON_GetObjectItemCaseSensitive(j, "method");
	const cJSON *version = cJSON_GetObjectItemCaseSensitive(j, "jsonrpc");
	const cJSON *params = cJSON_GetObjectItemCaseSensitive(j, "params");
	if (id && !read_id(id, raw, n, &m->id))
		return refuse(f, "id must be a string or a whole number of at most 256 bytes");
	if (!cJSON_IsString(version) || strcmp(version->valuestring, "2.0") != 0)
		return refuse(f, "jsonrpc must be \"2.0\"");
	if (!method && (cJSON_GetObjectItemCaseSensitive(j, "result") || cJSON_GetObjectItemCaseSensitive(j, "error"))) {
		m->kind = RPC_RESPONSE;
		return true;
	}
	if (!cJSON_IsString(method))
		return refuse(f, "method must be a string");
	m->kind = m->id ? RPC_REQUEST : RPC_NOTIFICATION;
	m->method = method->valuestring;
	if (params && !cJSON_IsObject(params)) {
		rpc_fail(f, RPC_INVALID_PARAMS, "params must be an object");
		return false;
	}
	m->params = params;
	return true;
}

/* --- writing -------------------------------------------------------------------------------------------------------- */

void rpc_add_string(struct buf *out, const char *text)
{
	auto_json *holder = cJSON_CreateObject();
	json_add_str(holder, "s", text);
	auto_free char *quoted = json_print(cJSON_GetObjectItemCaseSensitive(holder, "s"));
	buf_adds(out, quoted);
}

void rpc_add_result(struct buf *out, const char *id, const char *result, size_t n)
{
	buf_addf(out, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":", id ? id : "null");
	buf_add(out, result, n);
	buf_addc(out, '}');
}

void rpc_add_error(struct buf *out, const char *id, const struct rpc_failure *f)
{
	buf_addf(out, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":%d,\"message\":", id ? id : "null", (int)f->code);
	rpc_add_string(out, f->message);
	buf_adds(out, "}}");
}
