/* The way to the server: see session.h. */
#include "cli/session.h"

#include "cli/interrupt.h"
#include "cli/local.h"
#include "cli/output.h"
#include "cli/paths.h"
#include "cli/session_remote.h"
#include "shared/base/clock.h"
#include "shared/base/id.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/http/unix_client.h"
#include "shared/json/model_json.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

enum { DEFAULT_TIMEOUT_MS = 60 * 1000, STREAM_TIMEOUT_MS = 10 * 60 * 1000, RESTART_POLL_MS = 50, LINE_BYTES_MAX = 1024 * 1024 };

struct session {
	char *socket;
	char *shown;       /* how the address was given, for messages */
	bool given;        /* by the user: nothing is started */
	struct local_paths local;
	struct unix_client *client;
	struct session_remote *remote; /* an http or https server: then socket and client are NULL */
};

static int waits_end(const struct cli *cli)
{
	return cli->interrupt ? cli->interrupt : interrupt_fd();
}

/* --- address ---------------------------------------------------------------------------------------------------- */

static const char *unix_path(const char *url)
{
	if (url[0] == '/')
		return url;
	if (strncmp(url, "unix://", 7) == 0)
		return url[7] == '/' ? url + 7 : NULL;
	if (strncmp(url, "unix:/", 6) == 0)
		return url + 5;
	return NULL;
}

static int given_address(struct cli *cli, struct session *s, const char *url, struct error *err)
{
	char shown[200];
	const char *path = unix_path(url);
	text_escape(url, strlen(url), shown, sizeof(shown));
	if (path) {
		s->socket = xstrdup(path);
		s->shown = xstrdup(shown);
		s->given = true;
		return 0;
	}
	if (strncasecmp(url, "ssh://", 6) == 0 || strncasecmp(url, "unix:", 5) == 0)
		return error_set(err, ERR_INVALID, "'%s' is not a server address: give https://HOST, or unix:///absolute/path", shown);
	if (session_remote_new(cli, url, &s->remote, err) == 0)
		return 0;
	if (err && err->code == ERR_FORBIDDEN)
		cli_hint(cli, "use https; or --insecure-http, where the network itself is private");
	return -1;
}

static int session_get(struct cli *cli, struct session **ret, struct error *err)
{
	if (!cli->session) {
		struct session *s = xcalloc(1, sizeof(*s));
		cli->session = s;
		if (cli->server && *cli->server) {
			if (given_address(cli, s, cli->server, err) != 0)
				goto failed;
		} else {
			if (local_paths_find(&s->local, err) != 0)
				goto failed;
			s->socket = xstrdup(s->local.socket);
			s->shown = xasprintf("unix://%s", s->socket);
		}
	}
	*ret = cli->session;
	return 0;
failed:
	session_close(cli);
	return -1;
}

void session_close(struct cli *cli)
{
	struct session *s = cli->session;
	if (!s)
		return;
	unix_client_free(s->client);
	session_remote_free(s->remote);
	local_paths_done(&s->local);
	free(s->socket);
	free(s->shown);
	free(s);
	cli->session = NULL;
}

int session_socket(struct cli *cli, const char **ret, struct error *err)
{
	struct session *s;
	if (session_get(cli, &s, err) != 0)
		return -1;
	*ret = s->remote ? session_remote_shown(s->remote) : s->socket;
	return 0;
}

/* --- connecting ------------------------------------------------------------------------------------------------- */

static int explain_connect(struct cli *cli, const struct session *s, const struct error *e, struct error *err)
{
	const char *why = e->sys ? strerror(e->sys) : e->message;
	if (e->code == ERR_FORBIDDEN) {
		cli_hint(cli, "the socket is for root and the group sandbox: `sudo groupadd -rf sandbox && sudo usermod -aG sandbox $USER`, then log in again");
		return error_set(err, ERR_FORBIDDEN, "you may not use the server at %s: %s", s->shown, why);
	}
	if (s->given)
		cli_hint(cli, "start sandboxd with that socket, or unset SANDBOX_URL and --server for the local daemon");
	error_set(err, ERR_UNREACHABLE, "no server answers at %s: %s", s->shown, why);
	if (err)
		err->sys = e->sys;
	return -1;
}

static bool use_system_daemon(struct session *s, struct unix_client **ret)
{
	if (strcmp(s->socket, SYSTEM_SOCKET) == 0 || unix_client_connect(SYSTEM_SOCKET, ret, NULL) != 0)
		return false;
	free(s->socket);
	free(s->shown);
	s->socket = xstrdup(SYSTEM_SOCKET);
	s->shown = xstrdup("unix://" SYSTEM_SOCKET);
	return true;
}

/* A new connection; may start the user's daemon. */
static int connect_some(struct cli *cli, bool no_start, struct unix_client **ret, struct error *err)
{
	struct session *s;
	struct error e = ERROR_INIT;
	if (session_get(cli, &s, err) != 0)
		return -1;
	if (unix_client_connect(s->socket, ret, &e) == 0)
		return 0;
	if (s->given || e.code != ERR_UNREACHABLE)
		return explain_connect(cli, s, &e, err);
	if (use_system_daemon(s, ret))
		return 0;
	if (no_start || cli->no_start)
		return explain_connect(cli, s, &e, err);
	bool started;
	if (local_start(cli, &s->local, &started, &e) != 0)
		return error_set(err, ERR_UNREACHABLE, "no daemon answers at %s and none could be started: %s", s->shown, e.message);
	return unix_client_connect(s->socket, ret, &e) == 0 ? 0 : explain_connect(cli, s, &e, err);
}

static int connect_new(struct cli *cli, bool no_start, struct unix_client **ret, struct error *err)
{
	if (connect_some(cli, no_start, ret, err) != 0)
		return -1;
	unix_client_set_tenant(*ret, cli->tenant);
	return 0;
}

static int ensure_client(struct cli *cli, bool no_start, struct error *err)
{
	struct unix_client *client;
	struct session *s;
	if (session_get(cli, &s, err) != 0)
		return -1;
	if (s->remote || s->client)
		return 0;
	if (connect_new(cli, no_start, &client, err) != 0)
		return -1;
	cli->session->client = client;
	return 0;
}

int session_probe(struct cli *cli, struct error *err)
{
	if (ensure_client(cli, true, err) != 0)
		return -1;
	struct call c = { .method = "GET", .target = "/healthz", .timeout_ms = 5000, .no_start = true };
	return session_call(cli, &c, NULL, err);
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

static const char *body_kind(const struct http_answer *a)
{
	const char *p = buf_str(&a->body), *type = map_get(&a->headers, "content-type");
	p += strspn(p, " \t\r\n");
	if (a->body.len == 0)
		return "without a body";
	if (*p == '<' || (type && strstr(type, "html")))
		return "with HTML";
	return "with something else than JSON";
}

static const char *server_name(const struct session *s)
{
	return s->remote ? session_remote_shown(s->remote) : s->shown;
}

static int not_this_api(const struct session *s, const struct http_answer *a, struct error *err)
{
	const char *to = map_get(&a->headers, "location");
	char safe[200];
	if (to && a->status >= 300 && a->status < 400)
		return error_set(err, ERR_PROTOCOL, "the server at %s answered %d %s: it redirects to %s; redirects are not followed, a token would go along",
				 server_name(s), a->status, a->reason, text_escape(to, strlen(to), safe, sizeof(safe)));
	return error_set(err, ERR_PROTOCOL, "the server at %s answered %d%s%s %s: it is not the sandbox API", server_name(s), a->status,
			 a->reason[0] ? " " : "", a->reason, body_kind(a));
}

static void keep_error_body(struct cli *cli, cJSON *take_j)
{
	cJSON_Delete(cli->error_body);
	cli->error_body = take_j;
}

static int failed_answer(struct cli *cli, const struct http_answer *a, struct error *err)
{
	cJSON *j = NULL;
	struct error e = ERROR_INIT;
	if (json_parse(buf_str(&a->body), a->body.len, &j, NULL) == 0 && error_from_json(j, &e)) {
		keep_error_body(cli, j);
		return error_set(err, e.code, "%s", e.message);
	}
	cJSON_Delete(j);
	return not_this_api(cli->session, a, err);
}

static int take_answer(struct cli *cli, const struct http_answer *a, cJSON **ret, struct error *err)
{
	if (a->status < 200 || a->status > 299)
		return failed_answer(cli, a, err);
	if (!ret)
		return 0;
	cJSON *j = NULL;
	struct error e = ERROR_INIT;
	if (a->status == 204) {
		*ret = cJSON_CreateNull();
		return 0;
	}
	if (a->body.len && json_parse(buf_str(&a->body), a->body.len, &j, &e) == 0) {
		if (cJSON_IsObject(j) || cJSON_IsArray(j)) {
			*ret = j;
			return 0;
		}
		cJSON_Delete(j);
	}
	return not_this_api(cli->session, a, err);
}

/* --- calls ------------------------------------------------------------------------------------------------------ */

static void debug_call(const struct cli *cli, const struct call *c, int64_t started_us, int status)
{
	if (cli->debug)
		fprintf(stderr, "debug: %s %s -> %d in %.2f ms\n", c->method, c->target, status,
			(double)(clock_mono_us() - started_us) / 1000.0);
}

/* A request that may be sent again although the server may have acted on the first. */
static bool repeatable(const struct call *c)
{
	return c->key || strcmp(c->method, "GET") == 0;
}

/* What a request would be, on stdout, in place of sending it. */
static int show_dry(struct cli *cli, const char *method, const char *target, const cJSON *body, struct error *err)
{
	auto_json *j = cJSON_CreateObject();
	json_add_bool(j, "dry_run", true);
	json_add_str(j, "method", method);
	json_add_str(j, "target", target);
	cJSON_AddItemToObject(j, "body", body ? cJSON_Duplicate(body, true) : cJSON_CreateNull());
	cli->dry_shown = true;
	if (cli->json && out_json(cli, j, err) != 0)
		return -1;
	if (!cli->json) {
		auto_free char *text = body ? json_print(body) : NULL;
		out_line("%s %s%s%s", method, target, text ? " " : "", text ? text : "");
	}
	return error_set(err, ERR_NONE, "a dry run: nothing was sent");
}

static int send_request(struct cli *cli, const struct http_request *q, struct http_answer *a, struct error *err)
{
	struct session *s = cli->session;
	if (s->remote) {
		session_remote_set_interrupt(s->remote, waits_end(cli));
		return session_remote_send(s->remote, q, a, err);
	}
	unix_client_set_interrupt(s->client, waits_end(cli));
	return unix_client_send(s->client, q, a, err);
}

static int send_once(struct cli *cli, const struct call *c, const struct map *headers, const char *body, struct http_answer *a,
		     struct error *err)
{
	int64_t started_us = clock_mono_us();
	if (ensure_client(cli, c->no_start, err) != 0)
		return -1;
	struct http_request q = {
		.method = c->method, .target = c->target, .headers = headers, .body = body, .n = body ? strlen(body) : 0, .body_fd = -1,
		.timeout_ms = c->timeout_ms ? c->timeout_ms : DEFAULT_TIMEOUT_MS,
	};
	int rc = send_request(cli, &q, a, err);
	debug_call(cli, c, started_us, rc == 0 ? a->status : 0);
	if (rc != 0 && cli->session->client) {
		unix_client_free(cli->session->client);
		cli->session->client = NULL;
	}
	return rc;
}

int session_call(struct cli *cli, const struct call *c, cJSON **ret, struct error *err)
{
	auto_map headers = MAP_INIT;
	auto_free char *body = c->body ? json_print(c->body) : NULL;
	struct http_answer a = { .status = 0 };
	struct error e = ERROR_INIT;
	if (cli->dry_run && strcmp(c->method, "GET") != 0)
		return show_dry(cli, c->method, c->target, c->body, err);
	if (body)
		map_set(&headers, "Content-Type", "application/json");
	if (c->key)
		map_set(&headers, "Idempotency-Key", c->key);
	bool kept = cli->session && cli->session->client;
	keep_error_body(cli, NULL);
	int rc = send_once(cli, c, &headers, body, &a, &e);
	if (rc != 0 && e.code == ERR_UNREACHABLE && kept && repeatable(c))
		rc = send_once(cli, c, &headers, body, &a, &e);
	if (rc == 0)
		rc = take_answer(cli, &a, ret, &e);
	http_answer_done(&a);
	if (rc != 0 && err)
		*err = e;
	return rc;
}

struct line_state {
	const struct line_call *c;
	struct buf line;
	bool any;
};

static int give_line(struct line_state *s, struct error *err)
{
	cJSON *j = NULL;
	if (s->line.len == 0)
		return 0;
	if (json_parse(s->line.data, s->line.len, &j, NULL) != 0)
		return error_set(err, ERR_PROTOCOL, "the server sent a line that is not JSON");
	buf_reset(&s->line);
	s->any = true;
	int rc = s->c->line(s->c->ctx, j, err);
	cJSON_Delete(j);
	return rc;
}

static int on_piece(void *ctx, const char *p, size_t n, struct error *err)
{
	struct line_state *s = ctx;
	while (n > 0) {
		const char *nl = memchr(p, '\n', n);
		size_t len = nl ? (size_t)(nl - p) : n;
		buf_add(&s->line, p, len);
		if (s->line.overflow)
			return error_set(err, ERR_PROTOCOL, "the server sent a line over %d bytes", LINE_BYTES_MAX);
		if (!nl)
			return 0;
		if (give_line(s, err) != 0)
			return -1;
		p += len + 1;
		n -= len + 1;
	}
	return 0;
}

int session_lines(struct cli *cli, const struct line_call *c, struct error *err)
{
	struct line_state state = { .c = c, .line = BUF_INIT_MAX(LINE_BYTES_MAX) };
	auto_free char *body = c->body ? json_print(c->body) : NULL;
	auto_map headers = MAP_INIT;
	map_set(&headers, "Content-Type", c->body_fd >= 0 ? "application/x-tar" : "application/json");
	if (cli->dry_run)
		return show_dry(cli, c->method, c->target, c->body, err);
	if (ensure_client(cli, false, err) != 0)
		return -1;
	struct http_request q = {
		.method = c->method, .target = c->target, .headers = &headers, .body = body, .n = body ? strlen(body) : 0,
		.from_fd = c->body_fd >= 0, .body_fd = c->body_fd, .timeout_ms = STREAM_TIMEOUT_MS, .on_body = on_piece, .ctx = &state,
	};
	struct http_answer a = { .status = 0 };
	int rc = send_request(cli, &q, &a, err);
	if (rc == 0 && (a.status < 200 || a.status > 299))
		rc = failed_answer(cli, &a, err);
	else if (rc == 0)
		rc = give_line(&state, err);
	if (rc == 0 && !state.any)
		rc = error_set(err, ERR_PROTOCOL, "the server ended its answer without a result");
	buf_done(&state.line);
	http_answer_done(&a);
	return rc;
}

/* --- streams ---------------------------------------------------------------------------------------------------- */

static bool coming_back(const struct cli *cli, const struct upgrade *u, const struct error *e)
{
	if (!u->restart || (e->code != ERR_UNREACHABLE && e->code != ERR_UNAVAILABLE) || clock_mono_ms() >= u->deadline_ms)
		return false;
	struct pollfd p = { .fd = waits_end(cli), .events = POLLIN };
	return poll(&p, 1, RESTART_POLL_MS) <= 0;
}

static int upgrade_remote(struct cli *cli, const struct upgrade *u, int *ret_fd, struct error *err)
{
	struct http_answer refusal = { .status = 0 };
	session_remote_set_interrupt(cli->session->remote, waits_end(cli));
	int rc = session_remote_stream(cli->session->remote, "/v1/mux", u->early, u->early_n, ret_fd, &refusal, err);
	if (rc > 0)
		rc = failed_answer(cli, &refusal, err);
	http_answer_done(&refusal);
	return rc;
}

static int upgrade_local(struct cli *cli, const struct upgrade *u, int *ret_fd, struct buf *ret_rest, struct error *err)
{
	struct unix_client *client;
	if (connect_new(cli, u->restart, &client, err) != 0)
		return -1;
	unix_client_set_interrupt(client, waits_end(cli));
	return unix_client_upgrade(client, "/v1/mux", u->early, u->early_n, ret_fd, ret_rest, err);
}

int session_upgrade(struct cli *cli, const struct upgrade *u, int *ret_fd, struct buf *ret_rest, struct error *err)
{
	struct session *s;
	if (session_get(cli, &s, err) != 0)
		return -1;
	for (;;) {
		struct error e = ERROR_INIT;
		if ((s->remote ? upgrade_remote(cli, u, ret_fd, &e) : upgrade_local(cli, u, ret_fd, ret_rest, &e)) == 0)
			return 0;
		if (!coming_back(cli, u, &e)) {
			if (err)
				*err = e;
			return -1;
		}
	}
}

/* --- small things ----------------------------------------------------------------------------------------------- */

char *session_path(const char *fmt, ...)
{
	struct buf out = BUF_INIT;
	va_list ap;
	va_start(ap, fmt);
	for (; *fmt; fmt++) {
		if (fmt[0] == '%' && fmt[1] == 's') {
			auto_free char *enc = url_encode(va_arg(ap, const char *));
			buf_adds(&out, enc);
			fmt++;
		} else {
			buf_addc(&out, *fmt);
			fmt += fmt[0] == '%' && fmt[1] == '%';
		}
	}
	va_end(ap);
	return buf_steal(&out);
}

struct idem idem_new(void)
{
	struct idem i;
	struct id id = id_new();
	snprintf(i.text, sizeof(i.text), "%s", id.text);
	return i;
}
