/*
 * The Docker runtime against the engine of this machine: what a container really gets, read from the kernel. Every
 * object carries this test's own node id and is removed at the end.
 */
#include "daemon/runtime/docker_internal.h"

#include "daemon/runtime/cgroup.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define IMAGE "sandbox-base:latest"

static struct runtime *rt;
static char why_not[ERROR_TEXT_MAX];
static char dir[64], init_path[4096], io_dir[128], hosts[128];

static void need_engine(void)
{
	if (rt)
		return;
	if (getenv("SANDBOX_TESTS_MUST_RUN"))
		fail_msg("%s", why_not);
	print_message("skipped: %s\n", why_not);
	skip();
}

static void find_init(void)
{
	char self[4000];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *given = getenv("SANDBOX_TEST_INIT");

	self[n > 0 ? n : 0] = '\0';
	for (int i = 0; i < 2 && strrchr(self, '/'); i++)
		*strrchr(self, '/') = '\0';
	snprintf(init_path, sizeof(init_path), "%s%s", given ? given : self, given ? "" : "/sandbox-init");
}

static int group_setup(void **state)
{
	const char *given = getenv("SANDBOX_TEST_DOCKER_SOCKET");
	struct docker_options o = { .socket = given ? given : "/var/run/docker.sock", .node = id_new(), .allowed_registries = "*" };
	struct error err = ERROR_INIT;
	struct image_config image = { .digest = NULL };
	struct runtime *made;
	char text[128];

	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/sandbox-docker-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(io_dir, sizeof(io_dir), "%s/io", dir);
	snprintf(hosts, sizeof(hosts), "%s/hosts", dir);
	mkdir(io_dir, 0711);
	io_write_file_atomic(hosts, "127.0.0.1 localhost\n::1 localhost\n", 34, 0644, false, NULL);
	find_init();
	if (docker_runtime_new(&o, &made, &err) != 0)
		return -1;
	if (made->ops->ping(made, text, sizeof(text), &err) != 0 || made->ops->image_resolve(made, IMAGE, &image, &err) != 0)
		snprintf(why_not, sizeof(why_not), "%s", err.message);
	else if (access(init_path, X_OK) != 0)
		snprintf(why_not, sizeof(why_not), "no sandbox-init at %.900s", init_path);
	else
		rt = made;
	if (!rt)
		made->ops->free(made);
	image_config_done(&image);
	return 0;
}

static int group_teardown(void **state)
{
	struct owned_list owned = { .items = NULL };

	(void)state;
	if (rt && rt->ops->list_owned(rt, &owned, NULL) == 0)
		for (size_t i = 0; i < owned.len; i++)
			rt->ops->remove(rt, &owned.items[i].sandbox_id, NULL);
	owned_list_done(&owned);
	if (rt)
		rt->ops->free(rt);
	io_remove_tree(dir, NULL);
	return 0;
}

struct made {
	struct id id;
	struct spec spec;
	char *digest;
	pid_t pid;
};

static void make_sandbox(struct made *m, bool writable)
{
	struct error err = ERROR_INIT;
	struct image_config image;
	struct runtime_status s;
	struct runtime_create req = { .tier = TIER_CONTAINER, .init_path = init_path, .io_dir = io_dir, .hosts_file = hosts, .hostname = "box" };

	spec_init(&m->spec);
	m->spec.resources = (struct resources){ .cpu_millis = 250, .memory_mib = 128, .disk_mib = 64, .pids = 40 };
	m->spec.writable_root = writable;
	m->id = id_new();
	if (rt->ops->image_resolve(rt, IMAGE, &image, &err) != 0)
		fail_msg("%s", err.message);
	req.sandbox_id = m->id;
	req.spec = &m->spec;
	req.image_digest = image.digest;
	req.deadline_us = clock_wall_us() + 60 * 1000000LL;
	if (rt->ops->create(rt, &req, &err) != 0 || rt->ops->start(rt, &m->id, &s, &err) != 0)
		fail_msg("%s", err.message);
	assert_int_equal(s.state, RUNTIME_RUNNING);
	assert_true(s.pid > 1);
	m->pid = s.pid;
	image_config_done(&image);
}

static void drop_sandbox(struct made *m)
{
	struct error err = ERROR_INIT;

	if (rt->ops->remove(rt, &m->id, &err) != 0)
		fail_msg("%s", err.message);
	spec_done(&m->spec);
}

static char *proc_file(pid_t pid, const char *name)
{
	auto_free char *path = xasprintf("/proc/%d/%s", (int)pid, name);
	auto_buf text = BUF_INIT;

	assert_int_equal(io_read_file(path, 1 << 20, &text, NULL), 0);
	return buf_steal(&text);
}

static void assert_has(const char *text, const char *what)
{
	if (!strstr(text, what))
		fail_msg("'%s' is not in:\n%s", what, text);
}

static void limits_hold_in_the_kernel(void **state)
{
	struct made m;
	struct cgroup_view v;
	struct error err = ERROR_INIT;
	auto_free char *limits = NULL;

	(void)state;
	need_engine();
	make_sandbox(&m, false);
	if (cgroup_read(m.pid, &v, &err) != 0)
		fail_msg("%s", err.message);
	assert_int_equal(v.memory_max, 128 << 20);
	assert_int_equal(v.memory_swap_max, 128 << 20);
	assert_int_equal(v.pids_max, 40 + DOCKER_PIDS_RESERVE);
	assert_int_equal(v.cpu_quota_us * 4, v.cpu_period_us);
	limits = proc_file(m.pid, "limits");
	assert_has(limits, "Max core file size        0                    0 ");
	drop_sandbox(&m);
}

static void confined_as_asked(void **state)
{
	struct made m;
	auto_free char *status = NULL;
	auto_free char *mounts = NULL;
	auto_free char *net = NULL;
	auto_free char *inet6 = NULL;
	auto_free char *adj = NULL;

	(void)state;
	need_engine();
	make_sandbox(&m, false);
	status = proc_file(m.pid, "status");
	assert_has(status, "NoNewPrivs:\t1");
	assert_has(status, "Seccomp:\t2");
	assert_has(status, "CapBnd:\t00000000000000eb");
	assert_has(status, "Uid:\t0\t");
	mounts = proc_file(m.pid, "mounts");
	assert_has(mounts, " / overlay ro,");
	assert_has(mounts, "tmpfs /tmp tmpfs rw,nosuid,nodev,relatime,size=65536k,nr_inodes=131072");
	assert_has(mounts, "tmpfs /run tmpfs rw,nosuid,nodev,noexec,relatime,size=16384k,nr_inodes=8192,mode=755");
	assert_has(mounts, "tmpfs /dev/shm tmpfs rw,nosuid,nodev,noexec,relatime,size=32768k,nr_inodes=16384");
	assert_has(mounts, " /.sandbox/init ");
	assert_has(mounts, " /etc/hosts ");
	net = proc_file(m.pid, "net/dev");
	assert_has(net, "lo:");
	assert_null(strstr(net, "eth"));
	inet6 = proc_file(m.pid, "net/if_inet6");
	assert_has(inet6, "00000000000000000000000000000001");
	adj = proc_file(m.pid, "oom_score_adj");
	assert_has(adj, "100");
	drop_sandbox(&m);
}

static void a_writable_root_only_when_asked(void **state)
{
	struct made m;
	auto_free char *mounts = NULL;

	(void)state;
	need_engine();
	make_sandbox(&m, true);
	mounts = proc_file(m.pid, "mounts");
	assert_has(mounts, " / overlay rw,");
	drop_sandbox(&m);
}

static void found_killed_and_removed(void **state)
{
	struct made m;
	struct runtime_status s;
	struct owned_list owned;
	struct error err = ERROR_INIT;
	struct runtime_stats stats;
	bool found = false;

	(void)state;
	need_engine();
	make_sandbox(&m, false);
	assert_int_equal(rt->ops->list_owned(rt, &owned, &err), 0);
	for (size_t i = 0; i < owned.len; i++)
		found = found || (strcmp(owned.items[i].sandbox_id.text, m.id.text) == 0 && owned.items[i].state == RUNTIME_RUNNING);
	assert_true(found);
	owned_list_done(&owned);
	assert_int_equal(rt->ops->stats(rt, &m.id, &stats, &err), 0);
	assert_int_equal(stats.memory_limit_bytes, 128 << 20);
	assert_in_range(stats.pids, 1, 4);
	assert_int_equal(rt->ops->kill(rt, &m.id, &err), 0);
	for (int i = 0; i < 3000; i++) {
		assert_int_equal(rt->ops->inspect(rt, &m.id, &s, &err), 0);
		if (s.state == RUNTIME_EXITED)
			break;
		usleep(10000);
	}
	assert_int_equal(s.state, RUNTIME_EXITED);
	assert_int_equal(s.exit_code, 137);
	assert_false(s.oom_killed);
	assert_int_equal(rt->ops->kill(rt, &m.id, &err), 0);
	drop_sandbox(&m);
	assert_int_equal(rt->ops->inspect(rt, &m.id, &s, &err), 0);
	assert_int_equal(s.state, RUNTIME_ABSENT);
	assert_int_equal(rt->ops->remove(rt, &m.id, &err), 0);
}

static void the_probe_sees_limits_and_leaves_nothing(void **state)
{
	struct runtime_probe p = { .init_path = init_path, .io_dir = io_dir };
	struct owned_list owned;
	struct error err = ERROR_INIT;

	(void)state;
	need_engine();
	if (rt->ops->probe(rt, &p, &err) != 0)
		fail_msg("%s", err.message);
	if (!p.tiers[TIER_CONTAINER].offered)
		fail_msg("%s", p.tiers[TIER_CONTAINER].reason);
	assert_false(p.tiers[TIER_GVISOR].offered);
	assert_false(p.tiers[TIER_MICROVM].offered);
	assert_true(p.tiers[TIER_GVISOR].reason[0]);
	assert_int_equal(rt->ops->list_owned(rt, &owned, &err), 0);
	assert_int_equal(owned.len, 0);
	owned_list_done(&owned);
	p.init_path = "/nonexistent/sandbox-init";
	assert_int_equal(rt->ops->probe(rt, &p, &err), 0);
	assert_false(p.tiers[TIER_CONTAINER].offered);
	assert_has(p.tiers[TIER_CONTAINER].reason, "/nonexistent/sandbox-init");
}

static void a_failed_create_leaves_nothing(void **state)
{
	struct runtime_create req = { .sandbox_id = id_new(), .tier = TIER_CONTAINER, .init_path = "/nonexistent/init", .io_dir = io_dir };
	struct image_config image;
	struct runtime_status s;
	struct error err = ERROR_INIT;
	struct spec spec;

	(void)state;
	need_engine();
	spec_init(&spec);
	assert_int_equal(rt->ops->image_resolve(rt, IMAGE, &image, &err), 0);
	req.spec = &spec;
	req.image_digest = image.digest;
	assert_int_equal(rt->ops->create(rt, &req, &err), -1);
	assert_has(err.message, "/nonexistent/init");
	assert_int_equal(rt->ops->inspect(rt, &req.sandbox_id, &s, &err), 0);
	assert_int_equal(s.state, RUNTIME_ABSENT);
	spec_done(&spec);
	image_config_done(&image);
}

static void images_import_resolve_list_and_go(void **state)
{
	struct image_config config = { .user = NULL }, got;
	struct image_list list;
	struct error err = ERROR_INIT;
	unsigned char tar[1024] = { 0 };
	char name[64];
	auto_close int fd = -1;
	bool found = false;

	(void)state;
	need_engine();
	snprintf(name, sizeof(name), "sandbox-test-%s:v1", id_new().text);
	fd = open(hosts, O_RDONLY | O_CLOEXEC);
	assert_int_equal(rt->ops->image_import(rt, fd, name, NULL, &err), -1);
	assert_int_equal(err.code, ERR_INVALID);
	close_fdp(&fd);
	fd = memfd_create("tar", MFD_CLOEXEC);
	assert_int_equal(io_write_full(fd, tar, sizeof(tar)), 0);
	lseek(fd, 0, SEEK_SET);
	strv_add(&config.env, "A=b \"c\" $d \\e");
	strv_add(&config.env, "EMPTY=");
	config.user = xstrdup("1000:1000");
	config.workdir = xstrdup("/srv");
	strv_add(&config.cmd, "run it");
	if (rt->ops->image_import(rt, fd, name, &config, &err) != 0)
		fail_msg("%s", err.message);
	assert_int_equal(rt->ops->image_resolve(rt, name, &got, &err), 0);
	assert_string_equal(got.user, "1000:1000");
	assert_string_equal(got.workdir, "/srv");
	assert_true(strv_has(&got.env, "A=b \"c\" $d \\e"));
	assert_true(strv_has(&got.env, "EMPTY="));
	assert_string_equal(got.cmd.items[0], "run it");
	assert_int_equal(rt->ops->image_list(rt, &list, &err), 0);
	for (size_t i = 0; i < list.len; i++)
		found = found || (strcmp(list.items[i].name, name) == 0 && strcmp(list.items[i].digest, got.digest) == 0);
	assert_true(found);
	image_list_done(&list);
	image_config_done(&got);
	image_config_done(&config);
	if (rt->ops->image_remove(rt, name, &err) != 0)
		fail_msg("%s", err.message);
	assert_int_equal(rt->ops->image_resolve(rt, name, &got, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_int_equal(rt->ops->image_remove(rt, name, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
}

static bool stop_at_once(void *ctx, const char *text, int percent)
{
	(void)text;
	(void)percent;
	++*(int *)ctx;
	return false;
}

static void pulls_fail_with_their_reason(void **state)
{
	struct error err = ERROR_INIT;
	int calls = 0;

	(void)state;
	need_engine();
	assert_int_equal(rt->ops->image_pull(rt, &(struct image_pull){ .image = "127.0.0.1:1/nothing:here" }, &err), -1);
	assert_int_equal(err.code, ERR_UNREACHABLE);
	assert_has(err.message, "no registry can be reached");
	assert_int_equal(rt->ops->image_pull(rt, &(struct image_pull){ .image = "Not A Reference", .progress = stop_at_once, .ctx = &calls }, &err), -1);
	assert_int_equal(err.code, ERR_INVALID);
	rt->ops->set_registries(rt, "registry.example.com");
	assert_int_equal(rt->ops->image_pull(rt, &(struct image_pull){ .image = "alpine" }, &err), -1);
	assert_int_equal(err.code, ERR_FORBIDDEN);
	assert_has(err.message, "docker.io");
	assert_int_equal(rt->ops->image_allowed(rt, IMAGE, true, &err), -1);
	rt->ops->set_registries(rt, "local");
	assert_int_equal(rt->ops->image_allowed(rt, IMAGE, true, &err), 0);
	rt->ops->set_registries(rt, "*");
}

static void registry_words_are_told_apart(void **state)
{
	static const struct {
		const char *text;
		enum error_code code;
	} rows[] = {
		{ "manifest for alpine:nope not found: manifest unknown: manifest unknown", ERR_NOT_FOUND },
		{ "pull access denied for nosuch, repository does not exist or may require 'docker login': denied: requested access", ERR_NOT_FOUND },
		{ "unauthorized: authentication required", ERR_FORBIDDEN },
		{ "Head \"https://r/v2/x\": no basic auth credentials", ERR_FORBIDDEN },
		{ "denied: permission_denied: read_package", ERR_FORBIDDEN },
		{ "toomanyrequests: You have reached your pull rate limit.", ERR_RATE_LIMITED },
		{ "Get \"https://r/v2/\": dial tcp: lookup r on 1.1.1.1:53: no such host", ERR_UNREACHABLE },
		{ "Get \"https://r/v2/\": net/http: TLS handshake timeout", ERR_UNREACHABLE },
		{ "Get \"https://r/v2/\": x509: certificate signed by unknown authority", ERR_UNREACHABLE },
		{ "write /var/lib/docker/tmp/x: no space left on device", ERR_NO_CAPACITY },
		{ "something new", ERR_UNAVAILABLE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct error err = ERROR_INIT;

		assert_int_equal(docker_registry_error("img", rows[i].text, &err), -1);
		if (err.code != rows[i].code)
			fail_msg("%s: code %d", rows[i].text, err.code);
		assert_has(err.message, rows[i].text);
		assert_has(err.message, "img");
	}
}

static void differences_are_found(void **state)
{
	static const char asked[] = "{\"User\":\"0\",\"HostConfig\":{\"Memory\":64,\"CapAdd\":[\"KILL\",\"CHOWN\"],\"ReadonlyRootfs\":false,"
				    "\"Tmpfs\":{\"/tmp\":\"size=1\"}}}";
	static const char base[] = "{\"Config\":{\"User\":\"%s\"},\"HostConfig\":{\"Memory\":%s,\"CapAdd\":%s,%s\"Tmpfs\":{\"/tmp\":\"size=1\"},"
				   "\"MaskedPaths\":%s,\"ReadonlyPaths\":[\"/proc/sys\"]}}";
	static const struct {
		const char *user, *memory, *caps, *extra, *masked, *complaint;
	} rows[] = {
		{ "0", "64", "[\"CAP_CHOWN\",\"CAP_KILL\"]", "", "[\"/proc/kcore\"]", NULL },
		{ "0", "64", "[\"CHOWN\",\"KILL\"]", "\"ReadonlyRootfs\":false,\"Privileged\":false,\"Devices\":[],", "[\"/proc/kcore\"]", NULL },
		{ "", "64", "[\"CHOWN\",\"KILL\"]", "", "[\"/proc/kcore\"]", "User" },
		{ "0", "0", "[\"CHOWN\",\"KILL\"]", "", "[\"/proc/kcore\"]", "HostConfig.Memory" },
		{ "0", "64", "[\"CHOWN\",\"SYS_ADMIN\"]", "", "[\"/proc/kcore\"]", "HostConfig.CapAdd" },
		{ "0", "64", "[\"CHOWN\",\"KILL\",\"SYS_ADMIN\"]", "", "[\"/proc/kcore\"]", "HostConfig.CapAdd" },
		{ "0", "64", "null", "", "[\"/proc/kcore\"]", "HostConfig.CapAdd" },
		{ "0", "64", "[\"CHOWN\",\"KILL\"]", "\"Privileged\":true,", "[\"/proc/kcore\"]", "Privileged" },
		{ "0", "64", "[\"CHOWN\",\"KILL\"]", "\"PidMode\":\"host\",", "[\"/proc/kcore\"]", "PidMode" },
		{ "0", "64", "[\"CHOWN\",\"KILL\"]", "\"ReadonlyRootfs\":true,", "[\"/proc/kcore\"]", "ReadonlyRootfs" },
		{ "0", "64", "[\"CHOWN\",\"KILL\"]", "", "[]", "masks nothing" },
	};
	auto_json *a = cJSON_Parse(asked);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct error err = ERROR_INIT;
		auto_buf text = BUF_INIT;
		auto_json *s = NULL;
		int rc;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		buf_addf(&text, base, rows[i].user, rows[i].memory, rows[i].caps, rows[i].extra, rows[i].masked);
#pragma GCC diagnostic pop
		s = cJSON_Parse(buf_str(&text));
		assert_non_null(s);
		rc = docker_verify(a, s, &err);
		if ((rc == 0) != (rows[i].complaint == NULL))
			fail_msg("row %zu: %s", i, err.message);
		if (rows[i].complaint)
			assert_has(err.message, rows[i].complaint);
	}
}

static void an_absent_engine_is_said_with_the_way_out(void **state)
{
	struct docker_options o = { .socket = "/nonexistent/docker.sock", .node = id_new() };
	struct runtime *gone;
	struct error err = ERROR_INIT;
	char text[64];

	(void)state;
	assert_int_equal(docker_runtime_new(&o, &gone, &err), 0);
	assert_int_equal(gone->ops->ping(gone, text, sizeof(text), &err), -1);
	assert_int_equal(err.code, ERR_UNREACHABLE);
	assert_has(err.message, "/nonexistent/docker.sock");
	assert_has(err.message, "worker.docker_socket");
	gone->ops->free(gone);
	o.socket = "tcp://10.0.0.1:2375";
	assert_int_equal(docker_runtime_new(&o, &gone, &err), -1);
	assert_int_equal(err.code, ERR_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_absent_engine_is_said_with_the_way_out),
		cmocka_unit_test(registry_words_are_told_apart),
		cmocka_unit_test(differences_are_found),
		cmocka_unit_test(limits_hold_in_the_kernel),
		cmocka_unit_test(confined_as_asked),
		cmocka_unit_test(a_writable_root_only_when_asked),
		cmocka_unit_test(found_killed_and_removed),
		cmocka_unit_test(the_probe_sees_limits_and_leaves_nothing),
		cmocka_unit_test(a_failed_create_leaves_nothing),
		cmocka_unit_test(images_import_resolve_list_and_go),
		cmocka_unit_test(pulls_fail_with_their_reason),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
