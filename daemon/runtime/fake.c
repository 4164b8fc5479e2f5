/*
 * The test runtime. A sandbox is a file STATE/fake/<id> holding "init io deadline" at first and the pid and start time
 * of its process once it was started; nothing is kept in memory, so any instance sees the same.
 */
#include "daemon/runtime/fake.h"

#include "shared/model/image_ref.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RECORD_MAX = 16 * 1024, GONE_POLL_US = 2000, GONE_TRIES = 2500, GRACE_MS = 30 * 1000 };

extern char **environ;

struct fake {
	struct runtime rt;
	char *dir;
};

/* What a record says. pid 0: created, not started. */
struct record {
	char init[4096], io[4096];
	long long deadline_us, pid, born;
};

static struct fake *fake_of(struct runtime *rt)
{
	return container_of(rt, struct fake, rt);
}

static char *record_path(const struct fake *f, const struct id *sandbox)
{
	return xasprintf("%s/%s", f->dir, sandbox->text);
}

static int record_write(const struct fake *f, const struct id *sandbox, const struct record *r, struct error *err)
{
	auto_free char *path = record_path(f, sandbox);
	auto_free char *text = xasprintf("%s\n%s\n%lld %lld %lld\n", r->init, r->io, r->deadline_us, r->pid, r->born);

	return io_write_file_atomic(path, text, strlen(text), 0600, false, err);
}

static bool record_read(const struct fake *f, const struct id *sandbox, struct record *r)
{
	auto_free char *path = record_path(f, sandbox);
	auto_buf text = BUF_INIT;

	return io_read_file(path, RECORD_MAX, &text, NULL) == 0 &&
	       sscanf(buf_str(&text), "%4095[^\n]\n%4095[^\n]\n%lld %lld %lld", r->init, r->io, &r->deadline_us, &r->pid, &r->born) == 5;
}

/* Start time of a live process in clock ticks, 0 when there is none (a zombie counts as gone). */
static long long born_at(long long pid)
{
	auto_free char *path = xasprintf("/proc/%lld/stat", pid);
	auto_buf text = BUF_INIT;
	const char *p;
	char state;
	long long born;

	if (io_read_file(path, 4096, &text, NULL) != 0 || !(p = strrchr(buf_str(&text), ')')))
		return 0;
	if (sscanf(p + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lld", &state, &born) != 2)
		return 0;
	return state == 'Z' || state == 'X' ? 0 : born;
}

static int probe(struct runtime *rt, struct runtime_probe *p, struct error *err)
{
	(void)rt;
	(void)err;
	for (int t = 0; t < TIER_COUNT; t++)
		snprintf(p->tiers[t].reason, sizeof(p->tiers[t].reason), "the test runtime has no isolation of any tier");
	p->tiers[TIER_CONTAINER].offered = true;
	p->mounts_nothing = true;
	snprintf(p->warning, sizeof(p->warning), "the test runtime enforces no limit");
	return 0;
}

static int ping(struct runtime *rt, char *ret_text, size_t n, struct error *err)
{
	(void)rt;
	(void)err;
	snprintf(ret_text, n, "test runtime without isolation");
	return 0;
}

static int image_resolve(struct runtime *rt, const char *image, struct image_config *ret, struct error *err)
{
	struct image_ref ref;
	struct image_config c = { .digest = NULL };
	const char *last;
	uint64_t hash = 14695981039346656037ULL;

	(void)rt;
	if (image_ref_parse(image, &ref, err) != 0)
		return -1;
	last = strrchr(ref.repository, '/');
	if (strcmp(last ? last + 1 : ref.repository, "missing") == 0)
		return error_set(err, ERR_NOT_FOUND, "no image '%s' on this machine", ref.familiar);
	for (const char *p = ref.familiar; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 1099511628211ULL;
	c.digest = xasprintf("sha256:%064llx", (unsigned long long)hash);
	c.user = xstrdup("");
	c.workdir = xstrdup("/");
	strv_add(&c.env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	*ret = c;
	return 0;
}

static int image_allowed(struct runtime *rt, const char *image, bool present, struct error *err)
{
	struct image_ref ref;

	(void)rt;
	(void)present;
	return image_ref_parse(image, &ref, err);
}

static void set_registries(struct runtime *rt, const char *allowed)
{
	(void)rt;
	(void)allowed;
}

static int no_images(struct error *err)
{
	return error_set(err, ERR_UNAVAILABLE, "the test runtime keeps no images");
}

static int image_pull(struct runtime *rt, const struct image_pull *p, struct error *err)
{
	struct image_config c;

	if (image_resolve(rt, p->image, &c, err) != 0)
		return -1;
	image_config_done(&c);
	return 0;
}

static int image_list(struct runtime *rt, struct image_list *ret, struct error *err)
{
	(void)rt;
	(void)err;
	*ret = (struct image_list){ .items = NULL };
	return 0;
}

static int image_import(struct runtime *rt, int fd, const char *name, const struct image_config *config, struct error *err)
{
	(void)rt;
	(void)fd;
	(void)name;
	(void)config;
	return no_images(err);
}

static int image_remove(struct runtime *rt, const char *image, struct error *err)
{
	(void)rt;
	(void)image;
	return no_images(err);
}

static int create(struct runtime *rt, const struct runtime_create *req, struct error *err)
{
	struct record r = { .deadline_us = req->deadline_us };

	snprintf(r.init, sizeof(r.init), "%s", req->init_path);
	snprintf(r.io, sizeof(r.io), "%s", req->io_dir);
	return record_write(fake_of(rt), &req->sandbox_id, &r, err);
}

static int inspect(struct runtime *rt, const struct id *sandbox, struct runtime_status *ret, struct error *err)
{
	struct record r;

	(void)err;
	*ret = (struct runtime_status){ .state = RUNTIME_ABSENT };
	if (!record_read(fake_of(rt), sandbox, &r))
		return 0;
	ret->state = RUNTIME_CREATED;
	if (r.pid == 0)
		return 0;
	ret->state = born_at(r.pid) == r.born ? RUNTIME_RUNNING : RUNTIME_EXITED;
	if (ret->state == RUNTIME_EXITED)
		waitpid((pid_t)r.pid, NULL, WNOHANG); /* our child when this daemon started it */
	ret->pid = ret->state == RUNTIME_RUNNING ? (pid_t)r.pid : 0;
	return 0;
}

static int spawn(const struct record *r, pid_t *ret, struct error *err)
{
	auto_free char *socket = xasprintf("%s/worker.sock", r->io);
	auto_free char *deadline = xasprintf("%lld", r->deadline_us);
	auto_free char *grace = xasprintf("%d", GRACE_MS);
	const char *argv[] = { r->init, "--socket", socket, "--deadline-us", deadline, "--grace-ms", grace, NULL };
	posix_spawnattr_t attr;
	int rc;

	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
	rc = posix_spawn(ret, r->init, NULL, &attr, (char *const *)(uintptr_t)argv, environ);
	posix_spawnattr_destroy(&attr);
	if (rc == 0)
		return 0;
	errno = rc;
	return error_errno(err, "running %s", r->init);
}

static int start(struct runtime *rt, const struct id *sandbox, struct runtime_status *ret, struct error *err)
{
	struct record r;
	pid_t pid;

	if (!record_read(fake_of(rt), sandbox, &r))
		return error_set(err, ERR_NOT_FOUND, "no such sandbox");
	if (r.pid == 0) {
		if (spawn(&r, &pid, err) != 0)
			return -1;
		r.pid = pid;
		r.born = born_at(pid);
		if (record_write(fake_of(rt), sandbox, &r, err) != 0) {
			kill(pid, SIGKILL);
			return -1;
		}
	}
	inspect(rt, sandbox, ret, err);
	return ret->state == RUNTIME_RUNNING ? 0 : error_set(err, ERR_UNAVAILABLE, "sandbox-init ended at once");
}

static int kill_it(struct runtime *rt, const struct id *sandbox, struct error *err)
{
	struct runtime_status s;

	if (inspect(rt, sandbox, &s, err) != 0)
		return -1;
	if (s.state == RUNTIME_RUNNING)
		kill(s.pid, SIGKILL);
	return 0;
}

static int remove_it(struct runtime *rt, const struct id *sandbox, struct error *err)
{
	auto_free char *path = record_path(fake_of(rt), sandbox);
	struct runtime_status s;

	for (int i = 0; i < GONE_TRIES; i++) {
		if (kill_it(rt, sandbox, err) != 0 || inspect(rt, sandbox, &s, err) != 0)
			return -1;
		if (s.state != RUNTIME_RUNNING)
			break;
		usleep(GONE_POLL_US);
	}
	if (s.state == RUNTIME_RUNNING)
		return error_set(err, ERR_TIMEOUT, "process %d does not end", (int)s.pid);
	if (unlink(path) != 0 && errno != ENOENT)
		return error_errno(err, "deleting %s", path);
	return 0;
}

static int list_owned(struct runtime *rt, struct owned_list *ret, struct error *err)
{
	struct fake *f = fake_of(rt);
	DIR *dir = opendir(f->dir);
	struct owned_list found = { .items = NULL };

	if (!dir)
		return error_errno(err, "opening %s", f->dir);
	for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
		struct owned o = { .state = RUNTIME_ABSENT };
		struct runtime_status s;

		if (id_parse(e->d_name, &o.sandbox_id) != 0 || inspect(rt, &o.sandbox_id, &s, NULL) != 0)
			continue;
		o.state = s.state;
		snprintf(o.ref, sizeof(o.ref), "%s", o.sandbox_id.text);
		found.items = xrealloc(found.items, found.len + 1, sizeof(*found.items));
		found.items[found.len++] = o;
	}
	closedir(dir);
	*ret = found;
	return 0;
}

static int stats(struct runtime *rt, const struct id *sandbox, struct runtime_stats *ret, struct error *err)
{
	(void)rt;
	(void)sandbox;
	(void)ret;
	return error_set(err, ERR_UNAVAILABLE, "the test runtime measures nothing");
}

static int root_bytes(struct runtime *rt, const struct id *sandbox, int64_t *ret, struct error *err)
{
	(void)rt;
	(void)sandbox;
	(void)err;
	*ret = 0; /* its root is the machine's: nothing is written into one of its own */
	return 0;
}

static void fake_free(struct runtime *rt)
{
	struct fake *f = fake_of(rt);

	free(f->dir);
	free(f);
}

static const struct runtime_ops fake_ops = {
	.name = "fake",
	.probe = probe,
	.ping = ping,
	.image_resolve = image_resolve,
	.image_allowed = image_allowed,
	.set_registries = set_registries,
	.image_pull = image_pull,
	.image_list = image_list,
	.image_import = image_import,
	.image_remove = image_remove,
	.create = create,
	.start = start,
	.inspect = inspect,
	.kill = kill_it,
	.remove = remove_it,
	.list_owned = list_owned,
	.stats = stats,
	.root_bytes = root_bytes,
	.free = fake_free,
};

int fake_runtime_new(const char *state_dir, struct runtime **ret, struct error *err)
{
	auto_free char *dir = xasprintf("%s/fake", state_dir);
	struct fake *f;

	if (io_mkdirs(dir, 0700, err) != 0)
		return -1;
	f = xcalloc(1, sizeof(*f));
	f->rt.ops = &fake_ops;
	f->dir = steal(&dir);
	*ret = &f->rt;
	return 0;
}
