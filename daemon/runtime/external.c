/*
 * The external runtime. A record STATE/driver/<id> is written before the driver is called, so whatever dies, a delete
 * follows. Nothing is kept in memory but what the last probe said.
 */
#include "daemon/runtime/external.h"

#include "daemon/runtime/cgroup.h"
#include "daemon/runtime/docker.h"
#include "daemon/runtime/driver.h"
#include "daemon/runtime/driver_answer.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/model_json.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RECORD_MAX = 16 * 1024, WORD_MAX = 64, GONE_POLL_US = 2000, GONE_TRIES = 1000 };

struct external {
	struct runtime rt;
	char *driver, *dir, *self;
	struct id node;
	bool development;     /* such tiers are wanted */
	pthread_mutex_t lock; /* guards can */
	struct driver_abilities can;
};

/* pid: of the stand-in, 0 until started. */
struct record {
	char init[4096], io[4096];
	long long deadline_us, pid, born;
};

static struct external *external_of(struct runtime *rt)
{
	return container_of(rt, struct external, rt);
}

static struct driver_abilities abilities_of(struct external *x)
{
	struct driver_abilities can;

	pthread_mutex_lock(&x->lock);
	can = x->can;
	pthread_mutex_unlock(&x->lock);
	return can;
}

/* --- records --- */

static char *record_path(const struct external *x, const struct id *sandbox)
{
	return xasprintf("%s/%s", x->dir, sandbox->text);
}

static int record_write(const struct external *x, const struct id *sandbox, const struct record *r, struct error *err)
{
	auto_free char *path = record_path(x, sandbox);
	auto_free char *text = xasprintf("%s\n%s\n%lld %lld %lld\n", r->init, r->io, r->deadline_us, r->pid, r->born);

	return io_write_file_atomic(path, text, strlen(text), 0600, true, err);
}

static bool record_read(const struct external *x, const struct id *sandbox, struct record *r)
{
	auto_free char *path = record_path(x, sandbox);
	auto_buf text = BUF_INIT;

	return io_read_file(path, RECORD_MAX, &text, NULL) == 0 &&
	       sscanf(buf_str(&text), "%4095[^\n]\n%4095[^\n]\n%lld %lld %lld", r->init, r->io, &r->deadline_us, &r->pid, &r->born) == 5;
}

bool external_owns(struct runtime *rt, const struct id *sandbox)
{
	auto_free char *path = record_path(external_of(rt), sandbox);

	return access(path, F_OK) == 0;
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

/* --- calls --- */

static int call(struct external *x, const char *action, const struct id *sandbox, cJSON *take_payload, int64_t timeout_ms, cJSON **ret,
                struct error *err)
{
	struct driver_call c = {
		.path = x->driver,
		.action = action,
		.node = &x->node,
		.sandbox = sandbox,
		.payload = take_payload,
		.timeout_ms = timeout_ms,
		.keeps_children = strcmp(action, "create") == 0,
	};

	if (driver_check_file(x->driver, err) != 0) {
		cJSON_Delete(take_payload);
		return -1;
	}
	return driver_call(&c, ret, err);
}

static void describe(const struct external *x, const cJSON *result, char *ret, size_t n)
{
	const cJSON *name = cJSON_GetObjectItemCaseSensitive(result, "name"), *version = cJSON_GetObjectItemCaseSensitive(result, "version");

	snprintf(ret, n, "the driver %.60s %.20s says so (sandboxd driver-check %.80s verifies it)", cJSON_IsString(name) ? name->valuestring : "without a name",
	         cJSON_IsString(version) ? version->valuestring : "", x->driver);
}

static void offer(const struct external *x, const struct driver_abilities *can, const cJSON *result, enum tier t, struct tier_offer *ret)
{
	const cJSON *why = cJSON_GetObjectItemCaseSensitive(result, "development");
	char text[128];

	if (!can->tiers[t]) {
		snprintf(ret->reason, sizeof(ret->reason), "not offered: the driver %.200s does not name this tier", x->driver);
		return;
	}
	ret->offered = !can->development || x->development;
	ret->development = can->development;
	if (!can->development) {
		describe(x, result, ret->reason, sizeof(ret->reason));
		return;
	}
	text_escape(why->valuestring, strlen(why->valuestring), text, sizeof(text));
	snprintf(ret->reason, sizeof(ret->reason), "%s: the driver is for development only (%s)%s", ret->offered ? "development" : "not offered", text,
	         ret->offered ? "" : "; worker.driver_development = true offers it nevertheless");
}

static int probe(struct runtime *rt, struct runtime_probe *p, struct error *err)
{
	struct external *x = external_of(rt);
	struct id id = id_new();
	auto_json *result = NULL;
	struct driver_abilities can = { .init = false };
	int rc = call(x, "probe", &id, NULL, DRIVER_PROBE_MS, &result, err);

	cgroup_remove(&x->node, &id, NULL);
	if (rc == 0)
		rc = driver_abilities(result, &can, err);
	pthread_mutex_lock(&x->lock);
	x->can = can;
	pthread_mutex_unlock(&x->lock);
	for (int t = 0; rc == 0 && t < TIER_COUNT; t++)
		offer(x, &can, result, (enum tier)t, &p->tiers[t]);
	return rc;
}

static unsigned traits(struct runtime *rt, enum tier tier)
{
	(void)tier;
	return RUNTIME_OWN_DISK | (abilities_of(external_of(rt)).engine_images ? 0 : RUNTIME_OWN_IMAGES);
}

/* --- a sandbox's life --- */

static cJSON *create_payload(const struct runtime_create *req, bool init)
{
	cJSON *j = cJSON_CreateObject(), *in;

	cJSON_AddItemToObject(j, "spec", spec_to_json(req->spec));
	json_add_str(j, "isolation", isolation_text(tier_isolation(req->tier)));
	json_add_str(j, "tier", tier_text(req->tier));
	json_add_str(j, "image_digest", req->image_digest);
	json_add_str(j, "hostname", req->hostname);
	if (!init)
		return j;
	in = cJSON_AddObjectToObject(j, "init");
	json_add_str(in, "path", req->init_path);
	json_add_str(in, "socket_dir", req->io_dir);
	json_add_i64(in, "deadline_us", req->deadline_us);
	json_add_i64(in, "grace_ms", DOCKER_INIT_GRACE_MS);
	return j;
}

static int prepare(struct external *x, const struct driver_abilities *can, const struct runtime_create *req, struct error *err)
{
	cJSON *j;

	if (!can->prepare || !req->image_digest)
		return 0;
	j = cJSON_CreateObject();
	json_add_str(j, "image_digest", req->image_digest);
	return call(x, "prepare", &req->sandbox_id, j, DRIVER_PREPARE_MS, NULL, err);
}

static int create(struct runtime *rt, const struct runtime_create *req, struct error *err)
{
	struct external *x = external_of(rt);
	struct driver_abilities can = abilities_of(x);
	struct record r = { .deadline_us = req->deadline_us };
	struct error local = ERROR_INIT;

	snprintf(r.init, sizeof(r.init), "%s", req->init_path);
	snprintf(r.io, sizeof(r.io), "%s", req->io_dir);
	if (record_write(x, &req->sandbox_id, &r, err) != 0)
		return -1;
	if (prepare(x, &can, req, &local) == 0 &&
	    call(x, "create", &req->sandbox_id, create_payload(req, can.init), DRIVER_CREATE_MS, NULL, &local) == 0)
		return 0;
	rt->ops->remove(rt, &req->sandbox_id, NULL);
	return error_set(err, local.code, "%s", local.message);
}

static int ask_state(struct external *x, const struct id *sandbox, struct runtime_status *ret, struct error *err)
{
	auto_json *j = NULL;

	if (call(x, "inspect", sandbox, NULL, DRIVER_ASK_MS, &j, err) != 0)
		return -1;
	return driver_state(j, ret, err);
}

/* The stand-in lives as long as the sandbox; a driver that can be asked is asked too. */
static int state_of(struct external *x, const struct driver_abilities *can, const struct id *sandbox, const struct record *r, struct runtime_status *ret,
                    struct error *err)
{
	struct runtime_status s = { .state = RUNTIME_CREATED };

	if (can->init)
		return ask_state(x, sandbox, ret, err);
	if (r->pid != 0)
		s.state = born_at(r->pid) == r->born ? RUNTIME_RUNNING : RUNTIME_EXITED;
	if (s.state == RUNTIME_EXITED)
		waitpid((pid_t)r->pid, NULL, WNOHANG); /* our child when this daemon started it */
	if (s.state == RUNTIME_RUNNING && can->inspect && ask_state(x, sandbox, &s, err) != 0)
		return -1;
	s.pid = s.state == RUNTIME_RUNNING ? (pid_t)r->pid : 0;
	*ret = s;
	return 0;
}

static int inspect(struct runtime *rt, const struct id *sandbox, struct runtime_status *ret, struct error *err)
{
	struct external *x = external_of(rt);
	struct driver_abilities can = abilities_of(x);
	struct record r;

	if (record_read(x, sandbox, &r))
		return state_of(x, &can, sandbox, &r, ret, err);
	*ret = (struct runtime_status){ .state = RUNTIME_ABSENT };
	return 0;
}

static int spawn_stand_in(struct external *x, const struct id *sandbox, const struct record *r, pid_t *ret, struct error *err)
{
	auto_free char *socket = xasprintf("%s/worker.sock", r->io);
	auto_free char *deadline = xasprintf("%lld", r->deadline_us);
	auto_free char *grace = xasprintf("%d", DOCKER_INIT_GRACE_MS);
	const char *const argv[] = {
		r->init, "--socket", socket, "--deadline-us", deadline, "--grace-ms", grace, "--through", x->self, "--through", "driver-exec",
		"--through", "--driver", "--through", x->driver, "--through", "--sandbox", "--through", sandbox->text, NULL,
	};

	return driver_spawn(argv, &x->node, sandbox, ret, err);
}

static int start(struct runtime *rt, const struct id *sandbox, struct runtime_status *ret, struct error *err)
{
	struct external *x = external_of(rt);
	struct driver_abilities can = abilities_of(x);
	struct record r;
	pid_t pid;

	if (!record_read(x, sandbox, &r))
		return error_set(err, ERR_NOT_FOUND, "no such sandbox");
	if (!can.init && r.pid == 0) {
		if (spawn_stand_in(x, sandbox, &r, &pid, err) != 0)
			return -1;
		r.pid = pid;
		r.born = born_at(pid);
		if (record_write(x, sandbox, &r, err) != 0) {
			kill(pid, SIGKILL);
			return -1;
		}
	}
	if (state_of(x, &can, sandbox, &r, ret, err) != 0)
		return -1;
	if (ret->state == RUNTIME_RUNNING && ret->pid > 0)
		return 0;
	return error_set(err, ERR_UNAVAILABLE, "the driver created the sandbox, but it does not run");
}

static void end_stand_in(const struct record *r)
{
	for (int i = 0; i < GONE_TRIES && r->pid > 1 && born_at(r->pid) == r->born; i++) {
		kill((pid_t)r->pid, SIGKILL);
		usleep(GONE_POLL_US);
	}
	if (r->pid > 1)
		waitpid((pid_t)r->pid, NULL, WNOHANG);
}

static int kill_it(struct runtime *rt, const struct id *sandbox, struct error *err)
{
	struct external *x = external_of(rt);
	struct record r;

	if (!record_read(x, sandbox, &r))
		return 0;
	if (abilities_of(x).kill && call(x, "kill", sandbox, NULL, DRIVER_ASK_MS, NULL, err) != 0)
		return -1;
	end_stand_in(&r);
	return 0;
}

static int remove_it(struct runtime *rt, const struct id *sandbox, struct error *err)
{
	struct external *x = external_of(rt);
	auto_free char *path = record_path(x, sandbox);
	struct record r;

	if (!record_read(x, sandbox, &r))
		return cgroup_remove(&x->node, sandbox, err);
	if (call(x, "delete", sandbox, NULL, DRIVER_DELETE_MS, NULL, err) != 0)
		return -1;
	end_stand_in(&r);
	/* Whatever the driver left running for this sandbox ends here. */
	if (cgroup_remove(&x->node, sandbox, err) != 0)
		return -1;
	if (unlink(path) != 0 && errno != ENOENT)
		return error_errno(err, "deleting %s", path);
	return 0;
}

static int list_owned(struct runtime *rt, struct owned_list *ret, struct error *err)
{
	struct external *x = external_of(rt);
	auto_dir DIR *dir = opendir(x->dir);
	struct owned_list found = { .items = NULL };

	if (!dir)
		return error_errno(err, "opening %s", x->dir);
	for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
		struct owned o = { .state = RUNTIME_CREATED };
		struct record r;

		if (id_parse(e->d_name, &o.sandbox_id) != 0)
			continue;
		if (record_read(x, &o.sandbox_id, &r) && r.pid != 0)
			o.state = born_at(r.pid) == r.born ? RUNTIME_RUNNING : RUNTIME_EXITED;
		snprintf(o.ref, sizeof(o.ref), "%s", o.sandbox_id.text);
		found.items = xrealloc(found.items, found.len + 1, sizeof(*found.items));
		found.items[found.len++] = o;
	}
	*ret = found;
	return 0;
}

static int stats(struct runtime *rt, const struct id *sandbox, struct runtime_stats *ret, struct error *err)
{
	struct external *x = external_of(rt);
	auto_json *j = NULL;

	if (!abilities_of(x).stats)
		return error_set(err, ERR_UNAVAILABLE, "the sandbox's runtime driver measures nothing");
	if (call(x, "stats", sandbox, NULL, DRIVER_ASK_MS, &j, err) != 0)
		return -1;
	driver_stats(j, ret);
	return 0;
}

static int deadline(struct runtime *rt, const struct id *sandbox, int64_t deadline_us, struct error *err)
{
	struct external *x = external_of(rt);
	cJSON *j;

	if (!abilities_of(x).deadline || !external_owns(rt, sandbox))
		return 0;
	j = cJSON_CreateObject();
	json_add_i64(j, "deadline_us", deadline_us);
	return call(x, "deadline", sandbox, j, DRIVER_ASK_MS, NULL, err);
}

static int root_bytes(struct runtime *rt, const struct id *sandbox, int64_t *ret, struct error *err)
{
	(void)rt;
	(void)sandbox;
	(void)err;
	*ret = 0; /* the driver bounds its disks */
	return 0;
}

static int ping(struct runtime *rt, char *ret_text, size_t n, struct error *err)
{
	struct external *x = external_of(rt);

	if (driver_check_file(x->driver, err) != 0)
		return -1;
	snprintf(ret_text, n, "driver %s", x->driver);
	return 0;
}

static void external_free(struct runtime *rt)
{
	struct external *x = external_of(rt);

	pthread_mutex_destroy(&x->lock);
	free(x->driver);
	free(x->dir);
	free(x->self);
	free(x);
}

static const struct runtime_ops external_ops = {
	.name = "external",
	.traits = traits,
	.probe = probe,
	.ping = ping,
	.create = create,
	.start = start,
	.inspect = inspect,
	.kill = kill_it,
	.remove = remove_it,
	.list_owned = list_owned,
	.stats = stats,
	.deadline = deadline,
	.root_bytes = root_bytes,
	.free = external_free,
};

int external_runtime_new(const struct external_options *o, struct runtime **ret, struct error *err)
{
	auto_free char *dir = xasprintf("%s/driver", o->state_dir);
	auto_free char *self = realpath("/proc/self/exe", NULL);
	struct external *x;

	if (!self)
		return error_errno(err, "finding this program");
	if (io_mkdirs(dir, 0700, err) != 0)
		return -1;
	x = xcalloc(1, sizeof(*x));
	x->rt.ops = &external_ops;
	x->driver = xstrdup(o->driver);
	x->dir = steal(&dir);
	x->self = steal(&self);
	x->node = o->node;
	x->development = o->development;
	pthread_mutex_init(&x->lock, NULL);
	*ret = &x->rt;
	return 0;
}
