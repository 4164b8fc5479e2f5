/* sandbox forward: ports of this machine's loopback that lead to ports of a sandbox's own loopback. */
#include "cli/command.h"

#include "cli/background.h"
#include "cli/dial.h"
#include "cli/forward.h"
#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>
#include <unistd.h>

enum { PORTS_MAX = LIMIT_FORWARDS_MAX };

struct options {
	const char *ref;
	struct strv ports;
	bool detach;
	bool stdio;
};

static const struct option_row options[] = {
	OPT_FLAG('d', "detach", struct options, detach, "go on in the background once every port listens"),
	OPT_FLAG(0, "stdio", struct options, stdio, "carry one port on standard input and output"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct options, ref, "id, name, or a unique start or end of the id"),
	POS(POS_MANY, WHAT_TEXT, "PORT", struct options, ports, "[LOCAL:]REMOTE; LOCAL 0 takes a free one"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox forward web 3000 8080:80", "http://localhost:3000 and :8080, until Ctrl-C" },
	{ "sandbox forward -d db 0:5432 -q", "print the local port and go on" },
	{ "ssh -o ProxyCommand='sandbox forward --stdio web 22' web", "any TCP" },
	{ NULL, NULL },
};

struct forwarding {
	struct cli *cli;
	struct forward_request rq;
	struct forward_port ports[PORTS_MAX];
	char id[64], name[80];
	bool background;
};

static int take_ports(const struct options *o, struct forwarding *w, struct error *err)
{
	if (o->ports.len > PORTS_MAX)
		return error_set(err, ERR_TOO_LARGE, "at most %d ports at a time", PORTS_MAX);
	for (size_t i = 0; i < o->ports.len; i++)
		if (forward_port_parse(o->ports.items[i], &w->ports[i], err) != 0)
			return -1;
	w->rq.ports = w->ports;
	w->rq.n_ports = o->ports.len;
	return 0;
}

/* The id: a sandbox that takes the name later must not get the connections. */
static int find_sandbox(struct forwarding *w, const char *ref, struct error *err)
{
	auto_json *s = NULL;
	auto_free char *target = session_path("/v1/sandboxes/%s", ref);
	struct call c = { .method = "GET", .target = target };
	if (session_call(w->cli, &c, &s, err) != 0)
		return -1;
	const char *name = json_text(s, "name");
	snprintf(w->id, sizeof(w->id), "%s", json_text(s, "id"));
	snprintf(w->name, sizeof(w->name), "%s", *name ? name : w->id);
	w->rq.sandbox = w->id;
	return 0;
}

static cJSON *ports_json(const struct forwarding *w)
{
	cJSON *list = cJSON_CreateArray();
	for (size_t i = 0; i < w->rq.n_ports; i++) {
		cJSON *j = cJSON_CreateObject();
		json_add_i64(j, "local_port", w->ports[i].local);
		json_add_i64(j, "port", w->ports[i].remote);
		cJSON_AddItemToArray(list, j);
	}
	return list;
}

static int show(const struct forwarding *w, int pid, struct error *err)
{
	if (w->cli->json) {
		auto_json *j = cJSON_CreateObject();
		json_add_str(j, "sandbox_id", w->id);
		json_add_i64(j, "pid", pid);
		cJSON_AddItemToObject(j, "forwards", ports_json(w));
		if (out_json(w->cli, j, err) != 0)
			return -1;
	}
	for (size_t i = 0; !w->cli->json && i < w->rq.n_ports; i++) {
		if (w->cli->quiet)
			out_line("%u", w->ports[i].local);
		else
			out_line("localhost:%u -> %s:%u", w->ports[i].local, w->name, w->ports[i].remote);
	}
	return out_finish(err);
}

static int on_ready(void *ctx, struct error *err)
{
	struct forwarding *w = ctx;
	if (w->background)
		return background_ready(err);
	if (show(w, (int)getpid(), err) != 0)
		return -1;
	out_note(w->cli, "forwarding; Ctrl-C ends it");
	return 0;
}

static int run_here(void *ctx, const char *ref, struct error *err)
{
	struct forwarding *w = ctx;
	return find_sandbox(w, ref, err) == 0 ? forward_run(w->cli, &w->rq, err) : -1;
}

struct detached {
	struct forwarding *w;
	const char *ref;
};

static int run_detached(void *ctx, struct error *err)
{
	struct detached *d = ctx;
	return run_here(d->w, d->ref, err);
}

static int run_stdio(struct cli *cli, const struct options *o, struct error *err)
{
	struct forward_port port;
	if (o->detach || o->ports.len != 1 || strchr(o->ports.items[0], ':'))
		return error_set(err, ERR_INVALID, "--stdio takes one PORT inside, no LOCAL and no --detach");
	if (forward_port_parse(o->ports.items[0], &port, err) != 0)
		return -1;
	return dial_pipe(cli, o->ref, port.remote, STDIN_FILENO, STDOUT_FILENO, err);
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	struct forwarding w = { .cli = cli, .background = o->detach };
	int pid;
	if (o->stdio)
		return run_stdio(cli, o, err);
	if (take_ports(o, &w, err) != 0)
		return -1;
	w.rq.ready = on_ready;
	w.rq.ctx = &w;
	if (!o->detach)
		return run_here(&w, o->ref, err);
	struct detached d = { .w = &w, .ref = o->ref };
	if (background_run(cli, run_detached, &d, &w, sizeof(w), &pid, err) != 0)
		return -1;
	return show(&w, pid, err);
}

const struct verb verb_forward = {
	.name = "forward",
	.group = GROUP_INSIDE,
	.summary = "reach ports inside a sandbox from this machine",
	.details = "Listens on localhost (both families) and carries each connection to the\n"
		   "sandbox's own loopback: it needs no network, and nobody else gets a way in.",
	.manual = "Servers inside may listen on 127.0.0.1, ::1 or every address; 127.0.0.1 is tried first. LOCAL is REMOTE when it is not given. Nothing "
		  "but loopback addresses of this machine is ever bound. Each end of a direction is passed on as such, a reset as a reset; trouble of one "
		  "connection does not touch the others. While nothing listens inside, connections are refused at once.\n"
		  "\n"
		  "It ends with an error when the sandbox ends. When the connection to the server breaks, open connections are reset and it connects again "
		  "for a minute. With --detach the process id is in the JSON (pid); `kill` ends it, as does the sandbox's end.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.examples = examples,
	.run = run,
};
