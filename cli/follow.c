/* An attach stream up to the exit status: see follow.h. */
#include "cli/follow.h"

#include "cli/ending.h"
#include "cli/output.h"
#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>
#include <unistd.h>

static int parse_when(const char *what, const char *text, int64_t *ret_us, struct error *err)
{
	int64_t ms;
	if (strchr(text, ':') || strchr(text, 'T')) {
		if (time_parse_rfc3339(text, ret_us) == 0 && *ret_us > 0)
			return 0;
		return error_set(err, ERR_INVALID, "%s: '%s' is no time such as 2026-01-02T15:04:05Z", what, text);
	}
	if (parse_duration_ms(what, text, 0, INT64_MAX / 2000, &ms, err) != 0)
		return -1;
	*ret_us = clock_wall_us() - ms * 1000;
	return *ret_us > 0 ? 0 : error_set(err, ERR_INVALID, "%s: '%s' ago is before there were computers", what, text);
}

int follow_parse_since(const char *what, const char *text, void *field, struct error *err)
{
	struct follow_options *o = field;
	if (text[strspn(text, "0123456789,")])
		return parse_when(what, text, &o->since_us, err);
	const char *comma = strchr(text, ',');
	auto_free char *first = comma ? xstrndup(text, (size_t)(comma - text)) : xstrdup(text);
	int64_t out, errs = 0;
	if (parse_i64(what, first, 0, INT64_MAX, &out, err) != 0 || (comma && parse_i64(what, comma + 1, 0, INT64_MAX, &errs, err) != 0))
		return -1;
	o->since_out = (uint64_t)out;
	o->since_err = (uint64_t)errs;
	return 0;
}

int follow_run(struct cli *cli, const struct follow_options *o, struct stream_result *ret, struct error *err)
{
	auto_tlv open = TLV_INIT;
	tlv_add_u64(&open, MUX_F_KIND, MUX_KIND_ATTACH);
	tlv_add_str(&open, MUX_F_SANDBOX, o->sandbox);
	tlv_add_str(&open, MUX_F_OPERATION, o->operation);
	tlv_add_u64(&open, MUX_F_OFFSET_OUT, o->since_out);
	tlv_add_u64(&open, MUX_F_OFFSET_ERR, o->since_err);
	if (o->since_us || o->stamps)
		tlv_add_u64(&open, MUX_F_TIME_US, (uint64_t)o->since_us);
	struct stream_request rq = {
		.open = &open, .dialler = session_dialler(cli), .attach = true, .attach_sandbox = o->sandbox, .until_now = o->until_now,
		.tail = o->tail, .tail_lines = (uint64_t)o->tail_lines, .in = -1, .out = STDOUT_FILENO, .err = STDERR_FILENO,
		.escape = -1, .offset_out = o->since_out, .offset_err = o->since_err, .quiet = cli->quiet, .later = o->since_us != 0,
		.stamps = o->stamps,
	};
	if (stream_run(&rq, ret, err) != 0)
		return -1;
	if (!ret->closed || ret->accepted)
		return 0;
	auto_free char *text = ending_text(ret, 0);
	return error_set(err, ending_code(ret->error), "%s", text ? text : "the server refused");
}
