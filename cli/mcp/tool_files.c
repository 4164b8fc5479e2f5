/* Tools for files inside a sandbox: read a piece, write a whole file, list a directory. They need no program in the image. */
#include "cli/mcp/files.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>

enum { READ_MAX = 256 * 1024, READ_DEFAULT = 32 * 1024, WRITE_MAX = 1024 * 1024, LIST_DEFAULT = 200, LIST_MAX = 2000, LINKS_MAX = 8 };

#define PROP_PATH "\"path\":{\"type\":\"string\",\"minLength\":1,\"description\":\"Absolute, or below /workspace.\"}"

static void arg_path(struct json_reader *args, enum json_need need, char **ret)
{
	auto_free char *given = NULL;
	json_get_str(args, "path", need, LIMIT_PATH_BYTES_MAX - 16, &given);
	if (!json_ok(args))
		return;
	if (given && !*given) {
		json_fail(args, "path", "must not be empty");
		return;
	}
	*ret = given && *given == '/' ? xstrdup(given) : xasprintf("/workspace%s%s", given ? "/" : "", given ? given : "");
}

static void open_get(struct tlv *open, const char *sandbox, const char *path, bool entries_only)
{
	tlv_add_u64(open, MUX_F_KIND, MUX_KIND_FILES_GET);
	tlv_add_str(open, MUX_F_SANDBOX, sandbox);
	tlv_add_str(open, MUX_F_PATH, path);
	if (entries_only)
		tlv_add_u64(open, MUX_F_ACTION, FILES_ENTRIES_ONLY);
}

static const char *kind_text(enum record_kind k)
{
	switch (k) {
	case RECORD_FILE:
	case RECORD_HARDLINK:
		return "file";
	case RECORD_DIRECTORY:
		return "directory";
	case RECORD_SYMLINK:
		return "symlink";
	}
	return "other";
}

static cJSON *entry_json(const struct record_entry *e, const char *path)
{
	char mode[16];
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "path", path);
	json_add_str(j, "type", kind_text(e->kind));
	if (e->kind == RECORD_FILE)
		json_add_i64(j, "size", (int64_t)e->size);
	if (e->kind == RECORD_SYMLINK)
		json_add_str(j, "target", e->target);
	snprintf(mode, sizeof(mode), "%04o", e->mode);
	json_add_str(j, "mode", mode);
	json_add_time(j, "modified_at", e->sec * 1000000);
	return j;
}

/* --- read ------------------------------------------------------------------------------------------------------------- */

struct reading {
	uint64_t offset, at; /* first byte wanted; byte of the file the next record brings */
	size_t max;
	struct buf data;
	bool seen;
	enum record_kind kind;
	uint64_t size;
	char *target;
};

static void keep(struct reading *r, const char *p, uint64_t n)
{
	uint64_t skip = r->at < r->offset ? r->offset - r->at : 0;
	r->at += n;
	if (skip >= n)
		return;
	size_t room = r->max - r->data.len;
	uint64_t k = n - skip < room ? n - skip : room;
	if (p)
		buf_add(&r->data, p + skip, (size_t)k);
	for (uint64_t i = 0; !p && i < k; i++)
		buf_addc(&r->data, '\0');
}

static int on_read(void *ctx, const struct record *rec, struct error *err)
{
	struct reading *r = ctx;
	switch (rec->type) {
	case RECORD_ENTRY:
		r->seen = true;
		r->kind = rec->entry.kind;
		r->size = rec->entry.size;
		free(r->target);
		r->target = xstrdup(rec->entry.target);
		return r->kind != RECORD_FILE;
	case RECORD_DATA:
		keep(r, rec->data, rec->len);
		return r->data.len >= r->max;
	case RECORD_HOLE:
		keep(r, NULL, rec->number);
		return r->data.len >= r->max;
	case RECORD_END:
		r->size = rec->number;
		return 0;
	case RECORD_ABORT:
		return error_set(err, ERR_CONFLICT, "the file could not be read to its end: %.300s", rec->text);
	case RECORD_SKIPPED:
		if (r->seen)
			return 0; /* an attribute of it */
		return error_set(err, ERR_INVALID, "cannot read it: %.300s", rec->text[0] ? rec->text : "it is no regular file");
	case RECORD_LEAVE:
	case RECORD_XATTR:
	case RECORD_DONE:
	case RECORD_FAIL:
		break;
	}
	return 0;
}

static char *link_target(const char *path, const char *target)
{
	const char *slash = strrchr(path, '/');
	if (*target == '/' || !slash)
		return xstrdup(target);
	return xasprintf("%.*s/%s", (int)(slash - path), path, target);
}

static int read_file(struct tool_call *c, const char *sandbox, char **path, struct reading *r, struct error *err)
{
	for (int links = 0; links <= LINKS_MAX; links++) {
		auto_tlv open = TLV_INIT;
		open_get(&open, sandbox, *path, false);
		struct files_exchange x = { .open = &open, .on_record = on_read, .ctx = r };
		if (files_exchange(c, &x, err) != 0)
			return -1;
		if (!r->seen)
			return error_set(err, ERR_NOT_FOUND, "there is no file at %.300s", *path);
		if (r->kind != RECORD_SYMLINK)
			return 0;
		char *next = link_target(*path, r->target);
		free(*path);
		*path = next;
	}
	return error_set(err, ERR_INVALID, "too many symbolic links");
}

static cJSON *show_read(const struct reading *r, const char *path)
{
	cJSON *j = cJSON_CreateObject();
	uint64_t next = r->offset + r->data.len;
	bool more = next < r->size;
	size_t n = more ? utf8_cut(buf_str(&r->data), r->data.len) : r->data.len;
	n = n ? n : r->data.len;
	json_add_str(j, "path", path);
	json_add_i64(j, "size", (int64_t)r->size);
	json_add_i64(j, "offset", (int64_t)r->offset);
	/* As text where it is text, else exact. */
	if (utf8_valid(buf_str(&r->data), n) && !memchr(buf_str(&r->data), '\0', n)) {
		auto_free char *text = xstrndup(buf_str(&r->data), n);
		json_add_str(j, "content", text);
	} else {
		auto_free char *encoded = base64_encode(buf_str(&r->data), n);
		json_add_str(j, "content_base64", encoded);
	}
	if (r->offset + n < r->size)
		json_add_i64(j, "next_offset", (int64_t)(r->offset + n));
	return j;
}

static int run_read(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	auto_free char *sandbox = NULL, *path = NULL;
	int64_t offset = 0, max = READ_DEFAULT;
	arg_sandbox(args, &sandbox);
	arg_path(args, JSON_REQUIRED, &path);
	json_get_i64(args, "offset", JSON_OPTIONAL, 0, INT64_MAX, &offset);
	json_get_i64(args, "max_bytes", JSON_OPTIONAL, 1, READ_MAX, &max);
	if (json_end(args) != 0)
		return -1;
	struct reading r = { .offset = (uint64_t)offset, .max = (size_t)max };
	int rc = read_file(c, sandbox, &path, &r, err);
	if (rc == 0 && r.kind != RECORD_FILE)
		rc = error_set(err, ERR_INVALID, "%.300s is a %s; use sandbox_files_list", path, kind_text(r.kind));
	if (rc == 0)
		ret->value = show_read(&r, path);
	buf_done(&r.data);
	free(r.target);
	return rc;
}

const struct tool tool_files_read = {
	.name = "sandbox_files_read", .title = "Read a file", .hints = HINT_READ_ONLY | HINT_IDEMPOTENT,
	.description = "Read a file of a sandbox, or a piece of it: content when it is text, else content_base64. Go on at next_offset when it is there.",
	.properties = PROP_SANDBOX "," PROP_PATH ",\"offset\":{\"type\":\"integer\",\"minimum\":0,\"default\":0},"
		      "\"max_bytes\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":262144,\"default\":32768}",
	.required = "[\"sandbox_id\",\"path\"]",
	.output = "\"path\":{\"type\":\"string\"},\"size\":{\"type\":\"integer\"},\"offset\":{\"type\":\"integer\"},\"content\":{\"type\":\"string\"},"
		  "\"content_base64\":{\"type\":\"string\"},\"next_offset\":{\"type\":\"integer\"}",
	.run = run_read,
};

/* --- write ------------------------------------------------------------------------------------------------------------ */

struct written {
	bool done;
	char *top;
};

static int on_write(void *ctx, const struct record *rec, struct error *err)
{
	struct written *w = ctx;
	if (rec->type == RECORD_SKIPPED)
		return error_set(err, ERR_CONFLICT, "the file could not be written: %.300s", rec->text);
	if (rec->type == RECORD_DONE) {
		w->done = true;
		free(w->top);
		w->top = xstrdup(rec->path);
	}
	return 0;
}

static void add_file(struct buf *out, const struct buf *content, unsigned mode)
{
	struct record_entry e = { .kind = RECORD_FILE, .mode = mode, .sec = clock_wall_us() / 1000000, .size = content->len, .path = "", .target = "" };
	record_add_entry(out, RECORD_ENTRY, &e);
	for (size_t at = 0, n; at < content->len; at += n) {
		uint8_t head[RECORD_HEAD_LEN];
		n = content->len - at < RECORD_DATA_MAX ? content->len - at : RECORD_DATA_MAX;
		record_put_head(head, RECORD_DATA, n);
		buf_add(out, head, sizeof(head));
		buf_add(out, content->data + at, n);
	}
	record_add_number(out, RECORD_END, content->len);
	record_add_done(out, 1, content->len, 0, "");
}

struct content {
	char *text, *encoded;
};

static int decode_content(struct json_reader *args, const struct content *c, struct buf *ret)
{
	if (!c->text == !c->encoded)
		return json_fail(args, "content", "give either content or content_base64");
	if (c->text)
		buf_adds(ret, c->text);
	else if (base64_decode(c->encoded, ret, NULL) != 0)
		return json_fail(args, "content_base64", "is not base64");
	return 0;
}

static int read_content(struct json_reader *args, struct buf *ret)
{
	struct content c = { .text = NULL };
	json_get_str(args, "content", JSON_OPTIONAL, WRITE_MAX, &c.text);
	json_get_str(args, "content_base64", JSON_OPTIONAL, WRITE_MAX / 3 * 4 + 4, &c.encoded);
	int rc = json_end(args) == 0 ? decode_content(args, &c, ret) : -1;
	free(c.text);
	free(c.encoded);
	return rc;
}

static unsigned read_mode(struct json_reader *args)
{
	auto_free char *text = NULL;
	json_get_str(args, "mode", JSON_OPTIONAL, 5, &text);
	unsigned mode = text ? 0 : 0644;
	for (const char *p = text; p && *p; p++) {
		if (*p < '0' || *p > '7')
			json_fail(args, "mode", "'%s' is not an octal mode such as 0755", text);
		mode = mode * 8 + (unsigned)(*p - '0');
	}
	return mode & 01777;
}

static int run_write(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	auto_free char *sandbox = NULL, *path = NULL, *user = NULL;
	auto_buf content = BUF_INIT, records = BUF_INIT;
	auto_tlv open = TLV_INIT;
	arg_sandbox(args, &sandbox);
	arg_path(args, JSON_REQUIRED, &path);
	json_get_str(args, "user", JSON_OPTIONAL, 256, &user);
	unsigned mode = read_mode(args);
	/* The last of the arguments. */
	if (read_content(args, &content) != 0)
		return -1;
	tlv_add_u64(&open, MUX_F_KIND, MUX_KIND_FILES_PUT);
	tlv_add_str(&open, MUX_F_SANDBOX, sandbox);
	tlv_add_str(&open, MUX_F_PATH, path);
	tlv_add_str(&open, MUX_F_USER, user);
	add_file(&records, &content, mode);
	struct written w = { .done = false };
	struct files_exchange x = { .open = &open, .send = &records, .on_record = on_write, .ctx = &w };
	int rc = files_exchange(c, &x, err);
	if (rc == 0) {
		ret->value = cJSON_CreateObject();
		json_add_str(ret->value, "path", w.top && *w.top ? w.top : path);
		json_add_i64(ret->value, "size", (int64_t)content.len);
	}
	free(w.top);
	return rc;
}

const struct tool tool_files_write = {
	.name = "sandbox_files_write", .title = "Write a file", .hints = HINT_DESTRUCTIVE | HINT_IDEMPOTENT,
	.description = "Write a whole file in a sandbox, at most 1 MiB, replacing what was there. Its directory must exist.",
	.properties = PROP_SANDBOX "," PROP_PATH ",\"content\":{\"type\":\"string\"},\"content_base64\":{\"type\":\"string\"},"
		      "\"mode\":{\"type\":\"string\",\"pattern\":\"^[0-7]{3,5}$\",\"default\":\"0644\"},"
		      "\"user\":{\"type\":\"string\",\"description\":\"Owner; the image's user when absent.\"}",
	.required = "[\"sandbox_id\",\"path\"]", .output = "\"path\":{\"type\":\"string\"},\"size\":{\"type\":\"integer\"}", .run = run_write,
};

/* --- list ------------------------------------------------------------------------------------------------------------- */

struct listing {
	cJSON *entries;
	size_t count, max;
	bool recursive, cut, seen;
};

static int on_entry(void *ctx, const struct record *rec, struct error *err)
{
	struct listing *l = ctx;
	const struct record_entry *e = &rec->entry;
	(void)err;
	if (rec->type != RECORD_ENTRY)
		return 0;
	bool top = e->path[0] == '\0';
	l->seen = true;
	if ((top && e->kind == RECORD_DIRECTORY) || (!l->recursive && strchr(e->path, '/')))
		return 0;
	if (l->count == l->max) {
		l->cut = true;
		return 1;
	}
	l->count++;
	cJSON_AddItemToArray(l->entries, entry_json(e, top ? "." : e->path));
	return 0;
}

static int run_list(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	auto_free char *sandbox = NULL, *path = NULL;
	auto_json *j = cJSON_CreateObject();
	auto_tlv open = TLV_INIT;
	int64_t max = LIST_DEFAULT;
	struct listing l = { .recursive = false };
	arg_sandbox(args, &sandbox);
	arg_path(args, JSON_OPTIONAL, &path);
	json_get_bool(args, "recursive", JSON_OPTIONAL, &l.recursive);
	json_get_i64(args, "limit", JSON_OPTIONAL, 1, LIST_MAX, &max);
	if (json_end(args) != 0)
		return -1;
	json_add_str(j, "path", path);
	l.entries = cJSON_AddArrayToObject(j, "entries");
	l.max = (size_t)max;
	open_get(&open, sandbox, path, true);
	struct files_exchange x = { .open = &open, .on_record = on_entry, .ctx = &l };
	if (files_exchange(c, &x, err) != 0)
		return -1;
	if (!l.seen)
		return error_set(err, ERR_NOT_FOUND, "there is nothing at %.300s", path);
	json_add_bool(j, "truncated", l.cut);
	ret->value = steal(&j);
	return 0;
}

const struct tool tool_files_list = {
	.name = "sandbox_files_list", .title = "List files", .hints = HINT_READ_ONLY | HINT_IDEMPOTENT,
	.description = "List a directory of a sandbox: path, type, size, mode and time of each entry. truncated says that there are more than limit.",
	.properties = PROP_SANDBOX ",\"path\":{\"type\":\"string\",\"default\":\"/workspace\"},\"recursive\":{\"type\":\"boolean\",\"default\":false},"
		      "\"limit\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":2000,\"default\":200}",
	.required = "[\"sandbox_id\"]",
	.output = "\"path\":{\"type\":\"string\"},\"entries\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},\"truncated\":{\"type\":\"boolean\"}",
	.run = run_list,
};
