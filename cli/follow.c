/* An attach stream up to the exit status: see follow.h. */
#include "cli/follow.h"

#include "cli/ending.h"
#include "cli/output.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>
#include <unistd.h>

int follow_parse_since(const char *what, const char *text, void *field, struct error *err)
{
	struct follow_options *o = field;
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
	struct stream_request rq = {
		.open = &open, .dialler = session_dialler(cli), .attach = true, .attach_sandbox = o->sandbox, .until_now = o->until_now,
		.tail = o->tail, .tail_lines = (uint64_t)o->tail_lines, .in = -1, .out = STDOUT_FILENO, .err = STDERR_FILENO,
		.escape = -1, .offset_out = o->since_out, .offset_err = o->since_err, .quiet = cli->quiet,
	};
	if (stream_run(&rq, ret, err) != 0)
		return -1;
	if (!ret->closed || ret->accepted)
		return 0;
	auto_free char *text = ending_text(ret, 0);
	return error_set(err, ending_code(ret->error), "%s", text ? text : "the server refused");
}
