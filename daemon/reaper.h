/* The thread that ends sandboxes whose time has come. */
#ifndef SANDBOX_DAEMON_REAPER_H
#define SANDBOX_DAEMON_REAPER_H

#include "daemon/controller/controller.h"

struct reaper;

int reaper_start(struct controller *c, struct reaper **ret, struct error *err);
void reaper_stop(struct reaper *r); /* NULL is fine */

#endif
