/* Between config.c and config_check.c only. */
#ifndef SANDBOX_DAEMON_CONFIG_PRIV_H
#define SANDBOX_DAEMON_CONFIG_PRIV_H

#include "daemon/config.h"

/* The table's defaults; paths that depend on the user stay empty. */
void daemon_config_init(struct daemon_config *c);
/* Sets a text field; paths derived from it follow, and an empty value means the default where a path is needed. */
void daemon_config_set_str(struct daemon_config *c, char **field, const char *text);

#endif
