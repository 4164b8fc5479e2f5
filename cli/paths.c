/* The local daemon's paths: see paths.h. */
#include "cli/paths.h"

#include "shared/base/mem.h"

#include <stdbool.h>

#include <string.h>
#include <unistd.h>

/* The XDG rule: a relative value counts as unset. */
static const char *absolute_env(const char *name)
{
	const char *v = getenv(name);
	return v && v[0] == '/' ? v : NULL;
}

static char *user_state(void)
{
	const char *state = absolute_env("XDG_STATE_HOME"), *home = absolute_env("HOME");
	if (state)
		return xasprintf("%s/sandbox", state);
	return home ? xasprintf("%s/.local/state/sandbox", home) : NULL;
}

static char *user_socket(const char *state)
{
	const char *run = absolute_env("XDG_RUNTIME_DIR");
	return run ? xasprintf("%s/sandbox/sandboxd.sock", run) : xasprintf("%s/sandboxd.sock", state);
}

int local_paths_find(struct local_paths *ret, struct error *err)
{
	bool root = geteuid() == 0;
	char *state = root ? xstrdup("/var/lib/sandbox") : user_state();
	if (!state)
		return error_set(err, ERR_INVALID, "HOME is not set, so the local daemon's directory is unknown; set HOME or SANDBOX_URL");
	ret->state = state;
	ret->socket = root ? xstrdup(SYSTEM_SOCKET) : user_socket(state);
	ret->log = xasprintf("%s/sandboxd.log", state);
	ret->lock = xasprintf("%s/start.lock", state);
	return 0;
}

void local_paths_done(struct local_paths *p)
{
	free(p->state);
	free(p->socket);
	free(p->log);
	free(p->lock);
	*p = (struct local_paths){ .state = NULL };
}
