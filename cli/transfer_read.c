/* A local tree on its way into a sandbox: shared/mux/tree_read.c, with what it leaves behind told to the user. */
#include "cli/transfer_priv.h"

#include "shared/base/mem.h"
#include "shared/mux/tree.h"

#include <fcntl.h>

struct tree_reader {
	struct copy *copy;
	struct tree_read *tree;
};

static int open_path(const char *path, int flags)
{
	return open(path, flags | O_CLOEXEC);
}

void copy_trouble(void *ctx, const struct tree_trouble *t)
{
	struct copy *c = ctx;
	auto_free char *text = t->loss == TREE_LEFT_OUT ? xasprintf("skipped: %s", t->text) : xstrdup(t->text);
	*(t->loss == TREE_LEFT_OUT ? &c->stats->skipped : &c->stats->failed) += 1;
	copy_warn(c, t->path, text);
}

static int start(struct copy *c, const char *path, bool entries_only, struct tree_reader **ret, struct error *err)
{
	struct tree_read *tree;
	struct tree_source from = { .path = path, .open_path = open_path, .trouble = copy_trouble, .ctx = c, .entries_only = entries_only };
	if (tree_read_new(&from, &tree, err) != 0)
		return -1;
	*ret = xcalloc(1, sizeof(**ret));
	**ret = (struct tree_reader){ .copy = c, .tree = tree };
	return 0;
}

int tree_reader_new(struct copy *c, const char *path, struct tree_reader **ret, struct error *err)
{
	return start(c, path, false, ret, err);
}

int tree_reader_new_entries(struct copy *c, const char *path, struct tree_reader **ret, struct error *err)
{
	return start(c, path, true, ret, err);
}

void tree_reader_free(struct tree_reader *t)
{
	if (t)
		tree_read_free(t->tree);
	free(t);
}

int tree_reader_open(struct tree_reader *t, const char *path)
{
	return tree_read_open(t->tree, path);
}

enum produce tree_produce(void *reader, struct buf *out, int *ret_fd, struct error *err)
{
	struct tree_reader *t = reader;
	struct transfer_stats *s = t->copy->stats;
	const struct tree_counts *n = tree_read_counts(t->tree);
	bool more = tree_read_some(t->tree, out);
	(void)ret_fd;
	s->files = n->files;
	s->bytes = n->bytes;
	if (more)
		return PRODUCE_MORE;
	if (n->entries == 0) {
		error_set(err, ERR_INVALID, "nothing of it can be copied");
		return PRODUCE_FAILED;
	}
	record_add_done(out, 0, n->bytes, s->failed + s->skipped, "");
	return PRODUCE_ALL;
}
