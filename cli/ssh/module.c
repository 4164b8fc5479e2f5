/* The module's entry: a connection from socket to authenticated session, through jump hosts, and its end. */
#include "cli/ssh/internal.h"

#include "shared/base/clock.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

enum { TURN_MS = 500, KEEPALIVE_S = 15, BYE_MS = 2000 };

/* What the outermost socket waits for. A turn is short: libssh2 may hold bytes that no poll shows. */
int ssh_wait(struct ssh *s, const char *doing, struct error *err)
{
	struct pollfd p[2] = { { .fd = s->fd, .events = POLLIN }, { .fd = s->interrupt_fd, .events = POLLIN } };
	int64_t left = s->deadline_ms - clock_mono_ms();
	int next;
	ssh_flush(s);
	for (struct ssh *x = s; x; x = x->via) {
		libssh2_keepalive_send(x->session, &next);
		if (!x->via && x->out.len)
			p[0].events |= POLLOUT;
	}
	if (left <= 0)
		return error_set(err, ERR_TIMEOUT, "%s: no end in time", doing);
	if (poll(p, 2, (int)(left < TURN_MS ? left : TURN_MS)) < 0 && errno != EINTR)
		return error_errno(err, "%s", doing);
	if (p[1].revents) {
		error_set(err, ERR_TIMEOUT, "%s: interrupted", doing);
		err->sys = EINTR;
		return -1;
	}
	return 0;
}

int ssh_fail(struct ssh *s, const char *doing, struct error *err)
{
	char *text = NULL, shown[400];
	int rc = libssh2_session_last_error(s->session, &text, NULL, 0);
	bool gone = rc == LIBSSH2_ERROR_SOCKET_DISCONNECT || rc == LIBSSH2_ERROR_SOCKET_RECV || rc == LIBSSH2_ERROR_SOCKET_SEND ||
		    rc == LIBSSH2_ERROR_CHANNEL_CLOSED || rc == LIBSSH2_ERROR_SOCKET_NONE;
	snprintf(shown, sizeof(shown), "%s", text && *text ? text : "unknown cause");
	return error_set(err, gone ? ERR_UNAVAILABLE : ERR_PROTOCOL, "%s: %s", doing, gone ? "the connection ended" : shown);
}

static const char *login_name(void)
{
	const struct passwd *p = getpwuid(geteuid());
	return p ? p->pw_name : "root";
}

static void close_one(struct ssh *s)
{
	if (s->session) {
		s->deadline_ms = clock_mono_ms() + BYE_MS;
		while (libssh2_session_disconnect(s->session, "done") == LIBSSH2_ERROR_EAGAIN)
			if (ssh_wait(s, "leaving", NULL) != 0)
				break;
		ssh_flush(s);
		while (libssh2_session_free(s->session) == LIBSSH2_ERROR_EAGAIN)
			if (ssh_wait(s, "leaving", NULL) != 0)
				break;
	}
	buf_done(&s->out);
	if (s->through)
		libssh2_channel_free(s->through);
	if (!s->via && s->fd >= 0)
		close(s->fd);
	free(s->user);
	free(s->host);
	free(s);
}

static void ssh_free(struct ssh *s)
{
	while (s) {
		struct ssh *via = s->via;
		close_one(s);
		s = via;
	}
}

static int handshake(struct ssh *s, struct error *err)
{
	int rc;
	auto_free char *doing = xasprintf("%s", s->host), *types = ssh_known_types(s);
	s->session = libssh2_session_init_ex(NULL, NULL, NULL, s);
	if (!s->session)
		return error_set(err, ERR_INTERNAL, "libssh2 gives no session");
	libssh2_session_set_blocking(s->session, 0);
	if (types)
		libssh2_session_method_pref(s->session, LIBSSH2_METHOD_HOSTKEY, types);
	if (ssh_carry(s, err) != 0)
		return -1;
	SSH_RETRY(s, rc, libssh2_session_handshake(s->session, s->fd), doing, err);
	return rc == 0 ? 0 : ssh_fail(s, doing, err);
}

/* Goes on from via (NULL: from here), which becomes part of the new connection. */
static int open_one(const struct ssh_options *o, const struct ssh_target *t, struct ssh *take_via, struct ssh **ret, struct error *err)
{
	struct ssh *s = xcalloc(1, sizeof(*s));
	*s = (struct ssh){ .via = take_via, .fd = take_via ? take_via->fd : -1, .user = xstrdup(t->user ? t->user : login_name()), .host = xstrdup(t->host),
			   .port = t->port ? t->port : 22, .interrupt_fd = o->interrupt_fd, .o = o, .target = t == o->target };
	s->deadline_ms = clock_mono_ms() + o->timeout_ms;
	if (take_via)
		take_via->deadline_ms = s->deadline_ms;
	*ret = s;
	if (!take_via && ssh_connect(s, err) != 0)
		return -1;
	if (handshake(s, err) != 0 || ssh_check_host(s, err) != 0)
		return -1;
	if (ssh_authenticate(s, err) != 0)
		return -1;
	/* Not earlier: libssh2 would send the first one at once, into the key exchange. */
	libssh2_keepalive_config(s->session, 1, KEEPALIVE_S);
	return 0;
}

static int ssh_open(const struct ssh_options *o, struct ssh **ret, struct error *err)
{
	struct ssh *s = NULL;
	int rc = 0;
	if (libssh2_init(0) != 0)
		return error_set(err, ERR_INTERNAL, "libssh2 cannot be used");
	for (size_t i = 0; i < o->n_jumps && rc == 0; i++)
		rc = open_one(o, &o->jumps[i], s, &s, err);
	if (rc == 0)
		rc = open_one(o, o->target, s, &s, err);
	if (rc != 0) {
		ssh_free(s);
		return -1;
	}
	for (struct ssh *x = s; x; x = x->via)
		x->o = NULL;
	*ret = s;
	return 0;
}

static const char *ssh_user(const struct ssh *s)
{
	return s->user;
}

__attribute__((visibility("default"))) const struct ssh_module *sandbox_ssh_module(void);
const struct ssh_module *sandbox_ssh_module(void)
{
	static const struct ssh_module module = { .version = SANDBOX_VERSION, .open = ssh_open, .run = ssh_run, .user = ssh_user, .free = ssh_free };
	return &module;
}
