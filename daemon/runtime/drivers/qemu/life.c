/* What the worker asks for: a machine made, looked at, given more time. Ending one is box.c's. */
#include "daemon/runtime/drivers/qemu/qemu.h"

#include "daemon/runtime/cgroup.h"
#include "daemon/worker/workspace_image.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BOOT_MS = 100 * 1000, CPUS_MAX = 64, LINE_MAX_BYTES = 1024, DEADLINE_TEXT = 24 };

/* A create's payload, as far as it is used here. */
struct order {
	char *digest, *hostname, *init_path, *socket_dir;
	char *network;
	uint32_t cpu_millis, memory_mib, disk_mib, pids;
	int64_t deadline_us, grace_ms;
	bool writable;
};

static void order_done(struct order *o)
{
	free(o->digest);
	free(o->hostname);
	free(o->init_path);
	free(o->socket_dir);
	free(o->network);
}
#define auto_order __attribute__((cleanup(order_done))) struct order

static void read_spec(struct json_reader *r, struct order *o)
{
	struct json_reader spec, resources;

	if (!json_get_object(r, "spec", JSON_REQUIRED, &spec))
		return;
	json_get_bool(&spec, "writable_root", JSON_OPTIONAL, &o->writable);
	json_get_str(&spec, "network", JSON_OPTIONAL, 64, &o->network);
	if (!json_get_object(&spec, "resources", JSON_REQUIRED, &resources))
		return;
	json_get_u32(&resources, "cpu_millis", JSON_REQUIRED, LIMIT_CPU_MILLIS_MIN, LIMIT_CPU_MILLIS_MAX, &o->cpu_millis);
	json_get_u32(&resources, "memory_mib", JSON_REQUIRED, LIMIT_MEMORY_MIB_MIN, LIMIT_MEMORY_MIB_MAX, &o->memory_mib);
	json_get_u32(&resources, "disk_mib", JSON_REQUIRED, LIMIT_DISK_MIB_MIN, LIMIT_DISK_MIB_MAX, &o->disk_mib);
	json_get_u32(&resources, "pids", JSON_REQUIRED, LIMIT_PIDS_MIN, LIMIT_PIDS_MAX, &o->pids);
}

static int read_order(const cJSON *payload, struct order *o, struct error *err)
{
	struct json_reader r, in;

	json_reader_init(&r, payload, "payload", err);
	read_spec(&r, o);
	json_get_str(&r, "image_digest", JSON_REQUIRED, 128, &o->digest);
	json_get_str(&r, "hostname", JSON_OPTIONAL, 64, &o->hostname);
	if (json_get_object(&r, "init", JSON_REQUIRED, &in)) {
		json_get_str(&in, "path", JSON_REQUIRED, 4096, &o->init_path);
		json_get_str(&in, "socket_dir", JSON_REQUIRED, 4096, &o->socket_dir);
		json_get_i64(&in, "deadline_us", JSON_REQUIRED, 0, INT64_MAX / 2, &o->deadline_us);
		json_get_i64(&in, "grace_ms", JSON_REQUIRED, 0, INT32_MAX, &o->grace_ms);
	}
	if (!json_ok(&r))
		return -1;
	if (!o->hostname)
		o->hostname = xstrdup("sandbox");
	if (o->network && strcmp(o->network, "open_egress") == 0)
		return error_set(err, ERR_INVALID, "a machine has no network device: open egress is not possible");
	return 0;
}

/* --- making one --- */

static void owner_of(const char *user, struct guest *g)
{
	auto_free char *name = xstrndup(user, strcspn(user, ":"));
	const char *group = strchr(user, ':');
	int64_t id;

	if (parse_i64("user", name, 0, UINT32_MAX - 1, &id, NULL) == 0)
		g->uid = (uid_t)id;
	if (group && parse_i64("group", group + 1, 0, UINT32_MAX - 1, &id, NULL) == 0)
		g->gid = (gid_t)id;
}

static int write_deadline(const struct box *b, int64_t deadline_us, struct error *err)
{
	auto_free char *path = box_path(b, "deadline");
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	char text[DEADLINE_TEXT];
	int n = snprintf(text, sizeof(text), "%020lld\n", (long long)deadline_us);

	/* In place and of one length: the keeper holds this very file open. */
	if (fd < 0 || pwrite(fd, text, (size_t)n, 0) != n)
		return error_errno(err, "writing %s", path);
	return 0;
}

static int make_disk(const struct qemu_config *c, const struct box *b, uint32_t mib, struct error *err)
{
	auto_free char *templates = xasprintf("%s/templates", c->state_dir);
	auto_free char *path = box_path(b, "disk.img");
	auto_free char *template = NULL;
	auto_close int lock = state_lock(c, "templates", err), fd = -1;

	if (lock < 0 || workspace_template(templates, mib, &template, err) != 0)
		return -1;
	return workspace_image(template, path, &fd, err);
}

static int make_files(const struct qemu_config *c, const struct box *b, const struct order *o, const struct image *image, struct error *err)
{
	struct guest g = {
		.hostname = o->hostname,
		.deadline_us = o->deadline_us,
		.grace_ms = o->grace_ms,
		.memory = (int64_t)o->memory_mib * MIB,
		.pids = o->pids,
		.writable = o->writable,
		.volumes = &image->volumes,
	};
	auto_free char *initrd = box_path(b, "initrd");

	owner_of(image->user, &g);
	if (write_deadline(b, o->deadline_us, err) != 0 || make_disk(c, b, o->disk_mib, err) != 0)
		return -1;
	return initrd_write(c, &g, o->init_path, initrd, err);
}

/* The keeper's line: "ready", or why not. */
static int wait_ready(int fd, struct error *err)
{
	char line[LINE_MAX_BYTES];
	size_t n = 0;
	int64_t until = clock_mono_ms() + BOOT_MS;

	while (n < sizeof(line) - 1) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int64_t left = until - clock_mono_ms();
		ssize_t got;

		if (left <= 0 || poll(&p, 1, (int)left) == 0)
			return error_set(err, ERR_TIMEOUT, "the machine did not boot within %d s", BOOT_MS / 1000);
		got = read(fd, line + n, sizeof(line) - 1 - n);
		if (got <= 0)
			break;
		n += (size_t)got;
		if (line[n - 1] == '\n')
			break;
	}
	line[n > 0 ? n - 1 : 0] = '\0';
	if (strcmp(line, "ready") == 0)
		return 0;
	return error_set(err, ERR_UNAVAILABLE, "the machine did not start: %.700s", strncmp(line, "failed ", 7) == 0 ? line + 7 : "its keeper ended");
}

static int start(const struct qemu_config *c, struct box *b, const struct order *o, const struct machine *m, struct error *err)
{
	struct keeper k = { .machine = *m, .socket_dir = o->socket_dir, .grace_ms = o->grace_ms };
	auto_free char *initrd = box_path(b, "initrd");
	auto_close int ready = -1;

	(void)c;
	if (limits_set(&b->id, m->ram_mib, 0, err) != 0 || keeper_start(&k, &ready, err) != 0 || wait_ready(ready, err) != 0)
		return -1;
	unlink(initrd); /* it is in the guest's memory now */
	/* Booting is ours and quick; from here on the tenant's share holds. */
	return limits_set(&b->id, m->ram_mib, o->cpu_millis, err);
}

static int build(const struct qemu_config *c, struct box *b, const struct order *o, const struct image *image, struct error *err)
{
	struct machine m = { .config = c, .box = b, .image = image->path, .ram_mib = (int64_t)o->memory_mib + GUEST_MIB };

	if (probe_acceleration(c, &b->id, &m.emulated, err) != 0 || box_make(c, b, &m.uid, err) != 0)
		return -1;
	m.cpus = (o->cpu_millis + 999) / 1000;
	m.cpus = m.cpus > CPUS_MAX ? CPUS_MAX : m.cpus;
	if (make_files(c, b, o, image, err) == 0 && start(c, b, o, &m, err) == 0)
		return 0;
	return -1;
}

static bool is_running(const struct box *b)
{
	struct process keeper, vm;

	return box_process(b, "keeper", &keeper) && process_lives(&keeper) && box_process(b, "vm", &vm) && process_lives(&vm);
}

int life_create(const struct qemu_config *c, const struct id *sandbox, const cJSON *payload, struct error *err)
{
	auto_order o = { .digest = NULL };
	auto_box b;
	struct image image = { .path = NULL };
	int rc;

	box_at(c, sandbox, &b);
	if (read_order(payload, &o, err) != 0)
		return -1;
	if (is_running(&b))
		return 0;
	if (box_remove(&b, err) != 0 || image_get(c, o.digest, &image, err) != 0)
		return -1;
	rc = build(c, &b, &o, &image, err);
	image_done(&image);
	if (rc != 0)
		box_remove(&b, NULL);
	return rc;
}

int life_prepare(const struct qemu_config *c, const cJSON *payload, struct error *err)
{
	auto_free char *digest = NULL;
	struct image image = { .path = NULL };
	struct json_reader r;

	json_reader_init(&r, payload, "payload", err);
	json_get_str(&r, "image_digest", JSON_REQUIRED, 128, &digest);
	if (!json_ok(&r) || image_get(c, digest, &image, err) != 0)
		return -1;
	image_done(&image);
	return 0;
}

/* --- later --- */

static void add_end(const struct box *b, cJSON *ret)
{
	auto_free char *path = box_path(b, "ended");
	auto_buf text = BUF_INIT;
	int status = -1, signal_number = 0;
	struct cgroup_harm harm;
	struct id node;

	if (io_read_file(path, 8192, &text, NULL) == 0)
		(void)sscanf(buf_str(&text), "%d %d", &status, &signal_number);
	json_add_i64(ret, "exit_code", signal_number ? 128 + signal_number : status < 0 ? 1 : status);
	json_add_bool(ret, "oom_killed", limits_group(&b->id, &node) && cgroup_harm(&node, &b->id, &harm) && harm.oom_kills > 0);
}

int life_inspect(const struct qemu_config *c, const struct id *sandbox, cJSON *ret, struct error *err)
{
	auto_box b;
	struct process keeper;

	(void)err;
	box_at(c, sandbox, &b);
	if (!box_exists(&b)) {
		json_add_str(ret, "state", "absent");
		return 0;
	}
	if (is_running(&b) && box_process(&b, "keeper", &keeper)) {
		json_add_str(ret, "state", "running");
		json_add_i64(ret, "pid", keeper.pid);
		return 0;
	}
	json_add_str(ret, "state", "exited");
	add_end(&b, ret);
	return 0;
}

int life_stats(const struct qemu_config *c, const struct id *sandbox, cJSON *ret, struct error *err)
{
	auto_box b;
	struct process vm;
	struct cgroup_view v;

	box_at(c, sandbox, &b);
	if (!box_process(&b, "vm", &vm) || !process_lives(&vm))
		return error_set(err, ERR_NOT_FOUND, "the machine does not run");
	if (cgroup_read((pid_t)vm.pid, &v, err) != 0)
		return -1;
	json_add_i64(ret, "cpu_us", v.cpu_used_us);
	json_add_i64(ret, "memory_bytes", v.memory_used);
	if (v.memory_max > 0)
		json_add_i64(ret, "memory_limit_bytes", v.memory_max);
	return 0;
}

int life_deadline(const struct qemu_config *c, const struct id *sandbox, const cJSON *payload, struct error *err)
{
	auto_box b;
	struct json_reader r;
	int64_t deadline_us = 0;

	box_at(c, sandbox, &b);
	json_reader_init(&r, payload, "payload", err);
	json_get_i64(&r, "deadline_us", JSON_REQUIRED, 0, INT64_MAX / 2, &deadline_us);
	if (!json_ok(&r))
		return -1;
	return box_exists(&b) ? write_deadline(&b, deadline_us, err) : error_set(err, ERR_NOT_FOUND, "no such machine");
}
