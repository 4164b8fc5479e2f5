/* Inside of copying: transfer.c (the connection and the two directions), transfer_read.c and transfer_write.c (a local tree),
 * transfer_tar_in.c and transfer_tar_out.c (tar), transfer_verify.c. */
#ifndef SANDBOX_CLI_TRANSFER_PRIV_H
#define SANDBOX_CLI_TRANSFER_PRIV_H

#include "cli/muxconn.h"
#include "cli/output.h"
#include "cli/transfer.h"
#include "shared/mux/records.h"
#include "shared/mux/tree.h"

/* What goes on during one copy, shared by all its parts. */
struct copy {
	struct cli *cli;
	struct transfer_stats *stats;
	struct progress progress;
	int64_t began_ms, shown_ms;
	const char *from, *to; /* as given: what the top, which has no path of its own, is called */
	char *top;      /* the tree's top inside the sandbox, when its sender or receiver told it */
};

/* One line about one entry; path may be hostile. */
void copy_warn(const struct copy *c, const char *path, const char *text);
void copy_tick(struct copy *c);
/* Counts it, and says so; ctx is the copy. */
void copy_trouble(void *ctx, const struct tree_trouble *t);

/* --- a stream of records --- */
enum produce { PRODUCE_ALL, PRODUCE_MORE, PRODUCE_WAIT, PRODUCE_FAILED };

struct record_pipe {
	const struct tlv *open;
	struct dialler dialler;
	record_handler on_record;
	/* Appends records to out. WAIT: nothing yet, *ret_fd becomes readable. NULL: nothing is sent. */
	enum produce (*produce)(void *ctx, struct buf *out, int *ret_fd, struct error *err);
	void *ctx;
	struct copy *copy;
};

/* Until DONE or FAIL came, or the handler or producer stopped it. */
int record_pipe_run(const struct record_pipe *p, struct error *err);
/* What a FAIL record means. */
int record_failed(const struct record *r, struct error *err);

/* --- a local tree, read (transfer_read.c) --- */
struct tree_reader;
/* ERR_NOT_FOUND, ERR_SYSTEM. */
int tree_reader_new(struct copy *c, const char *path, struct tree_reader **ret, struct error *err);
void tree_reader_free(struct tree_reader *t);
enum produce tree_produce(void *reader, struct buf *out, int *ret_fd, struct error *err);
/* Without contents. */
int tree_reader_new_entries(struct copy *c, const char *path, struct tree_reader **ret, struct error *err);
/* Opens what stands at a path of the tree, for reading. -1 with errno. */
int tree_reader_open(struct tree_reader *t, const char *path);

/* --- a local tree, written (transfer_write.c) --- */
struct tree_writer;
/* name: the source's, NULL: contents only. Nothing is touched before the first record. */
struct tree_writer *tree_writer_new(struct copy *c, const char *dest, const char *name);
void tree_writer_free(struct tree_writer *w); /* drops an unfinished file */
int tree_on_record(void *writer, const struct record *r, struct error *err);
/* Opens what stands at a path of the written tree, for reading. -1 with errno. */
int tree_writer_open(struct tree_writer *w, const char *path);

/* --- tar --- */
struct tar_writer;
struct tar_writer *tar_writer_new(struct copy *c, const char *name);
void tar_writer_free(struct tar_writer *w);
int tar_on_record(void *writer, const struct record *r, struct error *err);
int tar_writer_finish(struct tar_writer *w, struct error *err);

struct tar_reader;
struct tar_reader *tar_reader_new(struct copy *c, int fd);
void tar_reader_free(struct tar_reader *t);
enum produce tar_produce(void *reader, struct buf *out, int *ret_fd, struct error *err);

/* --- verify --- */
struct verify {
	struct copy *copy;
	/* The local file of an entry; -1 with errno ENOENT: not ours to check. */
	int (*open_local)(void *ctx, const char *path);
	void *ctx;
};
int verify_tree(const struct verify *v, const char *sandbox, const char *remote, struct error *err);

#endif
