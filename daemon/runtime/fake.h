/*
 * A runtime for tests and scale: each sandbox is one sandbox-init as an ordinary process of this machine. NO isolation,
 * no images, no limits. Chosen only by SANDBOX_TEST_RUNTIME=fake in sandboxd's environment, never by configuration;
 * doctor then fails. Any image reference resolves, except that a repository whose last part is "missing" does not.
 */
#ifndef SANDBOX_DAEMON_FAKE_H
#define SANDBOX_DAEMON_FAKE_H

#include "daemon/runtime/runtime.h"

/* Keeps its records in STATE/fake, so that sandboxes survive a restart of the daemon. */
int fake_runtime_new(const char *state_dir, struct runtime **ret, struct error *err);

#endif
