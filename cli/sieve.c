/* The paths that are left out: see sieve.h. One `git check-ignore` answers for the whole tree. */
#include "cli/sieve.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* For each path: source, line, pattern, path, each ended by a NUL. */
enum { FIELDS = 4, PATTERN = 2, ANSWER_MAX = 64 * 1024 };

struct sieve {
	struct git git;
	struct git_child check;
	struct buf answer;
	char *dropped_dir; /* with its slash: everything below is out */
	uint64_t dropped;
};

int sieve_new(const struct git *g, const char *rules, struct sieve **ret, struct error *err)
{
	static const char *const args[] = { "check-ignore", "-z", "-v", "-n", "--stdin", "--no-index", NULL };
	struct sieve *s = xcalloc(1, sizeof(*s));
	*s = (struct sieve){ .git = *g, .check = GIT_CHILD_INIT, .answer = BUF_INIT_MAX(ANSWER_MAX) };
	s->git.work_tree = rules;
	if (git_start(&s->git, args, GIT_IN | GIT_OUT, &s->check, err) != 0) {
		sieve_free(s);
		return -1;
	}
	*ret = s;
	return 0;
}

void sieve_free(struct sieve *s)
{
	if (!s)
		return;
	git_end(&s->check, NULL);
	buf_done(&s->answer);
	free(s->dropped_dir);
	free(s);
}

uint64_t sieve_dropped(const struct sieve *s)
{
	return s->dropped;
}

/* Some file systems take .GIT and .Git for .git. */
static bool never(const char *path)
{
	if (strcmp(path, ".home") == 0 || strncmp(path, ".home/", 6) == 0 || strcmp(path, "lost+found") == 0 || strncmp(path, "lost+found/", 11) == 0)
		return true;
	for (const char *p = path; *p; p += p[strcspn(p, "/")] ? strcspn(p, "/") + 1 : strlen(p))
		if (strcspn(p, "/") == 4 && strncasecmp(p, ".git", 4) == 0)
			return true;
	return false;
}

static bool complete(const struct buf *b)
{
	size_t nuls = 0;
	for (size_t i = 0; i < b->len; i++)
		nuls += b->data[i] == '\0';
	return nuls == FIELDS;
}

static int ask(struct sieve *s, const char *path, bool directory, struct error *err)
{
	auto_buf question = BUF_INIT;
	buf_adds(&question, path);
	buf_add(&question, "/", directory ? 1 : 0);
	buf_addc(&question, '\0');
	buf_reset(&s->answer);
	if (io_write_full(s->check.in, question.data, question.len) != 0)
		goto gone;
	while (!complete(&s->answer)) {
		char *to = buf_reserve(&s->answer, 4096);
		ssize_t n = to ? read(s->check.out, to, 4096) : 0;
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			goto gone;
		buf_commit(&s->answer, (size_t)n);
	}
	return 0;
gone:
	return git_end(&s->check, err) != 0 ? -1 : error_set(err, ERR_SYSTEM, "git check-ignore ended too early");
}

/* Of a directory only a pattern that ends in a slash says for certain that everything in it is meant: "d/" also matches "d/" + "*". */
static bool ruled_out(const struct sieve *s, bool directory)
{
	const char *p = s->answer.data;
	for (int i = 0; i < PATTERN; i++)
		p += strlen(p) + 1;
	size_t n = strlen(p);
	return n > 0 && p[0] != '!' && (!directory || p[n - 1] == '/');
}

int sieve_keeps(struct sieve *s, const char *path, bool directory, bool *ret, struct error *err)
{
	*ret = false;
	if (never(path) || (s->dropped_dir && strncmp(path, s->dropped_dir, strlen(s->dropped_dir)) == 0))
		return 0;
	if (ask(s, path, directory, err) != 0)
		return -1;
	*ret = !ruled_out(s, directory);
	if (*ret)
		return 0;
	s->dropped++;
	if (directory) {
		free(s->dropped_dir);
		s->dropped_dir = xasprintf("%s/", path);
	}
	return 0;
}
