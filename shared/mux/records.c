/* File records: see records.h. */
#include "shared/mux/records.h"

#include "shared/base/limits.h"

#include <string.h>

enum { ENTRY_FIXED = 26, TEXT_MAX = 1000 };

static void put_be(uint8_t *out, uint64_t v, int bytes)
{
	for (int i = bytes - 1; i >= 0; i--, v >>= 8)
		out[i] = (uint8_t)v;
}

static uint64_t get_be(const uint8_t *p, int bytes)
{
	uint64_t v = 0;
	for (int i = 0; i < bytes; i++)
		v = v << 8 | p[i];
	return v;
}

void record_put_head(uint8_t out[static RECORD_HEAD_LEN], enum record_type type, size_t n)
{
	out[0] = (uint8_t)type;
	out[1] = out[2] = out[3] = 0;
	put_be(out + 4, n, 4);
}

static void add_head(struct buf *b, enum record_type type, size_t n)
{
	uint8_t head[RECORD_HEAD_LEN];
	record_put_head(head, type, n);
	buf_add(b, head, sizeof(head));
}

void record_add_entry(struct buf *b, enum record_type type, const struct record_entry *e)
{
	uint8_t fixed[ENTRY_FIXED] = { (uint8_t)e->kind };
	size_t path = strlen(e->path), target = e->target ? strlen(e->target) : 0;
	put_be(fixed + 2, e->mode, 2);
	put_be(fixed + 4, e->nsec, 4);
	put_be(fixed + 8, (uint64_t)e->sec, 8);
	put_be(fixed + 16, e->size, 8);
	put_be(fixed + 24, path, 2);
	add_head(b, type, ENTRY_FIXED + path + target);
	buf_add(b, fixed, sizeof(fixed));
	buf_add(b, e->path, path);
	buf_add(b, e->target ? e->target : "", target);
}

void record_add_number(struct buf *b, enum record_type type, uint64_t v)
{
	uint8_t be[8];
	put_be(be, v, 8);
	add_head(b, type, sizeof(be));
	buf_add(b, be, sizeof(be));
}

void record_add_text(struct buf *b, enum record_type type, unsigned code, const char *path, const char *text)
{
	uint8_t be[4];
	size_t n = strlen(text) < TEXT_MAX ? strlen(text) : TEXT_MAX, p = path ? strlen(path) : 0;
	put_be(be, code, 2);
	put_be(be + 2, p, 2);
	size_t fixed = type == RECORD_SKIPPED ? 4 : type == RECORD_FAIL ? 2 : 0;
	add_head(b, type, fixed + (type == RECORD_SKIPPED ? p : 0) + n);
	buf_add(b, be, fixed);
	if (type == RECORD_SKIPPED)
		buf_add(b, path ? path : "", p);
	buf_add(b, text, n);
}

void record_add_done(struct buf *b, uint64_t entries, uint64_t bytes, uint64_t failed, const char *top)
{
	uint8_t be[24];
	put_be(be, entries, 8);
	put_be(be + 8, bytes, 8);
	put_be(be + 16, failed, 8);
	add_head(b, RECORD_DONE, sizeof(be) + strlen(top));
	buf_add(b, be, sizeof(be));
	buf_adds(b, top);
}

void record_add_xattr(struct buf *b, const char *name, const void *value, size_t n)
{
	uint8_t be[2];
	size_t name_len = strlen(name);
	put_be(be, name_len, 2);
	add_head(b, RECORD_XATTR, sizeof(be) + name_len + n);
	buf_add(b, be, sizeof(be));
	buf_add(b, name, name_len);
	buf_add(b, value, n);
}

bool record_xattr_valid(const char *name, size_t n)
{
	return n > 5 && n <= 255 && memcmp(name, "user.", 5) == 0 && !memchr(name, 0, n);
}

bool record_path_valid(const char *p, size_t n)
{
	if (n > LIMIT_PATH_BYTES_MAX || memchr(p, 0, n))
		return false;
	for (size_t at = 0; at < n;) {
		const char *slash = memchr(p + at, '/', n - at);
		size_t len = slash ? (size_t)(slash - p) - at : n - at;
		if (len == 0 || len > 255 || (len == 1 && p[at] == '.') || (len == 2 && p[at] == '.' && p[at + 1] == '.'))
			return false;
		at += len + (slash != NULL);
		if (slash && at == n)
			return false;
	}
	return true;
}

/* --- reading --- */

static int broken(struct error *err, const char *what, unsigned type)
{
	return error_set(err, ERR_PROTOCOL, "files: %s (record type %u)", what, type);
}

/* Cuts n bytes off the front of the body as a string of its own in `names`. */
static const char *take_name(struct buf *names, const uint8_t *p, size_t n)
{
	size_t at = names->len;
	buf_add(names, p, n);
	buf_addc(names, '\0');
	return names->data + at;
}

static bool target_valid(enum record_kind kind, const uint8_t *p, size_t n)
{
	switch (kind) {
	case RECORD_SYMLINK:
		return n > 0 && n <= LIMIT_PATH_BYTES_MAX && !memchr(p, 0, n);
	case RECORD_HARDLINK:
		return n > 0 && record_path_valid((const char *)p, n);
	case RECORD_FILE:
	case RECORD_DIRECTORY:
		break;
	}
	return n == 0;
}

static int parse_entry(const uint8_t *p, size_t n, struct buf *names, struct record *r, struct error *err)
{
	struct record_entry *e = &r->entry;
	size_t path = n >= ENTRY_FIXED ? (size_t)get_be(p + 24, 2) : 0;
	if (n < ENTRY_FIXED || path > n - ENTRY_FIXED)
		return broken(err, "an entry is cut short", r->type);
	size_t target = n - ENTRY_FIXED - path;
	const uint8_t *text = p + ENTRY_FIXED;
	if (!record_path_valid((const char *)text, path))
		return broken(err, "an entry has a name that is not allowed", r->type);
	if (p[0] < RECORD_FILE || p[0] > RECORD_HARDLINK || (r->type == RECORD_LEAVE && p[0] != RECORD_DIRECTORY))
		return broken(err, "an entry is of an unknown kind", r->type);
	if (!target_valid((enum record_kind)p[0], text + path, target) || (p[0] == RECORD_HARDLINK && path == 0))
		return broken(err, "an entry has a link target that is not allowed", r->type);
	e->kind = (enum record_kind)p[0];
	e->mode = (unsigned)get_be(p + 2, 2) & 07777;
	e->nsec = (uint32_t)get_be(p + 4, 4) % 1000000000u;
	e->sec = (int64_t)get_be(p + 8, 8);
	e->size = get_be(p + 16, 8);
	buf_reserve(names, path + target + 2); /* one piece of memory: what was handed out stays where it is */
	e->path = take_name(names, text, path);
	e->target = take_name(names, text + path, target);
	return 0;
}

static int parse_text(const uint8_t *p, size_t n, struct buf *names, struct record *r, struct error *err)
{
	size_t fixed = r->type == RECORD_SKIPPED ? 4 : r->type == RECORD_FAIL ? 2 : 0;
	size_t path = r->type == RECORD_SKIPPED && n >= 4 ? (size_t)get_be(p + 2, 2) : 0;
	if (n < fixed || path > n - fixed || memchr(p + fixed, 0, n - fixed))
		return broken(err, "a message is malformed", r->type);
	r->code = fixed ? (unsigned)get_be(p, 2) : 0;
	buf_reserve(names, n + 2);
	r->path = take_name(names, p + fixed, path);
	r->text = take_name(names, p + fixed + path, n - fixed - path);
	return 0;
}

static int parse_done(const uint8_t *p, size_t n, struct buf *names, struct record *r, struct error *err)
{
	if (n < 24 || memchr(p + 24, 0, n - 24))
		return broken(err, "the end is malformed", r->type);
	r->entries = get_be(p, 8);
	r->bytes = get_be(p + 8, 8);
	r->failed = get_be(p + 16, 8);
	r->path = take_name(names, p + 24, n - 24);
	return 0;
}

static int parse_number(const uint8_t *p, size_t n, struct record *r, struct error *err)
{
	if (n != 8 || (r->number = get_be(p, 8)) > INT64_MAX)
		return broken(err, "a length is malformed", r->type);
	return 0;
}

static int parse_xattr(const uint8_t *p, size_t n, struct buf *names, struct record *r, struct error *err)
{
	size_t name = n >= 2 ? (size_t)get_be(p, 2) : 0;
	if (n < 2 || name > n - 2 || n - 2 - name > RECORD_XATTR_MAX || !record_xattr_valid((const char *)p + 2, name))
		return broken(err, "an extended attribute is not one that is copied", r->type);
	r->name = take_name(names, p + 2, name);
	r->data = p + 2 + name;
	r->len = n - 2 - name;
	return 0;
}

static int on_record(struct record_reader *rd, const uint8_t *p, size_t n, struct error *err)
{
	auto_buf names = BUF_INIT;
	struct record r = { .type = (enum record_type)rd->head[0], .path = "", .text = "", .name = "", .entry = { .path = "", .target = "" } };
	int ok = 0;
	switch (r.type) {
	case RECORD_ENTRY:
	case RECORD_LEAVE:
		ok = parse_entry(p, n, &names, &r, err);
		break;
	case RECORD_HOLE:
	case RECORD_END:
		ok = parse_number(p, n, &r, err);
		break;
	case RECORD_ABORT:
	case RECORD_SKIPPED:
	case RECORD_FAIL:
		ok = parse_text(p, n, &names, &r, err);
		break;
	case RECORD_DONE:
		ok = parse_done(p, n, &names, &r, err);
		break;
	case RECORD_XATTR:
		ok = parse_xattr(p, n, &names, &r, err);
		break;
	case RECORD_DATA:
		r.data = p;
		r.len = n;
		break;
	}
	rd->ended = r.type == RECORD_DONE || r.type == RECORD_FAIL;
	return ok < 0 ? -1 : rd->handler(rd->ctx, &r, err);
}

static int check_head(struct record_reader *rd, struct error *err)
{
	const uint8_t *h = rd->head;
	rd->left = (size_t)get_be(h + 4, 4);
	if (rd->ended)
		return broken(err, "something follows the last record", h[0]);
	if (h[0] < RECORD_ENTRY || h[0] > RECORD_XATTR || h[1] || h[2] || h[3])
		return broken(err, "unknown record", h[0]);
	if (rd->left > (h[0] == RECORD_DATA ? (size_t)RECORD_DATA_MAX : (size_t)RECORD_OTHER_MAX) || (h[0] == RECORD_DATA && rd->left == 0))
		return broken(err, "a record has a size that is not allowed", h[0]);
	return 0;
}

void record_reader_init(struct record_reader *r, record_handler handler, void *ctx)
{
	*r = (struct record_reader){ .handler = handler, .ctx = ctx };
}

void record_reader_done(struct record_reader *r)
{
	buf_done(&r->body);
}

/* Payload bytes of the record at hand. */
static int feed_payload(struct record_reader *rd, const uint8_t *p, size_t n, struct error *err)
{
	rd->left -= n;
	if (rd->head[0] == RECORD_DATA)
		return on_record(rd, p, n, err);
	if (rd->left == 0 && rd->body.len == 0)
		return on_record(rd, p, n, err);
	buf_add(&rd->body, p, n);
	if (rd->left)
		return 0;
	int r = on_record(rd, (const uint8_t *)buf_str(&rd->body), rd->body.len, err);
	buf_reset(&rd->body);
	return r;
}

int record_feed(struct record_reader *rd, const void *data, size_t n, struct error *err)
{
	const uint8_t *p = data;
	while (n > 0) {
		size_t want = rd->left ? rd->left : RECORD_HEAD_LEN - rd->head_len;
		size_t take = want < n ? want : n;
		if (rd->left) {
			if (feed_payload(rd, p, take, err) < 0)
				return -1;
		} else {
			memcpy(rd->head + rd->head_len, p, take);
			rd->head_len += take;
			if (rd->head_len == RECORD_HEAD_LEN) {
				rd->head_len = 0;
				if (check_head(rd, err) < 0 || (rd->left == 0 && on_record(rd, (const uint8_t *)"", 0, err) < 0))
					return -1;
			}
		}
		p += take;
		n -= take;
	}
	return 0;
}
