/* The guest's first file system, a cpio archive ("newc") built anew for each machine: it carries that machine's orders. */
#include "daemon/runtime/drivers/qemu/qemu.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROGRAM_MAX = 16 * MIB, SEED_LEN = 32 };

/* In the order in which they load. */
static const char *const modules[] = {
	"drivers/virtio/virtio_ring", "drivers/virtio/virtio",      "drivers/virtio/virtio_mmio", "drivers/char/virtio_console",
	"drivers/block/virtio_blk",   "fs/overlayfs/overlay",
};

static void pad(struct buf *b)
{
	static const char zero[4];

	buf_add(b, zero, (4 - b->len % 4) % 4);
}

static void add(struct buf *b, const char *name, mode_t mode, const void *p, size_t n)
{
	static unsigned inode;

	buf_addf(b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", ++inode, (unsigned)mode, 0U, 0U, 1U, 0U, (unsigned)n, 0U, 0U, 0U, 0U,
	         (unsigned)strlen(name) + 1, 0U);
	buf_add(b, name, strlen(name) + 1);
	pad(b);
	buf_add(b, p, n);
	pad(b);
}

static int add_file(struct buf *b, const char *name, mode_t mode, const char *path, struct error *err)
{
	auto_buf text = BUF_INIT;

	if (io_read_file(path, PROGRAM_MAX, &text, err) != 0)
		return -1;
	add(b, name, S_IFREG | mode, text.data, text.len);
	return 0;
}

static bool is_builtin(const char *builtin, const char *module)
{
	auto_free char *line = xasprintf("kernel/%s.ko\n", module);

	return strstr(builtin, line) != NULL;
}

/* Adds it and its record; one that the kernel holds already needs neither. */
static int add_module(struct buf *b, struct buf *config, const struct qemu_config *c, const char *module, const char *builtin, struct error *err)
{
	static const char *const endings[] = { ".ko", ".ko.xz", ".ko.zst", ".ko.gz" };

	for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
		auto_free char *path = xasprintf("%s/kernel/%s%s", c->modules, module, endings[i]);
		auto_free char *name = xasprintf("m/%s%s", strrchr(module, '/') + 1, endings[i]);

		if (access(path, R_OK) != 0)
			continue;
		buf_addf(config, "module=/%s%c", name, '\0');
		return add_file(b, name, 0400, path, err);
	}
	return is_builtin(builtin, module) ? 0 : error_set(err, ERR_UNAVAILABLE, "the kernel lacks %s below %s", module, c->modules);
}

static int add_modules(struct buf *b, struct buf *config, const struct qemu_config *c, struct error *err)
{
	auto_free char *list = xasprintf("%s/modules.builtin", c->modules);
	auto_buf builtin = BUF_INIT;

	if (io_read_file(list, MIB, &builtin, err) != 0)
		return -1;
	add(b, "m", S_IFDIR | 0700, NULL, 0);
	for (size_t i = 0; i < ARRAY_LEN(modules); i++)
		if (add_module(b, config, c, modules[i], buf_str(&builtin), err) != 0)
			return -1;
	return 0;
}

static void add_orders(struct buf *config, const struct guest *g)
{
	uint8_t seed[SEED_LEN];

	buf_addf(config, "hostname=%s%c", g->hostname, '\0');
	buf_addf(config, "deadline-us=%lld%c", (long long)g->deadline_us, '\0');
	buf_addf(config, "grace-ms=%lld%c", (long long)g->grace_ms, '\0');
	buf_addf(config, "now-us=%lld%c", (long long)clock_wall_us(), '\0');
	buf_addf(config, "memory=%lld%c", (long long)g->memory, '\0');
	buf_addf(config, "pids=%lld%c", (long long)g->pids, '\0');
	buf_addf(config, "uid=%u%cgid=%u%c", (unsigned)g->uid, '\0', (unsigned)g->gid, '\0');
	if (g->writable)
		buf_add(config, "writable=1", sizeof("writable=1"));
	if (g->exercise)
		buf_add(config, "exercise=1", sizeof("exercise=1"));
	for (size_t i = 0; g->volumes && i < g->volumes->len; i++)
		buf_addf(config, "tmpfs=%s%c", g->volumes->items[i], '\0');
	buf_adds(config, "seed=");
	random_bytes(seed, sizeof(seed));
	for (size_t i = 0; i < sizeof(seed); i++)
		buf_addf(config, "%02x", seed[i]);
	buf_addc(config, '\0');
}

int initrd_write(const struct qemu_config *c, const struct guest *g, const char *init_path, const char *path, struct error *err)
{
	static const char *const dirs[] = { "dev", "proc", "sys" };
	auto_buf b = BUF_INIT, config = BUF_INIT;

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		add(&b, dirs[i], S_IFDIR | 0755, NULL, 0);
	if (add_file(&b, "init", 0500, c->boot, err) != 0 || add_file(&b, "sandbox-init", 0500, init_path, err) != 0 ||
	    add_modules(&b, &config, c, err) != 0)
		return -1;
	add_orders(&config, g);
	add(&b, "config", S_IFREG | 0400, config.data, config.len);
	add(&b, "TRAILER!!!", 0, NULL, 0);
	return io_write_file_atomic(path, b.data, b.len, 0600, false, err);
}
