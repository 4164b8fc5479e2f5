/* What sandbox-init and the program behind --through agree on. Constants only: both sides include it. */
#ifndef SANDBOX_INIT_THROUGH_H
#define SANDBOX_INIT_THROUGH_H

#include <signal.h>

enum {
	THROUGH_LOST = SIGUSR2,   /* how the program says that no result is known, its reason being on stderr */
	THROUGH_GRACE_MS = 5000,  /* a command's own time limit is the driver's to enforce; so much later it is ended from here */
};
#define THROUGH_ENV "SANDBOX_ENV_" /* before each of the command's variables */

#endif
