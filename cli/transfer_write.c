/* What a sandbox sends as a local tree: shared/mux/tree_write.c, with what could not be stored told to the user. */
#include "cli/transfer_priv.h"

#include "shared/base/mem.h"
#include "shared/mux/tree.h"

#include <fcntl.h>

struct tree_writer {
	struct copy *copy;
	char *dest, *name;
	struct tree_write *tree;
};

static int open_path(const char *path, int flags)
{
	return open(path, flags | O_CLOEXEC);
}

struct tree_writer *tree_writer_new(struct copy *c, const char *dest, const char *name)
{
	struct tree_writer *w = xcalloc(1, sizeof(*w));
	*w = (struct tree_writer){ .copy = c, .dest = xstrdup(dest), .name = xstrdup0(name) };
	/* Set-id bits are not for a sandbox to grant. */
	struct tree_target to = { .path = w->dest, .name = w->name, .open_path = open_path, .trouble = copy_trouble, .ctx = c,
				  .file_mode = 0777, .dir_mode = 01777 };
	w->tree = tree_write_new(&to);
	return w;
}

void tree_writer_free(struct tree_writer *w)
{
	if (!w)
		return;
	tree_write_free(w->tree);
	free(w->dest);
	free(w->name);
	free(w);
}

/* Told by the sandbox about its own side. */
static void on_skipped(struct copy *c, const struct record *r)
{
	struct tree_trouble t = { .loss = r->code ? TREE_FAILED : TREE_LEFT_OUT, .path = r->path, .text = r->text };
	copy_trouble(c, &t);
}

static int finish(struct tree_writer *w, struct error *err)
{
	const struct transfer_stats *s = w->copy->stats;
	if (s->entries == 0 && (s->failed || s->skipped))
		return 0; /* nothing of it could be read, which was said */
	return tree_write_finish(w->tree, err);
}

int tree_on_record(void *writer, const struct record *r, struct error *err)
{
	struct tree_writer *w = writer;
	struct transfer_stats *s = w->copy->stats;
	const struct tree_counts *n = tree_write_counts(w->tree);
	int rc = 0;
	if (r->type == RECORD_FAIL)
		return record_failed(r, err);
	if (r->type == RECORD_SKIPPED)
		on_skipped(w->copy, r);
	else if (r->type == RECORD_DONE)
		rc = finish(w, err);
	else
		rc = tree_write_record(w->tree, r, err);
	s->entries = n->entries;
	s->files = n->files;
	s->bytes = n->bytes;
	return rc;
}

int tree_writer_open(struct tree_writer *w, const char *path)
{
	return tree_write_open(w->tree, path);
}
