/* A tree out of the sandbox: shared/mux/tree_read.c, with what it leaves behind said in records between the others. */
#include "daemon/init/files.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/mux/kinds.h"
#include "shared/mux/tree.h"

struct get {
	struct buf out;
	uint64_t skipped;
};

static void on_trouble(void *ctx, const struct tree_trouble *t)
{
	struct get *g = ctx;
	g->skipped++;
	if (t->loss != TREE_CUT) /* an ABORT record says it */
		record_add_text(&g->out, RECORD_SKIPPED, t->loss == TREE_FAILED ? files_code(t->sys) : 0, t->path, t->text);
}

static int flush(struct get *g, int fd)
{
	int r = io_write_full(fd, buf_str(&g->out), g->out.len);
	buf_reset(&g->out);
	return r;
}

int files_get(int fd, void *request)
{
	const struct files_request *r = request;
	struct error err = ERROR_INIT;
	struct get g = { .out = BUF_INIT };
	struct tree_source from = { .path = r->path, .open_path = files_open_path, .trouble = on_trouble, .ctx = &g,
				    .entries_only = r->entries_only, .top_only = r->top_only, .kernel_files = true };
	struct tree_read *tree;
	if (tree_read_new(&from, &tree, &err) != 0) {
		record_add_text(&g.out, RECORD_FAIL, files_error_code(&err), NULL, err.message);
		return flush(&g, fd) != 0;
	}
	while (tree_read_some(tree, &g.out))
		if (flush(&g, fd) != 0)
			return 1;
	const struct tree_counts *n = tree_read_counts(tree);
	record_add_done(&g.out, n->entries, n->bytes, g.skipped, r->path);
	return flush(&g, fd) != 0;
}
