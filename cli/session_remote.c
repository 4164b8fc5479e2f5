/* Loading and using the remote module: see session_remote.h. */
#include "cli/session_remote.h"

#include "shared/http/remote/remote.h"
#include "cli/module.h"
#include "cli/token.h"
#include "shared/base/mem.h"
#include "shared/config/server_url.h"

#include <string.h>

struct session_remote {
	struct server_url url;
	struct secret token;
	const char *tenant, *ca_file; /* borrowed */
	const struct remote_module *module;
	struct remote *remote;
	int interrupt_fd;
};

/* The token for this server, if there is one: the server itself says when it wants one. */
static int find_token(const struct cli *cli, const struct server_url *u, struct secret *ret, struct error *err)
{
	struct error e = ERROR_INIT;
	if (cli->token && cli->insecure_http) {
		secret_set(ret, cli->token, strlen(cli->token));
		return 0;
	}
	if (token_for_origin(u->origin, ret, &e) == 0 || e.code == ERR_UNAUTHORIZED)
		return 0;
	*err = e;
	return -1;
}

int session_remote_new(const struct cli *cli, const char *url, struct session_remote **ret, struct error *err)
{
	struct session_remote *s = xcalloc(1, sizeof(*s));
	struct error e = ERROR_INIT;
	if (server_url_parse(url, &s->url, &e) != 0 || find_token(cli, &s->url, &s->token, &e) != 0) {
		session_remote_free(s);
		if (err)
			*err = e;
		return -1;
	}
	s->interrupt_fd = -1;
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
	secret_done(&s->token);
	server_url_done(&s->url);
	free(s);
}

const char *session_remote_shown(const struct session_remote *s)
{
	return s->url.url;
}

void session_remote_set_interrupt(struct session_remote *s, int fd)
{
	s->interrupt_fd = fd;
}

static int load(struct session_remote *s, struct error *err)
{
	void *symbol;
	remote_entry entry;
	if (module_load("sandbox-remote", "the part for remote servers", REMOTE_ENTRY, &symbol, err) != 0)
		return -1;
	memcpy(&entry, &symbol, sizeof(entry));
	const struct remote_module *m = entry();
	if (strcmp(m->version, SANDBOX_VERSION) != 0)
		return error_set(err, ERR_INTERNAL, "the part for remote servers is of version %s, this is " SANDBOX_VERSION, m->version);
	s->module = m;
	return 0;
}

static int ready(struct session_remote *s, struct error *err)
{
	if (!s->remote) {
		struct remote_options o = { .base = s->url.url, .token = (const char *)s->token.bytes, .tenant = s->tenant, .ca_file = s->ca_file,
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
		error_wrap(e, "cannot reach the server at %s", s->url.url);
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
