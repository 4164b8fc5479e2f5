/* What a sandbox's workspace was and became, as two commits: see changes.h. */
#include "cli/changes.h"

#include "cli/git.h"
#include "cli/home.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/snapshot.h"
#include "cli/transfer.h"
#include "shared/base/clock.h"
#include "shared/base/id.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKSPACE "/workspace/."

/* NUMBERS: what --numstat may say; KEPT_DAYS: longer than any sandbox lives without being extended. */
enum { NUMBERS_MAX = 64 * 1024 * 1024, PIECE = 64 * 1024, LINE = 16 * 1024, KEPT_DAYS = 30, NAME_DIGITS = 8 };

struct changes {
	char *id, *name, *base_dir;
	char *dir, *objects, *rules; /* the repository of this comparison; where the base's objects are; whose .gitignore count */
	char base[64], now[64];      /* commits */
	struct git git;
	uint64_t ignored;
};

/* --- where ----------------------------------------------------------------------------------------------------------------------- */

static char *place(const char *id, const char *suffix)
{
	auto_free char *state = home_state_dir();
	return state ? xasprintf("%s/baselines/%s%s", state, id, suffix) : NULL;
}

static int make_place(const char *id, const char *suffix, char **ret, struct error *err)
{
	auto_free char *path = place(id, suffix);
	if (!path)
		return error_set(err, ERR_INVALID, "HOME is not set, so there is no place to remember what was uploaded");
	auto_free char *parent = xstrndup(path, (size_t)(strrchr(path, '/') - path));
	if (io_mkdirs(parent, 0700, err) != 0)
		return -1;
	*ret = steal(&path);
	return 0;
}

void changes_forget(const char *id)
{
	auto_free char *all = place("", "");
	auto_free char *path = place(id, "");
	auto_dir DIR *d = all ? opendir(all) : NULL;
	int64_t old = clock_wall_us() / 1000000 - (int64_t)KEPT_DAYS * 24 * 3600;
	if (!d || !id_valid(id))
		return;
	io_remove_tree(path, NULL);
	for (struct dirent *e; (e = readdir(d)) != NULL;) {
		struct stat st;
		if (e->d_name[0] != '.' && fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtime < old)
			io_remove_tree_at(dirfd(d), e->d_name, NULL);
	}
}

/* --- remembering ----------------------------------------------------------------------------------------------------------------- */

/* An upload goes on when what is written beside it fails. */
struct remembering {
	struct snapshot *snapshot;
	struct error err;
	bool failed;
};

static void watch(void *ctx, const struct record *r)
{
	struct remembering *m = ctx;
	if (!m->failed)
		m->failed = snapshot_record(m->snapshot, r, &m->err) != 0;
}

static int begin(const struct git *g, const char *rules, struct remembering *m)
{
	if (git_init(g, &m->err) != 0)
		return -1;
	auto_free char *whole = realpath(rules, NULL);
	struct snapshot_request rq = { .git = g, .branch = "base", .rules = whole, .max_bytes = UINT64_MAX };
	return whole ? snapshot_begin(&rq, &m->snapshot, &m->err) : error_errno(&m->err, "finding %s", rules);
}

static int send_tree(struct cli *cli, const char *id, const char *dir, struct remembering *m, struct error *err)
{
	struct transfer_options how = { .watch = m->failed ? NULL : watch, .watch_ctx = m };
	struct transfer_stats stats = { .entries = 0 };
	auto_free char *contents = xasprintf("%s/.", dir);
	int rc = transfer_put(cli, id, contents, "/workspace/", &how, &stats, err);
	if (rc != 0)
		error_wrap(err, "uploading %s", dir);
	else if (stats.failed)
		rc = error_set(err, ERR_SYSTEM, "%llu entries of %s could not be uploaded", (unsigned long long)stats.failed, dir);
	transfer_stats_done(&stats);
	return rc;
}

int changes_upload(struct cli *cli, const char *id, const char *dir, struct error *err)
{
	auto_free char *path = NULL;
	struct remembering m = { .err = ERROR_INIT };
	struct snapshot_counts counts;
	struct sigaction ignore = { .sa_handler = SIG_IGN }, old;
	sigaction(SIGPIPE, &ignore, &old);
	m.failed = make_place(id, "", &path, &m.err) != 0;
	struct git g = { .dir = path };
	if (!m.failed)
		m.failed = begin(&g, dir ? dir : path, &m) != 0;
	int rc = dir ? send_tree(cli, id, dir, &m, err) : 0;
	if (rc == 0 && !m.failed)
		m.failed = snapshot_end(m.snapshot, &counts, &m.err) != 0;
	snapshot_free(m.snapshot);
	sigaction(SIGPIPE, &old, NULL);
	if (path && (rc != 0 || m.failed))
		io_remove_tree(path, NULL);
	if (rc == 0 && m.failed)
		out_warn(cli, "`sandbox diff` will need --base: what was uploaded could not be remembered (%s)", m.err.message);
	return rc;
}

/* --- comparing ------------------------------------------------------------------------------------------------------------------- */

static int identify(struct cli *cli, const char *ref, struct changes *c, struct error *err)
{
	auto_json *answer = NULL;
	auto_free char *target = session_path("/v1/sandboxes/%s", ref);
	struct call call = { .method = "GET", .target = target };
	if (session_call(cli, &call, &answer, err) != 0)
		return -1;
	const char *id = json_text(answer, "id"), *name = json_text(answer, "name");
	if (!id_valid(id))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no sandbox");
	c->id = xstrdup(id);
	c->name = xstrdup(*name ? name : id + strlen(id) - NAME_DIGITS);
	return 0;
}

static int commit_of(const struct git *g, const char *branch, char out[static 64], struct error *err)
{
	auto_buf text = BUF_INIT_MAX(1024);
	auto_free char *ref = xasprintf("refs/heads/%s", branch);
	const char *args[] = { "rev-parse", "--verify", ref, NULL };
	if (git_capture(g, args, &text, err) != 0)
		return -1;
	snprintf(out, 64, "%.*s", (int)strcspn(buf_str(&text), "\n"), buf_str(&text));
	return 0;
}

static int take_tree(struct cli *cli, struct changes *c, const char *branch, const char *sandbox, const char *path, uint64_t max,
		     struct error *err)
{
	struct snapshot *s;
	struct snapshot_counts counts;
	struct snapshot_request rq = { .git = &c->git, .branch = branch, .rules = c->rules, .max_bytes = max };
	if (snapshot_begin(&rq, &s, err) != 0)
		return -1;
	int rc = transfer_records(cli, sandbox, path, snapshot_record, s, err);
	if (rc == 0)
		rc = snapshot_end(s, &counts, err);
	if (rc == 0)
		c->ignored = counts.ignored;
	snapshot_free(s);
	return rc;
}

/* The .gitignore files of what was uploaded, in a directory of their own; that there are none is no failure. */
static int take_rules(struct changes *c, struct error *err)
{
	const char *args[] = { "checkout", "--quiet", c->base, "--", ":(glob)**/.gitignore", NULL };
	struct git g = c->git;
	struct git_child child = GIT_CHILD_INIT;
	c->rules = xasprintf("%s/rules", c->dir);
	g.work_tree = c->rules;
	if (io_mkdirs(c->rules, 0700, err) != 0 || git_start(&g, args, 0, &child, err) != 0)
		return -1;
	git_end(&child, NULL);
	return 0;
}

static int take_remembered(struct changes *c, struct error *err)
{
	auto_free char *kept = place(c->id, "");
	struct git g = { .dir = kept };
	if (access(kept, F_OK) != 0)
		return error_set(err, ERR_NOT_FOUND, "nothing was uploaded to %s from this machine by `sandbox agent run`; --base DIR names what to compare with",
				 c->name);
	c->objects = xasprintf("%s/objects", kept);
	c->git.objects = c->objects;
	utimensat(AT_FDCWD, kept, NULL, 0);
	return commit_of(&g, "base", c->base, err) != 0 ? -1 : take_rules(c, err);
}

static int take_base(struct cli *cli, const struct changes_request *rq, struct changes *c, struct error *err)
{
	if (!rq->base)
		return take_remembered(c, err);
	auto_free char *contents = xasprintf("%s/.", rq->base);
	c->rules = realpath(rq->base, NULL);
	if (!c->rules)
		return error_set(err, ERR_NOT_FOUND, "--base: no directory %s", rq->base);
	return take_tree(cli, c, "base", NULL, contents, UINT64_MAX, err) != 0 ? -1 : commit_of(&c->git, "base", c->base, err);
}

static int compare(struct cli *cli, const struct changes_request *rq, struct changes *c, struct error *err)
{
	struct id unique = id_new();
	auto_free char *suffix = xasprintf(".%s", unique.text);
	if (identify(cli, rq->sandbox, c, err) != 0 || make_place(c->id, suffix, &c->dir, err) != 0)
		return -1;
	c->git.dir = c->dir;
	if (git_init(&c->git, err) != 0 || take_base(cli, rq, c, err) != 0)
		return -1;
	if (take_tree(cli, c, "now", c->id, WORKSPACE, rq->max_bytes, err) != 0)
		return error_wrap(err, "reading the workspace of %s", c->name);
	return commit_of(&c->git, "now", c->now, err);
}

int changes_read(struct cli *cli, const struct changes_request *rq, struct changes **ret, struct error *err)
{
	struct changes *c = xcalloc(1, sizeof(*c));
	signal(SIGPIPE, SIG_IGN);
	c->base_dir = xstrdup0(rq->base);
	if (compare(cli, rq, c, err) != 0) {
		changes_free(c);
		return -1;
	}
	*ret = c;
	return 0;
}

void changes_free(struct changes *c)
{
	if (!c)
		return;
	if (c->dir)
		io_remove_tree(c->dir, NULL);
	free(c->id);
	free(c->name);
	free(c->base_dir);
	free(c->dir);
	free(c->objects);
	free(c->rules);
	free(c);
}

const char *changes_name(const struct changes *c)
{
	return c->name;
}

/* --- saying it ------------------------------------------------------------------------------------------------------------------- */

#define DIFF "diff-tree", "-r", "--no-ext-diff", "--no-textconv", "--no-color"

bool changes_none(const struct changes *c)
{
	const char *args[] = { DIFF, "--name-only", c->base, c->now, NULL };
	auto_buf names = BUF_INIT_MAX(1);
	struct error e = ERROR_INIT;
	return git_capture(&c->git, args, &names, &e) == 0 && names.len == 0;
}

static int write_out(int fd, const char *p, size_t n, struct error *err)
{
	return io_write_full(fd, p, n) == 0 ? 0 : error_errno(err, "writing the patch");
}

/* Whole lines where they are not endless. */
static int write_safe(int fd, struct buf *text, bool all, struct error *err)
{
	char safe[4 * LINE + 1];
	size_t at = 0;
	while (at < text->len) {
		const char *p = text->data + at, *end = memchr(p, '\n', text->len - at);
		size_t n = end ? (size_t)(end - p) : text->len - at;
		if (!end && !all && n < LINE)
			break;
		size_t take = n > LINE ? LINE : n;
		/* Tabs stay: they are in most makefiles. */
		for (size_t done = 0; done < take;) {
			const char *tab = memchr(p + done, '\t', take - done);
			size_t piece = tab ? (size_t)(tab - p) - done : take - done;
			text_escape(p + done, piece, safe, sizeof(safe));
			if (write_out(fd, safe, strlen(safe), err) != 0 || (tab && write_out(fd, "\t", 1, err) != 0))
				return -1;
			done += piece + (tab ? 1 : 0);
		}
		if (end && take == n && write_out(fd, "\n", 1, err) != 0)
			return -1;
		at += take + (end && take == n ? 1 : 0);
	}
	buf_consume(text, at);
	return 0;
}

static int copy_out(struct git_child *g, int fd, bool safe, struct error *err)
{
	auto_buf text = BUF_INIT;
	for (;;) {
		char *to = buf_reserve(&text, PIECE);
		ssize_t n = read(g->out, to, PIECE);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, "reading from git");
		buf_commit(&text, (size_t)n);
		if (safe ? write_safe(fd, &text, n == 0, err) != 0 : write_out(fd, text.data, text.len, err) != 0)
			return -1;
		if (!safe)
			buf_reset(&text);
		if (n == 0)
			return 0;
	}
}

static int show(const struct changes *c, const char *const *args, int fd, bool safe, struct error *err)
{
	struct git_child g = GIT_CHILD_INIT;
	struct error late = ERROR_INIT;
	if (git_start(&c->git, args, GIT_OUT, &g, err) != 0)
		return -1;
	if (copy_out(&g, fd, safe, err) != 0) {
		git_end(&g, &late);
		return -1;
	}
	return git_end(&g, err);
}

int changes_patch(const struct changes *c, int fd, bool in_terminal, struct error *err)
{
	const char *args[] = { DIFF, "-p", "--binary", "--full-index", "-M", c->base, c->now, NULL };
	return show(c, args, fd, in_terminal, err);
}

int changes_summary(struct cli *cli, const struct changes *c, int fd, struct error *err)
{
	const char *args[] = { DIFF, "--stat=100", "--summary", "-M", c->base, c->now, NULL };
	if (show(c, args, fd, true, err) != 0)
		return -1;
	if (c->ignored)
		out_note(cli, "%llu entries that .gitignore names are left out", (unsigned long long)c->ignored);
	return 0;
}

/* One "insertions TAB deletions TAB path NUL". Returns what follows; NULL: not that. */
static const char *file_json(const char *p, const char *end, cJSON *files, int64_t sums[2])
{
	static const char *const keys[] = { "insertions", "deletions" };
	auto_json *f = cJSON_CreateObject();
	int64_t n[2] = { -1, -1 };
	for (int i = 0; i < 2; i++) {
		const char *tab = memchr(p, '\t', (size_t)(end - p));
		if (!tab)
			return NULL;
		auto_free char *text = xstrndup(p, (size_t)(tab - p));
		if (strcmp(text, "-") != 0 && parse_i64("git", text, 0, INT64_MAX, &n[i], NULL) != 0)
			return NULL;
		p = tab + 1;
	}
	const char *stop = memchr(p, '\0', (size_t)(end - p));
	if (!stop)
		return NULL;
	auto_free char *safe = xmalloc(4 * (size_t)(stop - p) + 1);
	json_add_str(f, "path", text_escape(p, (size_t)(stop - p), safe, 4 * (size_t)(stop - p) + 1));
	for (int i = 0; i < 2; i++) {
		sums[i] += n[i] < 0 ? 0 : n[i];
		if (n[i] < 0)
			cJSON_AddNullToObject(f, keys[i]);
		else
			json_add_i64(f, keys[i], n[i]);
	}
	cJSON_AddItemToArray(files, steal(&f));
	return stop + 1;
}

int changes_json(const struct changes *c, cJSON **ret, struct error *err)
{
	const char *args[] = { DIFF, "-z", "--numstat", "--no-renames", c->base, c->now, NULL };
	auto_buf text = BUF_INIT_MAX(NUMBERS_MAX);
	auto_json *j = cJSON_CreateObject();
	int64_t sums[2] = { 0, 0 };
	if (git_capture(&c->git, args, &text, err) != 0)
		return -1;
	json_add_str(j, "sandbox_id", c->id);
	json_add_str(j, "base", c->base_dir ? c->base_dir : "upload");
	cJSON *files = cJSON_AddArrayToObject(j, "files");
	const char *p = buf_str(&text), *end = p + text.len;
	while (p && p < end)
		p = file_json(p, end, files, sums);
	if (!p)
		return error_set(err, ERR_PROTOCOL, "git answered with something else than numbers");
	json_add_i64(j, "insertions", sums[0]);
	json_add_i64(j, "deletions", sums[1]);
	json_add_i64(j, "ignored", (int64_t)c->ignored);
	*ret = steal(&j);
	return 0;
}
