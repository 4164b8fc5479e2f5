/* Lines, JSON and errors: see output.h. Tables are in table.c, progress in progress.c. */
#include "cli/output.h"

#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static bool env_set(const char *name)
{
	const char *v = getenv(name);
	return v && *v;
}

void out_setup(struct cli *cli)
{
	const char *term = getenv("TERM");
	bool dumb = !term || strcmp(term, "dumb") == 0;
	bool ci = env_set("CI");
	if (cli->format && !cli->json)
		cli->json = ""; /* verbs then hand over the whole result, which the template prints */
	cli->out_tty = isatty(STDOUT_FILENO) == 1;
	cli->err_tty = isatty(STDERR_FILENO) == 1;
	cli->colour = cli->out_tty && !dumb && !ci && !env_set("NO_COLOR");
	cli->progress = cli->err_tty && !dumb && !ci && !cli->quiet;
}

int out_finish(struct error *err)
{
	bool failed = ferror(stdout) != 0;
	if (fflush(stdout) == 0 && !failed)
		return 0;
	if (errno == 0)
		errno = EIO;
	return error_errno(err, "writing to standard output");
}

void out_line(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vfprintf(stdout, fmt, ap);
	va_end(ap);
	fputc('\n', stdout);
}

/* --- JSON ------------------------------------------------------------------------------------------------------- */

/* "a.b" inside an object; NULL when absent. */
static cJSON *reach(const cJSON *object, const char *path, size_t n)
{
	const cJSON *at = object;
	while (at && n > 0) {
		size_t len = 0;
		while (len < n && path[len] != '.')
			len++;
		auto_free char *key = xstrndup(path, len);
		at = cJSON_GetObjectItemCaseSensitive(at, key);
		path += len < n ? len + 1 : len;
		n -= len < n ? len + 1 : len;
	}
	return (cJSON *)at;
}

/* Adds a field of from to object; false when it is not there (null is added then). */
static bool pick(cJSON *object, const cJSON *from, const char *path, size_t n)
{
	auto_free char *key = xstrndup(path, n);
	cJSON *found = reach(from, path, n);
	cJSON_AddItemToObject(object, key, found ? cJSON_Duplicate(found, true) : cJSON_CreateNull());
	return found != NULL;
}

/* A copy of `from` with the fields of the list `fields` alone; counts in seen[] which fields occurred. */
static cJSON *select_fields(const cJSON *from, const char *fields, bool *seen, size_t n_seen)
{
	cJSON *object = cJSON_CreateObject();
	size_t i = 0;
	for (const char *f = fields; *f; i++) {
		size_t n = strcspn(f, ",");
		if (n > 0 && pick(object, from, f, n) && i < n_seen)
			seen[i] = true;
		f += n + (f[n] == ',');
	}
	return object;
}

enum { FIELDS_MAX = 64 };

static int check_seen(const char *fields, const bool *seen, struct error *err)
{
	size_t i = 0;
	for (const char *f = fields; *f && i < FIELDS_MAX; i++) {
		size_t n = strcspn(f, ",");
		if (n == 0 || !seen[i]) {
			char shown[64];
			text_escape(f, n, shown, sizeof(shown));
			return error_set(err, ERR_INVALID, "--json: there is no field '%s' in this answer", shown);
		}
		f += n + (f[n] == ',');
	}
	return 0;
}

static int select_json(const char *fields, const cJSON *j, cJSON **ret, struct error *err)
{
	bool seen[FIELDS_MAX] = { false };
	if (!cJSON_IsArray(j)) {
		*ret = select_fields(j, fields, seen, FIELDS_MAX);
	} else {
		*ret = cJSON_CreateArray();
		const cJSON *item;
		cJSON_ArrayForEach(item, j) cJSON_AddItemToArray(*ret, select_fields(item, fields, seen, FIELDS_MAX));
		if (cJSON_GetArraySize(j) == 0)
			return 0;
	}
	return check_seen(fields, seen, err);
}

/* One {{…}}: a path, or `json` and a path. */
static int expand(const cJSON *item, const char *inner, size_t n, struct buf *out, struct error *err)
{
	const char *p = inner, *end = inner + n;
	while (p < end && *p == ' ')
		p++;
	while (end > p && end[-1] == ' ')
		end--;
	bool whole = end - p > 5 && memcmp(p, "json ", 5) == 0;
	for (p += whole ? 5 : 0; p < end && *p == ' ';)
		p++;
	const cJSON *found = p < end && *p == '.' ? reach(item, p + 1, (size_t)(end - p) - 1) : NULL;
	if (!found) {
		char shown[80];
		return error_set(err, ERR_INVALID, "--format: there is no field '%s' in this answer; fields are written {{.name}}",
				 text_escape(p, (size_t)(end - p), shown, sizeof(shown)));
	}
	const char *string = cJSON_GetStringValue(found);
	if (whole || !string) {
		auto_free char *printed = json_print(found);
		buf_adds(out, printed);
		return 0;
	}
	size_t room = strlen(string) * 4 + 1;
	auto_free char *safe = xmalloc(room);
	buf_adds(out, text_escape(string, strlen(string), safe, room));
	return 0;
}

/* A template over one result: {{.field}}, \t, \n and \\; the rest stands for itself. */
static int format_one(const char *format, const cJSON *item, struct error *err)
{
	auto_buf out = BUF_INIT;
	for (const char *p = format; *p;) {
		const char *end = p[0] == '{' && p[1] == '{' ? strstr(p, "}}") : NULL;
		if (end) {
			if (expand(item, p + 2, (size_t)(end - p) - 2, &out, err) != 0)
				return -1;
			p = end + 2;
		} else if (p[0] == '\\' && p[1] && strchr("tn\\", p[1])) {
			buf_addc(&out, p[1] == 't' ? '\t' : p[1] == 'n' ? '\n' : '\\');
			p += 2;
		} else {
			buf_addc(&out, *p++);
		}
	}
	out_line("%s", buf_str(&out));
	return 0;
}

static int format_json(const char *format, const cJSON *j, struct error *err)
{
	const cJSON *item;
	if (!cJSON_IsArray(j))
		return format_one(format, j, err);
	cJSON_ArrayForEach(item, j)
	{
		if (format_one(format, item, err) != 0)
			return -1;
	}
	return 0;
}

int out_json(struct cli *cli, const cJSON *j, struct error *err)
{
	auto_json *chosen = NULL;
	if (cli->format)
		return format_json(cli->format, j, err);
	if (cli->json && cli->json[0]) {
		if (select_json(cli->json, j, &chosen, err) != 0)
			return -1;
		j = chosen;
	}
	auto_free char *text = json_print(j);
	out_line("%s", text);
	return 0;
}

const char *json_text(const cJSON *object, const char *key)
{
	const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
	return s ? s : "";
}

double json_number(const cJSON *object, const char *key, double fallback)
{
	const cJSON *n = cJSON_GetObjectItemCaseSensitive(object, key);
	return cJSON_IsNumber(n) ? n->valuedouble : fallback;
}

bool json_flag(const cJSON *object, const char *key)
{
	return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, key));
}

int json_operation_error(const cJSON *operation, struct error *err)
{
	const char *code = json_text(operation, "error_code"), *text = json_text(operation, "error");
	return error_set(err, *code ? error_from_wire(code) : ERR_INTERNAL, "%s", *text ? text : "the operation failed");
}

/* --- lines for people ------------------------------------------------------------------------------------------- */

/* The message may quote what a server or a file said: no byte of it may drive the terminal. Newlines stay. */
static void print_escaped(const char *text)
{
	for (const char *line = text; line;) {
		const char *nl = strchr(line, '\n');
		size_t n = nl ? (size_t)(nl - line) : strlen(line);
		size_t room = n * 4 + 1;
		auto_free char *safe = xmalloc(room);
		fputs(text_escape(line, n, safe, room), stderr);
		if (nl)
			fputc('\n', stderr);
		line = nl ? nl + 1 : NULL;
	}
}

static void clear_progress(const struct cli *cli)
{
	if (cli->progress)
		fputs("\r\033[K", stderr);
}

static void say(const struct cli *cli, const char *prefix, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));
static void say(const struct cli *cli, const char *prefix, const char *fmt, va_list ap)
{
	auto_free char *text = NULL;
	if (vasprintf(&text, fmt, ap) < 0) {
		text = NULL;
		return;
	}
	fflush(stdout); /* where both go to one place, in the order they were said */
	clear_progress(cli);
	fputs(prefix, stderr);
	print_escaped(text);
	fputc('\n', stderr);
}

void out_note(struct cli *cli, const char *fmt, ...)
{
	if (cli->quiet)
		return;
	va_list ap;
	va_start(ap, fmt);
	say(cli, "sandbox: ", fmt, ap);
	va_end(ap);
}

void out_warn(struct cli *cli, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	say(cli, "sandbox: warning: ", fmt, ap);
	va_end(ap);
}

void cli_hint(struct cli *cli, const char *fmt, ...)
{
	va_list ap;
	free(cli->hint);
	cli->hint = NULL;
	va_start(ap, fmt);
	if (vasprintf(&cli->hint, fmt, ap) < 0)
		cli->hint = NULL;
	va_end(ap);
}

static const char *default_hint(const struct error *err)
{
	switch (err->code) {
	case ERR_UNREACHABLE:
		return "`sandbox doctor` shows which part does not answer and how to mend it";
	case ERR_UNAUTHORIZED:
		return "the server wants another user or a token";
	case ERR_RATE_LIMITED:
		return "try again later";
	default:
		return NULL;
	}
}

/* The sandbox was not named on the line, so a reader must learn which one was meant. */
static void hint_default_sandbox(struct cli *cli, const struct error *err)
{
	if (!cli->hint && cli->default_sandbox && (err->code == ERR_NOT_FOUND || err->code == ERR_EXPIRED))
		cli_hint(cli, "`sandbox use` chose %s for this directory; `sandbox use --clear` forgets it", cli->default_sandbox);
}

cJSON *out_error_json(const struct cli *cli, const struct error *err)
{
	cJSON *o = cJSON_CreateObject();
	/* Codes of a newer server are internal to us; its own word is still what a reader wants. */
	const char *server_code = json_text(cli->error_body, "code");
	if (cli->error_body && strcmp(error_wire(error_from_wire(server_code)), error_wire(err->code)) == 0) {
		cJSON *copy = cJSON_Duplicate(cli->error_body, true);
		cJSON_DeleteItemFromObjectCaseSensitive(copy, "message");
		json_add_str(copy, "message", err->message);
		cJSON_AddItemToObject(o, "error", copy);
		return o;
	}
	cJSON *e = cJSON_AddObjectToObject(o, "error");
	json_add_str(e, "code", error_wire(err->code));
	json_add_str(e, "message", err->message);
	json_add_str(e, "request_id", NULL);
	return o;
}

/* Where the server's log or audit says more than its answer does. */
static bool request_matters(enum error_code code)
{
	return code == ERR_INTERNAL || code == ERR_SYSTEM || code == ERR_UNAVAILABLE || code == ERR_FORBIDDEN || code == ERR_UNAUTHORIZED;
}

void out_error(struct cli *cli, const struct error *err)
{
	hint_default_sandbox(cli, err);
	fflush(stdout);
	clear_progress(cli);
	fputs("sandbox: ", stderr);
	print_escaped(err->message);
	fputc('\n', stderr);
	const char *request = json_text(cli->error_body, "request_id");
	if (*request && request_matters(err->code)) {
		fputs("request: ", stderr);
		print_escaped(request);
		fputc('\n', stderr);
	}
	const char *hint = cli->hint ? cli->hint : default_hint(err);
	if (hint) {
		fputs("hint: ", stderr);
		print_escaped(hint);
		fputc('\n', stderr);
	}
	if (cli->json && !cli->format) {
		auto_json *j = out_error_json(cli, err);
		auto_free char *text = json_print(j);
		out_line("%s", text);
	}
}
