/* A tree as a commit: see snapshot.h. */
#include "cli/snapshot.h"

#include "cli/sieve.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { IN_MEMORY = 1024 * 1024, PENDING = 256 * 1024, PIECE = 64 * 1024 };

struct snapshot {
	struct snapshot_request rq;
	struct git_child import;
	struct sieve *sieve;
	struct buf out;        /* on its way to the import */
	struct snapshot_counts counts;
	bool open;             /* a file that is kept */
	bool executable;
	char *path;            /* of the open file */
	struct buf head;       /* its contents up to IN_MEMORY */
	int spool;             /* the rest of them; -1: none yet */
	uint64_t size, spooled;
};

/* --- to the import --------------------------------------------------------------------------------------------------------------- */

static int flush(struct snapshot *s, struct error *err)
{
	int rc = s->out.len ? io_write_full(s->import.in, s->out.data, s->out.len) : 0;
	buf_reset(&s->out);
	if (rc == 0)
		return 0;
	/* Why git went away is in its own words. */
	int saved = errno;
	if (git_end(&s->import, err) == 0) {
		errno = saved;
		error_errno(err, "writing to git");
	}
	return -1;
}

static int put(struct snapshot *s, const void *p, size_t n, struct error *err)
{
	buf_add(&s->out, p, n);
	return s->out.len < PENDING ? 0 : flush(s, err);
}

/* As git quotes paths: any byte but NUL can be in one. */
static void add_path(struct buf *b, const char *path)
{
	buf_addc(b, '"');
	for (const unsigned char *p = (const unsigned char *)path; *p; p++) {
		if (*p < 0x20 || *p >= 0x7f || *p == '"' || *p == '\\')
			buf_addf(b, "\\%03o", *p);
		else
			buf_addc(b, (char)*p);
	}
	buf_addc(b, '"');
}

static void add_file(struct snapshot *s, const char *mode, const char *path, uint64_t size)
{
	buf_addf(&s->out, "M %s inline ", mode);
	add_path(&s->out, path);
	buf_addf(&s->out, "\ndata %llu\n", (unsigned long long)size);
}

static int put_spool(struct snapshot *s, struct error *err)
{
	char piece[PIECE];
	uint64_t left = s->spooled;
	if (lseek(s->spool, 0, SEEK_SET) != 0)
		return error_errno(err, "reading back a large file");
	while (left > 0) {
		ssize_t n = read(s->spool, piece, left < PIECE ? (size_t)left : PIECE);
		if (n <= 0)
			return error_errno(err, "reading back a large file");
		left -= (uint64_t)n;
		if (put(s, piece, (size_t)n, err) != 0)
			return -1;
	}
	return 0;
}

/* --- one file -------------------------------------------------------------------------------------------------------------------- */

static void forget(struct snapshot *s)
{
	s->open = false;
	free(s->path);
	s->path = NULL;
	buf_done(&s->head);
	close_fdp(&s->spool);
	s->size = s->spooled = 0;
}

static int open_spool(struct snapshot *s, struct error *err)
{
	auto_free char *path = xasprintf("%s/sandbox-spool", s->rq.git->dir);
	s->spool = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (s->spool < 0)
		return error_errno(err, "making %s", path);
	unlink(path);
	return 0;
}

static int count(struct snapshot *s, uint64_t n, struct error *err)
{
	if (n > s->rq.max_bytes - s->counts.bytes)
		return error_set(err, ERR_TOO_LARGE, "the files together have more than %llu MiB; --max-size allows more",
				 (unsigned long long)(s->rq.max_bytes >> 20));
	s->counts.bytes += n;
	s->size += n;
	return 0;
}

static int contents(struct snapshot *s, const void *p, size_t n, struct error *err)
{
	if (!s->open)
		return 0;
	if (count(s, n, err) != 0)
		return -1;
	if (s->spool < 0 && s->head.len + n <= IN_MEMORY) {
		buf_add(&s->head, p, n);
		return 0;
	}
	if (s->spool < 0 && open_spool(s, err) != 0)
		return -1;
	s->spooled += n;
	return io_write_full(s->spool, p, n) == 0 ? 0 : error_errno(err, "writing a large file aside");
}

static int hole(struct snapshot *s, uint64_t n, struct error *err)
{
	static const char zeros[PIECE];
	if (s->open && n > s->rq.max_bytes - s->counts.bytes)
		return count(s, n, err);
	for (int rc = 0; s->open && n > 0; n -= n < PIECE ? n : PIECE)
		if ((rc = contents(s, zeros, n < PIECE ? (size_t)n : PIECE, err)) != 0)
			return rc;
	return 0;
}

static int close_file(struct snapshot *s, struct error *err)
{
	if (!s->open)
		return 0;
	add_file(s, s->executable ? "100755" : "100644", s->path, s->size);
	int rc = put(s, s->head.data ? s->head.data : "", s->head.len, err);
	if (rc == 0 && s->spool >= 0)
		rc = put_spool(s, err);
	if (rc == 0)
		rc = put(s, "\n", 1, err);
	forget(s);
	return rc;
}

/* --- records --------------------------------------------------------------------------------------------------------------------- */

static int put_link(struct snapshot *s, const struct record_entry *e, struct error *err)
{
	size_t n = strlen(e->target);
	if (count(s, n, err) != 0)
		return -1;
	add_file(s, "120000", e->path, n);
	buf_adds(&s->out, e->target);
	return put(s, "\n", 1, err);
}

/* A further name of a file of this tree. One that was left out takes its names along. */
static int put_copy(struct snapshot *s, const struct record_entry *e, struct error *err)
{
	bool keep;
	if (sieve_keeps(s->sieve, e->target, false, &keep, err) != 0)
		return -1;
	if (!keep)
		return 0;
	buf_adds(&s->out, "C ");
	add_path(&s->out, e->target);
	buf_addc(&s->out, ' ');
	add_path(&s->out, e->path);
	return put(s, "\n", 1, err);
}

static int entry(struct snapshot *s, const struct record_entry *e, struct error *err)
{
	bool keep;
	forget(s);
	if (!e->path[0])
		return 0;
	if (sieve_keeps(s->sieve, e->path, e->kind == RECORD_DIRECTORY, &keep, err) != 0)
		return -1;
	if (!keep)
		return 0;
	if (e->kind != RECORD_DIRECTORY && ++s->counts.files > LIMIT_SNAPSHOT_FILES)
		return error_set(err, ERR_TOO_LARGE, "the tree has more than %d files (%s)", LIMIT_SNAPSHOT_FILES, "limit snapshot_files");
	switch (e->kind) {
	case RECORD_DIRECTORY:
		return 0;
	case RECORD_SYMLINK:
		return put_link(s, e, err);
	case RECORD_HARDLINK:
		return put_copy(s, e, err);
	case RECORD_FILE:
		break;
	}
	s->open = true;
	s->executable = (e->mode & 0100) != 0;
	s->path = xstrdup(e->path);
	return 0;
}

int snapshot_record(void *snapshot, const struct record *r, struct error *err)
{
	struct snapshot *s = snapshot;
	switch (r->type) {
	case RECORD_ENTRY:
		return entry(s, &r->entry, err);
	case RECORD_DATA:
		return contents(s, r->data, r->len, err);
	case RECORD_HOLE:
		return hole(s, r->number, err);
	case RECORD_END:
		return close_file(s, err);
	case RECORD_ABORT:
		forget(s);
		return 0;
	case RECORD_LEAVE:
	case RECORD_SKIPPED:
	case RECORD_DONE:
	case RECORD_FAIL:
	case RECORD_XATTR:
		break;
	}
	return 0;
}

/* --- life ------------------------------------------------------------------------------------------------------------------------ */

int snapshot_begin(const struct snapshot_request *rq, struct snapshot **ret, struct error *err)
{
	static const char *const args[] = { "fast-import", "--quiet", "--force", "--done", NULL };
	struct snapshot *s = xcalloc(1, sizeof(*s));
	*s = (struct snapshot){ .rq = *rq, .import = GIT_CHILD_INIT, .spool = -1 };
	if (sieve_new(rq->git, rq->rules, &s->sieve, err) != 0 || git_start(rq->git, args, GIT_IN, &s->import, err) != 0) {
		snapshot_free(s);
		return -1;
	}
	buf_addf(&s->out, "commit refs/heads/%s\ncommitter sandbox <sandbox@localhost> 0 +0000\ndata 0\n\n", rq->branch);
	*ret = s;
	return 0;
}

int snapshot_end(struct snapshot *s, struct snapshot_counts *ret, struct error *err)
{
	buf_adds(&s->out, "\ndone\n");
	if (flush(s, err) != 0 || git_end(&s->import, err) != 0)
		return -1;
	s->counts.ignored = sieve_dropped(s->sieve);
	*ret = s->counts;
	return 0;
}

void snapshot_free(struct snapshot *s)
{
	if (!s)
		return;
	forget(s);
	git_end(&s->import, NULL);
	sieve_free(s->sieve);
	buf_done(&s->out);
	free(s);
}
