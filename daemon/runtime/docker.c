/* The Docker Engine runtime: the vtable, and everything about a container's life but its creation. */
#include "daemon/runtime/docker_internal.h"

#include "daemon/runtime/cgroup.h"
#include "shared/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { START_MS = 60 * 1000, REMOVE_MS = 10 * 1000, REMOVE_POLL_US = 20 * 1000, INIT_NICE = -20 };

void docker_name(const struct id *sandbox, char out[static DOCKER_NAME_MAX])
{
	snprintf(out, DOCKER_NAME_MAX, "sandbox-%s", sandbox->text);
}

const cJSON *docker_at(const cJSON *j, const char *path)
{
	while (j && *path) {
		size_t n = strcspn(path, ".");
		char key[64];

		snprintf(key, sizeof(key), "%.*s", (int)n, path);
		j = cJSON_GetObjectItemCaseSensitive(j, key);
		path += n;
		if (*path == '.')
			path++;
	}
	return j;
}

const char *docker_str(const cJSON *j, const char *path)
{
	const cJSON *v = docker_at(j, path);

	return cJSON_IsString(v) ? v->valuestring : "";
}

int64_t docker_num(const cJSON *j, const char *path)
{
	const cJSON *v = docker_at(j, path);

	return cJSON_IsNumber(v) ? (int64_t)v->valuedouble : 0;
}

bool docker_true(const cJSON *j, const char *path)
{
	return cJSON_IsTrue(docker_at(j, path));
}

int docker_refused(const struct engine_answer *a, const char *doing, struct error *err)
{
	auto_json *j = NULL;
	const char *text = "";
	enum error_code code = ERR_UNAVAILABLE;

	if (json_parse(buf_str(&a->body), a->body.len, &j, NULL) == 0)
		text = docker_str(j, "message");
	if (a->status == 404)
		code = ERR_NOT_FOUND;
	else if (a->status == 409)
		code = ERR_CONFLICT;
	else if (a->status == 400)
		code = ERR_INVALID;
	return error_set(err, code, "%s: the Docker Engine answers %d%s%s", doing, a->status, *text ? ": " : "", text);
}

int docker_get(struct docker *d, const char *path, const char *doing, cJSON **ret, struct error *err)
{
	auto_engine_answer a = { .status = 0 };
	struct engine_request r = { .method = "GET", .path = path };

	if (engine_call(d->engine, &r, &a, err) != 0)
		return -1;
	if (a.status / 100 != 2)
		return docker_refused(&a, doing, err);
	if (json_parse(buf_str(&a.body), a.body.len, ret, err) != 0)
		return error_wrap(err, "%s: the Docker Engine's answer", doing);
	return 0;
}

int docker_do(struct docker *d, const char *method, const char *path, int also, int also2, int64_t timeout_ms, const char *doing,
              struct error *err)
{
	auto_engine_answer a = { .status = 0 };
	struct engine_request r = { .method = method, .path = path, .timeout_ms = timeout_ms };

	if (engine_call(d->engine, &r, &a, err) != 0)
		return -1;
	if (a.status / 100 == 2 || a.status == 304 || a.status == also || a.status == also2)
		return 0;
	return docker_refused(&a, doing, err);
}

static int ping(struct runtime *rt, char *ret_text, size_t n, struct error *err)
{
	struct docker *d = docker_of(rt);
	auto_json *j = NULL;
	char api[16];

	if (engine_version(d->engine, api, err) != 0 || docker_get(d, "/version", "asking for the version", &j, err) != 0)
		return -1;
	snprintf(ret_text, n, "Docker Engine %s (API %s)", docker_str(j, "Version"), api);
	return 0;
}

static void status_from(const cJSON *j, struct runtime_status *ret)
{
	struct runtime_status s = { .state = RUNTIME_EXITED };
	const char *word = docker_str(j, "State.Status");

	if (docker_true(j, "State.Running")) {
		s.state = RUNTIME_RUNNING;
		s.pid = (pid_t)docker_num(j, "State.Pid");
	} else if (strcmp(word, "created") == 0) {
		s.state = RUNTIME_CREATED;
	} else {
		s.exit_code = (int)docker_num(j, "State.ExitCode");
		s.oom_killed = docker_true(j, "State.OOMKilled");
	}
	*ret = s;
}

/* ret_seen (may be NULL): the engine's whole answer, NULL when the container is absent. */
static int inspect_all(struct docker *d, const struct id *sandbox, struct runtime_status *ret, cJSON **ret_seen, struct error *err)
{
	auto_json *j = NULL;
	char name[DOCKER_NAME_MAX];
	auto_free char *path = NULL;
	struct error local = ERROR_INIT;

	if (ret_seen)
		*ret_seen = NULL;

	docker_name(sandbox, name);
	path = xasprintf("/containers/%s/json", name);
	if (docker_get(d, path, "looking at the container", &j, &local) != 0) {
		if (local.code != ERR_NOT_FOUND)
			return error_set(err, local.code, "%s", local.message);
		*ret = (struct runtime_status){ .state = RUNTIME_ABSENT };
		return 0;
	}
	status_from(j, ret);
	if (ret->state == RUNTIME_EXITED && docker_is_gvisor(d, j))
		docker_gvisor_ended(d, sandbox, ret);
	if (ret_seen)
		*ret_seen = steal(&j);
	return 0;
}

static int inspect(struct runtime *rt, const struct id *sandbox, struct runtime_status *ret, struct error *err)
{
	return inspect_all(docker_of(rt), sandbox, ret, NULL, err);
}

static int start(struct runtime *rt, const struct id *sandbox, struct runtime_status *ret, struct error *err)
{
	struct docker *d = docker_of(rt);
	char name[DOCKER_NAME_MAX];
	auto_free char *path = NULL;
	auto_json *seen = NULL;
	struct runtime_status s;

	docker_name(sandbox, name);
	path = xasprintf("/containers/%s/start", name);
	if (docker_do(d, "POST", path, 0, 0, START_MS, "starting the container", err) != 0 || inspect_all(d, sandbox, &s, &seen, err) != 0)
		return -1;
	if (s.state != RUNTIME_RUNNING)
		return error_set(err, ERR_UNAVAILABLE, "the container ended at once (exit status %d%s)", s.exit_code, s.oom_killed ? ", out of memory" : "");
	s.mounts_pid = s.pid;
	if (!docker_is_gvisor(d, seen))
		setpriority(PRIO_PROCESS, (id_t)s.pid, INIT_NICE); /* as sys_ordinary_priority() in init expects; without the right it stays as it is */
	else if (docker_gvisor_enclose(d, sandbox, seen, &s, err) != 0)
		return -1;
	*ret = s;
	return 0;
}

static int kill_it(struct runtime *rt, const struct id *sandbox, struct error *err)
{
	char name[DOCKER_NAME_MAX];
	auto_free char *path = NULL;

	docker_name(sandbox, name);
	path = xasprintf("/containers/%s/kill?signal=KILL", name);
	return docker_do(docker_of(rt), "POST", path, 404, 409, REMOVE_MS, "killing the container", err);
}

/* 409 means that another removal is under way: wait for its end. */
static int remove_container(struct docker *d, const char *name, struct error *err)
{
	auto_free char *path = xasprintf("/containers/%s?force=1&v=1", name);
	int64_t deadline = clock_mono_ms() + REMOVE_MS;

	for (;;) {
		auto_engine_answer a = { .status = 0 };
		struct engine_request r = { .method = "DELETE", .path = path, .timeout_ms = REMOVE_MS };

		if (engine_call(d->engine, &r, &a, err) != 0)
			return -1;
		if (a.status / 100 == 2 || a.status == 404)
			return 0;
		if (a.status != 409 || clock_mono_ms() > deadline)
			return docker_refused(&a, "removing the container", err);
		usleep(REMOVE_POLL_US);
	}
}

static int remove_it(struct runtime *rt, const struct id *sandbox, struct error *err)
{
	struct docker *d = docker_of(rt);
	char name[DOCKER_NAME_MAX];
	auto_free char *volume = NULL;

	docker_name(sandbox, name);
	if (remove_container(d, name, err) != 0)
		return -1;
	if (cgroup_remove(&d->node, sandbox, err) != 0)
		return -1;
	volume = xasprintf("/volumes/%s?force=1", name);
	return docker_do(d, "DELETE", volume, 404, 0, REMOVE_MS, "removing the volume", err);
}

void owned_list_done(struct owned_list *l)
{
	free(l->items);
	*l = (struct owned_list){ .items = NULL };
}

static void add_owned(struct owned_list *l, const char *id, enum runtime_state state, const char *ref)
{
	struct owned o = { .state = state };

	if (id_parse(id, &o.sandbox_id) != 0)
		return;
	snprintf(o.ref, sizeof(o.ref), "%s", ref);
	l->items = xrealloc(l->items, l->len + 1, sizeof(*l->items));
	l->items[l->len++] = o;
}

static enum runtime_state state_of_word(const char *word)
{
	if (strcmp(word, "running") == 0 || strcmp(word, "paused") == 0 || strcmp(word, "restarting") == 0)
		return RUNTIME_RUNNING;
	return strcmp(word, "created") == 0 ? RUNTIME_CREATED : RUNTIME_EXITED;
}

static int list_owned(struct runtime *rt, struct owned_list *ret, struct error *err)
{
	struct docker *d = docker_of(rt);
	auto_json *containers = NULL;
	auto_json *volumes = NULL;
	auto_free char *filter = xasprintf("{\"label\":[\"" LABEL_NODE "=%s\"]}", d->node.text);
	auto_free char *escaped = engine_escape(filter);
	auto_free char *path = xasprintf("/containers/json?all=1&filters=%s", escaped);
	auto_free char *volume_path = xasprintf("/volumes?filters=%s", escaped);
	struct owned_list found = { .items = NULL };
	auto_strv groups = { .items = NULL };
	const cJSON *item;

	if (docker_get(d, path, "listing containers", &containers, err) != 0 ||
	    docker_get(d, volume_path, "listing volumes", &volumes, err) != 0)
		return -1;
	cJSON_ArrayForEach(item, containers)
	{
		const cJSON *labels = docker_at(item, "Labels");
		const cJSON *id = cJSON_GetObjectItemCaseSensitive(labels, LABEL_ID);

		add_owned(&found, cJSON_IsString(id) ? id->valuestring : "", state_of_word(docker_str(item, "State")), docker_str(item, "Id"));
	}
	cJSON_ArrayForEach(item, docker_at(volumes, "Volumes"))
	{
		const cJSON *labels = docker_at(item, "Labels");
		const cJSON *id = cJSON_GetObjectItemCaseSensitive(labels, LABEL_ID);

		add_owned(&found, cJSON_IsString(id) ? id->valuestring : "", RUNTIME_ABSENT, docker_str(item, "Name"));
	}
	cgroup_list(&d->node, &groups);
	for (size_t i = 0; i < groups.len; i++)
		add_owned(&found, groups.items[i], RUNTIME_ABSENT, "control group");
	*ret = found;
	return 0;
}

static int stats(struct runtime *rt, const struct id *sandbox, struct runtime_stats *ret, struct error *err)
{
	struct runtime_status s;
	struct cgroup_view v;

	if (inspect(rt, sandbox, &s, err) != 0)
		return -1;
	if (s.state != RUNTIME_RUNNING)
		return error_set(err, ERR_CONFLICT, "the sandbox is not running");
	if (cgroup_read(s.pid, &v, err) != 0)
		return -1;
	*ret = (struct runtime_stats){
		.cpu_us = (uint64_t)v.cpu_used_us,
		.memory_bytes = (uint64_t)v.memory_used,
		.memory_limit_bytes = v.memory_max < 0 ? 0 : (uint64_t)v.memory_max,
		.pids = (uint64_t)v.pids_used,
		.pids_limit = v.pids_max < 0 ? 0 : (uint64_t)v.pids_max,
	};
	return 0;
}

static int root_bytes(struct runtime *rt, const struct id *sandbox, int64_t *ret, struct error *err)
{
	auto_json *j = NULL;
	char name[DOCKER_NAME_MAX];
	auto_free char *path = NULL;

	docker_name(sandbox, name);
	path = xasprintf("/containers/%s/json?size=1", name);
	if (docker_get(docker_of(rt), path, "measuring the container", &j, err) != 0)
		return -1;
	*ret = docker_num(j, "SizeRw");
	return 0;
}

/* Host pid of process 1, where its group holds the sandbox's processes and is ours to stop. */
static int own_group(struct docker *d, const struct id *sandbox, pid_t *ret, struct error *err)
{
	auto_json *seen = NULL;
	struct runtime_status s;

	if (inspect_all(d, sandbox, &s, &seen, err) != 0)
		return -1;
	if (s.state != RUNTIME_RUNNING || s.pid <= 1)
		return error_set(err, ERR_UNAVAILABLE, "the container does not run");
	if (docker_is_gvisor(d, seen))
		return error_set(err, ERR_UNAVAILABLE, "gVisor does not show its processes to the host");
	if (docker_true(seen, "State.Paused"))
		return error_set(err, ERR_UNAVAILABLE, "somebody paused the container");
	*ret = s.pid;
	return 0;
}

static int end_below(struct runtime *rt, const struct id *sandbox, pid_t inside, size_t *ret_ended, struct error *err)
{
	pid_t first;

	return own_group(docker_of(rt), sandbox, &first, err) != 0 ? -1 : cgroup_end_below(first, inside, ret_ended, err);
}

static int thaw(struct runtime *rt, const struct id *sandbox, struct error *err)
{
	struct error local = ERROR_INIT;
	pid_t first;

	if (own_group(docker_of(rt), sandbox, &first, &local) == 0)
		return cgroup_thaw(first, err);
	return local.code == ERR_UNAVAILABLE ? 0 : error_set(err, local.code, "%s", local.message);
}

static void docker_free(struct runtime *rt)
{
	struct docker *d = docker_of(rt);

	engine_free(d->engine);
	pthread_mutex_destroy(&d->lock);
	free(d->allowed);
	free(d->gvisor_runtime);
	free(d);
}

static const struct runtime_ops docker_ops = {
	.name = "docker",
	.probe = docker_probe,
	.ping = ping,
	.image_resolve = docker_image_resolve,
	.image_allowed = docker_image_allowed,
	.set_registries = docker_set_registries,
	.image_pull = docker_image_pull,
	.image_verify = docker_image_verify,
	.image_list = docker_image_list,
	.image_import = docker_image_import,
	.image_save = docker_image_save,
	.image_load = docker_image_load,
	.image_remove = docker_image_remove,
	.create = docker_create,
	.start = start,
	.inspect = inspect,
	.kill = kill_it,
	.remove = remove_it,
	.list_owned = list_owned,
	.stats = stats,
	.root_bytes = root_bytes,
	.end_below = end_below,
	.thaw = thaw,
	.free = docker_free,
};

int docker_runtime_new(const struct docker_options *o, struct runtime **ret, struct error *err)
{
	struct engine *engine;
	struct docker *d;

	if (engine_new(o->socket, &engine, err) != 0)
		return -1;
	d = xcalloc(1, sizeof(*d));
	d->rt.ops = &docker_ops;
	d->engine = engine;
	d->node = o->node;
	d->allowed = xstrdup(o->allowed_registries ? o->allowed_registries : "*");
	d->gvisor_runtime = xstrdup(o->gvisor_runtime ? o->gvisor_runtime : "");
	pthread_mutex_init(&d->lock, NULL);
	*ret = &d->rt;
	return 0;
}
