/*
 * A machine reached over SSH, on which scripts run.
 *
 * Each script goes to `/bin/sh` on its standard input, so that the login shell has nothing to interpret, and its output stands between two
 * sentinels that are new each time, so that whatever profiles print does not matter. Root is the login itself, or sudo. Secrets go over
 * standard input. With --dry-run scripts that change something are shown instead.
 */
#ifndef SANDBOX_CLI_ENROLL_HOST_H
#define SANDBOX_CLI_ENROLL_HOST_H

#include "cli/cli.h"
#include "shared/base/buf.h"
#include "shared/base/error.h"

struct host_options {
	const char *where;         /* [USER@]HOST[:PORT] */
	const char *jump;          /* the like, several by commas; NULL: none */
	const char *identity, *fingerprint, *password_file;
};

#define HOST_ROWS(T, m) \
	OPT_TEXT('i', "identity", T, m.identity, "FILE", "private key to log in with"), \
	OPT_TEXT('J', "jump", T, m.jump, "HOSTS", "[USER@]HOST[:PORT] to go through, by commas"), \
	OPT_TEXT(0, "host-key", T, m.fingerprint, "SHA256:...", "fingerprint the host's key must have"), \
	OPT_TEXT(0, "password-file", T, m.password_file, "FILE", "answers SSH's and sudo's questions")

struct host;

struct script {
	const char *what;   /* "installing the unit": for errors and progress */
	const char *body;   /* run with `set -e`, LC_ALL=C, a usual PATH and umask 022 */
	bool root;
	bool reads;         /* only looks: runs under --dry-run too */
	int in_fd;          /* its standard input; -1: empty */
	const char *shown;  /* what in_fd is, for --dry-run */
	int64_t timeout_ms; /* 0: a minute */
};

/* Connects and authenticates; ERR_INVALID for a malformed address. */
int host_open(struct cli *cli, const struct host_options *o, struct host **ret, struct error *err);
void host_free(struct host *h);
/* What it printed. ERR_SYSTEM with the last line of its errors when it failed. */
int host_run(struct host *h, const struct script *s, struct buf *ret, struct error *err);
/* How root is reached, as host_probe_sudo found out. */
enum host_root { ROOT_LOGIN, ROOT_SUDO, ROOT_SUDO_PASSWORD };
/* Finds a way to be root and tries it. ERR_FORBIDDEN names the line that sudoers lacks. */
int host_find_root(struct host *h, struct error *err);
const char *host_shown(const struct host *h); /* as the user wrote it */

/* text in single quotes for sh, appended. */
void shell_quote(const char *text, struct buf *out);

#endif
