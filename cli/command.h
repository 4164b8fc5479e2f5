/*
 * A verb: one file under cli/cmd/ that exports one `const struct verb verb_NAME`, listed in cli/commands.def.
 *
 * How to add one: write cli/cmd/NAME.c with an options struct, its option and positional tables (cli/options.h), examples and run();
 * add VERB(NAME) to cli/commands.def; `make generate`. Help must fit 24 lines of 80 columns: tests/cli/help.bats checks it, and
 * `make check` fails while man/, completions/ or docs/cli.md are stale.
 */
#ifndef SANDBOX_CLI_COMMAND_H
#define SANDBOX_CLI_COMMAND_H

#include "cli/cli.h"
#include "cli/options.h"
#include "shared/base/error.h"

#include <stddef.h>

enum verb_group { GROUP_RUN, GROUP_SANDBOX, GROUP_INSIDE, GROUP_SETTINGS, GROUP_SERVER, GROUP_SYSTEM, GROUP_COUNT };

enum {
	VERB_HIDDEN = 1,
	/* The exit status is that of a command inside (exec, run, shell): failures of the tool itself exit 125. */
	VERB_STATUS_OF_COMMAND = 2,
	/* Works on settings, or on none: contexts that are broken or missing do not stop it. */
	VERB_NO_SETTINGS = 4,
	/* Takes defaults of its options from the project file (cli/place.h). */
	VERB_PROJECT = 8,
};

struct example {
	const char *line; /* without a prompt; NULL ends a table */
	const char *text; /* what it does, lower case; may be NULL */
};

struct verb {
	const char *name;
	const char *alias;   /* one more accepted name, or NULL */
	enum verb_group group;
	unsigned flags;
	const char *summary; /* imperative, lower case, at most 56 characters */
	const char *details; /* paragraphs for help and man page: lines of at most 78 characters; NULL: none */
	const char *manual;  /* more paragraphs, man page and docs only; NULL: none */
	const struct option_row *options;     /* NULL: none */
	const struct positional *positionals; /* NULL: none */
	size_t size;          /* sizeof its options struct; 0: none */
	const void *defaults; /* an instance to start from; NULL: zeros */
	const struct example *examples;
	/* Returns the exit status (>= 0), or -1 with err, which main reports and maps to the contract's status. `options` is its struct. */
	int (*run)(struct cli *cli, void *options, struct error *err);
	const struct verb *const *subverbs; /* NULL-ended; then run is NULL */
};

/* NULL-ended, in the order of commands.def. */
extern const struct verb *const verbs[];

/* By name or alias among a NULL-ended table; NULL when unknown. */
const struct verb *verb_find(const struct verb *const *table, const char *name);
const char *verb_group_title(enum verb_group g);

#define VERB(name) extern const struct verb verb_##name;
#include "cli/commands.def"
#undef VERB

#endif
