/* The driver's configuration: an ini file of root's with one section [qemu], every key of it optional. */
#include "daemon/runtime/drivers/qemu/qemu.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/config/ini_doc.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 64 * 1024 };

#define GIB (1024LL * MIB)
#define IMAGE_MAX (16 * GIB)
#define IMAGES_KEPT (20 * GIB)
#define UID_BASE 1778384896 /* far from people and from the usual ranges of subordinate ids */

void config_done(struct qemu_config *c)
{
	free(c->state_dir);
	free(c->qemu);
	free(c->kernel);
	free(c->modules);
	free(c->boot);
	free(c->docker_socket);
	*c = (struct qemu_config){ .state_dir = NULL };
}

static int check_owner(const char *path, struct error *err)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return error_errno(err, "looking at %s", path);
	if ((st.st_uid != 0 && st.st_uid != geteuid()) || st.st_mode & (S_IWGRP | S_IWOTH))
		return error_set(err, ERR_FORBIDDEN, "%s must be root's and writable by nobody else", path);
	return 0;
}

static int take(struct qemu_config *c, const struct ini_item *it, struct error *err)
{
	const struct {
		const char *key;
		char **text;
		int64_t *size;
		bool *flag;
	} rows[] = {
		{ "state_dir", &c->state_dir, NULL, NULL }, { "qemu", &c->qemu, NULL, NULL },       { "kernel", &c->kernel, NULL, NULL },
		{ "modules", &c->modules, NULL, NULL },     { "boot", &c->boot, NULL, NULL },       { "docker_socket", &c->docker_socket, NULL, NULL },
		{ "image_max", NULL, &c->image_max, NULL }, { "images_kept", NULL, &c->images_kept, NULL },
		{ "allow_emulation", NULL, NULL, &c->allow_emulation },
	};

	if (strcmp(it->key, "uid_base") == 0)
		return parse_i64("uid_base", it->value, 65536, 4000000000LL, &c->uid_base, err);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (strcmp(it->key, rows[i].key) != 0)
			continue;
		if (rows[i].size)
			return parse_size(it->key, it->value, MIB, 1LL << 50, rows[i].size, err);
		if (rows[i].flag)
			return parse_bool(it->key, it->value, rows[i].flag, err);
		if (it->value[0] != '/')
			return error_set(err, ERR_INVALID, "%s must be an absolute path", it->key);
		free(*rows[i].text);
		*rows[i].text = xstrdup(it->value);
		return 0;
	}
	return error_set(err, ERR_INVALID, "unknown key '%s'", it->key);
}

static int read_file(struct qemu_config *c, const char *path, struct error *err)
{
	auto_buf text = BUF_INIT;
	auto_ini *doc = NULL;
	struct ini_item it;

	if (check_owner(path, err) != 0 || io_read_file(path, FILE_MAX_BYTES, &text, err) != 0 ||
	    ini_doc_parse(path, buf_str(&text), text.len, &doc, err) != 0)
		return -1;
	for (size_t at = 0; ini_doc_next(doc, &at, &it);) {
		if (strcmp(it.section, "qemu") != 0)
			return error_set(err, ERR_INVALID, "%s:%u: the only section is [qemu]", path, it.line);
		if (it.key && take(c, &it, err) != 0)
			return error_wrap(err, "%s:%u", path, it.line);
	}
	return 0;
}

/* The last in version order that matches, NULL: none. */
static char *newest(const char *pattern)
{
	glob_t g;
	char *best = NULL;

	if (glob(pattern, 0, NULL, &g) != 0)
		return NULL;
	for (size_t i = 0; i < g.gl_pathc; i++) {
		if (best && strverscmp(g.gl_pathv[i], best) <= 0)
			continue;
		free(best);
		best = xstrdup(g.gl_pathv[i]);
	}
	globfree(&g);
	return best;
}

/* Beside this program, as it is built and as it is installed. */
static char *beside(const char *name)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n <= 0)
		return xstrdup(name);
	path[n] = '\0';
	*strrchr(path, '/') = '\0';
	return xasprintf("%s/%s", path, name);
}

/* As installer/microvm-kernel puts it beside this program, else one that is installed. */
static void find_kernel(struct qemu_config *c)
{
	auto_free char *near = beside("kernel/vmlinuz-*");
	const char *version;

	if (!c->kernel)
		c->kernel = newest(near);
	if (!c->kernel)
		c->kernel = newest("/boot/vmlinuz-*-cloud-*");
	if (!c->kernel || c->modules)
		return;
	version = strstr(c->kernel, "vmlinuz-");
	auto_free char *modules = xasprintf("%.*smodules/%s", (int)(version ? version - c->kernel : 0), c->kernel, version ? version + 8 : "");

	c->modules = access(modules, F_OK) == 0 ? steal(&modules) : xasprintf("/lib/modules/%s", version ? version + 8 : "");
}

int config_load(const char *path, struct qemu_config *ret, struct error *err)
{
	struct qemu_config c = { .state_dir = xstrdup("/var/lib/sandbox-driver-qemu"), .qemu = xstrdup("/usr/bin/qemu-system-x86_64"),
		                 .docker_socket = xstrdup("/var/run/docker.sock"), .uid_base = UID_BASE, .image_max = IMAGE_MAX, .images_kept = IMAGES_KEPT };
	int rc = 0;

	c.boot = beside("sandbox-boot");
	if (path || access(QEMU_CONFIG, F_OK) == 0)
		rc = read_file(&c, path ? path : QEMU_CONFIG, err);
	if (rc != 0) {
		config_done(&c);
		return -1;
	}
	find_kernel(&c);
	*ret = c;
	return 0;
}
