/* The configuration table: reading, overriding, printing, reloading. Defaults and checks over several keys are in config_check.c. */
#include "daemon/config_priv.h"

#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <ini.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* inih cuts longer lines without a word, so they are refused here; 200 is what distributions build it with. */
enum { LINE_MAX_BYTES = 198, FILE_MAX_BYTES = 256 * 1024 };

enum type { TYPE_STR, TYPE_INT, TYPE_BOOL, TYPE_DURATION, TYPE_SIZE, TYPE_REAL };

struct row {
	const char *section, *key;
	enum type type;
	size_t offset;
	const char *text; /* STR */
	int64_t value, min, max;
	double real, real_min, real_max;
	bool reload;
	const char *help;
};

#define FIELD(f) offsetof(OF, f)
#define OF struct daemon_config
#define CONFIG_STR(s, k, f, def, r, h) { .section = s, .key = k, .type = TYPE_STR, .offset = FIELD(f), .text = def, .reload = r, .help = h },
#define CONFIG_BOOL(s, k, f, def, r, h) { .section = s, .key = k, .type = TYPE_BOOL, .offset = FIELD(f), .value = def, .reload = r, .help = h },
#define NUMBER(t, s, k, f, def, lo, hi, r, h) \
	{ .section = s, .key = k, .type = t, .offset = FIELD(f), .value = def, .min = lo, .max = hi, .reload = r, .help = h },
#define CONFIG_INT(s, k, f, def, lo, hi, r, h) NUMBER(TYPE_INT, s, k, f, def, lo, hi, r, h)
#define CONFIG_DURATION(s, k, f, def, lo, hi, r, h) NUMBER(TYPE_DURATION, s, k, f, def, lo, hi, r, h)
#define CONFIG_SIZE(s, k, f, def, lo, hi, r, h) NUMBER(TYPE_SIZE, s, k, f, def, lo, hi, r, h)
#define CONFIG_REAL(s, k, f, def, lo, hi, r, h) \
	{ .section = s, .key = k, .type = TYPE_REAL, .offset = FIELD(f), .real = def, .real_min = lo, .real_max = hi, .reload = r, .help = h },
static const struct row rows[] = {
#include "daemon/config.def"
};
#undef OF
#define OF struct pool_config
static const struct row pool_rows[] = {
#include "daemon/pool.def"
};
#undef OF

/* A field of what the row's table is of. */
static char **str_at(const void *c, const struct row *r)
{
	return (char **)(void *)((char *)(uintptr_t)c + r->offset);
}

static int64_t *int_at(const void *c, const struct row *r)
{
	return (int64_t *)(void *)((char *)(uintptr_t)c + r->offset);
}

static bool *bool_at(const void *c, const struct row *r)
{
	return (bool *)(void *)((char *)(uintptr_t)c + r->offset);
}

static double *real_at(const void *c, const struct row *r)
{
	return (double *)(void *)((char *)(uintptr_t)c + r->offset);
}

static void init_fields(void *c, const struct row *table, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct row *r = &table[i];
		switch (r->type) {
		case TYPE_STR:
			*str_at(c, r) = xstrdup(r->text);
			break;
		case TYPE_BOOL:
			*bool_at(c, r) = r->value != 0;
			break;
		case TYPE_REAL:
			*real_at(c, r) = r->real;
			break;
		case TYPE_INT:
		case TYPE_DURATION:
		case TYPE_SIZE:
			*int_at(c, r) = r->value;
			break;
		}
	}
}

static void free_fields(void *c, const struct row *table, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (table[i].type == TYPE_STR) {
			free(*str_at(c, &table[i]));
			*str_at(c, &table[i]) = NULL;
		}
	}
}

void daemon_config_init(struct daemon_config *c)
{
	init_fields(c, rows, ARRAY_LEN(rows));
	c->pools = NULL;
	c->n_pools = 0;
}

void daemon_config_done(struct daemon_config *c)
{
	free_fields(c, rows, ARRAY_LEN(rows));
	config_pools_done(c);
}

void pool_config_init(struct pool_config *p)
{
	init_fields(p, pool_rows, ARRAY_LEN(pool_rows));
}

void pool_config_done(struct pool_config *p)
{
	free_fields(p, pool_rows, ARRAY_LEN(pool_rows));
}

static int parse_real(const char *what, const char *text, double min, double max, double *ret, struct error *err)
{
	size_t whole = strspn(text, "0123456789"), dot = text[whole] == '.', part = strspn(text + whole + dot, "0123456789");
	double v = 0;
	bool number = whole > 0 && (!dot || part > 0) && text[whole + dot + part] == '\0' && whole + part < 18;
	if (number)
		v = strtod(text, NULL);
	if (!number || v < min || v > max)
		return error_set(err, ERR_INVALID, "%s: '%.64s' is not a number from %g to %g", what, text, min, max);
	*ret = v;
	return 0;
}

/* Where a key of a section belongs. */
struct place {
	const char *section;   /* as written */
	const struct row *row;
	void *base;            /* the daemon_config or pool_config that the row is of */
	size_t index;          /* of the key among all that a file can set */
};

static int set_str(struct daemon_config *c, const struct place *at, const char *what, const char *text, struct error *err)
{
	if (!utf8_valid(text, strlen(text)))
		return error_set(err, ERR_INVALID, "%s: the value is not valid UTF-8", what);
	char **field = str_at(at->base, at->row);
	if (at->base == c) {
		daemon_config_set_str(c, field, text);
	} else {
		free(*field);
		*field = xstrdup(text);
	}
	return 0;
}

static int set_value(struct daemon_config *c, const struct place *at, const char *text, struct error *err)
{
	char what[96];
	const struct row *r = at->row;
	void *base = at->base;
	snprintf(what, sizeof(what), "%s.%s", at->section, r->key);
	switch (r->type) {
	case TYPE_STR:
		return set_str(c, at, what, text, err);
	case TYPE_INT:
		return parse_i64(what, text, r->min, r->max, int_at(base, r), err);
	case TYPE_BOOL:
		return parse_bool(what, text, bool_at(base, r), err);
	case TYPE_DURATION:
		return parse_duration_ms(what, text, r->min, r->max, int_at(base, r), err);
	case TYPE_SIZE:
		return parse_size(what, text, r->min, r->max, int_at(base, r), err);
	case TYPE_REAL:
		return parse_real(what, text, r->real_min, r->real_max, real_at(base, r), err);
	}
	return -1;
}

static bool section_known(const char *section)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (strcmp(rows[i].section, section) == 0)
			return true;
	return config_pool_is_section(section);
}

static int section_unknown(const char *section, struct error *err)
{
	auto_buf known = BUF_INIT;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (i == 0 || strcmp(rows[i].section, rows[i - 1].section) != 0)
			buf_addf(&known, "%s%s", i ? ", " : "", rows[i].section);
	return error_set(err, ERR_INVALID, "unknown section [%.64s] (there are: %s, pool NAME)", section, buf_str(&known));
}

static int find_pool_key(struct daemon_config *c, const char *section, const char *key, struct place *ret, struct error *err)
{
	for (size_t i = 0; i < ARRAY_LEN(pool_rows); i++) {
		if (strcmp(pool_rows[i].key, key) != 0)
			continue;
		struct pool_config *p = config_pool_section(c, section, err);
		if (!p)
			return -1;
		*ret = (struct place){ section, &pool_rows[i], p, ARRAY_LEN(rows) + (size_t)(p - c->pools) * ARRAY_LEN(pool_rows) + i };
		return 0;
	}
	return error_set(err, ERR_INVALID, "unknown key '%.64s' in section [%.64s]", key, section);
}

static int find_key(struct daemon_config *c, const char *section, const char *key, struct place *ret, struct error *err)
{
	if (config_pool_is_section(section))
		return find_pool_key(c, section, key, ret, err);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (strcmp(rows[i].section, section) == 0 && strcmp(rows[i].key, key) == 0) {
			*ret = (struct place){ section, &rows[i], c, i };
			return 0;
		}
	}
	if (!section_known(section))
		return section_unknown(section, err);
	return error_set(err, ERR_INVALID, "unknown key '%.64s' in section [%s]", key, section);
}

/* One file being read: inih gives handlers no line numbers, so the line source counts them. */
struct reading {
	struct daemon_config *config;
	const char *p, *end;
	int line;
	int failed_line; /* 0: none */
	int seen[ARRAY_LEN(rows) + LIMIT_POOLS_MAX * ARRAY_LEN(pool_rows)]; /* line that set the key */
	struct error err;
};

static void fail_here(struct reading *f)
{
	if (!f->failed_line)
		f->failed_line = f->line;
}

/* "[section]": inih reports sections only through their keys, so an empty unknown one is noticed here. */
static void check_section(struct reading *f, const char *line)
{
	size_t n = *line == '[' ? strcspn(line, "]") : 0;
	if (n == 0 || line[n] != ']' || f->failed_line)
		return;
	auto_free char *section = xstrndup(line + 1, n - 1);
	bool known = section_known(section);
	if (!known)
		section_unknown(section, &f->err);
	/* A pool may have nothing but defaults. */
	if (!known || (config_pool_is_section(section) && !config_pool_section(f->config, section, &f->err)))
		fail_here(f);
}

/* An fgets over the content in memory. Indentation is dropped: inih would take an indented line for more of the value above. */
static char *next_line(char *out, int size, void *stream)
{
	struct reading *f = stream;
	if (f->p >= f->end || f->failed_line)
		return NULL;
	const char *newline = memchr(f->p, '\n', (size_t)(f->end - f->p));
	size_t n = (size_t)((newline ? newline + 1 : f->end) - f->p);
	f->line++;
	if (n > LINE_MAX_BYTES || n >= (size_t)size) {
		error_set(&f->err, ERR_INVALID, "the line is longer than %d bytes", LINE_MAX_BYTES);
		fail_here(f);
		return NULL;
	}
	size_t indent = strspn(f->p, " \t");
	memcpy(out, f->p + indent, n - indent);
	out[n - indent] = '\0';
	f->p += n;
	check_section(f, out);
	return out;
}

static int handle_key(void *user, const char *section, const char *key, const char *value)
{
	struct reading *f = user;
	if (f->failed_line)
		return 0;
	struct place at = { .row = NULL };
	int rc = -1;
	if (!*section)
		error_set(&f->err, ERR_INVALID, "the key '%.64s' stands before any [section]", key);
	else
		rc = find_key(f->config, section, key, &at, &f->err);
	int *seen = rc == 0 ? &f->seen[at.index] : NULL;
	if (seen && *seen) {
		error_set(&f->err, ERR_INVALID, "%s.%s was already set in line %d", section, key, *seen);
	} else if (seen && set_value(f->config, &at, value, &f->err) == 0) {
		*seen = f->line;
		return 1;
	}
	fail_here(f);
	return 0;
}

int daemon_config_load(struct daemon_config *c, const char *path, struct error *err)
{
	auto_buf content = BUF_INIT;
	if (io_read_file(path, FILE_MAX_BYTES, &content, err) != 0)
		return -1;
	if (content.len && memchr(content.data, '\0', content.len))
		return error_set(err, ERR_INVALID, "%s: not a text file", path);
	struct reading f = { .config = c, .p = buf_str(&content) };
	f.end = f.p + content.len;
	int bad = ini_parse_stream(next_line, &f, handle_key, &f);
	if (bad < 0)
		return error_set(err, ERR_INTERNAL, "%s: the parser gave up (%d)", path, bad);
	if (bad > 0 && (!f.failed_line || bad < f.failed_line))
		return error_set(err, ERR_INVALID, "%s:%d: neither a [section] nor key = value", path, bad);
	if (f.failed_line)
		return error_set(err, f.err.code, "%s:%d: %s", path, f.failed_line, f.err.message);
	return 0;
}

int daemon_config_set(struct daemon_config *c, const char *assignment, struct error *err)
{
	const char *equals = strchr(assignment, '='), *dot = strchr(assignment, '.');
	if (!equals || !dot || dot > equals)
		return error_set(err, ERR_INVALID, "'%.100s' is not section.key=value", assignment);
	auto_free char *section = xstrndup(assignment, (size_t)(dot - assignment));
	auto_free char *key = xstrndup(dot + 1, (size_t)(equals - dot - 1));
	struct place at;
	return find_key(c, section, key, &at, err) == 0 ? set_value(c, &at, equals + 1, err) : -1;
}

static bool same_value(const void *a, const void *b, const struct row *r)
{
	switch (r->type) {
	case TYPE_STR:
		return strcmp(*str_at(a, r), *str_at(b, r)) == 0;
	case TYPE_BOOL:
		return *bool_at(a, r) == *bool_at(b, r);
	case TYPE_REAL:
		return !(*real_at(a, r) < *real_at(b, r)) && !(*real_at(a, r) > *real_at(b, r));
	case TYPE_INT:
	case TYPE_DURATION:
	case TYPE_SIZE:
		break;
	}
	return *int_at(a, r) == *int_at(b, r);
}

bool pool_config_same(const struct pool_config *a, const struct pool_config *b)
{
	bool same = strcmp(a->name, b->name) == 0;
	for (size_t i = 0; same && i < ARRAY_LEN(pool_rows); i++)
		same = same_value(a, b, &pool_rows[i]);
	return same;
}

/* Other threads may still hold a replaced string: it is kept, not freed. Reloads are rare and their number of changes small. */
static void replace_str(char **to, const char *text)
{
	static struct strv retired;
	char *old = *to;
	__atomic_store_n(to, xstrdup(text), __ATOMIC_RELEASE);
	strv_take(&retired, old);
}

static void copy_value(struct daemon_config *to, const struct daemon_config *from, const struct row *r)
{
	switch (r->type) {
	case TYPE_STR:
		replace_str(str_at(to, r), *str_at(from, r));
		return;
	case TYPE_BOOL:
		*bool_at(to, r) = *bool_at(from, r);
		return;
	case TYPE_REAL:
		*real_at(to, r) = *real_at(from, r);
		return;
	case TYPE_INT:
	case TYPE_DURATION:
	case TYPE_SIZE:
		*int_at(to, r) = *int_at(from, r);
		return;
	}
}

void daemon_config_reload(struct daemon_config *c, const struct daemon_config *fresh)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct row *r = &rows[i];
		if (same_value(c, fresh, r))
			continue;
		if (r->reload) {
			copy_value(c, fresh, r);
			log_info("config", "reloaded %s.%s", r->section, r->key);
		} else {
			log_warn("config", "%s.%s changed: it takes effect at the next start", r->section, r->key);
		}
	}
	config_pools_reload(c, fresh);
}

static void print_value(const void *c, const struct row *r, struct buf *out)
{
	char text[32];
	switch (r->type) {
	case TYPE_STR:
		buf_adds(out, *str_at(c, r));
		return;
	case TYPE_INT:
		buf_addf(out, "%" PRId64, *int_at(c, r));
		return;
	case TYPE_BOOL:
		buf_adds(out, *bool_at(c, r) ? "true" : "false");
		return;
	case TYPE_DURATION:
		buf_adds(out, duration_format(*int_at(c, r), text));
		return;
	case TYPE_SIZE:
		buf_adds(out, size_format(*int_at(c, r), text));
		return;
	case TYPE_REAL:
		buf_addf(out, "%g", *real_at(c, r));
		return;
	}
}

static void print_row(const void *c, const char *section, const char *name, const struct row *r, struct buf *out)
{
	buf_addf(out, "%s%s.%s = ", section, name, r->key);
	print_value(c, r, out);
	buf_addf(out, "  # %s\n", r->help);
}

void daemon_config_print(const struct daemon_config *c, struct buf *out)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		print_row(c, rows[i].section, "", &rows[i], out);
	for (size_t p = 0; p < c->n_pools; p++)
		for (size_t i = 0; i < ARRAY_LEN(pool_rows); i++)
			print_row(&c->pools[p], "pool ", c->pools[p].name, &pool_rows[i], out);
}
