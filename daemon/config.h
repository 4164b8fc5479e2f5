/*
 * sandboxd's configuration. One X-macro table (daemon/config.def) gives key, type, default and help: the parser, --check-config,
 * the man page and docs/config.md expand from it. Unknown keys are refused with file and line.
 */
#ifndef SANDBOX_DAEMON_CONFIG_H
#define SANDBOX_DAEMON_CONFIG_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct spec;

#define CONFIG_STR(section, key, field, def, reload, help) char *field;
#define CONFIG_INT(section, key, field, def, min, max, reload, help) int64_t field;
#define CONFIG_BOOL(section, key, field, def, reload, help) bool field;
#define CONFIG_DURATION(section, key, field, def_ms, min_ms, max_ms, reload, help) int64_t field;
#define CONFIG_SIZE(section, key, field, def, min, max, reload, help) int64_t field;
#define CONFIG_REAL(section, key, field, def, min, max, reload, help) double field;

/* One [pool NAME] section, from the table daemon/pool.def. */
struct pool_config {
	char *name;
#include "daemon/pool.def"
};

struct daemon_config {
#include "daemon/config.def"
	struct pool_config *pools; /* n_pools, in the order of the file */
	size_t n_pools;
};
#undef CONFIG_STR
#undef CONFIG_INT
#undef CONFIG_BOOL
#undef CONFIG_DURATION
#undef CONFIG_SIZE
#undef CONFIG_REAL

/* Defaults for root (/var/lib/sandbox, /run/sandbox) or for a user (XDG directories), already resolved to absolute paths. */
int daemon_config_defaults(struct daemon_config *c, struct error *err);
/* Reads an ini file over the present values. Message: "<file>:<line>: …". */
int daemon_config_load(struct daemon_config *c, const char *path, struct error *err);
/* One "section.key=value" override from the command line. */
int daemon_config_set(struct daemon_config *c, const char *assignment, struct error *err);
/* Checks that need several keys (profile word, paths, thresholds). */
int daemon_config_check(const struct daemon_config *c, struct error *err);
/* Rules of egress as words between blanks: the value of a key, or the contents of the file it names. The caller frees. */
int daemon_config_rules(const char *key, const char *value, char **ret, struct error *err);
/* Copies the keys marked reloadable from fresh; names (into log) those that changed and need a restart. */
void daemon_config_reload(struct daemon_config *c, const struct daemon_config *fresh);
void daemon_config_done(struct daemon_config *c);
/* What a pool's sandboxes are asked as: a valid spec without tenant. ERR_INVALID naming the key. */
int pool_config_spec(const struct pool_config *p, struct spec *ret, struct error *err);
/* Every key as "section.key = value  # help" lines. */
void daemon_config_print(const struct daemon_config *c, struct buf *out);

#endif
