/* After a copy: the sandbox's tree is read once more, and every file compared with the local one by SHA-256. */
#include "cli/transfer_priv.h"

#include "cli/sha256.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 256 * 1024 };

struct checking {
	const struct verify *v;
	struct sha256 remote;
	uint64_t at;       /* bytes of the remote file hashed */
	uint64_t size;     /* of the local one: more than that need not be hashed to differ */
	struct buf path;
	int local;         /* of the file at hand, or -1 */
	char *chunk;
};

static void differs(struct checking *c, const char *why)
{
	c->v->copy->stats->failed++;
	copy_warn(c->v->copy, buf_str(&c->path), why);
}

/* Whether the remote file may go on for n bytes. */
static bool expected(struct checking *c, uint64_t n)
{
	if (c->local < 0)
		return false;
	if (n <= c->size - c->at)
		return true;
	differs(c, "differs from its copy: it is longer");
	close_fdp(&c->local);
	return false;
}

static void add_zeros(struct checking *c, uint64_t n)
{
	if (!expected(c, n))
		return;
	memset(c->chunk, 0, CHUNK);
	c->at += n;
	for (; n > 0; n -= n < CHUNK ? n : CHUNK)
		sha256_add(&c->remote, c->chunk, n < CHUNK ? (size_t)n : CHUNK);
}

static int hash_local(struct checking *c, char out[static SHA256_HEX])
{
	struct sha256 s;
	ssize_t n;
	sha256_init(&s);
	while ((n = read(c->local, c->chunk, CHUNK)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		sha256_add(&s, c->chunk, (size_t)n);
	}
	sha256_hex(&s, out);
	return 0;
}

static void keep_hash(struct checking *c, const char *hex)
{
	struct transfer_stats *s = c->v->copy->stats;
	s->verified++;
	if (!s->hashes)
		s->hashes = cJSON_CreateArray();
	cJSON *j = cJSON_CreateObject();
	json_add_bytes(j, "path", buf_str(&c->path), c->path.len);
	json_add_str(j, "sha256", hex);
	cJSON_AddItemToArray(s->hashes, j);
}

static void start(struct checking *c, const struct record_entry *e)
{
	close_fdp(&c->local);
	buf_reset(&c->path);
	buf_adds(&c->path, e->path);
	c->at = 0;
	if (e->kind != RECORD_FILE)
		return;
	sha256_init(&c->remote);
	struct stat st;
	c->local = c->v->open_local(c->v->ctx, e->path);
	if (c->local < 0 && errno == ENOENT)
		return;
	if (c->local >= 0 && fstat(c->local, &st) == 0) {
		c->size = (uint64_t)st.st_size;
		return;
	}
	differs(c, strerror(errno));
	close_fdp(&c->local);
}

static void finish(struct checking *c, uint64_t size)
{
	char remote[SHA256_HEX], local[SHA256_HEX];
	if (c->local < 0)
		return;
	if (size > c->at)
		add_zeros(c, size - c->at);
	if (c->local < 0)
		return;
	sha256_hex(&c->remote, remote);
	if (hash_local(c, local) != 0)
		differs(c, strerror(errno));
	else if (strcmp(remote, local) != 0)
		differs(c, "differs from its copy");
	else
		keep_hash(c, local);
	close_fdp(&c->local);
}

static int on_record(void *ctx, const struct record *r, struct error *err)
{
	struct checking *c = ctx;
	switch (r->type) {
	case RECORD_ENTRY:
		start(c, &r->entry);
		break;
	case RECORD_DATA:
		if (!expected(c, r->len))
			break;
		sha256_add(&c->remote, r->data, r->len);
		c->at += r->len;
		break;
	case RECORD_HOLE:
		add_zeros(c, r->number);
		break;
	case RECORD_END:
		finish(c, r->number);
		break;
	case RECORD_FAIL:
		return record_failed(r, err);
	case RECORD_ABORT:
	case RECORD_LEAVE:
	case RECORD_XATTR:
	case RECORD_SKIPPED:
	case RECORD_DONE:
		break;
	}
	return 0;
}

int verify_tree(const struct verify *v, const char *sandbox, const char *remote, struct error *err)
{
	struct checking c = { .v = v, .local = -1 };
	auto_tlv open = TLV_INIT;
	if (sha256_load(err) != 0)
		return -1;
	c.chunk = xmalloc(CHUNK);
	tlv_add_u64(&open, MUX_F_KIND, MUX_KIND_FILES_GET);
	tlv_add_str(&open, MUX_F_SANDBOX, sandbox);
	tlv_add_str(&open, MUX_F_PATH, remote);
	struct record_pipe p = { .open = &open, .dialler = session_dialler(v->copy->cli), .on_record = on_record, .ctx = &c, .copy = v->copy };
	int r = record_pipe_run(&p, err);
	close_fdp(&c.local);
	buf_done(&c.path);
	free(c.chunk);
	return r;
}
