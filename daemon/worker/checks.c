/* Doctor's view of the worker: what works, what does not, and how to mend it. */
#include "daemon/worker/worker_priv.h"

#include "shared/base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1024 * 1024, DISK_LOW_MIB = 2048 };

struct rows {
	struct check_row *row;
	size_t len, max;
	struct check_row spare; /* where rows over max go */
};

static struct check_row *add(struct rows *r, const char *part, const char *status, const char *remedy)
{
	struct check_row *c = r->len < r->max ? &r->row[r->len++] : &r->spare;

	snprintf(c->part, sizeof(c->part), "%s", part);
	snprintf(c->status, sizeof(c->status), "%s", status);
	snprintf(c->remedy, sizeof(c->remedy), "%s", remedy);
	c->detail[0] = '\0';
	return c;
}

__attribute__((format(printf, 2, 3))) static void detail(struct check_row *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->detail, sizeof(c->detail), fmt, ap);
	va_end(ap);
}

static bool check_engine(struct worker *w, struct rows *r)
{
	const struct runtime_ops *ops = w->o.runtime->ops;
	struct error err = ERROR_INIT;
	char text[128];

	if (strcmp(ops->name, "fake") == 0) {
		detail(add(r, "engine", "fail", "unset SANDBOX_TEST_RUNTIME and restart sandboxd"),
		       "the test runtime is in use: sandboxes are plain processes WITHOUT any isolation");
		return true;
	}
	if (ops->ping(w->o.runtime, text, sizeof(text), &err) == 0) {
		detail(add(r, "engine", "ok", ""), "%s at %s", text, w->o.config->docker_socket);
		return true;
	}
	bool barred = access(w->o.config->docker_socket, W_OK) != 0 && errno == EACCES;
	detail(add(r, "engine", "fail",
		   barred ? "usermod -aG docker USER as root (the group equals root), log in again, then sandbox daemon stop" :
			    "install Docker Engine and start it (systemctl start docker), or set worker.docker_socket"),
	       "%s", err.message);
	return false;
}

static void check_init(struct worker *w, struct rows *r)
{
	struct stat st;

	if (stat(w->init_path, &st) != 0 || !S_ISREG(st.st_mode) || access(w->init_path, X_OK) != 0)
		detail(add(r, "sandbox-init", "fail", "install sandbox-init (make install), or set daemon.init_path"), "no executable file at %s",
		       w->init_path);
	else if (st.st_mode & (S_IWGRP | S_IWOTH))
		detail(add(r, "sandbox-init", "warn", "chmod go-w the file: whoever may write it runs code in every sandbox"),
		       "%s can be changed by others", w->init_path);
	else
		detail(add(r, "sandbox-init", "ok", ""), "%s, %lld KiB", w->init_path, (long long)(st.st_size / 1024));
}

static void check_images(struct worker *w, struct rows *r)
{
	struct image_list list = { .items = NULL };
	struct error err = ERROR_INIT;

	if (w->o.runtime->ops->image_list(w->o.runtime, &list, &err) != 0)
		detail(add(r, "images", "fail", "see the engine's own log"), "%s", err.message);
	else if (list.len == 0)
		detail(add(r, "images", "warn", "sandbox image pull debian:stable-slim, or sandbox image import"), "no image on this machine");
	else
		detail(add(r, "images", "ok", ""), "%zu present; registries allowed: %s", list.len, w->o.config->allowed_registries);
	image_list_done(&list);
}

static void check_tiers(struct worker *w, struct rows *r)
{
	static const char *const remedies[TIER_COUNT] = {
		[TIER_CONTAINER] = "mend what the reason names and restart sandboxd",
		[TIER_GVISOR] = "nothing to do unless policy asks for it; docs/tiers.md says how to turn it on",
		[TIER_MICROVM] = "nothing to do unless policy asks for it (the strict profile does from score 55); docs/runtime-driver.md",
	};
	struct runtime_probe p;
	bool probed;

	pthread_mutex_lock(&w->lock);
	p = w->probe;
	probed = w->probed;
	pthread_mutex_unlock(&w->lock);
	if (!probed) {
		detail(add(r, "limits", "fail", "mend the engine: the probe runs again by itself"), "not probed: the runtime does not answer");
		return;
	}
	if (*p.warning)
		detail(add(r, "limits", "warn", "see the detail"), "%s", p.warning);
	else if (p.tiers[TIER_CONTAINER].offered)
		detail(add(r, "limits", "ok", ""), "memory, swap, CPU and PIDs hold; a writable root is measured every 3 s against the disk size");
	for (int t = 0; t < TIER_COUNT; t++) {
		char part[32];
		bool offered = p.tiers[t].offered;

		snprintf(part, sizeof(part), "tier %s", tier_text((enum tier)t));
		const char *status = p.tiers[t].development && offered ? "warn" : offered || t != TIER_CONTAINER ? "ok" : "fail";
		const char *remedy = *status == 'w' ? "a machine with KVM offers this tier in earnest" : offered ? "" : remedies[t];
		detail(add(r, part, status, remedy), "%s", p.tiers[t].reason);
	}
}

static void check_workspace(struct worker *w, struct rows *r)
{
	char why[256];
	enum workspace_mode mode = workspaces_mode(w->spaces, why, sizeof(why));

	switch (mode) {
	case WORKSPACE_MODE_NONE:
		detail(add(r, "workspace", "fail", "use a real runtime"), "none: %s", why);
		break;
	case WORKSPACE_MODE_LOOP:
		detail(add(r, "workspace", "ok", ""), "sized ext4 images, mounted by the daemon (%s)", why);
		break;
	case WORKSPACE_MODE_ENGINE:
		detail(add(r, "workspace", "ok", ""), "sized ext4 images, mounted by the engine (%s)", why);
		break;
	case WORKSPACE_MODE_MEMORY:
		detail(add(r, "workspace", "warn", "run sandboxd as root on a host with loop devices and e2fsprogs to have /workspace on disk"),
		       "/workspace is memory: it counts against the sandbox's limit, at most three quarters of it (%s)", why);
		break;
	}
}

static void check_network(struct worker *w, struct rows *r)
{
	struct node_report n = { .pressure = 0 };

	capacity_network(w, &n);
	detail(add(r, "network", "ok", ""), "deny: %s; restricted: %s; open: %s", n.network_reason[NETWORK_DENY], n.network_reason[NETWORK_RESTRICTED],
	       n.network_reason[NETWORK_OPEN]);
}

static void check_disk(struct worker *w, struct rows *r)
{
	struct error err = ERROR_INIT;
	int64_t room, held;

	if (workspaces_space(w->spaces, &room, &held, &err) != 0)
		detail(add(r, "disk", "fail", "check daemon.state_dir"), "%s", err.message);
	else if (room / MIB < DISK_LOW_MIB)
		detail(add(r, "disk", "warn", "free space, or set worker.disk"), "%lld MiB free below %s, %lld MiB held by workspaces",
		       (long long)(room / MIB), w->o.config->state_dir, (long long)(held / MIB));
	else
		detail(add(r, "disk", "ok", ""), "%lld MiB free below %s, %lld MiB held by workspaces", (long long)(room / MIB),
		       w->o.config->state_dir, (long long)(held / MIB));
}

static void check_pressure(struct worker *w, struct rows *r)
{
	const char *what;
	double now = capacity_pressure(&what), most = w->o.config->max_host_pressure;

	if (now > most)
		detail(add(r, "pressure", "warn", "relieve the machine, or raise policy.max_host_pressure"),
		       "%.2f of 1 by %s: above %.2f (policy.max_host_pressure) nothing is placed here", now, what, most);
	else
		detail(add(r, "pressure", "ok", ""), "%.2f of 1 by %s; nothing is placed above %.2f", now, what, most);
}

static void check_reconcile(struct worker *w, struct rows *r)
{
	char text[256];

	pthread_mutex_lock(&w->lock);
	snprintf(text, sizeof(text), "%s", w->reconcile_error);
	pthread_mutex_unlock(&w->lock);
	if (*text)
		detail(add(r, "reconcile", "warn", "it is tried again by itself; the daemon's log has more"), "%s", text);
	else
		detail(add(r, "reconcile", "ok", ""), "records and runtime agree");
}

size_t worker_checks(struct worker *w, struct check_row *ret, size_t max)
{
	struct rows r = { .row = ret, .max = max };

	if (check_engine(w, &r))
		check_images(w, &r);
	check_init(w, &r);
	check_tiers(w, &r);
	check_workspace(w, &r);
	check_network(w, &r);
	check_disk(w, &r);
	check_pressure(w, &r);
	check_reconcile(w, &r);
	return r.len;
}
