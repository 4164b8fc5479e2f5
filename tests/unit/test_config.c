/* sandboxd's configuration: defaults, files, overrides, checks, reload. */
#include "daemon/config.h"
#include "shared/model/model.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/wait.h>
#include <unistd.h>

static void make(struct daemon_config *c)
{
	struct error err = ERROR_INIT;
	if (daemon_config_defaults(c, &err) != 0)
		fail_msg("%s", err.message);
}

static int load(struct daemon_config *c, const char *text, size_t n, struct error *err)
{
	char path[] = "/tmp/sandbox-config-XXXXXX";
	auto_close int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(fd, text, n), 0);
	int r = daemon_config_load(c, path, err);
	unlink(path);
	return r;
}

static void defaults_pass_their_own_check(void **state)
{
	struct daemon_config c;
	struct error err = ERROR_INIT;
	(void)state;
	make(&c);
	if (daemon_config_check(&c, &err) != 0)
		fail_msg("%s", err.message);
	assert_string_equal(c.role, "all");
	assert_int_equal(c.max_sandboxes, 64);
	assert_true(c.retention_ms == 86400000);
	assert_true(c.max_host_pressure > 0.919 && c.max_host_pressure < 0.921);
	assert_int_equal(c.state_dir[0], '/');
	assert_int_equal(c.store_path[0], '/');
	assert_int_equal(c.init_path[0], '/');
	if (geteuid() == 0) {
		assert_string_equal(c.state_dir, "/var/lib/sandbox");
		assert_string_equal(c.socket, "/run/sandbox/sandboxd.sock");
		assert_string_equal(c.store_path, "/var/lib/sandbox/store.db");
	}
	daemon_config_done(&c);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);
	return n >= m && strcmp(text + n - m, end) == 0;
}

/* In a child, so that the environment and the uid stay as they are. */
static int as_user(const char *home, const char *state_home, const char *runtime)
{
	struct daemon_config c;
	if (geteuid() == 0 && setuid(65534) != 0)
		return 2;
	clearenv();
	setenv("HOME", home, 1);
	if (state_home)
		setenv("XDG_STATE_HOME", state_home, 1);
	if (runtime)
		setenv("XDG_RUNTIME_DIR", runtime, 1);
	if (daemon_config_defaults(&c, NULL) != 0)
		return 3;
	bool state_relative = state_home && *state_home != '/';
	auto_free char *dir = state_home && !state_relative ? xasprintf("%s/sandbox", state_home) : xasprintf("%s/.local/state/sandbox", home);
	auto_free char *socket = runtime ? xasprintf("%s/sandbox/sandboxd.sock", runtime) : xasprintf("%s/sandboxd.sock", dir);
	bool good = strcmp(c.state_dir, dir) == 0 && strcmp(c.socket, socket) == 0 && ends_with(c.store_path, "/sandbox/store.db");
	daemon_config_done(&c);
	return good ? 0 : 1;
}

static void users_have_their_own_directories(void **state)
{
	static const char *const rows[][3] = {
		{ "/home/u", NULL, NULL },
		{ "/home/u", NULL, "/run/user/1000" },
		{ "/home/u", "/data/state", NULL },
		{ "/home/u", "relative", NULL }, /* to be ignored, says the specification */
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(as_user(rows[i][0], rows[i][1], rows[i][2]));
		int status;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (status != 0)
			fail_msg("row %zu: %d", i, status);
	}
}

static void a_file_sets_keys(void **state)
{
	static const char text[] = "# comment\n; comment\n\n[daemon]\nstate_dir = /srv/sandbox\n log_level=debug\nlisten = 127.0.0.1:8080 ; why\n"
				   "[store]\nretention = 2d\n[policy]\nprofile = trusted-workstation\nmax_host_pressure = 0.5\n"
				   "gvisor_risk_threshold = -1\n[worker]\nmemory = 4g\n[daemon]\nrole = all";
	struct daemon_config c;
	struct error err = ERROR_INIT;
	(void)state;
	make(&c);
	if (load(&c, text, sizeof(text) - 1, &err) != 0 || daemon_config_check(&c, &err) != 0)
		fail_msg("%s", err.message);
	assert_string_equal(c.state_dir, "/srv/sandbox");
	assert_string_equal(c.store_path, "/srv/sandbox/store.db"); /* follows */
	assert_string_equal(c.listen, "127.0.0.1:8080");
	assert_string_equal(c.log_level, "debug");
	assert_true(c.retention_ms == 172800000);
	assert_true(c.worker_memory == 4LL << 30);
	assert_true(c.max_host_pressure > 0.49 && c.max_host_pressure < 0.51);
	daemon_config_done(&c);
}

static void mistakes_name_file_and_line(void **state)
{
	static const struct {
		const char *text;
		int line;
		const char *says;
	} rows[] = {
		{ "[daemon]\nnope = 1\n", 2, "unknown key 'nope' in section [daemon]" },
		{ "[nope]\n", 1, "unknown section [nope] (there are: daemon, store, peers, events, policy, egress, quota, worker, edge, pool NAME)" },
		{ "\n[nope]\nx = 1\n", 2, "unknown section" },
		{ "role = all\n", 1, "before any [section]" },
		{ "[daemon]\nrole\n", 2, "neither a [section] nor key = value" },
		{ "[daemon\nrole = all\n", 1, "neither a [section]" },
		{ "[daemon]\nrole = all\n\nrole = all\n", 4, "already set in line 2" },
		{ "[daemon]\nrole = all\n  more\n", 3, "neither a [section]" },
		{ "[worker]\nmax_sandboxes = 0\n", 2, "worker.max_sandboxes: 0 is out of range (allowed: 1 to 100000)" },
		{ "[worker]\nmax_sandboxes = many\n", 2, "whole number" },
		{ "[worker]\nmax_sandboxes =\n", 2, "whole number" },
		{ "[worker]\nmemory = 4x\n", 2, "worker.memory: '4x' is not a size" },
		{ "[store]\nretention = 5M\n", 2, "store.retention: '5M' is not a duration" },
		{ "[policy]\nmax_host_pressure = 1.5\n", 2, "not a number from 0 to 1" },
		{ "[policy]\nmax_host_pressure = nan\n", 2, "not a number from 0 to 1" },
		{ "[policy]\nmicrovm_risk_threshold = 102\n", 2, "allowed: -1 to 101" },
		{ "[daemon]\nstate_dir = \xff\n", 2, "UTF-8" },
		{ "[pool Web]\n", 1, "[pool Web]: a pool's name is a letter" },
		{ "[pool web]\nsizes = 3\n", 2, "unknown key 'sizes' in section [pool web]" },
		{ "[pool web]\nsize = 1001\n", 2, "pool web.size: 1001 is out of range" },
		{ "[pool web]\nsize = 1\n[pool b]\nsize = 1\n[pool web]\nsize = 2\n", 6, "pool web.size was already set in line 2" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct daemon_config c;
		struct error err = ERROR_INIT;
		make(&c);
		assert_int_equal(load(&c, rows[i].text, strlen(rows[i].text), &err), -1);
		assert_int_equal(err.code, ERR_INVALID);
		auto_free char *line = xasprintf(":%d: ", rows[i].line);
		if (strncmp(err.message, "/tmp/sandbox-config-", 20) != 0 || !strstr(err.message, line) || !strstr(err.message, rows[i].says))
			fail_msg("row %zu: %s", i, err.message);
		daemon_config_done(&c);
	}
}

/* The ini library would cut these without a word. */
static void long_lines_and_odd_files_are_refused(void **state)
{
	struct daemon_config c;
	struct error err = ERROR_INIT;
	(void)state;
	make(&c);
	auto_free char *lines = xasprintf("[daemon]\nstate_dir = /%0250d\n", 1);
	assert_int_equal(load(&c, lines, strlen(lines), &err), -1);
	assert_non_null(strstr(err.message, ":2: the line is longer"));
	assert_int_equal(load(&c, "[daemon]\0\n", 10, &err), -1);
	assert_non_null(strstr(err.message, "not a text file"));
	assert_int_equal(daemon_config_load(&c, "/nonexistent/sandboxd.conf", &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_int_equal(daemon_config_load(&c, "/tmp", &err), -1);
	assert_int_equal(load(&c, "", 0, &err), 0);
	daemon_config_done(&c);
}

static void overrides(void **state)
{
	static const char *const bad[] = { "", "daemon", "daemon.role", "daemon=role.x", "nope.x=1", "daemon.nope=1", "worker.jobs=0", ".=", "worker.jobs=" };
	struct daemon_config c;
	struct error err = ERROR_INIT;
	(void)state;
	make(&c);
	assert_int_equal(daemon_config_set(&c, "daemon.state_dir=/x/y=z", &err), 0);
	assert_string_equal(c.state_dir, "/x/y=z");
	assert_string_equal(c.store_path, "/x/y=z/store.db");
	assert_int_equal(daemon_config_set(&c, "store.path=/elsewhere.db", &err), 0);
	assert_int_equal(daemon_config_set(&c, "daemon.state_dir=/moved", &err), 0);
	assert_string_equal(c.store_path, "/elsewhere.db");
	assert_int_equal(daemon_config_set(&c, "daemon.listen=", &err), 0);
	assert_string_equal(c.listen, "");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (daemon_config_set(&c, bad[i], &err) == 0)
			fail_msg("'%s' was accepted", bad[i]);
	daemon_config_done(&c);
}

static void checks_over_words_and_keys(void **state)
{
	static const char *const rows[][3] = {
		{ "daemon.role=boss", NULL, "daemon.role: 'boss' is not one of: all, controller, worker" },
		{ "daemon.role=worker", NULL, "worker.controller is empty" },
		{ "daemon.role=worker", "worker.controller=http://far.example", "worker.controller: plain http" },
		{ "daemon.role=worker", "worker.controller=unix:///run/x.sock", "worker.controller" },
		{ "worker.controller=https://far.example", NULL, "only the role worker dials" },
		{ "worker.labels=disk", NULL, "worker.labels: 'disk' is not key=value" },
		{ "worker.pin=abc", NULL, "worker.pin" },
		{ "daemon.role=worker", "worker.controller=https://far.example:1", NULL },
		{ "daemon.log_level=loud", NULL, "daemon.log_level" },
		{ "daemon.state_dir=relative", NULL, "daemon.state_dir: 'relative' is not an absolute path" },
		{ "daemon.listen=0.0.0.0:80", NULL, "daemon.listen" },
		{ "daemon.listen=127.0.0.1:70000", NULL, "allowed: 0 to 65535" },
		{ "daemon.listen=127.0.0.1", NULL, "daemon.listen" },
		{ "policy.profile=lax", NULL, "policy.profile: 'lax' is not one of: strict, trusted-workstation" },
		{ "policy.gvisor_risk_threshold=60", NULL, "would never apply" },
		{ "policy.gvisor_risk_threshold=60", "policy.microvm_risk_threshold=50", "would never apply" },
		{ "policy.allowed_registries=", NULL, "policy.allowed_registries" },
		{ "policy.allowed_registries=a;b", NULL, "policy.allowed_registries" },
		{ "worker.name=", NULL, "worker.name" },
		{ "worker.docker_socket=", NULL, "worker.docker_socket" },
		{ "policy.gvisor_risk_threshold=60", "policy.profile=trusted-workstation", NULL },
		{ "policy.allowed_registries=docker.io, ghcr.io", "daemon.listen=[::1]:0", NULL },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct daemon_config c;
		struct error err = ERROR_INIT;
		make(&c);
		for (int k = 0; k < 2; k++)
			if (rows[i][k])
				assert_int_equal(daemon_config_set(&c, rows[i][k], &err), 0);
		int r = daemon_config_check(&c, &err);
		if ((r == 0) != !rows[i][2] || (r != 0 && !strstr(err.message, rows[i][2])))
			fail_msg("row %zu: %d, %s", i, r, err.message);
		daemon_config_done(&c);
	}
}

static void reload_takes_what_can_change(void **state)
{
	struct daemon_config c, fresh;
	(void)state;
	make(&c);
	make(&fresh);
	const char *held = c.policy_profile;
	assert_int_equal(daemon_config_set(&fresh, "policy.profile=trusted-workstation", NULL), 0);
	assert_int_equal(daemon_config_set(&fresh, "worker.max_sandboxes=3", NULL), 0);
	assert_int_equal(daemon_config_set(&fresh, "policy.reserve_ratio=0.25", NULL), 0);
	assert_int_equal(daemon_config_set(&fresh, "daemon.socket=/new.sock", NULL), 0);
	daemon_config_reload(&c, &fresh);
	assert_string_equal(c.policy_profile, "trusted-workstation");
	assert_int_equal(c.max_sandboxes, 3);
	assert_true(c.reserve_ratio > 0.24 && c.reserve_ratio < 0.26);
	assert_string_not_equal(c.socket, "/new.sock");
	assert_string_equal(held, "strict"); /* still readable by a thread that holds it */
	daemon_config_done(&c);
	daemon_config_done(&fresh);
}

static void pools_are_sections_of_their_own(void **state)
{
	static const char text[] = "[pool web]\nimage = alpine:3\nsize = 5\nmemory = 256m\n[worker]\nname = here\n[pool plain]\n[pool web]\ntier = gvisor\n";
	static const struct {
		const char *set, *says;
	} wrong[] = {
		{ "pool web.tier=vm", "pool web.tier: 'vm' is not one of" },
		{ "pool web.network=deny_all", "pool web.network: 'deny_all' is not one of" },
		{ "pool web.memory=100000k", "pool web.memory: not a whole number of MiB" },
		{ "pool web.image=", "pool web: spec.image" },
	};
	struct daemon_config c, fresh;
	struct error err = ERROR_INIT;
	auto_spec s;
	(void)state;
	make(&c);
	make(&fresh);
	spec_init(&s);
	if (load(&c, text, strlen(text), &err) != 0 || daemon_config_check(&c, &err) != 0 || pool_config_spec(&c.pools[0], &s, &err) != 0)
		fail_msg("%s", err.message);
	assert_int_equal(c.n_pools, 2);
	assert_string_equal(c.pools[0].name, "web");
	assert_int_equal(c.pools[0].size, 5);
	assert_string_equal(c.pools[1].image, "sandbox-base:latest");
	assert_string_equal(s.image, "alpine:3");
	assert_string_equal(s.tenant, "");
	assert_int_equal(s.resources.memory_mib, 256);
	assert_int_equal(s.min_tier, TIER_GVISOR);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		assert_int_equal(load(&fresh, text, strlen(text), &err), 0);
		assert_int_equal(daemon_config_set(&fresh, wrong[i].set, &err), 0);
		assert_int_equal(daemon_config_check(&fresh, &err), -1);
		if (!strstr(err.message, wrong[i].says))
			fail_msg("%s: %s", wrong[i].set, err.message);
		daemon_config_done(&fresh);
		make(&fresh);
	}
	assert_int_equal(daemon_config_set(&fresh, "pool other.size=7", &err), 0);
	daemon_config_reload(&c, &fresh);
	assert_int_equal(c.n_pools, 1);
	assert_string_equal(c.pools[0].name, "other");
	assert_int_equal(c.pools[0].size, 7);
	daemon_config_done(&c);
	daemon_config_done(&fresh);
}

static void printed_keys_can_be_set_again(void **state)
{
	struct daemon_config c, again;
	auto_buf out = BUF_INIT, second = BUF_INIT;
	struct error err = ERROR_INIT;
	size_t lines = 0;
	(void)state;
	make(&c);
	make(&again);
	assert_int_equal(daemon_config_set(&c, "worker.memory=4g", NULL), 0);
	assert_int_equal(daemon_config_set(&c, "pool web.size=4", NULL), 0);
	assert_int_equal(daemon_config_set(&c, "worker.create_timeout=90", NULL), 0);
	daemon_config_print(&c, &out);
	assert_non_null(strstr(buf_str(&out), "worker.memory = 4GiB  # "));
	assert_non_null(strstr(buf_str(&out), "worker.create_timeout = 90s  # "));
	auto_free char *copy = xstrdup(buf_str(&out));
	for (char *line = copy, *next; *line; line = next) {
		char *hash = strstr(line, "  # "), *equals = strstr(line, " = ");
		next = strchr(line, '\n') + 1;
		*hash = '\0';
		auto_free char *assignment = xasprintf("%.*s=%s", (int)(equals - line), line, equals + 3);
		if (daemon_config_set(&again, assignment, &err) != 0)
			fail_msg("%s: %s", assignment, err.message);
		lines++;
	}
	assert_true(lines > 20);
	daemon_config_print(&again, &second);
	assert_string_equal(buf_str(&out), buf_str(&second));
	daemon_config_done(&c);
	daemon_config_done(&again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_pass_their_own_check),
		cmocka_unit_test(users_have_their_own_directories),
		cmocka_unit_test(a_file_sets_keys),
		cmocka_unit_test(mistakes_name_file_and_line),
		cmocka_unit_test(long_lines_and_odd_files_are_refused),
		cmocka_unit_test(overrides),
		cmocka_unit_test(checks_over_words_and_keys),
		cmocka_unit_test(reload_takes_what_can_change),
		cmocka_unit_test(pools_are_sections_of_their_own),
		cmocka_unit_test(printed_keys_can_be_set_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
