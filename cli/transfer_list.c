/* One directory of a sandbox, named entry by entry: see transfer.h. */
#include "cli/transfer_priv.h"

#include "shared/mux/kinds.h"

#include <string.h>

struct listing {
	void (*entry)(void *ctx, const char *name, bool directory);
	void *ctx;
};

static int on_record(void *ctx, const struct record *r, struct error *err)
{
	const struct listing *l = ctx;
	if (r->type == RECORD_FAIL)
		return record_failed(r, err);
	if (r->type == RECORD_ENTRY && r->entry.path[0] && !strchr(r->entry.path, '/'))
		l->entry(l->ctx, r->entry.path, r->entry.kind == RECORD_DIRECTORY);
	return 0;
}

int transfer_list(struct cli *cli, const char *sandbox, const char *dir, void (*entry)(void *ctx, const char *name, bool directory),
                  void *ctx, struct error *err)
{
	auto_tlv open = TLV_INIT;
	struct listing l = { .entry = entry, .ctx = ctx };
	struct transfer_stats stats = { .entries = 0 };
	struct copy copy = { .cli = cli, .stats = &stats };
	tlv_add_u64(&open, MUX_F_KIND, MUX_KIND_FILES_GET);
	tlv_add_str(&open, MUX_F_SANDBOX, sandbox);
	tlv_add_str(&open, MUX_F_PATH, dir);
	tlv_add_u64(&open, MUX_F_ACTION, FILES_TOP_ONLY);
	struct record_pipe p = { .open = &open, .dialler = session_dialler(cli), .on_record = on_record, .ctx = &l, .copy = &copy };
	progress_begin(&copy.progress, cli);
	int rc = record_pipe_run(&p, err);
	progress_end(&copy.progress);
	return rc;
}
