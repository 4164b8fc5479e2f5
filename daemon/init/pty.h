/* Terminals from the sandbox's own devpts. */
#ifndef SANDBOX_INIT_PTY_H
#define SANDBOX_INIT_PTY_H

#include "shared/base/error.h"

#include <sys/types.h>

/* A new terminal of this size (0: 24 by 80) that belongs to uid. Both ends close-on-exec, the master non-blocking. */
int pty_open(unsigned rows, unsigned cols, uid_t uid, int *ret_master, int *ret_slave, struct error *err);
void pty_resize(int master, unsigned rows, unsigned cols);
/* To the foreground process group. -1: there is none. */
int pty_signal(int master, int sig);

#endif
