/*
 * driver-check: what a driver must do, tried. Lines `ok` and `FAIL`, then a count; status 0 when nothing failed. It makes one
 * sandbox and deletes it, whatever happens.
 */
#include "daemon/runtime/cgroup.h"
#include "daemon/runtime/docker.h"
#include "daemon/runtime/driver.h"
#include "daemon/runtime/external.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/model_json.h"

#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIFE_US = 600 * 1000 * 1000, GRACE_MS = 30 * 1000, DIAL_MS = 60 * 1000, TIMEOUT_S = 2, TIMEOUT_SLACK_MS = 6000 };

struct check {
	const char *path;
	struct spec spec;
	struct id node, sandbox;
	enum tier tier;
	bool init, inspect, stats, kill, prepare, deadline, engine_images, want_help;
	const char *docker_socket;
	char *digest;          /* of the image, when the driver wants it resolved */
	int64_t most_ms;       /* no call may take longer, whatever the protocol grants; 0: as the protocol says */
	unsigned ok, failed;
	char dir[64], init_path[4096];
	int listener;
};

__attribute__((format(printf, 3, 4))) static bool say(struct check *c, bool ok, const char *fmt, ...)
{
	va_list ap;

	printf(ok ? "ok    " : "FAIL  ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	ok ? c->ok++ : c->failed++;
	return ok;
}

static int call(struct check *c, const char *action, const struct id *id, cJSON *take_payload, int64_t timeout_ms, cJSON **ret, struct error *err)
{
	struct driver_call d = {
		.path = c->path, .action = action, .node = &c->node, .sandbox = id, .payload = take_payload,
		.timeout_ms = c->most_ms && c->most_ms < timeout_ms ? c->most_ms : timeout_ms,
		.keeps_children = strcmp(action, "create") == 0,
	};

	return driver_call(&d, ret, err);
}

/* A call whose result object is of no interest. */
static bool works(struct check *c, const char *what, const char *action, const struct id *id, cJSON *take_payload, int64_t timeout_ms)
{
	struct error err = ERROR_INIT;
	int rc = call(c, action, id, take_payload, timeout_ms, NULL, &err);

	return rc == 0 ? say(c, true, "%s", what) : say(c, false, "%s: %s", what, err.message);
}

static bool has_word(const cJSON *j, const char *key, const char *word)
{
	const cJSON *item, *array = cJSON_GetObjectItemCaseSensitive(j, key);

	cJSON_ArrayForEach(item, array)
		if (cJSON_IsString(item) && strcmp(item->valuestring, word) == 0)
			return true;
	return false;
}

static bool is_text(const cJSON *j, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

	return cJSON_IsString(v) && v->valuestring[0];
}

/* --- probe --- */

static bool check_probe(struct check *c)
{
	struct id id = id_new();
	auto_json *j = NULL;
	struct error err = ERROR_INIT;
	const cJSON *commands, *images;
	bool tier = false;
	int rc = call(c, "probe", &id, NULL, DRIVER_PROBE_MS, &j, &err);

	cgroup_remove(&c->node, &id, NULL);
	if (rc != 0)
		return say(c, false, "probe answers: %s", err.message);
	say(c, true, "probe answers");
	say(c, is_text(j, "name") && is_text(j, "version"), "probe names the driver and its version");
	for (int t = TIER_COUNT - 1; t >= 0 && !tier; t--)
		if ((tier = has_word(j, "tiers", tier_text((enum tier)t))))
			c->tier = (enum tier)t;
	commands = cJSON_GetObjectItemCaseSensitive(j, "commands");
	c->init = cJSON_IsString(commands) && strcmp(commands->valuestring, "init") == 0;
	c->inspect = has_word(j, "actions", "inspect");
	c->stats = has_word(j, "actions", "stats");
	c->kill = has_word(j, "actions", "kill");
	c->prepare = has_word(j, "actions", "prepare");
	c->deadline = has_word(j, "actions", "deadline");
	images = cJSON_GetObjectItemCaseSensitive(j, "images");
	c->engine_images = cJSON_IsString(images) && strcmp(images->valuestring, "engine") == 0;
	say(c, !c->init || c->inspect, "a driver that starts sandbox-init has the action inspect");
	return say(c, tier, "probe names a tier: container, gvisor or microvm");
}

static void check_unknown_action(struct check *c)
{
	struct error err = ERROR_INIT;
	int rc = call(c, "no-such-action", &c->sandbox, NULL, DRIVER_ASK_MS, NULL, &err);

	say(c, rc != 0 && (err.code == ERR_UNAVAILABLE || err.code == ERR_PROTOCOL), "an unknown action is refused, in time");
}

/* --- create --- */

static cJSON *create_payload(struct check *c)
{
	cJSON *j = cJSON_CreateObject(), *in;

	cJSON_AddItemToObject(j, "spec", spec_to_json(&c->spec));
	json_add_str(j, "isolation", isolation_text(tier_isolation(c->tier)));
	json_add_str(j, "tier", tier_text(c->tier));
	json_add_str(j, "image_digest", c->digest);
	if (c->init) {
		in = cJSON_AddObjectToObject(j, "init");
		json_add_str(in, "path", c->init_path);
		json_add_str(in, "socket_dir", c->dir);
		json_add_i64(in, "deadline_us", clock_wall_us() + LIFE_US);
		json_add_i64(in, "grace_ms", GRACE_MS);
	}
	return j;
}

static void check_state(struct check *c, const char *want)
{
	auto_json *j = NULL;
	struct error err = ERROR_INIT;
	const cJSON *state, *pid;

	if (!c->inspect)
		return;
	if (call(c, "inspect", &c->sandbox, NULL, DRIVER_ASK_MS, &j, &err) != 0) {
		say(c, false, "inspect says %s: %s", want, err.message);
		return;
	}
	state = cJSON_GetObjectItemCaseSensitive(j, "state");
	pid = cJSON_GetObjectItemCaseSensitive(j, "pid");
	say(c, cJSON_IsString(state) && strcmp(state->valuestring, want) == 0, "inspect says %s", want);
	if (c->init && strcmp(want, "running") == 0)
		say(c, cJSON_IsNumber(pid) && pid->valuedouble > 1, "inspect names the process whose end is the sandbox's end");
}

static void check_dial(struct check *c)
{
	struct pollfd p = { .fd = c->listener, .events = POLLIN };
	unsigned char head[12];
	auto_close int fd = poll(&p, 1, DIAL_MS) == 1 ? accept4(c->listener, NULL, NULL, SOCK_CLOEXEC) : -1;

	say(c, fd >= 0 && io_read_full(fd, head, sizeof(head)) == (ssize_t)sizeof(head), "sandbox-init dials the socket and says something");
}

/* As the worker does before a create, for a driver that says so. */
static bool resolve_image(struct check *c)
{
	struct docker_options o = { .socket = c->docker_socket, .node = c->node, .allowed_registries = "*" };
	struct image_config image = { .digest = NULL };
	struct runtime *docker = NULL;
	struct error err = ERROR_INIT;
	int rc = docker_runtime_new(&o, &docker, &err);

	if (rc == 0) {
		rc = docker->ops->image_resolve(docker, c->spec.image, &image, &err);
		docker->ops->free(docker);
	}
	if (rc != 0)
		return say(c, false, "the engine has the image %s: %s", c->spec.image, err.message);
	c->digest = steal(&image.digest);
	image_config_done(&image);
	return true;
}

static bool check_prepare(struct check *c)
{
	cJSON *j;

	if (!c->prepare || !c->digest)
		return true;
	j = cJSON_CreateObject();
	json_add_str(j, "image_digest", c->digest);
	return works(c, "prepare", "prepare", &c->sandbox, j, DRIVER_PREPARE_MS);
}

static void check_deadline(struct check *c)
{
	cJSON *j = cJSON_CreateObject();

	json_add_i64(j, "deadline_us", clock_wall_us() + 2LL * LIFE_US);
	works(c, "deadline", "deadline", &c->sandbox, j, DRIVER_ASK_MS);
}

static bool check_create(struct check *c)
{
	if (c->engine_images && !resolve_image(c))
		return false;
	if (!check_prepare(c))
		return false;
	if (!works(c, "create", "create", &c->sandbox, create_payload(c), DRIVER_CREATE_MS))
		return false;
	works(c, "create of the same sandbox again succeeds", "create", &c->sandbox, create_payload(c), DRIVER_CREATE_MS);
	check_state(c, "running");
	if (c->init)
		check_dial(c);
	if (c->deadline)
		check_deadline(c);
	return true;
}

/* --- exec --- */

struct expectation {
	const char *what;
	const char *argv[5];
	const char *env_value; /* of CHECK */
	const char *cwd;
	int code;
	const char *out, *err; /* NULL: anything */
};

static const struct expectation expectations[] = {
	{ "exec: output and status 0", { "sh", "-c", "echo out" }, NULL, NULL, 0, "out\n", "" },
	{ "exec: the exit status is the command's", { "sh", "-c", "exit 7" }, NULL, NULL, 7, "", "" },
	{ "exec: stderr is kept apart", { "sh", "-c", "echo wrong >&2" }, NULL, NULL, 0, "", "wrong\n" },
	{ "exec: arguments are not joined or expanded", { "echo", "a  b", "$HOME", "*" }, NULL, NULL, 0, "a  b $HOME *\n", "" },
	{ "exec: the environment is passed on", { "sh", "-c", "echo \"$CHECK\"" }, "x y'\"z", NULL, 0, "x y'\"z\n", "" },
	{ "exec: the directory is the one asked for", { "pwd" }, NULL, "/tmp", 0, "/tmp\n", "" },
	{ "exec: input is empty", { "cat" }, NULL, NULL, 0, "", "" },
};

static cJSON *command(const char *const *argv, const char *env_value, const char *cwd, int64_t seconds)
{
	cJSON *j = cJSON_CreateObject(), *args = cJSON_AddArrayToObject(j, "argv"), *env = cJSON_AddObjectToObject(j, "env");

	for (int i = 0; i < 5 && argv[i]; i++)
		cJSON_AddItemToArray(args, cJSON_CreateString(argv[i]));
	json_add_str(env, "PATH", "/usr/local/bin:/usr/bin:/bin");
	if (env_value)
		json_add_str(env, "CHECK", env_value);
	json_add_str(j, "cwd", cwd);
	json_add_i64(j, "timeout_seconds", seconds);
	return j;
}

static bool text_is(const cJSON *j, const char *key, const char *want)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

	return !want || (cJSON_IsString(v) && strcmp(v->valuestring, want) == 0);
}

static void check_expectation(struct check *c, const struct expectation *e)
{
	auto_json *j = NULL;
	struct error err = ERROR_INIT;
	const cJSON *code;
	bool right;

	if (call(c, "exec", &c->sandbox, command(e->argv, e->env_value, e->cwd, 20), 25 * 1000, &j, &err) != 0) {
		say(c, false, "%s: %s", e->what, err.message);
		return;
	}
	code = cJSON_GetObjectItemCaseSensitive(j, "exit_code");
	right = cJSON_IsNumber(code) && (int)code->valuedouble == e->code && text_is(j, "stdout", e->out) && text_is(j, "stderr", e->err);
	auto_free char *got = right ? NULL : cJSON_PrintUnformatted(j);
	say(c, right, "%s%s%.300s", e->what, right ? "" : ": got ", right ? "" : got);
}

static void check_time_limit(struct check *c)
{
	static const char *const argv[5] = { "sleep", "60" };
	int64_t started = clock_mono_ms();

	/* How it reports the end is its own affair; that it ends is not. */
	(void)call(c, "exec", &c->sandbox, command(argv, NULL, NULL, TIMEOUT_S), 30 * 1000, NULL, NULL);
	say(c, clock_mono_ms() - started < TIMEOUT_S * 1000 + TIMEOUT_SLACK_MS, "exec: a command over its time limit is ended");
}

static void check_exec(struct check *c)
{
	for (size_t i = 0; i < ARRAY_LEN(expectations); i++)
		check_expectation(c, &expectations[i]);
	check_time_limit(c);
}

/* --- all of it --- */

static void check_end(struct check *c)
{
	if (c->stats)
		works(c, "stats answers", "stats", &c->sandbox, NULL, DRIVER_ASK_MS);
	if (c->kill)
		works(c, "kill", "kill", &c->sandbox, NULL, DRIVER_ASK_MS);
	works(c, "delete", "delete", &c->sandbox, NULL, DRIVER_DELETE_MS);
	works(c, "delete of a deleted sandbox succeeds", "delete", &c->sandbox, NULL, DRIVER_DELETE_MS);
	check_state(c, "absent");
	cgroup_remove(&c->node, &c->sandbox, NULL);
}

static int prepare(struct check *c, struct error *err)
{
	auto_free char *socket = NULL;
	ssize_t n = readlink("/proc/self/exe", c->init_path, sizeof(c->init_path) - 32);

	snprintf(c->dir, sizeof(c->dir), "/tmp/sandbox-driver-check-XXXXXX");
	/* As a worker's: who knows the name may pass. */
	if (!mkdtemp(c->dir) || chmod(c->dir, 0711) != 0)
		return error_errno(err, "making %s", c->dir);
	c->init_path[n > 0 ? n : 0] = '\0';
	if (n > 0)
		memcpy(strrchr(c->init_path, '/'), "/sandbox-init", 14);
	socket = xasprintf("%s/worker.sock", c->dir);
	c->listener = io_listen_unix(socket, 0666, 4, err);
	return c->listener < 0 ? -1 : 0;
}

static void run(struct check *c)
{
	if (!check_probe(c))
		return;
	check_unknown_action(c);
	works(c, "delete of a sandbox that never was succeeds", "delete", &c->sandbox, NULL, DRIVER_DELETE_MS);
	if (check_create(c) && !c->init)
		check_exec(c);
	check_end(c);
}

static int parse(int argc, char **argv, struct check *c, const char **ret_image, struct error *err)
{
	static const struct option options[] = {
		{ "image", required_argument, NULL, 'i' }, { "docker-socket", required_argument, NULL, 's' },
		{ "deadline", required_argument, NULL, 'd' }, { "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	int o;

	while ((o = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		if (o == 'i')
			*ret_image = optarg;
		else if (o == 's')
			c->docker_socket = optarg;
		else if (o == 'h')
			c->want_help = true;
		else if (o != 'd' || parse_duration_ms("--deadline", optarg, 100, DRIVER_PREPARE_MS, &c->most_ms, err) != 0)
			return -1;
	}
	c->path = argv[optind];
	return c->want_help || optind == argc - 1 ? 0 : -1;
}

static const char usage[] =
	"usage: sandboxd driver-check [--image NAME] [--docker-socket PATH] [--deadline DURATION] PATH\n"
	"\n"
	"Calls the runtime driver at PATH as a worker would, with one sandbox that it deletes again, and says what is wrong.\n"
	"\n"
	"  --image NAME          the image to make the sandbox from (default sandbox-base:latest)\n"
	"  --docker-socket PATH  the engine that has the image (default /var/run/docker.sock)\n"
	"  --deadline DURATION   give each call at most this long\n"
	"  --help                print this and end\n";

int driver_check_main(int argc, char **argv)
{
	struct check c = { .node = id_new(), .sandbox = id_new(), .listener = -1, .init_path = "", .docker_socket = "/var/run/docker.sock" };
	struct error err = ERROR_INIT;
	const char *image = "sandbox-base:latest";

	if (parse(argc, argv, &c, &image, &err) != 0) {
		fprintf(stderr, "%s%s%.*s\n", err.message, *err.message ? "\n" : "", (int)strcspn(usage, "\n"), usage);
		return 2;
	}
	if (c.want_help)
		return fputs(usage, stdout) < 0;
	signal(SIGPIPE, SIG_IGN);
	if (driver_check_file(c.path, &err) != 0 || prepare(&c, &err) != 0) {
		fprintf(stderr, "sandboxd: %s\n", err.message);
		return 1;
	}
	spec_init(&c.spec);
	free(c.spec.tenant);
	free(c.spec.image);
	c.spec.tenant = xstrdup("check");
	c.spec.image = xstrdup(image);
	run(&c);
	spec_done(&c.spec);
	free(c.digest);
	close_fdp(&c.listener);
	io_remove_tree(c.dir, NULL);
	printf("%u ok, %u failed\n", c.ok, c.failed);
	return c.failed ? 1 : 0;
}
