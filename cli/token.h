/*
 * Tokens, one for each server's origin (scheme://host[:port]). They never stand in the config file, in argv, in messages or logs.
 *
 * Where one comes from, in this order: SANDBOX_TOKEN; the context's token-helper (git-credential's protocol); the store, one file an origin
 * in $XDG_CONFIG_HOME/sandbox/tokens, encrypted by libsodium (XChaCha20-Poly1305, the origin as associated data). The key is a file of
 * its own in $XDG_DATA_HOME/sandbox, or is derived from a passphrase by Argon2id. libsodium is loaded when a stored token is touched.
 */
#ifndef SANDBOX_CLI_TOKEN_H
#define SANDBOX_CLI_TOKEN_H

#include "shared/base/error.h"
#include "shared/crypto/secret.h"

#include <stdbool.h>

enum { TOKEN_MAX = 4096 };
enum token_source { TOKEN_NONE, TOKEN_ENVIRONMENT, TOKEN_HELPER, TOKEN_STORE, TOKEN_STORE_PASSPHRASE };

/* ERR_UNAUTHORIZED when there is none; ERR_FORBIDDEN for http to another machine unless its context allows it. */
int token_for_origin(const char *origin, struct secret *ret, struct error *err);
/* Where token_for_origin would take it from; nothing is decrypted and no helper asked. */
enum token_source token_source(const char *origin);

/* Keeps a token: by the helper when the origin's context names one, else in the store. passphrase NULL: the key file. */
int token_keep(const char *origin, const struct secret *token, const struct secret *passphrase, struct error *err);
/* Forgets it. ERR_NOT_FOUND when none was kept. SANDBOX_TOKEN is not ours to forget. */
int token_forget(const char *origin, struct error *err);
/* A token is printable ASCII without blanks, at most TOKEN_MAX bytes. */
int token_check(const struct secret *token, struct error *err);

/* Reads a line from the terminal without echo. ERR_INVALID when there is no terminal. */
int token_ask(const char *prompt, struct secret *ret, struct error *err);

/* --- parts --- */

/* The program of the context with this origin; NULL: none. Caller frees. */
char *token_helper_of(const char *origin);
/* One question to a helper: action is get, store or erase. token is given to it (store), or taken from its answer into ret (get). */
int token_helper_run(const char *program, const char *action, const char *origin, const struct secret *token, struct secret *ret,
                     struct error *err);

int token_store_get(const char *origin, struct secret *ret, struct error *err);
int token_store_put(const char *origin, const struct secret *token, const struct secret *passphrase, struct error *err);
int token_store_remove(const char *origin, struct error *err);
enum token_source token_store_source(const char *origin);

#endif
