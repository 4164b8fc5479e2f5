/* Ini files kept line by line: see ini_doc.h. */
#include "shared/config/ini_doc.h"

#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>

struct line {
	char *raw;     /* as read; NULL: printed from the rest */
	char *section; /* of a head; NULL otherwise */
	char *key, *value;
};

struct ini_doc {
	struct line *lines;
	size_t len, cap;
};

struct ini_doc *ini_doc_new(void)
{
	return xcalloc(1, sizeof(struct ini_doc));
}

static void line_done(struct line *l)
{
	free(l->raw);
	free(l->section);
	free(l->key);
	free(l->value);
}

void ini_doc_free(struct ini_doc *d)
{
	for (size_t i = 0; d && i < d->len; i++)
		line_done(&d->lines[i]);
	if (d)
		free(d->lines);
	free(d);
}

void ini_doc_freep(struct ini_doc **d)
{
	ini_doc_free(*d);
}

/* Room for a zeroed line at position at. */
static struct line *insert(struct ini_doc *d, size_t at)
{
	if (d->len == d->cap) {
		d->cap = d->cap ? d->cap * 2 : 16;
		d->lines = xrealloc(d->lines, d->cap, sizeof(*d->lines));
	}
	memmove(&d->lines[at + 1], &d->lines[at], (d->len - at) * sizeof(*d->lines));
	d->lines[at] = (struct line){ .raw = NULL };
	d->len++;
	return &d->lines[at];
}

static void drop(struct ini_doc *d, size_t at)
{
	line_done(&d->lines[at]);
	d->len--;
	memmove(&d->lines[at], &d->lines[at + 1], (d->len - at) * sizeof(*d->lines));
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static char *trimmed(const char *p, size_t n)
{
	while (n && blank(p[0]))
		p++, n--;
	while (n && blank(p[n - 1]))
		n--;
	return xstrndup(p, n);
}

static int parse_line(const char *p, size_t n, struct line *l, struct error *err)
{
	auto_free char *text = trimmed(p, n);
	size_t len = strlen(text);
	l->raw = xstrndup(p, n);
	if (!len || text[0] == '#' || text[0] == ';')
		return 0;
	if (text[0] == '[') {
		if (text[len - 1] != ']' || len < 3 || len > INI_NAME_MAX)
			return error_set(err, ERR_INVALID, "a section is [name]");
		l->section = trimmed(text + 1, len - 2);
		return 0;
	}
	const char *eq = strchr(text, '=');
	if (!eq || eq == text)
		return error_set(err, ERR_INVALID, "'%.60s' is neither [section] nor key = value", text);
	if ((size_t)(eq - text) > INI_NAME_MAX || strlen(eq) > INI_VALUE_MAX)
		return error_set(err, ERR_TOO_LARGE, "the line is over %d bytes", INI_VALUE_MAX);
	l->key = trimmed(text, (size_t)(eq - text));
	l->value = trimmed(eq + 1, strlen(eq + 1));
	return 0;
}

int ini_doc_parse(const char *name, const char *text, size_t n, struct ini_doc **ret, struct error *err)
{
	auto_ini *d = ini_doc_new();
	bool in_section = false;
	unsigned number = 0;
	if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		text += 3, n -= 3;
	if (memchr(text ? text : "", '\0', n) || !utf8_valid(text, n))
		return error_set(err, ERR_INVALID, "%s holds bytes that are no text", name);
	while (n > 0) {
		const char *nl = memchr(text, '\n', n);
		size_t len = nl ? (size_t)(nl - text) : n;
		struct line *l = insert(d, d->len);
		number++;
		if (parse_line(text, len, l, err) != 0)
			return error_wrap(err, "%s:%u", name, number);
		in_section = in_section || l->section;
		if (l->key && !in_section)
			return error_set(err, ERR_INVALID, "%s:%u: '%.60s' stands before any [section]", name, number, l->key);
		len += nl != NULL;
		text += len;
		n -= len;
	}
	*ret = steal(&d);
	return 0;
}

void ini_doc_print(const struct ini_doc *d, struct buf *out)
{
	for (size_t i = 0; i < d->len; i++) {
		const struct line *l = &d->lines[i];
		if (l->raw)
			buf_addf(out, "%s\n", l->raw);
		else if (l->section)
			buf_addf(out, "[%s]\n", l->section);
		else if (l->key)
			buf_addf(out, "%s = %s\n", l->key, l->value);
		else
			buf_addc(out, '\n');
	}
}

/* --- looking ---------------------------------------------------------------------------------------------------- */

bool ini_doc_next(const struct ini_doc *d, size_t *at, struct ini_item *ret)
{
	for (; *at < d->len; (*at)++) {
		const struct line *l = &d->lines[*at];
		if (!l->section && !l->key)
			continue;
		const char *section = l->section;
		for (size_t i = *at; !section && i > 0; i--)
			section = d->lines[i - 1].section;
		*ret = (struct ini_item){ .section = section, .key = l->key, .value = l->value, .line = (unsigned)*at + 1 };
		(*at)++;
		return true;
	}
	return false;
}

/* The last line of the key; d->len when there is none. */
static size_t find(const struct ini_doc *d, const char *section, const char *key)
{
	size_t found = d->len;
	const char *in = NULL;
	for (size_t i = 0; i < d->len; i++) {
		const struct line *l = &d->lines[i];
		if (l->section)
			in = l->section;
		else if (l->key && in && strcmp(in, section) == 0 && strcmp(l->key, key) == 0)
			found = i;
	}
	return found;
}

const char *ini_doc_get(const struct ini_doc *d, const char *section, const char *key)
{
	size_t i = find(d, section, key);
	return i < d->len ? d->lines[i].value : NULL;
}

static size_t section_at(const struct ini_doc *d, const char *section)
{
	for (size_t i = 0; i < d->len; i++)
		if (d->lines[i].section && strcmp(d->lines[i].section, section) == 0)
			return i;
	return d->len;
}

bool ini_doc_has_section(const struct ini_doc *d, const char *section)
{
	return section_at(d, section) < d->len;
}

/* --- changing --------------------------------------------------------------------------------------------------- */

static bool control(const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		if (*p < ' ' || *p == 127)
			return true;
	return false;
}

/* A key that reads back as it was written. */
static bool key_fits(const char *key)
{
	size_t n = strlen(key);
	return n > 0 && n <= INI_NAME_MAX && !control(key) && !strpbrk(key, "=") && !strchr("[#;", key[0]) && !blank(key[0]) && !blank(key[n - 1]);
}

static bool value_fits(const char *value)
{
	size_t n = strlen(value);
	return n < INI_VALUE_MAX && !control(value) && utf8_valid(value, n) && (!n || (!blank(value[0]) && !blank(value[n - 1])));
}

int ini_doc_add_section(struct ini_doc *d, const char *section, struct error *err)
{
	size_t n = strlen(section);
	if (!n || n > INI_NAME_MAX || control(section) || strchr(section, ']') || blank(section[0]) || blank(section[n - 1]))
		return error_set(err, ERR_INVALID, "'%.60s' cannot be the name of a section", section);
	if (ini_doc_has_section(d, section))
		return 0;
	if (d->len)
		insert(d, d->len);
	insert(d, d->len)->section = xstrdup(section);
	return 0;
}

/* Behind the last line of the section that says something. */
static size_t end_of_section(const struct ini_doc *d, const char *section)
{
	size_t at = section_at(d, section), end = at + 1;
	for (size_t i = at + 1; i < d->len && !d->lines[i].section; i++)
		if (d->lines[i].key)
			end = i + 1;
	return end;
}

int ini_doc_set(struct ini_doc *d, const char *section, const char *key, const char *value, struct error *err)
{
	if (!key_fits(key))
		return error_set(err, ERR_INVALID, "'%.60s' cannot be a key", key);
	if (!value_fits(value))
		return error_set(err, ERR_INVALID, "the value of %s has blanks around it, control characters, or is too long", key);
	if (ini_doc_add_section(d, section, err) != 0)
		return -1;
	size_t i = find(d, section, key);
	if (i == d->len) {
		struct line *l = insert(d, end_of_section(d, section));
		l->key = xstrdup(key);
		l->value = xstrdup(value);
		return 0;
	}
	free(d->lines[i].value);
	free(d->lines[i].raw);
	d->lines[i].raw = NULL;
	d->lines[i].value = xstrdup(value);
	return 0;
}

bool ini_doc_unset(struct ini_doc *d, const char *section, const char *key)
{
	bool any = false;
	for (size_t i; (i = find(d, section, key)) < d->len; any = true)
		drop(d, i);
	return any;
}

bool ini_doc_remove_section(struct ini_doc *d, const char *section)
{
	bool any = false;
	for (size_t at; (at = section_at(d, section)) < d->len; any = true) {
		drop(d, at);
		while (at < d->len && !d->lines[at].section)
			drop(d, at);
	}
	return any;
}

bool ini_doc_rename_section(struct ini_doc *d, const char *from, const char *to)
{
	bool any = false;
	for (size_t at; (at = section_at(d, from)) < d->len; any = true) {
		struct line *l = &d->lines[at];
		free(l->section);
		free(l->raw);
		l->raw = NULL;
		l->section = xstrdup(to);
	}
	return any;
}
