/* A tree into the sandbox: shared/mux/tree_write.c. An entry that cannot be stored is answered, and the transfer goes on. */
#include "daemon/init/files.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/mux/kinds.h"
#include "shared/mux/tree.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_SIZE = 256 * 1024 };

struct put {
	int fd;
	struct tree_write *tree;
	uint64_t failed;
	bool done;
};

static int answer(struct put *p, struct buf *b)
{
	int r = io_write_full(p->fd, buf_str(b), b->len);
	buf_done(b);
	return r;
}

static void on_trouble(void *ctx, const struct tree_trouble *t)
{
	struct put *p = ctx;
	struct buf b = BUF_INIT;
	p->failed++;
	record_add_text(&b, RECORD_SKIPPED, t->loss == TREE_LEFT_OUT ? 0 : files_code(t->sys), t->path, t->text);
	answer(p, &b);
}

static int on_record(void *ctx, const struct record *r, struct error *err)
{
	struct put *p = ctx;
	if (r->type == RECORD_DONE) {
		p->done = true;
		return tree_write_finish(p->tree, err);
	}
	if (r->type == RECORD_FAIL)
		return error_set(err, ERR_INVALID, "the sender gave up");
	return tree_write_record(p->tree, r, err);
}

/* Reads records to the end of the input. -1: it broke off (no error), was broken, or was refused. */
static int receive(struct put *p, struct error *err)
{
	struct record_reader reader;
	auto_free char *bytes = xmalloc(READ_SIZE);
	int r = 0;
	record_reader_init(&reader, on_record, p);
	while (r == 0 && !reader.ended) {
		ssize_t n = read(p->fd, bytes, READ_SIZE);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		r = record_feed(&reader, bytes, (size_t)n, err);
	}
	record_reader_done(&reader);
	return r < 0 || !p->done ? -1 : 0;
}

int files_put(int fd, void *request)
{
	const struct files_request *r = request;
	struct put p = { .fd = fd };
	struct tree_target to = { .path = r->path, .name = r->name, .open_path = files_open_path, .trouble = on_trouble, .ctx = &p,
				  .file_mode = 01777, .dir_mode = 03777, .owned = true, .uid = r->owner.uid, .gid = r->owner.gid };
	struct error err = ERROR_INIT;
	struct buf b = BUF_INIT;
	umask(0);
	signal(SIGPIPE, SIG_IGN);
	p.tree = tree_write_new(&to);
	int broken = receive(&p, &err);
	if (!broken) {
		const struct tree_counts *n = tree_write_counts(p.tree);
		record_add_done(&b, n->entries, n->bytes, p.failed, tree_write_top(p.tree));
	} else if (err.message[0]) {
		record_add_text(&b, RECORD_FAIL, files_error_code(&err), NULL, err.message);
	}
	tree_write_free(p.tree); /* before the answer: who got one finds nothing half done */
	return answer(&p, &b) != 0 || broken;
}
