/*
 * What was asked of the engine against what it says it set. An engine that cannot do something often drops it with a
 * warning, or without one: here that fails the create. Every member of the request must come back with its value, and
 * the members that would widen the sandbox must be absent or empty.
 */
#include "daemon/runtime/docker_internal.h"

#include <string.h>

static bool falsy(const cJSON *v)
{
	return !v || cJSON_IsNull(v) || cJSON_IsFalse(v) || (cJSON_IsNumber(v) && v->valuedouble == 0) ||
	       (cJSON_IsString(v) && v->valuestring[0] == '\0') || ((cJSON_IsArray(v) || cJSON_IsObject(v)) && !v->child);
}

/* Engines write capabilities with and without their prefix. */
static const char *bare_word(const char *s)
{
	return strncmp(s, "CAP_", 4) == 0 ? s + 4 : s;
}

static int differs(const char *path, const cJSON *asked, const cJSON *seen, struct error *err)
{
	auto_free char *want = cJSON_PrintUnformatted(asked);
	auto_free char *got = seen ? cJSON_PrintUnformatted(seen) : xstrdup("nothing");

	return error_set(err, ERR_UNAVAILABLE, "the Docker Engine set %s to %.200s where %.200s was asked: this limit cannot be enforced here", path,
	                 got ? got : "?", want ? want : "?");
}

static int compare(const char *path, const cJSON *asked, const cJSON *seen, struct error *err);

static int compare_array(const char *path, const cJSON *asked, const cJSON *seen, struct error *err)
{
	int n = cJSON_GetArraySize(asked);

	if (!cJSON_IsArray(seen) || cJSON_GetArraySize(seen) != n)
		return differs(path, asked, seen, err);
	for (int i = 0; i < n; i++)
		if (compare(path, cJSON_GetArrayItem(asked, i), cJSON_GetArrayItem(seen, i), err) != 0)
			return -1;
	return 0;
}

/* Capability lists come back in another order from some engines. */
static int compare_words(const char *path, const cJSON *asked, const cJSON *seen, struct error *err)
{
	const cJSON *a, *s;

	if (!cJSON_IsArray(seen) || cJSON_GetArraySize(seen) != cJSON_GetArraySize(asked))
		return differs(path, asked, seen, err);
	cJSON_ArrayForEach(a, asked)
	{
		bool found = false;

		cJSON_ArrayForEach(s, seen)
			found = found || (cJSON_IsString(s) && strcmp(bare_word(s->valuestring), bare_word(a->valuestring)) == 0);
		if (!found)
			return differs(path, asked, seen, err);
	}
	return 0;
}

static int compare_object(const char *path, const cJSON *asked, const cJSON *seen, struct error *err)
{
	const cJSON *a;

	cJSON_ArrayForEach(a, asked)
	{
		auto_free char *below = xasprintf("%s%s%s", path, *path ? "." : "", a->string);
		const cJSON *s = cJSON_GetObjectItemCaseSensitive(seen, a->string);
		bool caps = strcmp(a->string, "CapAdd") == 0 || strcmp(a->string, "CapDrop") == 0;

		if ((caps ? compare_words(below, a, s, err) : compare(below, a, s, err)) != 0)
			return -1;
	}
	return 0;
}

static int compare(const char *path, const cJSON *asked, const cJSON *seen, struct error *err)
{
	if (falsy(asked) && falsy(seen))
		return 0;
	if (cJSON_IsObject(asked))
		return compare_object(path, asked, seen, err);
	if (cJSON_IsArray(asked))
		return compare_array(path, asked, seen, err);
	if (cJSON_IsString(asked) && cJSON_IsString(seen) && strcmp(asked->valuestring, seen->valuestring) == 0)
		return 0;
	if (cJSON_IsNumber(asked) && cJSON_IsNumber(seen) && asked->valuedouble == seen->valuedouble)
		return 0;
	if (cJSON_IsTrue(asked) && cJSON_IsTrue(seen))
		return 0;
	return differs(path, asked, seen, err);
}

/* Nothing of this is ever asked for; each would give the sandbox something of the host. */
static const char *const must_be_empty[] = {
	"Privileged",     "Devices", "DeviceRequests", "DeviceCgroupRules", "PidMode", "UTSMode",      "UsernsMode", "CgroupParent",
	"VolumesFrom",    "Binds",   "GroupAdd",       "PortBindings",      "Links",   "OomKillDisable", "AutoRemove", "ExtraHosts",
};

static int verify_host(const cJSON *host, struct error *err)
{
	for (size_t i = 0; i < ARRAY_LEN(must_be_empty); i++) {
		const cJSON *v = cJSON_GetObjectItemCaseSensitive(host, must_be_empty[i]);

		if (!falsy(v))
			return error_set(err, ERR_UNAVAILABLE, "the Docker Engine set HostConfig.%s, which was not asked", must_be_empty[i]);
	}
	if (falsy(docker_at(host, "MaskedPaths")) || falsy(docker_at(host, "ReadonlyPaths")))
		return error_set(err, ERR_UNAVAILABLE, "the Docker Engine masks nothing of /proc");
	return 0;
}

int docker_verify(const cJSON *asked, const cJSON *seen, struct error *err)
{
	const cJSON *config = docker_at(seen, "Config"), *host = docker_at(seen, "HostConfig"), *a;

	if (!cJSON_IsObject(config) || !cJSON_IsObject(host))
		return error_set(err, ERR_PROTOCOL, "the Docker Engine's description of a container has no Config or HostConfig");
	cJSON_ArrayForEach(a, asked)
	{
		bool is_host = strcmp(a->string, "HostConfig") == 0;
		/* The image is asked for by id and comes back as the engine likes to name it: its id is another member. */
		const cJSON *s = is_host ? host : strcmp(a->string, "Image") == 0 ? docker_at(seen, "Image") : docker_at(config, a->string);

		if (compare(a->string, a, s, err) != 0)
			return -1;
	}
	return verify_host(host, err);
}
