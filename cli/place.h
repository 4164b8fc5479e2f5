/*
 * What the present directory says: the sandbox that `sandbox use` chose for it, and the project file .sandbox.conf with defaults for run
 * and create. Both are looked for here and in the directories above; the nearest counts.
 */
#ifndef SANDBOX_CLI_PLACE_H
#define SANDBOX_CLI_PLACE_H

#include "cli/cli.h"
#include "cli/options.h"
#include "shared/base/error.h"
#include "shared/config/ini_doc.h"

#define PROJECT_FILE ".sandbox.conf"

/* The sandbox chosen for this directory. *ret NULL when there is none; *ret_dir where it was chosen. Caller frees both. */
int place_sandbox(char **ret, char **ret_dir, struct error *err);
/* Chooses one for the present directory; NULL forgets the nearest choice. ERR_NOT_FOUND when there is nothing to forget. */
int place_use(const char *sandbox, char **ret_dir, struct error *err);

/* The nearest project file. *ret NULL when there is none. A file of another user, or one everybody may write, is refused. Caller frees. */
int place_project(struct ini_doc **ret, char **ret_path, struct error *err);
/* Whether the section is one of a project file, and `key` one that may stand in it. */
bool project_section_known(const char *section);
bool project_key_known(const char *key);

/* The parser's hooks for the command line of this program. */
struct parse_hooks place_hooks(struct cli *cli);

#endif
