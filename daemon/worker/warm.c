/*
 * Sandboxes that were started for a pool, on the worker's side: which wait here, whether they are still what a new one would be, and
 * giving one the name it is asked for. One that is claimed never comes back: its entry is gone, its id marked until it is unmade.
 */
#include "daemon/worker/warm.h"

#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INIT_TEXT_MAX = 4352 };

/* What a sandbox-init is told from another by: an upgrade puts another file in its place, or beside it. */
static int init_identity(struct worker *w, char *ret, size_t n, struct error *err)
{
	struct stat st;

	if (stat(w->init_path, &st) != 0)
		return error_errno(err, "%s", w->init_path);
	snprintf(ret, n, "%s %s %lld %lld %lld.%09ld\n", SANDBOX_VERSION, w->init_path, (long long)st.st_ino, (long long)st.st_size,
	         (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	return 0;
}

static char *init_file(struct worker *w, const struct id *sandbox)
{
	auto_free char *dir = workspaces_dir(w->spaces, sandbox);

	return xasprintf("%s/init-identity", dir);
}

/* The sandbox's own host name space, by inode; 0: it cannot be told. */
static ino_t names_of(pid_t pid)
{
	auto_free char *path = xasprintf("/proc/%d/ns/uts", (int)pid);
	struct stat st;

	return pid > 0 && stat(path, &st) == 0 ? st.st_ino : 0;
}

void warm_free(struct warm *m)
{
	if (!m)
		return;
	free(m->image);
	free(m->digest);
	free(m->init);
	free(m);
}

static void put(struct worker *w, const struct sandbox *s, const char *digest, const char *init, pid_t pid)
{
	struct warm *m = xcalloc(1, sizeof(*m));

	*m = (struct warm){
		.sandbox = s->id,
		.tier = s->tier,
		.image = xstrdup(s->spec.image),
		.digest = xstrdup0(digest),
		.init = xstrdup(init),
		.pid = pid,
		.names = names_of(pid),
	};
	pthread_mutex_lock(&w->lock);
	/* The list this comes from may be older than the claim. */
	if (idmap_get(&w->claimed, &s->id) == NULL)
		m = idmap_put(&w->warm, &s->id, m);
	pthread_mutex_unlock(&w->lock);
	warm_free(m);
}

int warm_add(struct worker *w, const struct sandbox *s, const char *digest, pid_t pid, struct error *err)
{
	auto_free char *path = init_file(w, &s->id);
	char init[INIT_TEXT_MAX];

	if (init_identity(w, init, sizeof(init), err) != 0 || io_write_file_atomic(path, init, strlen(init), 0600, false, err) != 0)
		return -1;
	put(w, s, digest, init, pid);
	return 0;
}

void warm_restore(struct worker *w, const struct sandbox *s, pid_t pid)
{
	auto_free char *path = init_file(w, &s->id);
	auto_buf init = BUF_INIT;

	/* Without it nobody knows what it was started with: that differs from every other, and it is replaced. */
	(void)io_read_file(path, INIT_TEXT_MAX, &init, NULL);
	put(w, s, s->image_digest, buf_str(&init), pid);
}

/* A controller that lost its machine may have lost the claim as well: should both have been restarted, what had a user is never taken for fresh. */
static void forget_init(struct worker *w, const struct id *sandbox)
{
	auto_free char *path = init_file(w, sandbox);

	if (unlink(path) != 0 && errno != ENOENT)
		log_warn("worker", "%s: %m", path);
}

struct warm *warm_take(struct worker *w, const struct id *sandbox)
{
	struct warm *m;

	pthread_mutex_lock(&w->lock);
	m = idmap_remove(&w->warm, sandbox);
	if (m)
		idmap_put(&w->claimed, sandbox, w);
	pthread_mutex_unlock(&w->lock);
	if (m)
		forget_init(w, sandbox);
	return m;
}

void warm_forget(struct worker *w, const struct id *sandbox)
{
	struct warm *m;

	pthread_mutex_lock(&w->lock);
	m = idmap_remove(&w->warm, sandbox);
	idmap_remove(&w->claimed, sandbox);
	pthread_mutex_unlock(&w->lock);
	warm_free(m);
}

void warm_done(struct worker *w)
{
	auto_free void **all = idmap_values(&w->warm);

	for (size_t i = 0; i < w->warm.len; i++)
		warm_free(all[i]);
	idmap_done(&w->warm);
	idmap_done(&w->claimed);
}

/* --- still the same as a new one would be? --- */

int warm_check(struct worker *w, const struct warm *m, const char *digest, struct error *err)
{
	char init[INIT_TEXT_MAX];

	if (strcmp(m->digest ? m->digest : "", digest ? digest : "") != 0)
		return error_set(err, ERR_CONFLICT, "recycled: the image is another one now");
	if (init_identity(w, init, sizeof(init), err) != 0)
		return -1;
	return strcmp(init, m->init) == 0 ? 0 : error_set(err, ERR_CONFLICT, "recycled: sandbox-init is another one now");
}

/* One that waited, copied out of the map. */
struct look {
	struct id sandbox;
	enum tier tier;
	char *image;
};

static struct look *copy_all(struct worker *w, size_t *ret_n)
{
	struct look *copy;
	auto_free void **all = NULL;

	pthread_mutex_lock(&w->lock);
	all = idmap_values(&w->warm);
	*ret_n = w->warm.len;
	copy = *ret_n ? xcalloc(*ret_n, sizeof(*copy)) : NULL;
	for (size_t i = 0; i < *ret_n; i++) {
		const struct warm *m = all[i];

		copy[i] = (struct look){ .sandbox = m->sandbox, .tier = m->tier, .image = xstrdup(m->image) };
	}
	pthread_mutex_unlock(&w->lock);
	return copy;
}

static void post_stale(struct worker *w, const struct id *sandbox, const char *why)
{
	struct task *t = xcalloc(1, sizeof(*t));

	t->kind = TASK_STALE;
	t->sandbox = *sandbox;
	t->why = xstrdup(why);
	worker_post(w, t);
}

static void check_one(struct worker *w, const struct id *sandbox, const char *digest)
{
	struct error err = ERROR_INIT;
	const struct warm *m;
	int rc;

	pthread_mutex_lock(&w->lock);
	m = idmap_get(&w->warm, sandbox);
	rc = m ? warm_check(w, m, digest, &err) : 0;
	pthread_mutex_unlock(&w->lock);
	if (rc != 0)
		post_stale(w, sandbox, err.message);
}

/* Members of a pool stand side by side: the engine is asked once for an image. An engine that does not answer is no reason to end any. */
void warm_check_all(struct worker *w)
{
	struct runtime *rt = w->o.runtime;
	struct image_config image = { .digest = NULL };
	const char *asked = "";
	bool known = false;
	size_t n = 0;
	auto_free struct look *all = copy_all(w, &n);

	for (size_t i = 0; i < n; i++) {
		struct error err = ERROR_INIT;

		if (strcmp(asked, all[i].image) != 0) {
			image_config_done(&image);
			known = runtime_traits(rt, all[i].tier) & RUNTIME_OWN_IMAGES || rt->ops->image_resolve(rt, all[i].image, &image, &err) == 0 ||
			        err.code == ERR_NOT_FOUND;
			asked = all[i].image;
		}
		if (known)
			check_one(w, &all[i].sandbox, image.digest);
	}
	image_config_done(&image);
	for (size_t i = 0; i < n; i++)
		free(all[i].image);
}

bool warm_waits(struct worker *w, const struct id *sandbox)
{
	bool there;

	pthread_mutex_lock(&w->lock);
	there = idmap_get(&w->warm, sandbox) != NULL;
	pthread_mutex_unlock(&w->lock);
	return there;
}

/* --- its name --- */

struct naming {
	int ns;
	const char *name;
	int error; /* errno, 0: done */
};

static void *set_name(void *arg)
{
	struct naming *n = arg;

	n->error = setns(n->ns, CLONE_NEWUTS) != 0 || sethostname(n->name, strlen(n->name)) != 0 ? errno : 0;
	return NULL;
}

/* A name space belongs to a thread: one is made for it and ends with it. */
static int set_hostname(const struct warm *m, const char *name, struct error *err)
{
	auto_free char *path = xasprintf("/proc/%d/ns/uts", (int)m->pid);
	auto_close int ns = open(path, O_RDONLY | O_CLOEXEC);
	struct naming n = { .ns = ns, .name = name };
	struct stat st;
	pthread_t thread;

	if (ns < 0 || fstat(ns, &st) != 0)
		return error_errno(err, "its host name");
	/* The number may be another process's by now, and this one's own names are the host's. */
	if (m->names == 0 || st.st_ino != m->names || st.st_ino == names_of(getpid()))
		return error_set(err, ERR_CONFLICT, "its process 1 is not where it was");
	errno = pthread_create(&thread, NULL, set_name, &n);
	if (errno != 0)
		return error_errno(err, "a thread for its host name");
	pthread_join(thread, NULL);
	errno = n.error;
	return n.error ? error_errno(err, "setting its host name") : 0;
}

/* In place: a file that takes its place would not be the one that is mounted. */
static int rewrite(const char *path, const char *text, struct error *err)
{
	auto_close int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 || io_write_full(fd, text, strlen(text)) != 0)
		return error_errno(err, "%s", path);
	return 0;
}

int warm_name(const struct warm *m, const char *name, const char *hosts_file, const char *hosts, struct error *err)
{
	if (!name)
		return 0;
	if (m->tier != TIER_CONTAINER)
		return error_set(err, ERR_CONFLICT, "the name of a running %s sandbox cannot be changed", tier_text(m->tier));
	return rewrite(hosts_file, hosts, err) == 0 ? set_hostname(m, name, err) : -1;
}
