/*
 * What the user configured, and which of it counts: flag, then environment, then the context, then the local socket.
 *
 * $XDG_CONFIG_HOME/sandbox/config holds it: `[cli]` with the current context's name, and one `[context NAME]` each with url, tenant,
 * token-helper, allow-http. Tokens are never in it (cli/token.h). A context counts only when no server was given by flag or environment,
 * or when it was asked for by --context: the tenant of one server is nothing to another.
 */
#ifndef SANDBOX_CLI_SETTINGS_H
#define SANDBOX_CLI_SETTINGS_H

#include "cli/cli.h"
#include "shared/base/error.h"
#include "shared/config/ini_doc.h"

#define CONFIG_FILE "config"

/* The keys of a context, in the order they are shown: X(key, what it is). */
#define CONTEXT_KEYS(X) \
	X("url", "the server: https://host[:port][/prefix] or unix:///path") \
	X("tenant", "the tenant to act in") \
	X("token-helper", "a program that speaks git-credential's protocol and keeps the token") \
	X("allow-http", "yes: send the token without TLS, to another machine too")

/* The file's content; an empty one when there is none or no place for one. */
int settings_read(struct ini_doc **ret, struct error *err);
/* Reads, changes and writes back under the lock. `change` returns 0 to write, -1 with err to leave everything as it was. */
int settings_change(int (*change)(struct ini_doc *d, void *ctx, struct error *err), void *ctx, struct error *err);

/* Names of contexts: letters, digits, dot, dash and underscore, at most 63, a letter or digit first. */
int context_name_check(const char *name, struct error *err);
/* "context NAME", the section. Caller frees. */
char *context_section(const char *name);
/* The one in the file, NULL: none. Borrowed from d. */
const char *context_current(const struct ini_doc *d);
/* Checks and normalises a value of one of CONTEXT_KEYS. *ret is the text to store (caller frees). */
int context_value(const char *key, const char *text, char **ret, struct error *err);

/* Fills in cli what flags and environment left open, and where each value came from. ERR_NOT_FOUND for a context that does not exist. */
int settings_resolve(struct cli *cli, struct error *err);

#endif
