/*
 * Creating a container: the request with every limit, and the read-back. What each setting is for:
 * docs/security.md. Process 1 is sandbox-init from the host; nothing of the image runs by itself.
 */
#include "daemon/runtime/docker_internal.h"

#include <stdio.h>
#include <string.h>

enum {
	MIB = 1024 * 1024,
	CREATE_MS = 60 * 1000,
	/* Before the host's own services when the host runs out of memory. Lower than the engine's own value would need a
	 * capability that an engine in a container lacks. */
	OOM_SCORE_ADJ = 100,
	RUN_MIB = 16,
	TMPFS_MIN_MIB = 16,
	IMAGE_VOLUMES_MAX = 16,
};

/* What init keeps: to become the user of a command, to signal it, and to handle files of every owner. */
static const char *const capabilities[] = { "SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER" };

static void add_words(cJSON *object, const char *key, const char *const *words, size_t n)
{
	cJSON *array = cJSON_AddArrayToObject(object, key);

	for (size_t i = 0; i < n; i++)
		cJSON_AddItemToArray(array, cJSON_CreateString(words[i]));
}

static void add_tmpfs(cJSON *tmpfs, const char *where, const char *flags, uint32_t mib, unsigned inodes, unsigned mode)
{
	auto_free char *options = xasprintf("rw,nosuid,nodev,%s,size=%uk,nr_inodes=%u,mode=%o", flags, mib * 1024, inodes, mode);

	json_add_str(tmpfs, where, options);
}

static uint32_t share_of_memory(const struct spec *s, unsigned part)
{
	uint32_t mib = s->resources.memory_mib / part;

	return mib < TMPFS_MIN_MIB ? TMPFS_MIN_MIB : mib;
}

/* Memory file systems count against the sandbox's memory; their own sizes keep one from eating it all. */
static void add_tmpfs_mounts(cJSON *host, const struct runtime_create *req, const cJSON *image)
{
	cJSON *tmpfs = cJSON_AddObjectToObject(host, "Tmpfs");
	const struct workspace_mount *w = req->workspace;
	const cJSON *volume;

	add_tmpfs(tmpfs, "/tmp", "exec", share_of_memory(req->spec, 2), 131072, 01777);
	add_tmpfs(tmpfs, "/run", "noexec", RUN_MIB, 8192, 0755);
	add_tmpfs(tmpfs, "/dev/shm", "noexec", share_of_memory(req->spec, 4), 16384, 01777);
	if (w && w->kind == WORKSPACE_TMPFS) {
		auto_free char *options = xasprintf("rw,nosuid,nodev,exec,size=%lldk,nr_inodes=1048576,mode=777,uid=%u,gid=%u",
		                                    (long long)(w->size_bytes / 1024), (unsigned)w->uid, (unsigned)w->gid);
		json_add_str(tmpfs, "/workspace", options);
	}
	/* A VOLUME of the image would become an unbounded directory of the host. */
	cJSON_ArrayForEach(volume, docker_at(image, "Config.Volumes"))
	{
		const char *path = volume->string;

		if (strcmp(path, "/workspace") == 0 || cJSON_GetObjectItemCaseSensitive(tmpfs, path))
			continue;
		add_tmpfs(tmpfs, path, "exec", share_of_memory(req->spec, 4), 65536, 0755);
	}
}

static cJSON *add_mount(cJSON *mounts, const char *type, const char *source, const char *target, bool readonly)
{
	cJSON *m = cJSON_CreateObject();

	json_add_str(m, "Type", type);
	json_add_str(m, "Source", source);
	json_add_str(m, "Target", target);
	json_add_bool(m, "ReadOnly", readonly);
	cJSON_AddItemToArray(mounts, m);
	if (strcmp(type, "bind") == 0)
		json_add_str(cJSON_AddObjectToObject(m, "BindOptions"), "Propagation", "rprivate");
	return m;
}

static void add_labels(cJSON *object, const struct docker *d, const struct id *sandbox)
{
	cJSON *labels = cJSON_AddObjectToObject(object, "Labels");

	json_add_str(labels, LABEL_MANAGED, "1");
	json_add_str(labels, LABEL_ID, sandbox->text);
	json_add_str(labels, LABEL_NODE, d->node.text);
}

static void add_mounts(cJSON *host, const struct runtime_create *req)
{
	cJSON *mounts = cJSON_AddArrayToObject(host, "Mounts");
	const struct workspace_mount *w = req->workspace;
	char name[DOCKER_NAME_MAX];

	add_mount(mounts, "bind", req->init_path, "/.sandbox/init", true);
	add_mount(mounts, "bind", req->io_dir, "/.sandbox/io", true);
	if (req->hosts_file)
		add_mount(mounts, "bind", req->hosts_file, "/etc/hosts", true);
	if (req->resolv_file)
		add_mount(mounts, "bind", req->resolv_file, "/etc/resolv.conf", true);
	if (w && w->kind == WORKSPACE_DIR)
		add_mount(mounts, "bind", w->source, "/workspace", false);
	if (w && w->kind == WORKSPACE_DEVICE) {
		docker_name(&req->sandbox_id, name);
		add_mount(mounts, "volume", name, "/workspace", false);
	}
}

static int64_t tasks_of(const struct runtime_create *req)
{
	int64_t pids = req->spec->resources.pids;

	return req->tier == TIER_GVISOR ? pids * DOCKER_GVISOR_TASKS_PER_PID + DOCKER_GVISOR_TASKS_RESERVE : pids + DOCKER_PIDS_RESERVE;
}

static void add_limits(cJSON *host, const struct docker *d, const struct runtime_create *req)
{
	const struct resources *r = &req->spec->resources;
	int64_t memory = (int64_t)r->memory_mib * MIB;
	cJSON *core = cJSON_CreateObject();

	json_add_i64(host, "Memory", memory);
	if (d->no_swap_limit)
		json_add_i64(host, "MemorySwappiness", 0); /* the nearest thing: its pages are not swapped at all */
	else
		json_add_i64(host, "MemorySwap", memory);
	json_add_i64(host, "NanoCpus", (int64_t)r->cpu_millis * 1000000);
	json_add_i64(host, "PidsLimit", tasks_of(req));
	json_add_i64(host, "OomScoreAdj", OOM_SCORE_ADJ);
	json_add_str(core, "Name", "core");
	json_add_i64(core, "Soft", 0);
	json_add_i64(core, "Hard", 0);
	cJSON_AddItemToArray(cJSON_AddArrayToObject(host, "Ulimits"), core);
}

static cJSON *host_config(const struct docker *d, const struct runtime_create *req, const cJSON *image)
{
	static const char *const all[] = { "ALL" }, *const no_new[] = { "no-new-privileges" };
	cJSON *host = cJSON_CreateObject(), *sysctls;

	json_add_str(host, "NetworkMode", "none");
	json_add_str(host, "IpcMode", "private");
	json_add_str(host, "CgroupnsMode", "private");
	json_add_bool(host, "ReadonlyRootfs", !req->spec->writable_root);
	json_add_bool(host, "Privileged", false);
	json_add_bool(host, "AutoRemove", false);
	json_add_bool(host, "Init", false);
	add_words(host, "CapDrop", all, 1);
	add_words(host, "CapAdd", capabilities, ARRAY_LEN(capabilities));
	add_words(host, "SecurityOpt", no_new, 1);
	json_add_str(cJSON_AddObjectToObject(host, "LogConfig"), "Type", "none");
	json_add_str(cJSON_AddObjectToObject(host, "RestartPolicy"), "Name", "no");
	/* The engine turns IPv6 off where there is no network, ::1 included. */
	sysctls = cJSON_AddObjectToObject(host, "Sysctls");
	json_add_str(sysctls, "net.ipv6.conf.all.disable_ipv6", "0");
	json_add_str(sysctls, "net.ipv6.conf.lo.disable_ipv6", "0");
	if (req->tier == TIER_GVISOR)
		json_add_str(host, "Runtime", d->gvisor_runtime);
	add_limits(host, d, req);
	add_tmpfs_mounts(host, req, image);
	add_mounts(host, req);
	return host;
}

static cJSON *create_body(const struct docker *d, const struct runtime_create *req, const cJSON *image)
{
	static const char *const entry[] = { "/.sandbox/init" }, *const none[] = { "NONE" };
	char deadline[24], grace[24];
	const char *const args[] = { "--socket", "/.sandbox/io/worker.sock", "--deadline-us", deadline, "--grace-ms", grace };
	const char *const exercise[] = { "--exercise", req->exercise };
	cJSON *j = cJSON_CreateObject();

	snprintf(deadline, sizeof(deadline), "%lld", (long long)req->deadline_us);
	snprintf(grace, sizeof(grace), "%d", DOCKER_INIT_GRACE_MS);
	json_add_str(j, "Image", req->image_digest);
	json_add_str(j, "Hostname", req->hostname ? req->hostname : "sandbox");
	json_add_str(j, "User", "0");
	json_add_str(j, "WorkingDir", "/");
	add_words(j, "Entrypoint", entry, 1);
	if (req->exercise)
		add_words(j, "Cmd", exercise, ARRAY_LEN(exercise));
	else
		add_words(j, "Cmd", args, ARRAY_LEN(args));
	add_words(cJSON_AddObjectToObject(j, "Healthcheck"), "Test", none, 1); /* else the engine would run the image's */
	json_add_bool(j, "NetworkDisabled", true);
	add_labels(j, d, &req->sandbox_id);
	cJSON_AddItemToObject(j, "HostConfig", host_config(d, req, image));
	return j;
}

/* Swap that the kernel does not account was seen by the probe and is shown by doctor; any other warning is a refusal. */
static int check_warnings(const struct docker *d, const cJSON *answer, struct error *err)
{
	const cJSON *w;

	cJSON_ArrayForEach(w, docker_at(answer, "Warnings"))
	{
		const char *text = cJSON_IsString(w) ? w->valuestring : "?";

		if (d->no_swap_limit && strstr(text, "swap"))
			continue;
		return error_set(err, ERR_UNAVAILABLE, "the Docker Engine warns where a limit must hold: %s", text);
	}
	return 0;
}

static int create_volume(struct docker *d, const struct runtime_create *req, struct error *err)
{
	auto_json *j = cJSON_CreateObject();
	auto_free char *text = NULL;
	auto_engine_answer a = { .status = 0 };
	struct engine_request r = { .method = "POST", .path = "/volumes/create" };
	char name[DOCKER_NAME_MAX];
	cJSON *options;

	docker_name(&req->sandbox_id, name);
	json_add_str(j, "Name", name);
	json_add_str(j, "Driver", "local");
	options = cJSON_AddObjectToObject(j, "DriverOpts");
	json_add_str(options, "type", "ext4");
	json_add_str(options, "device", req->workspace->source);
	json_add_str(options, "o", "nosuid,nodev,noatime");
	add_labels(j, d, &req->sandbox_id);
	r.json = text = json_print(j);
	if (engine_call(d->engine, &r, &a, err) != 0)
		return -1;
	return a.status / 100 == 2 ? 0 : docker_refused(&a, "creating the workspace volume", err);
}

/* A container of that name is a half-made one of an earlier attempt: it goes, and the create is tried once more. */
static int post_create(struct docker *d, const struct runtime_create *req, const char *text, cJSON **ret, struct error *err)
{
	char name[DOCKER_NAME_MAX];
	auto_free char *path = NULL;

	docker_name(&req->sandbox_id, name);
	path = xasprintf("/containers/create?name=%s", name);
	for (int attempt = 0;; attempt++) {
		auto_engine_answer a = { .status = 0 };
		struct engine_request r = { .method = "POST", .path = path, .json = text, .timeout_ms = CREATE_MS };

		if (engine_call(d->engine, &r, &a, err) != 0)
			return -1;
		if (a.status == 201)
			return json_parse(buf_str(&a.body), a.body.len, ret, err);
		if (a.status != 409 || attempt > 0)
			return docker_refused(&a, "creating the container", err);
		if (d->rt.ops->remove(&d->rt, &req->sandbox_id, err) != 0)
			return -1;
		if (req->workspace && req->workspace->kind == WORKSPACE_DEVICE && create_volume(d, req, err) != 0)
			return -1;
	}
}

static int read_back(struct docker *d, const struct runtime_create *req, const cJSON *asked, const cJSON *answer, struct error *err)
{
	auto_json *seen = NULL;
	char name[DOCKER_NAME_MAX];
	auto_free char *path = NULL;

	docker_name(&req->sandbox_id, name);
	path = xasprintf("/containers/%s/json", name);
	if (check_warnings(d, answer, err) != 0 || docker_get(d, path, "reading the container back", &seen, err) != 0)
		return -1;
	return docker_verify(asked, seen, err);
}

static int get_image(struct docker *d, const char *digest, cJSON **ret, struct error *err)
{
	auto_free char *path = xasprintf("/images/%s/json", digest);

	if (docker_get(d, path, "looking at the image", ret, err) != 0)
		return -1;
	if (cJSON_GetArraySize(docker_at(*ret, "Config.Volumes")) > IMAGE_VOLUMES_MAX)
		return error_set(err, ERR_INVALID, "the image declares more than %d volumes", IMAGE_VOLUMES_MAX);
	return 0;
}

int docker_create(struct runtime *rt, const struct runtime_create *req, struct error *err)
{
	struct docker *d = docker_of(rt);
	auto_json *image = NULL;
	auto_json *asked = NULL;
	auto_json *answer = NULL;
	auto_free char *text = NULL;

	if (get_image(d, req->image_digest, &image, err) != 0)
		return -1;
	asked = create_body(d, req, image);
	text = json_print(asked);
	if (req->workspace && req->workspace->kind == WORKSPACE_DEVICE && create_volume(d, req, err) != 0)
		return -1;
	if (post_create(d, req, text, &answer, err) != 0 || read_back(d, req, asked, answer, err) != 0) {
		rt->ops->remove(rt, &req->sandbox_id, NULL);
		return -1;
	}
	return 0;
}
