/* What a machine is and has, and whether it can be a worker: see enroll.h. */
#include "cli/enroll/enroll.h"

#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>

enum { SKEW_MAX_S = 120, DISK_MIN_MIB = 1024 };

static const char *fact(const struct probe *p, const char *key)
{
	const char *v = map_get(&p->facts, key);
	return v ? v : "";
}

static int64_t number(const struct probe *p, const char *key)
{
	int64_t n = 0;
	return parse_i64(key, fact(p, key), 0, INT64_MAX, &n, NULL) == 0 ? n : 0;
}

static void take_facts(const char *text, struct map *ret)
{
	for (const char *p = text; *p;) {
		size_t n = strcspn(p, "\n");
		auto_free char *line = xstrndup(p, n);
		char *equal = strchr(line, '=');
		if (equal) {
			*equal = '\0';
			map_set(ret, line, equal + 1);
		}
		p += n + (p[n] == '\n');
	}
}

static const char *arch_of(const char *machine)
{
	if (strcmp(machine, "x86_64") == 0 || strcmp(machine, "amd64") == 0)
		return "amd64";
	return strcmp(machine, "aarch64") == 0 || strcmp(machine, "arm64") == 0 ? "arm64" : "";
}

/* As root, since an earlier worker's configuration is root's. */
static int look_for_worker(struct host *h, struct map *facts, struct error *err)
{
	static const char body[] =
		"[ ! -x " WORKER_ROOT "/current/bin/sandboxd ] || echo installed=$(" WORKER_ROOT "/current/bin/sandboxd --version 2>/dev/null | cut -d ' ' -f 2)\n"
		"if [ -f " WORKER_CONFIG " ]; then\n"
		"\techo config_name=$(sed -n 's/^name = //p' " WORKER_CONFIG ")\n"
		"\techo config_controller=$(sed -n 's/^controller = //p' " WORKER_CONFIG ")\n"
		"fi\n"
		"[ ! -s " WORKER_STATE "/node-credential ] || echo joined=1\n"
		"[ ! -S " WORKER_RUN "/sandboxd.sock ] || echo active=1\n";
	auto_buf out = BUF_INIT;
	if (host_run(h, &(struct script){ .what = "looking for a worker", .body = body, .root = true, .reads = true, .in_fd = -1 }, &out, err) != 0)
		return -1;
	take_facts(buf_str(&out), facts);
	return 0;
}

int probe_host(struct host *h, struct probe *ret, struct error *err)
{
	auto_buf out = BUF_INIT;
	struct probe p = { .facts = MAP_INIT };
	int64_t before = clock_wall_us();
	if (host_run(h, &(struct script){ .what = "looking at the machine", .body = script_probe, .reads = true, .in_fd = -1 }, &out, err) != 0)
		return -1;
	int64_t middle_s = (before + (clock_wall_us() - before) / 2) / 1000000;
	if (host_find_root(h, err) != 0)
		return -1;
	take_facts(buf_str(&out), &p.facts);
	if (look_for_worker(h, &p.facts, err) != 0) {
		map_done(&p.facts);
		return -1;
	}
	p.systemd = *fact(&p, "systemd");
	p.docker = *fact(&p, "docker");
	p.docker_program = *fact(&p, "docker_program");
	p.runsc = *fact(&p, "runsc");
	p.kvm = *fact(&p, "kvm");
	p.apt = *fact(&p, "apt");
	p.joined = *fact(&p, "joined");
	p.active = *fact(&p, "active");
	p.arch = xstrdup(arch_of(fact(&p, "machine")));
	p.name = xstrdup(fact(&p, "name"));
	p.installed = xstrdup(fact(&p, "installed"));
	p.config_name = xstrdup(fact(&p, "config_name"));
	p.config_controller = xstrdup(fact(&p, "config_controller"));
	p.skew_s = number(&p, "now") - middle_s;
	p.disk_mib = number(&p, "disk_kib") / 1024;
	*ret = p;
	return 0;
}

void probe_done(struct probe *p)
{
	map_done(&p->facts);
	free(p->arch);
	free(p->name);
	free(p->installed);
	free(p->config_name);
	free(p->config_controller);
}

static int check_system(const struct probe *p, const char *shown, struct error *err)
{
	if (strcmp(fact(p, "kernel"), "Linux") != 0)
		return error_set(err, ERR_INVALID, "%s runs %s; workers run Linux", shown, fact(p, "kernel"));
	if (!*p->arch || number(p, "bits") != 64)
		return error_set(err, ERR_INVALID, "%s is a %s-bit %s; workers are for x86_64 and arm64", shown, fact(p, "bits"), fact(p, "machine"));
	if (strstr(fact(p, "libc"), "musl"))
		return error_set(err, ERR_INVALID, "%s has musl as its C library; workers need glibc", shown);
	if (*fact(p, "missing"))
		return error_set(err, ERR_INVALID, "%s has no %s", shown, fact(p, "missing"));
	if (p->skew_s > SKEW_MAX_S || p->skew_s < -SKEW_MAX_S)
		return error_set(err, ERR_INVALID, "the clock of %s is %lld s %s; set it first (timedatectl set-ntp true)", shown,
				 (long long)(p->skew_s < 0 ? -p->skew_s : p->skew_s), p->skew_s < 0 ? "behind" : "ahead");
	if (p->disk_mib < DISK_MIN_MIB)
		return error_set(err, ERR_INVALID, "%s has %lld MiB free below /var/lib; a worker needs %d", shown, (long long)p->disk_mib, DISK_MIN_MIB);
	return 0;
}

int probe_check(const struct probe *p, const char *runtime, bool install_docker, const char *shown, struct error *err)
{
	if (check_system(p, shown, err) != 0)
		return -1;
	if (strcmp(runtime, "qemu") == 0 && !p->kvm)
		return error_set(err, ERR_INVALID, "%s has no /dev/kvm, which --runtime qemu needs", shown);
	if (strcmp(runtime, "gvisor") == 0 && !p->runsc)
		return error_set(err, ERR_INVALID, "%s has no runsc; install it and register it with Docker (apt-get install runsc), or choose --runtime docker", shown);
	if (p->docker)
		return 0;
	if (!install_docker)
		return error_set(err, ERR_INVALID, "no Docker Engine answers on %s: --install-docker installs one (docker.io), or start it there", shown);
	if (!p->docker_program && !p->apt)
		return error_set(err, ERR_INVALID, "%s runs %s, on which this program cannot install Docker: install it there first", shown,
				 *fact(p, "os") ? fact(p, "os") : "an unknown system");
	return 0;
}
