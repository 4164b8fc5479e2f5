/*
 * Commands through another program: see init.h. The tenant's environment never becomes that program's own (LD_PRELOAD would
 * then be obeyed on the host): every entry travels under a prefix, and so out of sight of other users' ps.
 */
#include "daemon/init/init.h"

#include "shared/base/mem.h"

static void add_option(struct strv *args, const char *name, const char *value)
{
	strv_add(args, name);
	strv_add(args, value);
}

void through_rewrite(const struct init *in, struct request *r)
{
	struct strv args = STRV_INIT, env = STRV_INIT;
	auto_free char *timeout = xasprintf("%lld", (long long)r->timeout_ms);

	for (size_t i = 0; i < in->through.len; i++)
		strv_add(&args, in->through.items[i]);
	add_option(&args, "--cwd", r->cwd);
	add_option(&args, "--timeout-ms", timeout);
	if (r->user)
		add_option(&args, "--user", r->user);
	strv_add(&args, "--");
	for (size_t i = 0; i < r->args.len; i++)
		strv_add(&args, r->args.items[i]);
	for (size_t i = 0; i < r->env.len; i++)
		strv_take(&env, xasprintf(THROUGH_ENV "%s", r->env.items[i]));
	request_done(r);
	r->args = args;
	r->env = env;
	r->cwd = xstrdup("/");
	r->group_count = 0;
	r->keep_caps = false;
	/* The driver is to end the command; this is for one that does not. */
	if (r->timeout_ms)
		r->timeout_ms += THROUGH_GRACE_MS;
}
