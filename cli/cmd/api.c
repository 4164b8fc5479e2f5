/* sandbox api: one request to the API, as it is. */
#include "cli/command.h"

#include "cli/create.h"
#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>
#include <unistd.h>

struct options {
	const char *method, *path, *input, *key;
	struct strv text, json;
};

static const struct option_row options[] = {
	OPT_LIST('f', "field", struct options, text, "KEY=TEXT", "a member of the body that is text, repeatable"),
	OPT_LIST('F', "json-field", struct options, json, "KEY=JSON", "a member of the body that is JSON, repeatable"),
	OPT_TEXT('d', "input", struct options, input, "FILE", "the whole body, JSON; - is standard input"),
	OPT_TEXT(0, "idempotency-key", struct options, key, "KEY", "the same key acts once, however often tried"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_TEXT, "METHOD", struct options, method, "GET, POST, DELETE ...; left out: GET, or POST with a body"),
	POS(POS_OPTIONAL, WHAT_TEXT, "PATH", struct options, path, "such as /v1/sandboxes?limit=5"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox api GET /v1/sandboxes?limit=5", "the answer, as JSON" },
	{ "sandbox api POST /v1/sandboxes/web/extend -F ttl_seconds=7200", "with a body" },
	{ NULL, NULL },
};

static int read_input(const char *file, cJSON **ret, struct error *err)
{
	auto_buf text = BUF_INIT_MAX(LIMIT_JSON_BYTES_MAX);
	if (strcmp(file, "-") != 0) {
		if (io_read_file(file, LIMIT_JSON_BYTES_MAX, &text, err) != 0)
			return error_wrap(err, "--input");
		return json_parse(buf_str(&text), text.len, ret, err) == 0 ? 0 : error_wrap(err, "--input");
	}
	for (;;) {
		char *to = buf_reserve(&text, 64 * 1024);
		ssize_t n = to ? read(STDIN_FILENO, to, 64 * 1024) : 0;
		if (!to)
			return error_set(err, ERR_TOO_LARGE, "--input: the body is over %d bytes", LIMIT_JSON_BYTES_MAX);
		if (n < 0)
			return error_errno(err, "reading standard input");
		if (n == 0)
			break;
		buf_commit(&text, (size_t)n);
	}
	return json_parse(buf_str(&text), text.len, ret, err) == 0 ? 0 : error_wrap(err, "--input");
}

static int add_fields(const struct options *o, cJSON *body, struct error *err)
{
	for (size_t i = 0; i < o->text.len + o->json.len; i++) {
		bool text = i < o->text.len;
		auto_free char *key = NULL;
		const char *value;
		cJSON *j = NULL;
		if (split_pair(text ? "--field" : "--json-field", text ? o->text.items[i] : o->json.items[i - o->text.len], &key, &value, err) != 0)
			return -1;
		if (!text && json_parse(value, strlen(value), &j, err) != 0)
			return error_wrap(err, "--json-field %s", key);
		cJSON_DeleteItemFromObjectCaseSensitive(body, key);
		cJSON_AddItemToObject(body, key, text ? cJSON_CreateString(value) : j);
	}
	return 0;
}

static int make_body(const struct options *o, cJSON **ret, struct error *err)
{
	auto_json *body = NULL;
	bool fields = o->text.len + o->json.len > 0;
	if (o->input && read_input(o->input, &body, err) != 0)
		return -1;
	if (!body && fields)
		body = cJSON_CreateObject();
	if (fields && !cJSON_IsObject(body))
		return error_set(err, ERR_INVALID, "--input holds no object that fields could be added to");
	if (body && add_fields(o, body, err) != 0)
		return -1;
	*ret = steal(&body);
	return 0;
}

/* The request line must stay one. */
static int check_line(const char *method, const char *path, struct error *err)
{
	size_t n = strspn(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
	if (!n || n > 16 || method[n])
		return error_set(err, ERR_INVALID, "'%.40s' is not a method such as GET or POST", method);
	if (path[0] != '/')
		return error_set(err, ERR_INVALID, "'%.80s' is not a path: it begins with a /", path);
	for (const unsigned char *p = (const unsigned char *)path; *p; p++)
		if (*p <= ' ' || *p >= 127)
			return error_set(err, ERR_INVALID, "the path holds blanks or bytes that are no ASCII: encode them as %%20");
	return 0;
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	auto_json *body = NULL;
	auto_json *answer = NULL;
	if (make_body(o, &body, err) != 0)
		return -1;
	const char *method = o->path ? o->method : body ? "POST" : "GET", *path = o->path ? o->path : o->method;
	struct idem key = idem_new();
	struct call c = { .method = method, .target = path, .body = body, .key = o->key ? o->key : strcmp(method, "GET") ? key.text : NULL };
	cli->json = cli->json ? cli->json : ""; /* JSON is all this verb speaks, of errors too */
	if (check_line(method, path, err) != 0 || session_call(cli, &c, &answer, err) != 0)
		return -1;
	return cJSON_IsNull(answer) ? 0 : out_json(cli, answer, err);
}

const struct verb verb_api = {
	.name = "api",
	.group = GROUP_SYSTEM,
	.summary = "send one request to the API",
	.manual = "The answer is printed as JSON; --json=FIELDS and --format choose from it. Of a failure the error object is printed, and the exit status is "
		  "that of its code. What there is to ask is in docs/api.md and docs/openapi.json. A request that changes something carries an "
		  "Idempotency-Key, of its own unless one is given.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.examples = examples,
	.run = run,
};
