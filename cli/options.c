/* The command-line parser: see options.h. It only reads tables; it prints nothing and exits nowhere. */
#include "cli/options.h"

#include "cli/command.h"
#include "cli/habits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>

struct parser {
	int argc;
	char **argv;
	int at;
	const struct option_row *globals;
	void *global_struct;
	const struct parse_hooks *hooks;
	struct parse_result *r;
	size_t n_words;      /* positionals seen for the verb */
	bool ended;          /* -- was seen */
	bool refused;        /* by the hook; refusal says why */
	struct error refusal;
	struct error *err;
};

/* --- names ------------------------------------------------------------------------------------------------------ */

enum { NAME_LONGEST = 40 };

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;
	return m < c ? m : c;
}

unsigned edit_distance(const char *a, const char *b, unsigned cap)
{
	size_t la = strlen(a), lb = strlen(b);
	if (la > NAME_LONGEST || lb > NAME_LONGEST)
		return cap;
	unsigned d[3][NAME_LONGEST + 1]; /* rows i-2, i-1 and i, in turn */
	for (size_t j = 0; j <= lb; j++)
		d[0][j] = (unsigned)j;
	for (size_t i = 1; i <= la; i++) {
		unsigned *cur = d[i % 3], *prev = d[(i - 1) % 3], *before = d[(i + 1) % 3];
		cur[0] = (unsigned)i;
		for (size_t j = 1; j <= lb; j++) {
			cur[j] = min3(prev[j] + 1, cur[j - 1] + 1, prev[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < cur[j])
				cur[j] = before[j - 2] + 1;
		}
	}
	return d[la % 3][lb] < cap ? d[la % 3][lb] : cap;
}

struct nearest {
	const char *wanted;
	const char *best;
	unsigned distance;
};

static void nearest_try(struct nearest *n, const char *name)
{
	unsigned limit = strlen(n->wanted) <= 3 ? 2 : 3;
	unsigned d = edit_distance(n->wanted, name, limit);
	size_t given = strlen(n->wanted);
	if (d >= limit && given >= 3 && strncmp(name, n->wanted, given) == 0)
		d = limit - 1;
	if (d < limit && (!n->best || d < n->distance)) {
		n->best = name;
		n->distance = d;
	}
}

static void nearest_option(struct nearest *n, const struct option_row *rows)
{
	for (; rows && rows->name; rows++)
		if (rows->name[0] && !(rows->flags & OPT_HIDDEN))
			nearest_try(n, rows->name);
}

static const char *full_name(const struct parse_result *r, char out[static 64])
{
	if (r->parent)
		snprintf(out, 64, "%s %s", r->parent->name, r->verb->name);
	else
		snprintf(out, 64, "%s", r->verb ? r->verb->name : "");
	return out;
}

static int unknown_option(struct parser *p, const char *dashes, const char *name)
{
	struct nearest n = { .wanted = name };
	if (p->r->verb)
		nearest_option(&n, p->r->verb->options);
	nearest_option(&n, p->globals);
	char shown[80];
	text_escape(name, strlen(name), shown, sizeof(shown));
	auto_free char *given = xasprintf("%s%s", dashes, name);
	const char *habit = habit_of_option(p->r->verb ? p->r->verb->name : "", given);
	if (habit)
		return error_set(p->err, ERR_INVALID, "unknown option '%s%s': %s", dashes, shown, habit);
	if (n.best && dashes[1])
		return error_set(p->err, ERR_INVALID, "unknown option '%s%s'; did you mean --%s?", dashes, shown, n.best);
	return error_set(p->err, ERR_INVALID, "unknown option '%s%s'", dashes, shown);
}

static void nearest_verb(struct nearest *n, const struct verb *const *table)
{
	for (; *table; table++) {
		if ((*table)->flags & VERB_HIDDEN)
			continue;
		nearest_try(n, (*table)->name);
		if ((*table)->alias)
			nearest_try(n, (*table)->alias);
	}
}

static void name_verbs(const struct verb *const *table, struct buf *out)
{
	for (; *table; table++)
		if (!((*table)->flags & VERB_HIDDEN))
			buf_addf(out, "%s%s", out->len ? ", " : "", (*table)->name);
}

static int unknown_verb(struct parser *p, const struct verb *const *table, const char *word)
{
	struct nearest n = { .wanted = word };
	nearest_verb(&n, table);
	char shown[80], name[64];
	text_escape(word, strlen(word), shown, sizeof(shown));
	const char *space = p->r->verb ? " " : "";
	full_name(p->r, name);
	const char *habit = habit_of_verb(p->r->verb ? p->r->verb->name : "", word);
	if (habit)
		return error_set(p->err, ERR_INVALID, "'%s%s%s' is not a command: %s", name, space, shown, habit);
	if (p->r->verb && !n.best && verb_find(table, "inspect"))
		return error_set(p->err, ERR_INVALID, "'%s%s%s' is not a command; did you mean '%s inspect %s'?", name, space, shown, name, shown);
	if (n.best)
		return error_set(p->err, ERR_INVALID, "'%s%s%s' is not a command; did you mean '%s%s%s'?", name, space, shown, name, space, n.best);
	auto_buf all = BUF_INIT;
	if (p->r->verb)
		name_verbs(table, &all);
	return error_set(p->err, ERR_INVALID, "'%s%s%s' is not a command%s%s", name, space, shown, all.len ? "; there are " : "", buf_str(&all));
}

/* --- values ----------------------------------------------------------------------------------------------------- */

static int store_word(const struct option_row *o, const char *what, const char *text, const char **field, struct error *err)
{
	size_t n = strlen(text);
	for (const char *w = o->words; w; w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL) {
		if (strcspn(w, "|") == n && n > 0 && strncmp(w, text, n) == 0) {
			*field = text;
			return 0;
		}
	}
	char shown[80];
	text_escape(text, n, shown, sizeof(shown));
	return error_set(err, ERR_INVALID, "%s: '%s' is not one of %s", what, shown, o->words);
}

/* argv is ours to write; what stands there is what ps shows. */
static void wipe_value(const char *text)
{
	char *value = strchr(text, '=');
	if (value)
		explicit_bzero(value + 1, strlen(value + 1));
}

static int store(const struct option_row *o, void *base, const char *what, const char *text, struct error *err)
{
	void *field = (char *)base + o->offset;
	switch (o->kind) {
	case OPT_KIND_FLAG:
		*(bool *)field = true;
		return 0;
	case OPT_KIND_TEXT:
	case OPT_KIND_OPTIONAL:
		*(const char **)field = text;
		return 0;
	case OPT_KIND_INT:
		return parse_i64(what, text, o->min, o->max, field, err);
	case OPT_KIND_DURATION:
		return parse_duration_ms(what, text, o->min, o->max, field, err);
	case OPT_KIND_SIZE:
		return parse_size(what, text, o->min, o->max, field, err);
	case OPT_KIND_WORD:
		return store_word(o, what, text, field, err);
	case OPT_KIND_LIST:
		strv_add(field, text);
		if (o->flags & OPT_SECRET)
			wipe_value(text);
		return 0;
	case OPT_KIND_CALL:
		return o->parse(what, text, field, err);
	}
	return -1;
}

/* --- options ---------------------------------------------------------------------------------------------------- */

struct found {
	const struct option_row *row;
	void *base;
	bool negated;
};

static const struct option_row *find_long(const struct option_row *rows, const char *name, size_t n, bool *negated)
{
	for (; rows && rows->name; rows++) {
		if (strlen(rows->name) == n && n > 0 && memcmp(rows->name, name, n) == 0)
			return *negated = false, rows;
		if ((rows->flags & OPT_NEGATABLE) && n > 3 && memcmp(name, "no-", 3) == 0 && strlen(rows->name) == n - 3 &&
		    memcmp(rows->name, name + 3, n - 3) == 0)
			return *negated = true, rows;
	}
	return NULL;
}

static const struct option_row *find_short(const struct option_row *rows, char letter)
{
	for (; rows && rows->name; rows++)
		if (rows->letter == letter)
			return rows;
	return NULL;
}

/* The verb's own options win over global ones of the same name. */
static bool lookup(struct parser *p, const char *name, size_t n, char letter, struct found *ret)
{
	const struct verb *v = p->r->verb;
	ret->negated = false;
	ret->row = v ? (letter ? find_short(v->options, letter) : find_long(v->options, name, n, &ret->negated)) : NULL;
	ret->base = p->r->options;
	if (ret->row)
		return true;
	ret->row = letter ? find_short(p->globals, letter) : find_long(p->globals, name, n, &ret->negated);
	ret->base = p->global_struct;
	return ret->row != NULL;
}

static int missing_value(struct parser *p, const struct option_row *o)
{
	return error_set(p->err, ERR_INVALID, "option '--%s' needs a value: %s", o->name, o->arg ? o->arg : "VALUE");
}

static int take_option(struct parser *p, const struct found *f, const char *value)
{
	char what[64];
	snprintf(what, sizeof(what), "--%s", f->row->name);
	return store(f->row, f->base, what, value, p->err);
}

static int parse_long(struct parser *p, const char *word)
{
	const char *name = word + 2, *eq = strchr(name, '=');
	size_t n = eq ? (size_t)(eq - name) : strlen(name);
	struct found f;
	if (!lookup(p, name, n, 0, &f)) {
		if (!eq && strcmp(name, "help") == 0)
			return p->r->help = true, 0;
		if (!eq && strcmp(name, "version") == 0)
			return p->r->version = true, 0;
		auto_free char *bare = xstrndup(name, n);
		return unknown_option(p, "--", bare);
	}
	const struct option_row *o = f.row;
	if (o->kind == OPT_KIND_FLAG) {
		if (eq)
			return error_set(p->err, ERR_INVALID, "option '--%.*s' takes no value", (int)n, name);
		*(bool *)((char *)f.base + o->offset) = !f.negated;
		return 0;
	}
	if (eq)
		return take_option(p, &f, eq + 1);
	if (o->kind == OPT_KIND_OPTIONAL)
		return take_option(p, &f, "");
	if (p->at >= p->argc)
		return missing_value(p, o);
	return take_option(p, &f, p->argv[p->at++]);
}

static int parse_short(struct parser *p, const char *word)
{
	for (const char *c = word + 1; *c; c++) {
		struct found f;
		char one[2] = { *c, '\0' };
		if (!lookup(p, NULL, 0, *c, &f)) {
			if (*c == 'h')
				return p->r->help = true, 0;
			if (*c == 'V')
				return p->r->version = true, 0;
			return unknown_option(p, "-", one);
		}
		if (f.row->kind == OPT_KIND_FLAG) {
			*(bool *)((char *)f.base + f.row->offset) = true;
			continue;
		}
		if (f.row->kind == OPT_KIND_OPTIONAL) {
			if (take_option(p, &f, "") != 0)
				return -1;
			continue;
		}
		if (c[1])
			return take_option(p, &f, c + 1);
		if (p->at >= p->argc)
			return missing_value(p, f.row);
		return take_option(p, &f, p->argv[p->at++]);
	}
	return 0;
}

int option_preset(const struct verb *v, void *options, const char *name, const char *value, struct error *err)
{
	bool negated;
	const struct option_row *o = find_long(v->options, name, strlen(name), &negated);
	if (!o || negated)
		return error_set(err, ERR_INVALID, "'%s' has no option '%s'", v->name, name);
	if (o->kind == OPT_KIND_FLAG)
		return parse_bool(name, value, (bool *)((char *)options + o->offset), err);
	return store(o, options, name, value, err);
}

/* --- words ------------------------------------------------------------------------------------------------------ */

static void choose_verb(struct parser *p, const struct verb *v)
{
	struct parse_result *r = p->r;
	if (r->verb)
		r->parent = r->verb;
	r->verb = v;
	if (v->size) {
		r->options = xcalloc(1, v->size);
		if (v->defaults)
			memcpy(r->options, v->defaults, v->size);
	}
	/* A refusal waits for the end of the line: --help is answered whatever the hook says. */
	if (p->hooks->chosen && p->hooks->chosen(p->hooks->ctx, v, r->options, &p->refusal) != 0)
		p->refused = true;
}

static bool is_command(enum pos_kind k)
{
	return k == POS_COMMAND || k == POS_COMMAND_OPTIONAL || k == POS_COMMAND_DASHED;
}

/* The row that takes the next word; NULL: none is left. */
static const struct positional *next_row(const struct parser *p)
{
	const struct positional *rows = p->r->verb->positionals;
	for (size_t i = 0; rows && rows[i].name; i++)
		if (i == p->n_words || rows[i].kind == POS_MANY || rows[i].kind == POS_ANY || is_command(rows[i].kind))
			return &rows[i];
	return NULL;
}

static const struct positional *command_row(const struct verb *v)
{
	for (const struct positional *row = v ? v->positionals : NULL; row && row->name; row++)
		if (is_command(row->kind))
			return row;
	return NULL;
}

/* Everything from argv[at] on is the command. */
static void take_command(struct parser *p, const struct positional *row)
{
	struct words *w = (struct words *)(void *)((char *)p->r->options + row->offset);
	*w = (struct words){ .items = p->argv + p->at, .len = (size_t)(p->argc - p->at) };
	p->at = p->argc;
}

static int stray_word(struct parser *p, const struct positional *row, const char *word)
{
	char shown[80], name[64];
	text_escape(word, strlen(word), shown, sizeof(shown));
	const char *habit = p->r->parent ? NULL : habit_of_word(p->r->verb->name);
	if (row)
		return error_set(p->err, ERR_INVALID, "unexpected argument '%s': a command goes after --%s%s", shown, habit ? ", " : "",
				 habit ? habit : "");
	return error_set(p->err, ERR_INVALID, "unexpected argument '%s': '%s' takes %s%s%s", shown, full_name(p->r, name),
			 p->n_words ? "no more of them" : "none", habit ? "; " : "", habit ? habit : "");
}

static int take_word(struct parser *p, char *word)
{
	const struct positional *row = next_row(p);
	if (!row || row->kind == POS_COMMAND_DASHED)
		return stray_word(p, row, word);
	if (is_command(row->kind)) {
		p->at--;
		take_command(p, row);
		return 0;
	}
	if (!word[0] && row->what != WHAT_TEXT)
		return error_set(p->err, ERR_INVALID, "%s is empty", row->name);
	void *field = (char *)p->r->options + row->offset;
	if (row->kind == POS_MANY || row->kind == POS_ANY)
		strv_add(field, word);
	else
		*(const char **)field = word;
	p->n_words++;
	return 0;
}

static int handle_word(struct parser *p, char *word)
{
	struct parse_result *r = p->r;
	const struct verb *const *table = !r->verb ? verbs : r->verb->subverbs;
	if (!table)
		return take_word(p, word);
	const struct verb *v = verb_find(table, word);
	if (!v)
		return unknown_verb(p, table, word);
	choose_verb(p, v);
	return 0;
}

/* A required sandbox that was left out, taken from the hook. */
static bool fill_sandbox(struct parser *p)
{
	const struct positional *row = p->r->verb->positionals;
	if (!row || row->kind != POS_ONE || row->what != WHAT_SANDBOX || p->n_words > 0 || !p->hooks->sandbox)
		return false;
	const char *text = p->hooks->sandbox(p->hooks->ctx);
	if (!text)
		return false;
	*(const char **)(void *)((char *)p->r->options + row->offset) = text;
	p->n_words = 1;
	return true;
}

static int missing_words(struct parser *p)
{
	const struct verb *v = p->r->verb;
	for (size_t i = 0; v->positionals && v->positionals[i].name; i++) {
		const struct positional *row = &v->positionals[i];
		char name[64];
		const struct words *w = (const struct words *)(const void *)((char *)p->r->options + row->offset);
		bool command = row->kind == POS_COMMAND && w->len == 0;
		bool word = (row->kind == POS_ONE || row->kind == POS_MANY) && p->n_words <= i;
		if (!command && !word)
			continue;
		const char *habit = p->r->parent ? NULL : habit_of_missing(v->name, row->name);
		return error_set(p->err, ERR_INVALID, "'%s' needs %s: %s%s%s", full_name(p->r, name), row->name, row->help, habit ? "; " : "",
				 habit ? habit : "");
	}
	return 0;
}

/* `--`: what follows is the command of a verb that has one, plain words otherwise. */
static int handle_dashes(struct parser *p)
{
	const struct positional *row = command_row(p->r->verb);
	p->ended = true;
	if (!row)
		return 0;
	size_t i = (size_t)(row - p->r->verb->positionals);
	if (p->n_words < i && p->r->verb->positionals[p->n_words].kind == POS_ONE && !fill_sandbox(p))
		return missing_words(p);
	take_command(p, row);
	return 0;
}

static int step(struct parser *p)
{
	char *word = p->argv[p->at++];
	if (p->ended || word[0] != '-' || word[1] == '\0')
		return handle_word(p, word);
	if (word[1] != '-')
		return parse_short(p, word);
	return word[2] ? parse_long(p, word) : handle_dashes(p);
}

int parse_command_line(int argc, char **argv, const struct option_row *globals, void *global_struct, struct parse_result *ret,
		       struct error *err)
{
	static const struct parse_hooks none = { .chosen = NULL };
	return parse_with_hooks(argc, argv, globals, global_struct, &none, ret, err);
}

int parse_with_hooks(int argc, char **argv, const struct option_row *globals, void *global_struct, const struct parse_hooks *hooks,
		     struct parse_result *ret, struct error *err)
{
	*ret = (struct parse_result){ .verb = NULL };
	struct parser p = { .argc = argc, .argv = argv, .at = 1, .globals = globals, .global_struct = global_struct, .hooks = hooks, .r = ret, .err = err };
	while (p.at < p.argc) {
		if (step(&p) != 0)
			return -1;
		if (ret->help || ret->version)
			return 0;
	}
	if (!ret->verb || ret->verb->subverbs)
		return 0;
	if (p.refused)
		return error_set(err, p.refusal.code, "%s", p.refusal.message);
	fill_sandbox(&p);
	return missing_words(&p);
}

void parse_done(struct parse_result *r)
{
	const struct verb *v = r->verb;
	for (const struct option_row *o = v ? v->options : NULL; o && o->name; o++)
		if (o->kind == OPT_KIND_LIST && o->name[0])
			strv_done((struct strv *)(void *)((char *)r->options + o->offset));
	for (const struct positional *row = v ? v->positionals : NULL; row && row->name; row++)
		if (row->kind == POS_MANY || row->kind == POS_ANY)
			strv_done((struct strv *)(void *)((char *)r->options + row->offset));
	free(r->options);
	r->options = NULL;
}
