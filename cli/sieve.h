/* Which paths of a tree belong to what was changed: see snapshot.h. The rules are those of this machine's .gitignore files. */
#ifndef SANDBOX_CLI_SIEVE_H
#define SANDBOX_CLI_SIEVE_H

#include "cli/git.h"

#include <stdbool.h>
#include <stdint.h>

struct sieve;

/* rules: the directory whose .gitignore files count. */
int sieve_new(const struct git *g, const char *rules, struct sieve **ret, struct error *err);
/* A directory comes before what it holds. */
int sieve_keeps(struct sieve *s, const char *path, bool directory, bool *ret, struct error *err);
/* Entries that the rules left out; what is in a directory that is left out is not counted again. */
uint64_t sieve_dropped(const struct sieve *s);
void sieve_free(struct sieve *s); /* NULL is fine */

#endif
