/* Signals that end a wait: INT, TERM and HUP set a flag and make a descriptor readable, so that no wait misses one. */
#ifndef SANDBOX_CLI_INTERRUPT_H
#define SANDBOX_CLI_INTERRUPT_H

/* Installs the handlers (once). Before that, the signals keep their default action. A signal that was ignored stays ignored.
 * The descriptor is readable from the first signal until interrupt_clear(); session calls wait on it too. A third signal ends the
 * process at once. */
int interrupt_watch(void);
/* The descriptor, or -1 when not installed. */
int interrupt_fd(void);
/* The signal that came, 0: none. */
int interrupt_signal(void);
/* Forgets the signal, for cleaning up afterwards. */
void interrupt_clear(void);

#endif
