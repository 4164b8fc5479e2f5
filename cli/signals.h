/*
 * Signals of a streaming verb: recorded by handlers, taken one by one by the poll loop.
 *
 * Between signals_begin and signals_end the handled signals are blocked except inside signals_poll, so none is missed and no
 * other call is cut short. A signal the caller had ignored stays ignored, with one exception: INT and QUIT ignored only because a
 * shell started us in the background are heard when a process sent them (kill), not when the terminal did (Ctrl-C).
 */
#ifndef SANDBOX_CLI_SIGNALS_H
#define SANDBOX_CLI_SIGNALS_H

#include <poll.h>
#include <stdbool.h>

/* Installs the handlers over whatever stands (a nested begin does nothing). SIGPIPE is ignored meanwhile. A signal that
 * interrupt_signal() has by then is the first to be taken. */
void signals_begin(void);
/* Puts the old handlers and mask back; what was recorded and not taken is raised again for them. */
void signals_end(void);
/* poll() during which the signals come through. -1 with EINTR when one did. timeout_ms < 0: none. */
int signals_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
/* The next recorded signal, 0: none. HUP, INT, QUIT, TERM come before the others. */
int signals_take(void);
/* While on, INT, TERM, HUP and QUIT give the terminal back and end the process at once with 128 + number: around calls that
 * block and leave nothing to clean up. */
void signals_abort(bool on);
/* Stops this process, or its whole group as Ctrl-Z does, and returns when it goes on. */
void signals_suspend(bool group);

#endif
