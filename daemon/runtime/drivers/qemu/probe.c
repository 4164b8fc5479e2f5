/*
 * The probe boots a machine and lets it run into its limits: its own kernel's for memory and PIDs, the disk's end, and the host's for the
 * processor. What was seen is kept for this boot of the host and these very files, so that a restarted worker does not wait for it again.
 */
#include "daemon/runtime/drivers/qemu/qemu.h"

#include "daemon/runtime/cgroup.h"
#include "daemon/worker/workspace_image.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KVM_MS = 6 * 1000, EMULATED_MS = 36 * 1000, NOTE_MAX = 8192, NOTE_AGE_S = 24 * 3600, SAID_MAX = 512,
       PROBE_MEMORY_MIB = 32, PROBE_PIDS = 8, PROBE_DISK_MIB = 16, PROBE_CPU_MILLIS = 100, POLL_US = 5000 };

/* --- what was seen before --- */

static void add_file(struct buf *key, const char *path)
{
	struct stat st = { .st_ino = 0 };

	(void)stat(path, &st);
	buf_addf(key, "%s %llu %lld %lld\n", path, (unsigned long long)st.st_ino, (long long)st.st_size, (long long)st.st_mtime);
}

static char *own_path(const char *name)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	path[n > 0 ? n : 0] = '\0';
	return n > 0 && strrchr(path, '/') ? xasprintf("%.*s/%s", (int)(strrchr(path, '/') - path), path, name) : xstrdup(path);
}

static char *key_of(const struct qemu_config *c)
{
	auto_buf key = BUF_INIT, boot = BUF_INIT;
	auto_free char *self = own_path("sandbox-driver-qemu");

	if (io_read_file("/proc/sys/kernel/random/boot_id", 64, &boot, NULL) != 0)
		return NULL;
	buf_addf(&key, "%s%s %d\n", buf_str(&boot), SANDBOX_VERSION, c->allow_emulation);
	add_file(&key, c->qemu);
	add_file(&key, c->kernel);
	add_file(&key, c->boot);
	add_file(&key, self);
	add_file(&key, "/dev/kvm");
	return buf_steal(&key);
}

static char *note_path(const struct qemu_config *c)
{
	return xasprintf("%s/probe", c->state_dir);
}

static bool read_note(const struct qemu_config *c, bool *ret_emulated)
{
	auto_free char *path = note_path(c);
	auto_free char *key = key_of(c);
	auto_buf text = BUF_INIT;
	struct stat st;

	if (!key || stat(path, &st) != 0 || st.st_mtime + NOTE_AGE_S < time(NULL) || io_read_file(path, NOTE_MAX, &text, NULL) != 0)
		return false;
	*ret_emulated = strncmp(buf_str(&text), "emulated\n", 9) == 0;
	return strcmp(strchrnul(buf_str(&text), '\n') + 1, key) == 0;
}

static void write_note(const struct qemu_config *c, bool emulated)
{
	auto_free char *path = note_path(c);
	auto_free char *key = key_of(c);
	auto_free char *text = xasprintf("%s\n%s", emulated ? "emulated" : "kvm", key ? key : "");

	(void)io_write_file_atomic(path, text, strlen(text), 0600, false, NULL);
}

/* --- a machine that tries itself --- */

struct trial {
	const struct qemu_config *config;
	struct box box;
	bool emulated;
	struct vm vm;
	int64_t until_ms;
	char said[SAID_MAX], console[SAID_MAX];
	size_t said_len, console_len;
};

static int prepare_disk(const struct qemu_config *c, const struct box *b, struct error *err)
{
	auto_free char *templates = xasprintf("%s/templates", c->state_dir);
	auto_free char *path = box_path(b, "disk.img");
	auto_free char *template = NULL;
	auto_close int lock = state_lock(c, "templates", err), fd = -1;

	return lock < 0 || workspace_template(templates, PROBE_DISK_MIB, &template, err) != 0 ? -1 : workspace_image(template, path, &fd, err);
}

static int start(struct trial *t, struct error *err)
{
	const struct qemu_config *c = t->config;
	struct image image = { .path = NULL };
	struct guest g = { .hostname = "probe", .memory = PROBE_MEMORY_MIB * MIB, .pids = PROBE_PIDS, .exercise = true };
	struct machine m = { .config = c, .box = &t->box, .ram_mib = PROBE_MEMORY_MIB + GUEST_MIB, .cpus = 1, .emulated = t->emulated };
	auto_free char *initrd = box_path(&t->box, "initrd");
	auto_free char *init = own_path("sandbox-boot"); /* no process 1 is needed: any program stands for it */
	int rc;

	if (box_make(c, &t->box, &m.uid, err) != 0 || image_empty(c, &image, err) != 0)
		return -1;
	m.image = image.path;
	rc = prepare_disk(c, &t->box, err);
	if (rc == 0)
		rc = initrd_write(c, &g, init, initrd, err);
	if (rc == 0)
		rc = limits_set(&t->box.id, m.ram_mib, 0, err);
	if (rc == 0)
		rc = vm_start(&m, &t->vm, err);
	image_done(&image);
	return rc;
}

static void collect(int *fd, char *to, size_t *len)
{
	char chunk[SAID_MAX];
	ssize_t n = read(*fd, chunk, sizeof(chunk));

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		close_fdp(fd);
	for (ssize_t i = 0; i < n && *len < SAID_MAX - 1; i++)
		to[(*len)++] = chunk[i];
	to[*len] = '\0';
}

/* Until the port has said word and a line's end, or the machine has ended, or the time has. */
static bool wait_for(struct trial *t, const char *word)
{
	for (;;) {
		struct pollfd p[] = { { .fd = t->vm.port, .events = POLLIN }, { .fd = t->vm.console, .events = POLLIN } };
		int64_t left = t->until_ms - clock_mono_ms();
		const char *at = strstr(t->said, word);

		if (at && strchr(at, '\n'))
			return true;
		if (left <= 0 || (t->vm.port < 0 && t->vm.console < 0) || poll(p, 2, (int)left) < 0)
			return false;
		if (p[0].revents)
			collect(&t->vm.port, t->said, &t->said_len);
		if (p[1].revents)
			collect(&t->vm.console, t->console, &t->console_len);
	}
}

/* The guest spins: seen when the kernel stops it. */
static bool cpu_holds(struct trial *t)
{
	struct id node;
	struct cgroup_harm harm;

	if (!limits_group(&t->box.id, &node))
		return false;
	while (clock_mono_ms() < t->until_ms) {
		if (cgroup_harm(&node, &t->box.id, &harm) && harm.throttled > 0)
			return true;
		usleep(POLL_US);
	}
	return false;
}

static int judge(struct trial *t, struct error *err)
{
	bool late = clock_mono_ms() >= t->until_ms;

	if (late)
		return error_set(err, ERR_TIMEOUT, "a machine did not boot in time (%s)", t->emulated ? "emulated" : "KVM");
	if (!strstr(t->said, "memory=1 pids=1 disk=1"))
		return error_set(err, ERR_UNAVAILABLE, "a machine did not boot or its limits did not hold: %s%.200s", t->said, t->console);
	if (limits_set(&t->box.id, PROBE_MEMORY_MIB + GUEST_MIB, PROBE_CPU_MILLIS, err) != 0)
		return -1;
	if (!cpu_holds(t))
		return error_set(err, ERR_UNAVAILABLE, "the host's CPU limit was not seen to hold a machine");
	return 0;
}

static int try(const struct qemu_config *c, const struct id *sandbox, bool emulated, struct error *err)
{
	struct trial t = { .config = c, .emulated = emulated, .vm = VM_INIT, .until_ms = clock_mono_ms() + (emulated ? EMULATED_MS : KVM_MS) };
	int rc;

	box_at(c, sandbox, &t.box);
	rc = box_remove(&t.box, err);
	if (rc == 0)
		rc = start(&t, err);
	if (rc == 0) {
		wait_for(&t, "disk=");
		rc = judge(&t, err);
		kill(t.vm.pid, SIGKILL);
		waitpid(t.vm.pid, NULL, 0);
	}
	close_fdp(&t.vm.port);
	close_fdp(&t.vm.console);
	if (box_remove(&t.box, NULL) != 0)
		rc = rc == 0 ? error_set(err, ERR_UNAVAILABLE, "the probe's machine did not end") : rc;
	box_done(&t.box);
	return rc;
}

static int check_parts(const struct qemu_config *c, struct error *err)
{
	if (geteuid() != 0)
		return error_set(err, ERR_FORBIDDEN, "root is needed: each machine gets a user, namespaces and a control group of its own");
	if (access(c->qemu, X_OK) != 0)
		return error_set(err, ERR_UNAVAILABLE, "%s is not there (package qemu-system-x86)", c->qemu);
	if (!c->kernel || access(c->kernel, R_OK) != 0)
		return error_set(err, ERR_UNAVAILABLE, "no kernel for machines: installer/microvm-kernel fetches one, or name one in " QEMU_CONFIG);
	if (access(c->boot, X_OK) != 0)
		return error_set(err, ERR_UNAVAILABLE, "%s is not there: it is installed with this driver", c->boot);
	return 0;
}

int probe_acceleration(const struct qemu_config *c, const struct id *sandbox, bool *ret_emulated, struct error *err)
{
	struct error kvm = ERROR_INIT, emulated = ERROR_INIT;

	if (check_parts(c, err) != 0)
		return -1;
	if (read_note(c, ret_emulated))
		return 0;
	if (access("/dev/kvm", F_OK) != 0)
		error_set(&kvm, ERR_UNAVAILABLE, "there is no /dev/kvm");
	else if (try(c, sandbox, false, &kvm) == 0) {
		*ret_emulated = false;
		write_note(c, false);
		return 0;
	}
	if (!c->allow_emulation)
		return error_set(err, ERR_UNAVAILABLE, "KVM is required: %.300s", kvm.message);
	if (try(c, sandbox, true, &emulated) != 0)
		return error_set(err, ERR_UNAVAILABLE, "KVM: %.90s; emulation: %.300s", kvm.message, emulated.message);
	*ret_emulated = true;
	write_note(c, true);
	return 0;
}

int probe(const struct qemu_config *c, const struct id *sandbox, cJSON *ret, struct error *err)
{
	static const char *const actions[] = { "inspect", "kill", "stats", "prepare", "deadline" };
	bool emulated;
	cJSON *list;

	if (probe_acceleration(c, sandbox, &emulated, err) != 0)
		return -1;
	json_add_str(ret, "name", emulated ? "qemu (emulated)" : "qemu (KVM)");
	json_add_str(ret, "version", SANDBOX_VERSION);
	list = cJSON_AddArrayToObject(ret, "tiers");
	cJSON_AddItemToArray(list, cJSON_CreateString("microvm"));
	list = cJSON_AddArrayToObject(ret, "actions");
	for (size_t i = 0; i < ARRAY_LEN(actions); i++)
		cJSON_AddItemToArray(list, cJSON_CreateString(actions[i]));
	json_add_str(ret, "commands", "init");
	json_add_str(ret, "images", "engine");
	if (emulated)
		json_add_str(ret, "development", "machines are emulated: slow, and never meant to stand against attackers");
	return 0;
}
