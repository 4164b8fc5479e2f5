/*
 * Options and positionals of a verb, as tables bound to a struct by offset. From the same rows come the parser, --help, the
 * completions, the man pages and docs/cli.md.
 *
 * How to add an option: put a field into the verb's options struct and a row into its table with one of the OPT_* macros (they check
 * the field's type at compile time), then `make generate`; tests/unit/test_options.c and the generated files check the rest.
 *
 * Rules of the command line: `--name value`, `--name=value`, `-n value`, `-nvalue`, flags bundle (`-fq`); options may follow
 * positionals; a repeated single option: the last wins; `--` ends options. Global options (cli/cli.h) are accepted anywhere a verb's
 * own are, and before the verb. A verb with a POS_COMMAND positional takes as its command everything after `--`, or everything from
 * the first word that follows its other positionals (as docker does): nothing in the command is ever read as an option.
 * With POS_COMMAND_DASHED only the words after `--` are the command; a stray word before it is a usage error.
 * Text fields borrow from argv.
 */
#ifndef SANDBOX_CLI_OPTIONS_H
#define SANDBOX_CLI_OPTIONS_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum opt_kind {
	OPT_KIND_FLAG,     /* bool; --no-NAME too when OPT_NEGATABLE */
	OPT_KIND_TEXT,     /* const char * */
	OPT_KIND_OPTIONAL, /* const char *: --name[=TEXT]; "" when given without a value */
	OPT_KIND_INT,      /* int64_t within [min, max] */
	OPT_KIND_DURATION, /* int64_t milliseconds within [min, max] */
	OPT_KIND_SIZE,     /* int64_t bytes within [min, max] */
	OPT_KIND_WORD,     /* const char *: one of words, "a|b|c" */
	OPT_KIND_LIST,     /* struct strv, one entry per use */
	OPT_KIND_CALL,     /* any field: parse() stores the value */
};

enum {
	OPT_HIDDEN = 1,    /* parsed, not shown */
	OPT_NEGATABLE = 2, /* --no-NAME sets false; help shows --[no-]NAME */
	OPT_RARE = 8,      /* not in the one line of global options under a verb's help */
	OPT_SECRET = 4,    /* a list of NAME=VALUE whose values are wiped from argv once read: process lists show it to everybody */
};

struct option_row {
	const char *name; /* NULL ends a table */
	char letter;      /* 0: none */
	enum opt_kind kind;
	unsigned flags;
	size_t offset;
	const char *arg;  /* metavar, upper case; NULL for flags */
	const char *help; /* lower case, no full stop; short enough that its line fits 80 columns */
	const char *words;
	int64_t min, max;
	/* `what` is "--name"; field points into the options struct. */
	int (*parse)(const char *what, const char *text, void *field, struct error *err);
};

#define OPT_OFFSET(T, f, type) \
	(offsetof(T, f) + 0 * sizeof(char[__builtin_types_compatible_p(__typeof__(((T *)0)->f), type) ? 1 : -1]))

#define OPT_FLAG(l, n, T, f, h) { .name = (n), .letter = (l), .kind = OPT_KIND_FLAG, .offset = OPT_OFFSET(T, f, bool), .help = (h) }
#define OPT_SWITCH(l, n, T, f, h) \
	{ .name = (n), .letter = (l), .kind = OPT_KIND_FLAG, .flags = OPT_NEGATABLE, .offset = OPT_OFFSET(T, f, bool), .help = (h) }
#define OPT_TEXT(l, n, T, f, a, h) \
	{ .name = (n), .letter = (l), .kind = OPT_KIND_TEXT, .offset = OPT_OFFSET(T, f, const char *), .arg = (a), .help = (h) }
#define OPT_OPTIONAL(l, n, T, f, a, h) \
	{ .name = (n), .letter = (l), .kind = OPT_KIND_OPTIONAL, .offset = OPT_OFFSET(T, f, const char *), .arg = (a), .help = (h) }
#define OPT_INT(l, n, T, f, a, lo, hi, h) \
	{ .name = (n), .letter = (l), .kind = OPT_KIND_INT, .offset = OPT_OFFSET(T, f, int64_t), .arg = (a), .min = (lo), .max = (hi), .help = (h) }
#define OPT_DURATION(l, n, T, f, a, lo_ms, hi_ms, h) \
	{ .name = (n), .letter = (l), .kind = OPT_KIND_DURATION, .offset = OPT_OFFSET(T, f, int64_t), .arg = (a), .min = (lo_ms), .max = (hi_ms), .help = (h) }
#define OPT_SIZE(l, n, T, f, a, lo, hi, h) \
	{ .name = (n), .letter = (l), .kind = OPT_KIND_SIZE, .offset = OPT_OFFSET(T, f, int64_t), .arg = (a), .min = (lo), .max = (hi), .help = (h) }
#define OPT_WORD(l, n, T, f, a, w, h) \
	{ .name = (n), .letter = (l), .kind = OPT_KIND_WORD, .offset = OPT_OFFSET(T, f, const char *), .arg = (a), .words = (w), .help = (h) }
#define OPT_LIST(l, n, T, f, a, h) \
	{ .name = (n), .letter = (l), .kind = OPT_KIND_LIST, .offset = OPT_OFFSET(T, f, struct strv), .arg = (a), .help = (h) }
#define OPT_SECRETS(l, n, T, f, a, h) \
	{ .name = (n), .letter = (l), .kind = OPT_KIND_LIST, .flags = OPT_SECRET, .offset = OPT_OFFSET(T, f, struct strv), .arg = (a), .help = (h) }
#define OPT_CALL(l, n, T, f, a, fn, h) \
	{ .name = (n), .letter = (l), .kind = OPT_KIND_CALL, .offset = offsetof(T, f), .arg = (a), .parse = (fn), .help = (h) }
/* Rows behind this one are named in a single paragraph of --help; the man page explains them like the others. */
#define OPT_REST { .name = "", .kind = OPT_KIND_FLAG, .flags = OPT_HIDDEN }
#define OPT_END { .name = NULL }

enum pos_kind {
	POS_ONE,            /* const char *, required */
	POS_OPTIONAL,       /* const char *, may be absent: NULL */
	POS_MANY,           /* struct strv, at least one; last */
	POS_ANY,            /* struct strv, may be empty; last */
	POS_COMMAND,        /* struct words, at least one; last */
	POS_COMMAND_OPTIONAL, /* struct words, may be empty; last */
	POS_COMMAND_DASHED, /* struct words, only after `--`, may be empty; last */
};

/* What the shell completes for a positional (and the generated pages link to). */
enum pos_what { WHAT_TEXT, WHAT_SANDBOX, WHAT_OPERATION, WHAT_IMAGE, WHAT_FILE, WHAT_VERB, WHAT_COMMAND, WHAT_CONTEXT,
                WHAT_TENANT, WHAT_NODE, WHAT_SECRET, WHAT_TOKEN, WHAT_TUNNEL, WHAT_AGENT, WHAT_CLIENT, WHAT_SETTING,
                WHAT_PATH /* local, or SANDBOX:PATH */ };

struct positional {
	const char *name; /* upper case; NULL ends a table */
	enum pos_kind kind;
	enum pos_what what;
	size_t offset;
	const char *help;
};

/* A slice of argv: borrowed, items[len] is NULL. */
struct words {
	char **items;
	size_t len;
};

#define POS(k, w, n, T, f, h) { .name = (n), .kind = (k), .what = (w), .offset = offsetof(T, f), .help = (h) }
#define POS_END { .name = NULL }

struct verb;

struct parse_result {
	const struct verb *verb;   /* the verb or subverb named; NULL: none */
	const struct verb *parent; /* of a subverb; NULL otherwise */
	void *options;             /* of the verb, zeroed or from its defaults, then filled */
	bool help;                 /* --help was seen: nothing else was required */
	bool version;
};

/* What the parser asks of its caller, each may be NULL. */
struct parse_hooks {
	/* A verb was named: its options hold the defaults, the command line has not touched them yet. -1 with err refuses. */
	int (*chosen)(void *ctx, const struct verb *v, void *options, struct error *err);
	/* The sandbox meant where a required one is not given; NULL: none. Outlives the result. */
	const char *(*sandbox)(void *ctx);
	void *ctx;
};

/* Sets an option by its name as if it stood on the command line ("yes" and "no" for flags). ERR_INVALID when the verb has none of that
 * name or the value is wrong. `value` is borrowed. */
int option_preset(const struct verb *v, void *options, const char *name, const char *value, struct error *err);

/*
 * Parses a whole command line (argv[0] is skipped). globals: table and struct of the global options.
 * ERR_INVALID with a one-line message that suggests the nearest name; ret->verb is set when it was known by then (ret is valid on
 * failure too, for the hint). Undo with parse_done in every case.
 */
int parse_command_line(int argc, char **argv, const struct option_row *globals, void *global_struct, struct parse_result *ret,
                       struct error *err);
/* The same with hooks. A verb's one required SANDBOX that is left out is then the hook's; before a command it can only be left out with
 * `--` in front of the command. */
int parse_with_hooks(int argc, char **argv, const struct option_row *globals, void *global_struct, const struct parse_hooks *hooks,
                     struct parse_result *ret, struct error *err);
void parse_done(struct parse_result *r);

/* Damerau-Levenshtein distance, capped at `cap`. */
unsigned edit_distance(const char *a, const char *b, unsigned cap);

#endif
