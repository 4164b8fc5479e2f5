/* sandbox http: a public address for a port of this machine, until Ctrl-C. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/share.h"
#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"

#include <string.h>

struct options {
	const char *port, *subdomain, *host_header;
};

static const struct option_row options[] = {
	OPT_TEXT(0, "subdomain", struct options, subdomain, "NAME", "first part of the address (one nobody can guess)"),
	OPT_WORD(0, "host-header", struct options, host_header, "HOW", "rewrite|keep", "tell the server localhost, or the address (rewrite)"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_TEXT, "PORT", struct options, port, "port of this machine's loopback"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox http 3000", "show a server on this machine to somebody else" },
	{ NULL, NULL },
};

static int on_ready(void *ctx, const char *url, int64_t expires_us, bool again, struct error *err)
{
	struct cli *cli = ctx;
	char left[16];
	if (again) {
		out_note(cli, "connected again: %s", url);
		return 0;
	}
	if (cli->json) {
		auto_json *j = cJSON_CreateObject();
		json_add_str(j, "public_url", url);
		json_add_time(j, "expires_at", expires_us);
		if (out_json(cli, j, err) != 0)
			return -1;
	} else {
		out_line("%s", url);
	}
	out_note(cli, "anybody with this address reaches the port for %s; Ctrl-C ends it", span_text((expires_us - clock_wall_us()) / 1000, left));
	return out_finish(err);
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	int64_t port;
	if (parse_i64("PORT", o->port, 1, 65535, &port, err) != 0)
		return -1;
	struct share_request rq = { .port = (uint16_t)port, .subdomain = o->subdomain, .keep_host = o->host_header && strcmp(o->host_header, "keep") == 0,
				    .ready = on_ready, .ctx = cli };
	return share_run(cli, &rq, err);
}

const struct verb verb_http = {
	.name = "http",
	.group = GROUP_SYSTEM,
	.summary = "give a port of this machine a public address",
	.details = "Until Ctrl-C, through the server's tunnels, where it enables that.",
	.manual = "WebSockets, event streams and hot reloading pass as in `sandbox tunnel`, which also says what --host-header does. A lost connection is made again "
		  "for ten minutes, with the same address. The server sets how long one may be open (edge.share_ttl) and how many there may be. A NAME stays with your "
		  "tenant for 30 days.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.examples = examples,
	.run = run,
};
