/* Loading and using the remote module: see session_remote.h. */
#include "cli/session_remote.h"

#include "cli/remote/remote.h"
#include "cli/server_url.h"
#include "shared/base/mem.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

struct session_remote {
	struct server_url url;
	const char *token, *tenant, *ca_file; /* borrowed */
	void *library;
	const struct remote_module *module;
	struct remote *remote;
	int interrupt_fd;
};

int session_remote_new(const struct cli *cli, const char *url, struct session_remote **ret, struct error *err)
{
	struct server_url u;
	if (server_url_parse(url, &u, err) != 0)
		return -1;
	if (!u.tls && !u.loopback && cli->token && !cli->insecure_http) {
		error_set(err, ERR_INVALID, "%s is plain http: everybody on the way could read the token; use https, or --insecure-http where the "
			  "network itself is private", u.base);
		server_url_done(&u);
		return -1;
	}
	struct session_remote *s = xcalloc(1, sizeof(*s));
	s->url = u;
	s->interrupt_fd = -1;
	s->token = cli->token;
	s->tenant = cli->tenant;
	s->ca_file = cli->ca_file;
	*ret = s;
	return 0;
}

void session_remote_free(struct session_remote *s)
{
	if (!s)
		return;
	/* The library stays loaded: its thread-specific cleanups may run later than this. */
	if (s->remote)
		s->module->free(s->remote);
	server_url_done(&s->url);
	free(s);
}

const char *session_remote_shown(const struct session_remote *s)
{
	return s->url.base;
}

void session_remote_set_interrupt(struct session_remote *s, int fd)
{
	s->interrupt_fd = fd;
}

/* Beside the program in a build tree, else where `make install` puts it. */
static char *module_path(void)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return xstrdup("/usr/local/libexec/sandbox/sandbox-remote-" SANDBOX_VERSION ".so");
	self[n] = '\0';
	char *slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	auto_free char *beside = xasprintf("%s/sandbox-remote.so", self);
	if (access(beside, R_OK) == 0)
		return steal(&beside);
	return xasprintf("%s/../libexec/sandbox/sandbox-remote-" SANDBOX_VERSION ".so", self);
}

static int load(struct session_remote *s, struct error *err)
{
	auto_free char *path = module_path();
	s->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!s->library)
		return error_set(err, ERR_INTERNAL, "the part for remote servers cannot be loaded: %s", dlerror());
	void *symbol = dlsym(s->library, REMOTE_ENTRY);
	remote_entry entry;
	memcpy(&entry, &symbol, sizeof(entry));
	if (!entry)
		return error_set(err, ERR_INTERNAL, "%s is not the part for remote servers", path);
	const struct remote_module *m = entry();
	if (strcmp(m->version, SANDBOX_VERSION) != 0)
		return error_set(err, ERR_INTERNAL, "%s is of version %s, this is " SANDBOX_VERSION, path, m->version);
	s->module = m;
	return 0;
}

static int ready(struct session_remote *s, struct error *err)
{
	if (!s->remote) {
		struct remote_options o = { .base = s->url.base, .token = s->token, .tenant = s->tenant, .ca_file = s->ca_file,
					  .loopback = s->url.loopback };
		if ((!s->module && load(s, err) != 0) || s->module->open(&o, &s->remote, err) != 0)
			return -1;
	}
	s->module->set_interrupt(s->remote, s->interrupt_fd);
	return 0;
}

static int explain(const struct session_remote *s, struct error *e, struct error *err)
{
	if (e->code == ERR_UNREACHABLE)
		error_wrap(e, "cannot reach the server at %s", s->url.base);
	if (err)
		*err = *e;
	return -1;
}

int session_remote_send(struct session_remote *s, const struct http_request *q, struct http_answer *ret, struct error *err)
{
	struct error e = ERROR_INIT;
	if (ready(s, &e) != 0 || s->module->send(s->remote, q, ret, &e) != 0)
		return explain(s, &e, err);
	return 0;
}

int session_remote_stream(struct session_remote *s, const char *target, const void *early, size_t n, int *ret_fd,
			  struct http_answer *ret_refusal, struct error *err)
{
	struct error e = ERROR_INIT;
	int rc = ready(s, &e) == 0 ? s->module->stream(s->remote, target, early, n, ret_fd, ret_refusal, &e) : -1;
	return rc < 0 ? explain(s, &e, err) : rc;
}
