/*
 * Clients' connections: see gate.h. Nothing a client wrote goes on as it stands: nodes get what the server established.
 */
#include "daemon/link/gate.h"

#include "daemon/controller/identity.h"
#include "daemon/controller/tunnels.h"
#include "daemon/link/refusal.h"
#include "daemon/link/share.h"
#include "daemon/worker/mailbox.h"
#include "daemon/worker/muxconn.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <limits.h>

enum { REF_MAX = 128 };

struct gate {
	struct muxloop *loop;
	struct mailbox *mail;
	struct controller *controller;
	struct node_ports *ports;
	struct shared_ports *shares;
	struct client *clients;
};

struct client {
	struct gate *g;
	struct client *prev, *next;
	struct caller who;
	struct muxconn *conn;
	void (*gone)(void *ctx);
	void *gone_ctx;
};

/* One OPEN while it is judged. */
struct asked {
	struct client *c;
	struct mux *m;
	uint32_t stream;
	const struct tlv *fields;
	struct error *refused; /* why, for the audit log; NONE: granted */
};

static void refuse(const struct asked *a, enum mux_error why, const char *text)
{
	auto_tlv fields = TLV_INIT;

	if (a->refused->code == ERR_NONE)
		error_set(a->refused, ERR_INVALID, "%s", text);
	refusal_fields(&fields, why, text);
	mux_close(a->m, a->stream, &fields);
}

static void refuse_error(const struct asked *a, const struct error *err)
{
	*a->refused = *err;
	refuse(a, mux_error_of_code(err->code), err->message);
}

/* Who may resume: the same caller in the same tenant. */
static void owner_text(const struct caller *who, char *out, size_t n)
{
	snprintf(out, n, "%s/%s", who->tenant, who->who);
}

/* --- exec --- */

static int take_command(const struct tlv *f, struct command *cmd, struct error *err)
{
	uint64_t flags = tlv_u64(f, MUX_F_FLAGS, 0), timeout = tlv_u64(f, MUX_F_TIMEOUT_MS, 0);
	uint64_t rows = tlv_u64(f, MUX_F_ROWS, 0), cols = tlv_u64(f, MUX_F_COLS, 0);
	const unsigned known = MUX_OPEN_STDIN | MUX_OPEN_TTY | MUX_OPEN_DETACH | MUX_OPEN_SHELL_FALLBACK;

	if (flags & ~(uint64_t)known)
		return error_set(err, ERR_INVALID, "flags %#llx are not known or not for clients", (unsigned long long)flags);
	if (rows > UINT16_MAX || cols > UINT16_MAX)
		return error_set(err, ERR_INVALID, "a terminal has at most %d rows and columns", UINT16_MAX);
	if (timeout > INT64_MAX / 2)
		return error_set(err, ERR_INVALID, "the time-out is out of range");
	cmd->stdin_open = flags & MUX_OPEN_STDIN && !(flags & MUX_OPEN_DETACH);
	cmd->tty = flags & MUX_OPEN_TTY;
	cmd->rows = (uint16_t)rows;
	cmd->cols = (uint16_t)cols;
	cmd->timeout_ms = (int64_t)timeout;
	if (tlv_strv(f, MUX_F_ARG, LIMIT_ARGS_MAX, LIMIT_ARG_ONE_MAX, &cmd->argv, err) != 0 ||
	    tlv_strv(f, MUX_F_ENV, LIMIT_ENV_MAX, LIMIT_ARG_ONE_MAX, &cmd->env, err) != 0 ||
	    tlv_str(f, MUX_F_CWD, LIMIT_PATH_BYTES_MAX, &cmd->cwd, err) != 0 ||
	    tlv_str(f, MUX_F_USER, LIMIT_PATH_BYTES_MAX, &cmd->user, err) != 0)
		return -1;
	return command_validate(cmd, err);
}

static int take_exec(const struct tlv *f, char **ret_ref, struct command *cmd, struct error *err)
{
	static const enum mux_field allowed[] = { MUX_F_KIND, MUX_F_WINDOW,	MUX_F_SANDBOX, MUX_F_ARG,  MUX_F_ENV, MUX_F_CWD,
						  MUX_F_USER, MUX_F_TIMEOUT_MS, MUX_F_FLAGS,   MUX_F_ROWS, MUX_F_COLS };

	if (tlv_only(f, allowed, ARRAY_LEN(allowed), err) != 0 || tlv_str(f, MUX_F_SANDBOX, REF_MAX, ret_ref, err) != 0)
		return -1;
	if (!*ret_ref)
		return error_set(err, ERR_INVALID, "no sandbox is named");
	return take_command(f, cmd, err);
}

/* What a command that was begun and could not be handed on became. */
static void not_started(struct gate *g, const struct id *operation, const struct error *why)
{
	struct error err = ERROR_INIT;

	if (controller_exec_end(g->controller, operation, NULL, why->code, why->message, &err) != 0)
		log_error("exec", "recording the end of operation=%s: %s", operation->text, err.message);
}

static int exec_granted(const struct asked *a, const struct exec_grant *grant, const struct command *cmd, struct error *err)
{
	uint64_t flags = tlv_u64(a->fields, MUX_F_FLAGS, 0);
	struct node_stream what = {
		.kind = MUX_KIND_EXEC,
		.sandbox = grant->sandbox,
		.grant = grant,
		.command = cmd,
		.flags = (unsigned)flags & MUX_OPEN_SHELL_FALLBACK,
		.detached = flags & MUX_OPEN_DETACH,
	};
	struct node_port *n = node_ports_find(a->c->g->ports, &grant->node, err);

	what.conn = a->c->conn;
	owner_text(&a->c->who, what.owner, sizeof(what.owner));
	if (n && n->ops->open(n, a->m, a->stream, &what, err) == 0)
		return 0;
	not_started(a->c->g, &grant->operation, err);
	return -1;
}

static void open_exec(const struct asked *a)
{
	struct error err = ERROR_INIT;
	auto_free char *ref = NULL;
	struct exec_grant grant;
	struct exec_request req;
	struct command cmd;
	bool seen;
	int rc;

	command_init(&cmd);
	req = (struct exec_request){ .command = &cmd, .detached = tlv_u64(a->fields, MUX_F_FLAGS, 0) & MUX_OPEN_DETACH,
				      .reachable = node_ports_reachable, .ctx = a->c->g->ports };
	rc = take_exec(a->fields, &ref, &cmd, &err);
	req.sandbox = ref;
	if (rc != 0 || controller_exec_begin_once(a->c->g->controller, &a->c->who, &req, &grant, &seen, &err) != 0 ||
	    exec_granted(a, &grant, &cmd, &err) != 0)
		refuse_error(a, &err);
	command_done(&cmd);
}

/* --- resume and attach --- */

static void take_offsets(const struct tlv *f, uint64_t ret[2])
{
	ret[0] = tlv_u64(f, MUX_F_OFFSET_OUT, 0);
	ret[1] = tlv_u64(f, MUX_F_OFFSET_ERR, 0);
}

/* Hands the stream to the node that has the sandbox. */
static int hand_on(const struct asked *a, const struct id *node, const struct node_stream *what, struct error *err)
{
	struct node_port *n = node_ports_find(a->c->g->ports, node, err);

	return n ? n->ops->open(n, a->m, a->stream, what, err) : -1;
}

static int show_operation(const struct asked *a, const char *text, struct node_stream *what, struct error *err)
{
	struct controller *c = a->c->g->controller;
	auto_operation op;
	struct id node;

	operation_init(&op);
	if (controller_operation(c, &a->c->who, text, &op, err) != 0)
		return -1;
	if (op.kind != OPK_EXEC)
		return error_set(err, ERR_INVALID, "operation %s is a %s: it has no output", text, op_kind_text(op.kind));
	if (controller_operation_node(c, &op.id, &node, err) != 0)
		return -1;
	what->sandbox = op.sandbox_id;
	what->operation = &op;
	return hand_on(a, &node, what, err);
}

static int show_main(const struct asked *a, const char *ref, struct node_stream *what, struct error *err)
{
	auto_sandbox s;

	sandbox_init(&s);
	if (controller_resolve(a->c->g->controller, &a->c->who, ref, &s, err) != 0)
		return -1;
	what->sandbox = s.id;
	return hand_on(a, &s.node_id, what, err);
}

/* Output of an operation the caller may see, or of a sandbox's start command. */
static int show_asked(const struct asked *a, enum mux_kind kind, struct error *err)
{
	auto_free char *operation = NULL, *ref = NULL;
	struct node_stream what = { .kind = kind, .conn = a->c->conn };

	owner_text(&a->c->who, what.owner, sizeof(what.owner));
	take_offsets(a->fields, what.from);
	what.times = tlv_has(a->fields, MUX_F_TIME_US);
	what.since_us = (int64_t)(tlv_u64(a->fields, MUX_F_TIME_US, 0) & INT64_MAX);
	if (tlv_str(a->fields, MUX_F_OPERATION, ID_TEXT_LEN, &operation, err) != 0 ||
	    tlv_str(a->fields, MUX_F_SANDBOX, REF_MAX, &ref, err) != 0)
		return -1;
	if (operation)
		return show_operation(a, operation, &what, err);
	if (ref)
		return show_main(a, ref, &what, err);
	return error_set(err, ERR_INVALID, "neither an operation nor a sandbox is named");
}

static void open_attach(const struct asked *a)
{
	static const enum mux_field allowed[] = { MUX_F_KIND,	   MUX_F_WINDOW,     MUX_F_SANDBOX,
						  MUX_F_OPERATION, MUX_F_OFFSET_OUT, MUX_F_OFFSET_ERR, MUX_F_TIME_US };
	struct error err = ERROR_INIT;

	if (tlv_only(a->fields, allowed, ARRAY_LEN(allowed), &err) != 0 || show_asked(a, MUX_KIND_ATTACH, &err) != 0)
		refuse_error(a, &err);
}

static void open_resume(const struct asked *a)
{
	static const enum mux_field allowed[] = { MUX_F_KIND, MUX_F_WINDOW, MUX_F_OPERATION, MUX_F_OFFSET_OUT, MUX_F_OFFSET_ERR };
	struct error err = ERROR_INIT;
	int rc = tlv_only(a->fields, allowed, ARRAY_LEN(allowed), &err);

	if (rc == 0 && a->c->who.role < ROLE_OPERATOR)
		rc = error_set(&err, ERR_FORBIDDEN, "only who started a command may resume it; attach to watch it");
	if (rc != 0 || show_asked(a, MUX_KIND_RESUME, &err) != 0)
		refuse_error(a, &err);
}

/* --- what is only passed on --- */

static int relay_fields(const struct asked *a, enum mux_kind kind, struct sandbox *s, struct tlv *out, struct error *err)
{
	static const enum mux_field allowed[] = { MUX_F_KIND, MUX_F_WINDOW, MUX_F_SANDBOX, MUX_F_PATH, MUX_F_ACTION,
						  MUX_F_PORT, MUX_F_FLAGS,  MUX_F_USER,	   MUX_F_CWD,  MUX_F_NAME };
	auto_free char *ref = NULL, *path = NULL, *user = NULL, *cwd = NULL, *name = NULL;
	const struct tlv *f = a->fields;

	if (tlv_only(f, allowed, ARRAY_LEN(allowed), err) != 0 || tlv_str(f, MUX_F_SANDBOX, REF_MAX, &ref, err) != 0 ||
	    tlv_str(f, MUX_F_PATH, LIMIT_PATH_BYTES_MAX, &path, err) != 0 ||
	    tlv_str(f, MUX_F_USER, LIMIT_PATH_BYTES_MAX, &user, err) != 0 ||
	    tlv_str(f, MUX_F_CWD, LIMIT_PATH_BYTES_MAX, &cwd, err) != 0 || tlv_str(f, MUX_F_NAME, NAME_MAX, &name, err) != 0)
		return -1;
	if (!ref)
		return error_set(err, ERR_INVALID, "no sandbox is named");
	if (a->c->who.role < ROLE_OPERATOR)
		return error_set(err, ERR_FORBIDDEN, "a viewer may not reach into sandboxes");
	if (controller_resolve(a->c->g->controller, &a->c->who, ref, s, err) != 0)
		return -1;
	if (s->state != SANDBOX_RUNNING)
		return error_set(err, s->end_reason == OUTCOME_EXPIRED ? ERR_EXPIRED : ERR_CONFLICT, "sandbox %s is %s", ref,
				 sandbox_state_text(s->state));
	tlv_add_u64(out, MUX_F_KIND, kind);
	tlv_add_str(out, MUX_F_PATH, path);
	tlv_add_str(out, MUX_F_USER, user);
	tlv_add_str(out, MUX_F_CWD, cwd);
	tlv_add_str(out, MUX_F_NAME, name);
	if (tlv_has(f, MUX_F_ACTION))
		tlv_add_u64(out, MUX_F_ACTION, tlv_u64(f, MUX_F_ACTION, 0));
	if (tlv_has(f, MUX_F_PORT))
		tlv_add_u64(out, MUX_F_PORT, tlv_u64(f, MUX_F_PORT, 0));
	if (tlv_has(f, MUX_F_FLAGS))
		tlv_add_u64(out, MUX_F_FLAGS, tlv_u64(f, MUX_F_FLAGS, 0));
	return 0;
}

static void open_relay(const struct asked *a, enum mux_kind kind)
{
	struct error err = ERROR_INIT;
	auto_tlv out = TLV_INIT;
	auto_sandbox s;

	sandbox_init(&s);
	int rc = relay_fields(a, kind, &s, &out, &err);
	struct node_stream what = { .kind = kind, .sandbox = s.id, .conn = a->c->conn, .fields = &out };
	if (rc != 0 || hand_on(a, &s.node_id, &what, &err) != 0)
		refuse_error(a, &err);
}

/* --- the connection --- */

static const char *action_of(uint64_t kind)
{
	static const char *const actions[] = {
		[MUX_KIND_EXEC] = "stream.exec",	   [MUX_KIND_RESUME] = "stream.resume",	      [MUX_KIND_ATTACH] = "stream.attach",
		[MUX_KIND_FILES_GET] = "stream.files_get", [MUX_KIND_FILES_PUT] = "stream.files_put", [MUX_KIND_DIAL] = "stream.dial",
		[MUX_KIND_PS] = "stream.ps",		   [MUX_KIND_WATCH] = "stream.watch",
		[MUX_KIND_SHARE] = "stream.share",
	};

	return kind < ARRAY_LEN(actions) && actions[kind] ? actions[kind] : "stream.unknown";
}

/* After the stream is on its way: what is written here delays nobody. The detail is the program, path or port, never arguments. */
static void audit(const struct asked *a, uint64_t kind)
{
	auto_free char *sandbox = NULL, *operation = NULL, *path = NULL;
	auto_strv argv = STRV_INIT;
	const struct error *why = a->refused;
	char port[16] = "";

	tlv_str(a->fields, MUX_F_SANDBOX, REF_MAX, &sandbox, NULL);
	tlv_str(a->fields, MUX_F_OPERATION, ID_TEXT_LEN, &operation, NULL);
	tlv_str(a->fields, MUX_F_PATH, LIMIT_PATH_BYTES_MAX, &path, NULL);
	tlv_strv(a->fields, MUX_F_ARG, LIMIT_ARGS_MAX, LIMIT_ARG_ONE_MAX, &argv, NULL);
	if (tlv_has(a->fields, MUX_F_PORT))
		snprintf(port, sizeof(port), "port %u", (unsigned)(uint16_t)tlv_u64(a->fields, MUX_F_PORT, 0));
	struct audit_entry e = {
		.action = action_of(kind),
		.target = sandbox ? sandbox : operation,
		.code = why->code,
		.detail = why->code != ERR_NONE ? why->message : argv.len ? argv.items[0] : path ? path : port[0] ? port : NULL,
	};
	controller_audit(a->c->g->controller, &a->c->who, &e);
}

/* For the edge, which speaks for strangers: what it asks is looked up again. */
static int open_route(const struct asked *a, struct error *err)
{
	static const enum mux_field allowed[] = { MUX_F_KIND, MUX_F_WINDOW, MUX_F_SANDBOX, MUX_F_PORT };
	auto_free char *text = NULL;
	auto_tlv out = TLV_INIT;
	uint64_t port = tlv_u64(a->fields, MUX_F_PORT, 0);
	struct node_stream what = { .kind = MUX_KIND_DIAL, .fields = &out };
	struct id node;

	if (tlv_u64(a->fields, MUX_F_KIND, 0) != MUX_KIND_DIAL || port < 1 || port > UINT16_MAX)
		return error_set(err, ERR_FORBIDDEN, "the edge only dials");
	if (tlv_only(a->fields, allowed, ARRAY_LEN(allowed), err) != 0 || tlv_str(a->fields, MUX_F_SANDBOX, REF_MAX, &text, err) != 0)
		return -1;
	if (!text || id_parse(text, &what.sandbox) != 0)
		return error_set(err, ERR_INVALID, "the edge names sandboxes by their ids");
	if (shared_port_dial(a->c->g->shares, &what.sandbox, a->m, a->stream))
		return 0;
	if (controller_route_dial(a->c->g->controller, &what.sandbox, (uint16_t)port, &node, err) != 0)
		return -1;
	tlv_add_u64(&out, MUX_F_KIND, MUX_KIND_DIAL);
	tlv_add_u64(&out, MUX_F_PORT, port);
	return hand_on(a, &node, &what, err);
}

static void open_share(const struct asked *a)
{
	struct error err = ERROR_INIT;

	if (shared_port_open(a->c->g->shares, &a->c->who, a->m, a->stream, a->fields, &err) != 0)
		refuse_error(a, &err);
}

static void open_kind(const struct asked *a, uint64_t kind)
{
	switch (kind) {
	case MUX_KIND_SHARE:
		open_share(a);
		break;
	case MUX_KIND_EXEC:
		open_exec(a);
		break;
	case MUX_KIND_RESUME:
		open_resume(a);
		break;
	case MUX_KIND_ATTACH:
		open_attach(a);
		break;
	case MUX_KIND_FILES_GET:
	case MUX_KIND_FILES_PUT:
	case MUX_KIND_DIAL:
	case MUX_KIND_PS:
	case MUX_KIND_WATCH:
		open_relay(a, (enum mux_kind)kind);
		break;
	default:
		refuse(a, MUX_ERR_REFUSED, "this kind of stream is not known here: update the daemon");
	}
}

static void on_opened(void *ctx, struct muxconn *conn, uint32_t stream, const struct tlv *fields)
{
	struct error refused = ERROR_INIT;
	struct asked a = { .c = ctx, .m = muxconn_mux(conn), .stream = stream, .fields = fields, .refused = &refused };
	uint64_t kind = tlv_u64(fields, MUX_F_KIND, 0);
	struct error err = ERROR_INIT;

	/* Visitors are not in the audit log: their requests are not operators' deeds. */
	if (a.c->who.edge) {
		if (open_route(&a, &err) != 0)
			refuse_error(&a, &err);
		return;
	}
	open_kind(&a, kind);
	audit(&a, kind);
}

static void on_gone(void *ctx, struct muxconn *conn, const char *why)
{
	struct client *c = ctx;

	(void)conn;
	log_debug("exec", "client gone who=\"%s\" why=\"%s\"", c->who.who, why);
	if (c->prev)
		c->prev->next = c->next;
	else
		c->g->clients = c->next;
	if (c->next)
		c->next->prev = c->prev;
	if (c->gone)
		c->gone(c->gone_ctx);
	free(c);
}

static const struct muxconn_ops client_ops = { .opened = on_opened, .gone = on_gone };

struct arrival {
	struct client *c;
	int fd;
	size_t n;
	uint8_t early[];
};

static void do_serve(void *arg)
{
	struct arrival *a = arg;
	struct client *c = a->c;
	auto_tlv hello = TLV_INIT;

	c->next = c->g->clients;
	if (c->next)
		c->next->prev = c;
	c->g->clients = c;
	c->conn = muxconn_new(c->g->loop, a->fd, &client_ops, c, false);
	tlv_add_str(&hello, MUX_F_PROGRAM, "sandboxd " SANDBOX_VERSION);
	mux_hello(muxconn_mux(c->conn), &hello);
	muxconn_early(c->conn, a->early, a->n);
	free(a);
}

void gate_serve(struct gate *g, const struct caller *who, int take_fd, const void *early, size_t n, void (*gone)(void *ctx), void *ctx)
{
	struct arrival *a = xmalloc(sizeof(*a) + n);
	struct client *c = xcalloc(1, sizeof(*c));

	c->g = g;
	c->who = *who;
	c->gone = gone;
	c->gone_ctx = ctx;
	a->c = c;
	a->fd = take_fd;
	a->n = n;
	if (n > 0)
		memcpy(a->early, early, n);
	mailbox_post(g->mail, do_serve, a);
}

struct gate *gate_new(struct muxloop *loop, struct mailbox *mail, struct controller *c, struct node_ports *ports)
{
	struct gate *g = xcalloc(1, sizeof(*g));

	g->loop = loop;
	g->mail = mail;
	g->controller = c;
	g->ports = ports;
	g->shares = shared_ports_new(muxloop_base(loop), c);
	return g;
}

void gate_free(struct gate *g)
{
	if (!g)
		return;
	mailbox_drain(g->mail);
	while (g->clients)
		muxconn_drop(g->clients->conn, "the daemon stops");
	shared_ports_free(g->shares);
	free(g);
}
