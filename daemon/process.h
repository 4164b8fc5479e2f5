/* What the daemon sets for its whole process, before any thread starts. */
#ifndef SANDBOX_DAEMON_PROCESS_H
#define SANDBOX_DAEMON_PROCESS_H

#include <stdbool.h>

#include <signal.h>

/* Descriptors 0-2 exist, nothing is dumped or shared by accident, many descriptors may be open, memory stays small. */
void process_prepare(void);
/* Blocks the signals that process_wait takes, in this thread and those it starts; ignores SIGPIPE. */
void process_block_signals(void);
/* The next of SIGTERM, SIGINT, SIGHUP. */
int process_wait_signal(void);
/* Sleeps so long; false when SIGTERM or SIGINT came. They must be blocked. */
bool process_pause(int ms);
/* Tells the service manager that started this process (NOTIFY_SOCKET), if one did: "READY=1", "STOPPING=1". Never fails. */
void process_notify(const char *state);
/* From now on SIGINT ends the process at once, for the person who does not want to wait for an orderly stop. SIGTERM does
 * not: supervisors and timeout(1) send it more than once. */
void process_allow_interrupt(void);

#endif
