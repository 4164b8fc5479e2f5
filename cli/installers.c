/* See installers.h. The command's own message names a file, not the way out. */
#include "cli/installers.h"

#include "cli/session.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <stdio.h>
#include <string.h>

static const char *const programs[] = { "apt", "apt-get", "aptitude", "dpkg", "apk", "dnf", "microdnf", "yum", "rpm", "zypper", "pacman" };

static bool is_one(const char *word, size_t n)
{
	for (size_t i = 0; i < ARRAY_LEN(programs); i++)
		if (strlen(programs[i]) == n && strncmp(word, programs[i], n) == 0)
			return true;
	return false;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static bool line_has_one(const char *line)
{
	static const char between[] = " \t\n;&|()";
	for (const char *p = line + strspn(line, between); *p; p += strspn(p, between)) {
		size_t n = strcspn(p, between);
		if (is_one(p, n))
			return true;
		p += n;
	}
	return false;
}

bool installer_named(const struct words *argv)
{
	if (argv->len == 0)
		return false;
	const char *name = base_name(argv->items[0]);
	if (is_one(name, strlen(name)))
		return true;
	size_t n = strlen(name);
	bool shell = n >= 2 && strcmp(name + n - 2, "sh") == 0;
	return shell && argv->len > 2 && argv->items[1][0] == '-' && strchr(argv->items[1], 'c') && line_has_one(argv->items[2]);
}

void installer_hint(struct cli *cli, const char *sandbox)
{
	auto_free char *target = session_path("/v1/sandboxes/%s", sandbox);
	struct call c = { .method = "GET", .target = target, .no_start = true };
	struct error ignored = ERROR_INIT;
	auto_json *answer = NULL;
	if (session_call(cli, &c, &answer, &ignored) != 0)
		return;
	const cJSON *s = cJSON_GetObjectItemCaseSensitive(answer, "sandbox"), *spec = cJSON_GetObjectItemCaseSensitive(s ? s : answer, "spec");
	if (!spec || cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(spec, "writable_root")))
		return;
	fprintf(stderr, "hint: the root file system of this sandbox is read-only; package managers need one created with --writable-root\n");
}
