/* Between config.c and config_check.c only. */
#ifndef SANDBOX_DAEMON_CONFIG_PRIV_H
#define SANDBOX_DAEMON_CONFIG_PRIV_H

#include "daemon/config.h"

/* The table's defaults; paths that depend on the user stay empty. */
void daemon_config_init(struct daemon_config *c);
/* Sets a text field; paths derived from it follow, and an empty value means the default where a path is needed. */
void daemon_config_set_str(struct daemon_config *c, char **field, const char *text);

/* config.c: a pool's defaults, and freeing what it owns. */
void pool_config_init(struct pool_config *p);
void pool_config_done(struct pool_config *p);
bool pool_config_same(const struct pool_config *a, const struct pool_config *b);

/* config_pool.c */
/* The pool of a section "pool NAME"; it is made when there is none. NULL: no such section, or no such name. */
struct pool_config *config_pool_section(struct daemon_config *c, const char *section, struct error *err);
bool config_pool_is_section(const char *section);
void config_pools_done(struct daemon_config *c);
void config_pools_reload(struct daemon_config *c, const struct daemon_config *fresh);
int config_pools_check(const struct daemon_config *c, struct error *err);

#endif
