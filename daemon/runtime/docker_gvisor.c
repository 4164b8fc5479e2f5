/*
 * gVisor through the engine's runsc runtime. The host's process is the sentry, a kernel in user space; a gofer beside it
 * opens files for it. runsc is usually run with --ignore-cgroups and then enforces no limit at all, so both are moved into
 * control groups of the worker's before init is spoken to, which is before anything of a tenant can run.
 */
#include "daemon/runtime/docker_internal.h"

#include "daemon/runtime/cgroup.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	PROBE_MEMORY_MIB = 64,
	PROBE_CPU_MILLIS = 200, /* so little that a busy loop meets it on a busy machine too */
	PROBE_PIDS = 4,
	PROBE_MORE_MS = 8 * 1000, /* no further try behind this: the daemon's start waits for the probe */
	PROBE_LIFE_US = 60 * 1000 * 1000,
	BITE_MS = 10 * 1000,
	BITE_POLL_US = 20 * 1000,
	MIB = 1024 * 1024,
};

bool docker_is_gvisor(const struct docker *d, const cJSON *j)
{
	return *d->gvisor_runtime && strcmp(docker_str(j, "HostConfig.Runtime"), d->gvisor_runtime) == 0;
}

static int parent_of(pid_t pid)
{
	auto_free char *path = xasprintf("/proc/%d/stat", (int)pid);
	auto_buf text = BUF_INIT;
	const char *p;
	int parent;

	if (io_read_file(path, 4096, &text, NULL) != 0 || !(p = strrchr(buf_str(&text), ')')) || sscanf(p + 1, " %*c %d", &parent) != 1)
		return 0;
	return parent;
}

static bool is_gofer(pid_t pid)
{
	auto_free char *path = xasprintf("/proc/%d/cmdline", (int)pid);
	auto_buf text = BUF_INIT;

	return io_read_file(path, 64 * 1024, &text, NULL) == 0 && strcmp(buf_str(&text), "runsc-gofer") == 0;
}

/* The sentry's brother: both were started by the engine's shim. 0: none (a runsc without one). */
static pid_t gofer_of(pid_t sentry)
{
	auto_dir DIR *dir = opendir("/proc");
	int shim = parent_of(sentry);

	for (struct dirent *e = dir && shim > 1 ? readdir(dir) : NULL; e; e = readdir(dir)) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);

		if (pid > 1 && pid != sentry && parent_of(pid) == shim && is_gofer(pid))
			return pid;
	}
	return 0;
}

static struct cgroup_limits limits_of(const cJSON *j)
{
	return (struct cgroup_limits){
		.memory_max = docker_num(j, "HostConfig.Memory"),
		.pids_max = docker_num(j, "HostConfig.PidsLimit"),
		.cpu_millis = (uint32_t)(docker_num(j, "HostConfig.NanoCpus") / 1000000),
	};
}

static int check_limits(pid_t pid, const struct cgroup_limits *l, struct error *err)
{
	struct cgroup_view v;

	if (cgroup_read(pid, &v, err) != 0)
		return -1;
	if (v.memory_max != l->memory_max)
		return error_set(err, ERR_UNAVAILABLE, "the memory limit does not hold (asked %lld, the kernel has %lld)", (long long)l->memory_max,
		                 (long long)v.memory_max);
	if (v.pids_max != l->pids_max)
		return error_set(err, ERR_UNAVAILABLE, "the PID limit does not hold (asked %lld, the kernel has %lld)", (long long)l->pids_max,
		                 (long long)v.pids_max);
	if (v.cpu_quota_us < 0 || v.cpu_quota_us * 1000 != v.cpu_period_us * (int64_t)l->cpu_millis)
		return error_set(err, ERR_UNAVAILABLE, "the CPU limit does not hold (asked %u/1000, the kernel has %lld us per %lld us)", l->cpu_millis,
		                 (long long)v.cpu_quota_us, (long long)v.cpu_period_us);
	return 0;
}

/* Out of memory, the kernel shall end the sentry, and all with it: a stub's end would leave a sandbox that is broken in part. */
static void prefer_as_victim(pid_t sentry)
{
	auto_free char *path = xasprintf("/proc/%d/oom_score_adj", (int)sentry);
	auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		io_write_full(fd, "900", 3);
}

int docker_gvisor_enclose(struct docker *d, const struct id *sandbox, const cJSON *j, struct runtime_status *s, struct error *err)
{
	struct cgroup_limits l = limits_of(j);
	pid_t gofer = gofer_of(s->pid);

	s->mounts_pid = gofer;
	prefer_as_victim(s->pid);
	if (check_limits(s->pid, &l, NULL) == 0)
		return 0;
	if (cgroup_make(&d->node, sandbox, &l, err) != 0 || cgroup_enter(&d->node, sandbox, s->pid, err) != 0)
		return -1;
	if (gofer && cgroup_enter(&d->node, sandbox, gofer, err) != 0)
		return -1;
	return check_limits(s->pid, &l, err);
}

void docker_gvisor_ended(struct docker *d, const struct id *sandbox, struct runtime_status *s)
{
	struct cgroup_harm harm;

	if (!cgroup_harm(&d->node, sandbox, &harm))
		return;
	s->oom_killed = s->oom_killed || harm.oom_kills > 0;
	s->pids_exhausted = harm.pids_refused > 0;
}

/* --- the probe --- */

/* Waits until the limit has ended it. Limits that runsc set itself leave no count: its end is what is seen then. */
static int wait_bite(struct docker *d, const struct runtime_create *req, struct error *err)
{
	int64_t until = clock_mono_ms() + BITE_MS;
	bool memory = strcmp(req->exercise, "memory") == 0, own, bitten = false;
	struct cgroup_harm harm;
	struct runtime_status s;

	for (;;) {
		own = cgroup_harm(&d->node, &req->sandbox_id, &harm);
		if (d->rt.ops->inspect(&d->rt, &req->sandbox_id, &s, err) != 0)
			return -1;
		bitten = own ? (memory ? harm.oom_kills > 0 : harm.pids_refused > 0) : s.state == RUNTIME_EXITED;
		if (bitten && (s.state == RUNTIME_EXITED || !memory))
			break;
		if (s.state == RUNTIME_EXITED)
			return error_set(err, ERR_UNAVAILABLE, "it ended (exit status %d) before the %s limit was reached", s.exit_code,
			                 memory ? "memory" : "PID");
		if (clock_mono_ms() > until)
			return error_set(err, ERR_UNAVAILABLE, "the %s limit does not bite: what should have been stopped went on for %d s",
			                 memory ? "memory" : "PID", BITE_MS / 1000);
		usleep(BITE_POLL_US);
	}
	if (own && memory && harm.throttled == 0)
		return error_set(err, ERR_UNAVAILABLE, "the CPU limit does not bite: a busy loop was never held back");
	return 0;
}

/* workspace_seen is the container probe's; here it is a condition, where that mount is what sandboxes get. */
static int start_exercise(struct docker *d, const struct runtime_probe *p, const struct runtime_create *req, struct error *err)
{
	struct runtime_status s;

	if (d->rt.ops->create(&d->rt, req, err) != 0 || d->rt.ops->start(&d->rt, &req->sandbox_id, &s, err) != 0)
		return -1;
	if (p->workspace_seen && (s.mounts_pid == 0 || !docker_sees_workspace(s.mounts_pid, p->workspace)))
		return error_set(err, ERR_UNAVAILABLE, "the sized workspace was not seen inside");
	return 0;
}

static int run_exercises(struct docker *d, struct runtime_probe *p, const char *digest, const struct spec *spec, struct error *err)
{
	static const char *const names[] = { "memory", "pids" };
	struct runtime_create req[ARRAY_LEN(names)];
	struct error local = ERROR_INIT;
	int rc = 0;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		req[i] = (struct runtime_create){
			.sandbox_id = id_new(), .spec = spec, .tier = TIER_GVISOR, .init_path = p->init_path, .io_dir = p->io_dir, .image_digest = digest,
			.workspace = p->workspace, .deadline_us = clock_wall_us() + PROBE_LIFE_US, .exercise = names[i],
		};
	/* Both run side by side: most of the time goes by in their starting. */
	for (size_t i = 0; i < ARRAY_LEN(names) && rc == 0; i++)
		rc = start_exercise(d, p, &req[i], &local);
	for (size_t i = 0; i < ARRAY_LEN(names) && rc == 0; i++)
		rc = wait_bite(d, &req[i], &local);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (d->rt.ops->remove(&d->rt, &req[i].sandbox_id, rc == 0 ? &local : NULL) != 0)
			rc = -1;
	return rc == 0 ? 0 : error_set(err, local.code, "%s", local.message);
}

int docker_gvisor_probe(struct docker *d, struct runtime_probe *p, const cJSON *info, struct error *err)
{
	struct tier_offer *t = &p->tiers[TIER_GVISOR];
	auto_free char *digest = NULL;
	auto_free char *why = NULL;
	struct error local = ERROR_INIT;
	struct spec spec;
	int64_t last = clock_mono_ms() + PROBE_MORE_MS;
	int rc;

	if (!*d->gvisor_runtime) {
		docker_offer(t, false, "not offered: switched off by an empty worker.gvisor_runtime");
		return 0;
	}
	if (!cJSON_GetObjectItemCaseSensitive(docker_at(info, "Runtimes"), d->gvisor_runtime)) {
		why = xasprintf("not offered: the engine has no runtime named %s (install gVisor's runsc and add it to the engine's daemon.json)", d->gvisor_runtime);
		docker_offer(t, false, why);
		return 0;
	}
	if (docker_probe_image(d, &digest, err) != 0)
		return -1;
	spec_init(&spec);
	spec.resources = (struct resources){ .cpu_millis = PROBE_CPU_MILLIS, .memory_mib = PROBE_MEMORY_MIB, .pids = PROBE_PIDS };
	/* A machine under load may be too slow once for what is to be seen: an exercise can be over before its cgroup was looked at. */
	do
		rc = run_exercises(d, p, digest, &spec, &local);
	while (rc != 0 && local.code != ERR_UNREACHABLE && clock_mono_ms() < last);
	spec_done(&spec);
	if (rc != 0 && local.code == ERR_UNREACHABLE)
		return error_set(err, local.code, "%s", local.message);
	docker_offer(t, rc == 0, rc == 0 ? "a probe ran, and the memory, CPU and PID limits stopped it" : local.message);
	t->again = rc != 0;
	return 0;
}
