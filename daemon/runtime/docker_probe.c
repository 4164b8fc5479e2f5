/*
 * The probe: a container like any sandbox's is created and started from an image of one empty directory, and the kernel
 * is asked what it enforces on that process. What a host cannot do is found here, once, not in someone's sandbox.
 */
#include "daemon/runtime/docker_internal.h"

#include "daemon/runtime/cgroup.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROBE_IMAGE "sandbox-probe:" SANDBOX_VERSION

enum {
	MIB = 1024 * 1024,
	PROBE_MEMORY_MIB = 64,
	PROBE_CPU_MILLIS = 500,
	PROBE_PIDS = 16,
	PROBE_LIFE_US = 60 * 1000 * 1000,
	TAR_BLOCK = 512,
	/* CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID: what docker_create.c asks for. */
	CAPABILITY_MASK = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7,
};

/* A tar archive of one directory: header, two zero blocks. */
static void tar_of_directory(unsigned char out[static 3 * TAR_BLOCK])
{
	unsigned sum = 0;
	char digits[8];

	memset(out, 0, 3 * TAR_BLOCK);
	memcpy(out, ".sandbox/", 9);
	memcpy(out + 100, "0000755", 8);
	memcpy(out + 108, "0000000", 8);
	memcpy(out + 116, "0000000", 8);
	memcpy(out + 124, "00000000000", 12);
	memcpy(out + 136, "00000000000", 12);
	memset(out + 148, ' ', 8);
	out[156] = '5';
	memcpy(out + 257, "ustar\00000", 8);
	for (int i = 0; i < TAR_BLOCK; i++)
		sum += out[i];
	snprintf(digits, sizeof(digits), "%06o", sum & 0777777);
	memcpy(out + 148, digits, 7);
}

int docker_probe_image(struct docker *d, char **ret_digest, struct error *err)
{
	unsigned char tar[3 * TAR_BLOCK];
	auto_free char *label = engine_escape("LABEL " LABEL_PROBE "=1");
	auto_free char *path = xasprintf("/images/create?fromSrc=-&repo=sandbox-probe&tag=" SANDBOX_VERSION "&changes=%s", label);
	struct engine_request r = { .method = "POST", .path = path, .body = tar, .body_len = sizeof(tar), .content_type = "application/x-tar" };
	auto_engine_answer a = { .status = 0 };
	auto_json *j = NULL;
	struct error local = ERROR_INIT;

	if (docker_get(d, "/images/" PROBE_IMAGE "/json", "looking for the probe image", &j, &local) != 0) {
		if (local.code != ERR_NOT_FOUND)
			return error_set(err, local.code, "%s", local.message);
		tar_of_directory(tar);
		if (engine_call(d->engine, &r, &a, err) != 0)
			return -1;
		if (a.status / 100 != 2)
			return docker_refused(&a, "importing the probe image", err);
		if (docker_get(d, "/images/" PROBE_IMAGE "/json", "looking for the probe image", &j, err) != 0)
			return -1;
	}
	*ret_digest = xstrdup(docker_str(j, "Id"));
	return 0;
}

static void check_engine(struct docker *d, struct runtime_probe *p, const cJSON *info)
{
	bool no_swap_limit;

	no_swap_limit = !docker_true(info, "SwapLimit");
	d->no_swap_limit = no_swap_limit;
	if (no_swap_limit)
		snprintf(p->warning, sizeof(p->warning),
		         "this kernel does not account swap: sandboxes get swappiness 0 instead of a swap limit "
		         "(boot with cgroup_enable=memory swapaccount=1, or use cgroup version 2)");
}

static int check_limits(const struct docker *d, pid_t pid, struct error *err)
{
	struct cgroup_view v;

	if (cgroup_read(pid, &v, err) != 0)
		return -1;
	if (v.memory_max != (int64_t)PROBE_MEMORY_MIB * MIB)
		return error_set(err, ERR_UNAVAILABLE, "the memory limit does not hold (asked %d MiB, the kernel has %lld bytes)", PROBE_MEMORY_MIB,
		                 (long long)v.memory_max);
	if (!d->no_swap_limit && v.memory_swap_max != v.memory_max)
		return error_set(err, ERR_UNAVAILABLE, "the swap limit does not hold");
	if (v.pids_max != PROBE_PIDS + DOCKER_PIDS_RESERVE)
		return error_set(err, ERR_UNAVAILABLE, "the PID limit does not hold (asked %d, the kernel has %lld)", PROBE_PIDS + DOCKER_PIDS_RESERVE,
		                 (long long)v.pids_max);
	if (v.cpu_quota_us < 0 || v.cpu_quota_us * 1000 != v.cpu_period_us * PROBE_CPU_MILLIS)
		return error_set(err, ERR_UNAVAILABLE, "the CPU limit does not hold (asked %d/1000, the kernel has %lld us per %lld us)",
		                 PROBE_CPU_MILLIS, (long long)v.cpu_quota_us, (long long)v.cpu_period_us);
	return 0;
}

static unsigned long long status_field(const char *status, const char *name, int base)
{
	const char *at = strstr(status, name);

	return at ? strtoull(at + strlen(name), NULL, base) : ~0ULL;
}

static int check_confinement(pid_t pid, struct error *err)
{
	auto_free char *path = xasprintf("/proc/%d/status", (int)pid);
	auto_buf status = BUF_INIT;

	if (io_read_file(path, 64 * 1024, &status, err) != 0)
		return -1;
	if (status_field(buf_str(&status), "\nNoNewPrivs:", 10) != 1)
		return error_set(err, ERR_UNAVAILABLE, "no-new-privileges is not in force");
	if (status_field(buf_str(&status), "\nSeccomp:", 10) != 2)
		return error_set(err, ERR_UNAVAILABLE, "no system call filter is in force (the engine runs without seccomp)");
	if (status_field(buf_str(&status), "\nCapBnd:", 16) != CAPABILITY_MASK)
		return error_set(err, ERR_UNAVAILABLE, "the capabilities are not the six that were asked");
	return 0;
}

bool docker_sees_workspace(pid_t pid, const struct workspace_mount *w)
{
	auto_free char *path = xasprintf("/proc/%d/root/workspace", (int)pid);
	struct stat inside, outside;

	return stat(path, &inside) == 0 && stat(w->source, &outside) == 0 && inside.st_dev == outside.st_dev && inside.st_ino == outside.st_ino;
}

static int run_probe(struct docker *d, struct runtime_probe *p, const struct runtime_create *req, struct error *err)
{
	const struct runtime_ops *ops = d->rt.ops;
	struct runtime_status s;

	if (ops->create(&d->rt, req, err) != 0 || ops->start(&d->rt, &req->sandbox_id, &s, err) != 0)
		return -1;
	if (check_limits(d, s.pid, err) != 0 || check_confinement(s.pid, err) != 0)
		return -1;
	p->workspace_seen = p->workspace && p->workspace->kind == WORKSPACE_DIR && docker_sees_workspace(s.pid, p->workspace);
	return 0;
}

void docker_offer(struct tier_offer *t, bool offered, const char *reason)
{
	t->offered = offered;
	snprintf(t->reason, sizeof(t->reason), "%s", reason);
}

static int probe_container(struct docker *d, struct runtime_probe *p, struct error *err)
{
	struct spec spec;
	struct runtime_create req = {
		.sandbox_id = id_new(), .spec = &spec, .tier = TIER_CONTAINER, .init_path = p->init_path, .io_dir = p->io_dir,
		.workspace = p->workspace, .deadline_us = clock_wall_us() + PROBE_LIFE_US,
	};
	auto_free char *digest = NULL;
	int rc;

	if (access(p->init_path, X_OK) != 0)
		return error_set(err, ERR_NOT_FOUND, "sandbox-init is not at %s: install it, or set daemon.init_path", p->init_path);
	if (docker_probe_image(d, &digest, err) != 0)
		return -1;
	spec_init(&spec);
	spec.resources = (struct resources){ .cpu_millis = PROBE_CPU_MILLIS, .memory_mib = PROBE_MEMORY_MIB, .pids = PROBE_PIDS };
	req.image_digest = digest;
	rc = run_probe(d, p, &req, err);
	if (d->rt.ops->remove(&d->rt, &req.sandbox_id, rc == 0 ? err : NULL) != 0)
		rc = -1;
	spec_done(&spec);
	return rc;
}

int docker_probe(struct runtime *rt, struct runtime_probe *p, struct error *err)
{
	struct docker *d = docker_of(rt);
	auto_json *info = NULL;
	struct error local = ERROR_INIT;

	p->workspace_seen = false;
	p->warning[0] = '\0';
	docker_offer(&p->tiers[TIER_GVISOR], false, "not offered: the container tier, which it builds on, does not work here");
	docker_offer(&p->tiers[TIER_MICROVM], false, "not offered: no microVM driver is configured");
	if (docker_get(d, "/info", "asking what the engine can do", &info, err) != 0)
		return -1;
	check_engine(d, p, info);
	if (probe_container(d, p, &local) == 0) {
		docker_offer(&p->tiers[TIER_CONTAINER], true, "memory, swap, CPU and PID limits, no-new-privileges, seccomp and capabilities were seen in force");
		return docker_gvisor_probe(d, p, info, err);
	}
	if (local.code == ERR_UNREACHABLE)
		return error_set(err, local.code, "%s", local.message);
	docker_offer(&p->tiers[TIER_CONTAINER], false, local.message);
	return 0;
}
