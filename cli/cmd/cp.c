/* sandbox cp: file trees in and out of a sandbox. */
#include "cli/command.h"

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/place.h"
#include "cli/transfer.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <string.h>

struct options {
	struct transfer_options how;
	const char *from, *to;
};

static const struct option_row options[] = {
	OPT_FLAG('n', "dry-run", struct options, how.dry_run, "print what would be copied, copy nothing"),
	OPT_FLAG(0, "verify", struct options, how.verify, "compare SHA-256 of every file afterwards"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_PATH, "FROM", struct options, from, "PATH, SANDBOX:PATH, or - for a tar stream"),
	POS(POS_ONE, WHAT_PATH, "TO", struct options, to, "the other side; exactly one names a sandbox"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox cp src web:/workspace", "the directory src as /workspace/src" },
	{ "sandbox cp web:out/report.txt .", "a result; relative paths start in the working directory" },
	{ "sandbox cp web:/workspace - | tar t", "as a tar stream" },
	{ "sandbox cp :out/report.txt .", "from the sandbox that `sandbox use` chose" },
	{ NULL, NULL },
};

/* One side of the copy. */
struct place {
	char *sandbox; /* NULL: local */
	const char *path;
};

/* A colon before any slash makes it remote, and with nothing before it means the directory's own sandbox; ./a:b is a local file. */
static int parse_place(const char *text, struct place *ret, struct error *err)
{
	auto_free char *dir = NULL;
	const char *colon = strchr(text, ':'), *slash = strchr(text, '/');
	if (!*text)
		return error_set(err, ERR_INVALID, "a path is empty");
	ret->path = text;
	if (!colon || (slash && slash < colon))
		return 0;
	ret->path = colon + 1;
	if (colon > text)
		ret->sandbox = xstrndup(text, (size_t)(colon - text));
	else if (place_sandbox(&ret->sandbox, &dir, err) != 0)
		return -1;
	if (!ret->sandbox)
		return error_set(err, ERR_INVALID, "'%s' names no sandbox, and none was chosen for this directory (sandbox use); a local file is ./%s", text, text);
	if (!*ret->path)
		return error_set(err, ERR_INVALID, "'%s' names no path; the working directory is '%s.'", text, text);
	return 0;
}

static int copy(struct cli *cli, const struct options *o, const struct place *from, const struct place *to, struct transfer_stats *stats,
                struct error *err)
{
	if (!from->sandbox == !to->sandbox)
		return error_set(err, ERR_INVALID, from->sandbox ? "between two sandboxes use  sandbox cp A:PATH - | sandbox cp - B:PATH"
								 : "neither side names a sandbox: write SANDBOX:PATH");
	bool tar = strcmp(from->sandbox ? to->path : from->path, "-") == 0;
	if (tar && (o->how.verify || o->how.dry_run))
		return error_set(err, ERR_INVALID, "--verify and --dry-run need a tree on this side, not a tar stream");
	if (tar && from->sandbox && cli->json)
		return error_set(err, ERR_INVALID, "standard output is the tar stream; --json has no place there");
	if (from->sandbox)
		return transfer_get(cli, from->sandbox, from->path, to->path, &o->how, stats, err);
	return transfer_put(cli, to->sandbox, from->path, to->path, &o->how, stats, err);
}

static int print_json(struct cli *cli, struct transfer_stats *s, bool verify, struct error *err)
{
	auto_json *j = cJSON_CreateObject();
	json_add_i64(j, "entries", (int64_t)s->entries);
	json_add_i64(j, "files", (int64_t)s->files);
	json_add_i64(j, "bytes", (int64_t)s->bytes);
	json_add_i64(j, "skipped", (int64_t)s->skipped);
	json_add_i64(j, "failed", (int64_t)s->failed);
	if (verify) {
		json_add_i64(j, "verified", (int64_t)s->verified);
		cJSON_AddItemToObject(j, "sha256", s->hashes ? steal(&s->hashes) : cJSON_CreateArray());
	}
	return out_json(cli, j, err);
}

static int report(struct cli *cli, const struct options *o, struct transfer_stats *s, struct error *err)
{
	char bytes[24];
	if (cli->json && print_json(cli, s, o->how.verify, err) != 0)
		return -1;
	if (o->how.verify && !cli->json)
		out_note(cli, "%llu files verified by SHA-256", (unsigned long long)s->verified);
	if (s->failed)
		out_warn(cli, "%llu %s not copied", (unsigned long long)s->failed, s->failed == 1 ? "entry was" : "entries were");
	else if (cli->progress && !o->how.dry_run)
		out_note(cli, "copied %llu files, %s", (unsigned long long)s->files, size_text((double)s->bytes, bytes));
	return s->failed ? 1 : 0;
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	struct place from = { .sandbox = NULL }, to = { .sandbox = NULL };
	struct transfer_stats stats = { .entries = 0 };
	int status = parse_place(o->from, &from, err) != 0 || parse_place(o->to, &to, err) != 0 ? -1 : 0;
	if (status == 0)
		status = copy(cli, o, &from, &to, &stats, err);
	if (status == 0)
		status = report(cli, o, &stats, err);
	if (status < 0 && err->sys == EINTR && interrupt_signal()) {
		out_error(cli, err);
		status = 128 + interrupt_signal();
	}
	transfer_stats_done(&stats);
	free(from.sandbox);
	free(to.sandbox);
	return status;
}

const struct verb verb_cp = {
	.name = "cp",
	.alias = "copy",
	.group = GROUP_INSIDE,
	.summary = "copy files between here and a sandbox",
	.manual = "Places follow cp -a:\n"
		  "\n"
		  "  d  to a directory     becomes TO/d\n"
		  "  d/ to a directory     the same; a link d is followed\n"
		  "  d/. to a directory    only the contents go into TO\n"
		  "  d  to nothing         becomes TO; TO's parent must exist\n"
		  "  f  to a directory     becomes TO/f\n"
		  "  f  to a file          replaces it\n"
		  "  f  to nothing         becomes TO; an error when TO ends in /\n"
		  "  d  to a file          an error, as is a file onto a directory of its name\n"
		  "\n"
		  "Without a name before the colon the sandbox of `sandbox use` is meant. A relative SANDBOX:PATH starts in the sandbox's working directory. Links are copied as links and not followed below the top; modes "
		  "(without set-id bits), times, holes, hard links within the copy (of up to 65536 files) and extended attributes of the user. namespace are "
		  "kept where the file system can. What arrives here belongs to you, what arrives there to the sandbox's user. FIFOs, "
		  "sockets and devices are skipped with a warning. A file appears under its name only when it is complete, and a directory that was not "
		  "there before only with all that belongs into it: a copy that fails or is interrupted leaves none of it. Nothing a sandbox sends is "
		  "written outside TO, and no program inside is needed.\n"
		  "\n"
		  "- as FROM reads a tar stream (ustar, pax, GNU long names) and unpacks it into the directory TO; entries in tar's sparse "
		  "formats are refused one by one. - as TO writes one, with holes as zeros and owner 0.\n"
		  "\n"
		  "Exit status 1 when an entry could not be copied; the others are.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.examples = examples,
	.run = run,
};
