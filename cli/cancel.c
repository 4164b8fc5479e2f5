/* The request that ends a command: see cancel.h. */
#include "cli/cancel.h"

#include "cli/session.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"

#include <signal.h>
#include <string.h>
#include <strings.h>

int cancel_parse_signal(const char *what, const char *text, void *field, struct error *err)
{
	const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
	int64_t v;
	for (int sig = 1; sig < NSIG; sig++) {
		const char *abbrev = sigabbrev_np(sig);
		if (abbrev && strcasecmp(abbrev, name) == 0)
			return *(int *)field = sig, 0;
	}
	if (parse_i64(what, text, 1, 64, &v, NULL) != 0)
		return error_set(err, ERR_INVALID, "%s: '%.40s' is not a signal: a name such as TERM, or 1 to 64", what, text);
	return *(int *)field = (int)v, 0;
}

int cancel_operation(struct cli *cli, const char *id, int sig, cJSON **ret, struct error *err)
{
	auto_json *body = cJSON_CreateObject();
	auto_free char *target = session_path("/v1/operations/%s/cancel", id);
	if (sig)
		json_add_i64(body, "signal", sig);
	struct idem key = idem_new();
	struct call c = { .method = "POST", .target = target, .body = body, .key = key.text };
	return session_call(cli, &c, ret, err);
}
