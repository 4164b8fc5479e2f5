/* Signals that end a wait: INT, TERM and HUP set a flag and make a descriptor readable, so that no wait misses one. */
#ifndef SANDBOX_CLI_INTERRUPT_H
#define SANDBOX_CLI_INTERRUPT_H

#include <stdbool.h>

/* Installs the handlers (once). Before that, the signals keep their default action. A signal that was ignored stays ignored;
 * but an INT that a process sent is heard also in a background job, whose shell has it ignored because of the terminal's.
 * The descriptor is readable from the first signal until interrupt_clear(); session calls wait on it too. A third signal ends the
 * process at once. */
int interrupt_watch(void);
/* Whether the caller had it ignored before interrupt_watch. */
bool interrupt_was_ignored(int sig);
/* The descriptor, or -1 when not installed. */
int interrupt_fd(void);
/* The signal that came, 0: none. */
int interrupt_signal(void);
/* Forgets the signal, for cleaning up afterwards. */
void interrupt_clear(void);

#endif
