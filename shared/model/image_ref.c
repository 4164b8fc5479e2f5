/* Image references: parsing and the registries policy. */
#include "shared/model/image_ref.h"

#include "shared/base/limits.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { DIGEST_HEX = 64, DIGEST_PREFIX = 7 };

static bool lower_hex(const char *p, size_t n)
{
	return strspn(p, "0123456789abcdef") >= n;
}

static bool is_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool digest_valid(const char *p)
{
	return strncmp(p, "sha256:", DIGEST_PREFIX) == 0 && strlen(p) == DIGEST_PREFIX + DIGEST_HEX && lower_hex(p + DIGEST_PREFIX, DIGEST_HEX);
}

static bool is_id(const char *text)
{
	size_t n = strlen(text);

	if (strncmp(text, "sha256:", DIGEST_PREFIX) == 0)
		return digest_valid(text);
	return n == DIGEST_HEX && lower_hex(text, n);
}

/* Lower-case letters, digits, and between them '.', '_', '__' or dashes; components parted by '/'. */
static bool repository_valid(const char *p)
{
	bool after_alnum = false;

	for (; *p; p++) {
		if ((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9')) {
			after_alnum = true;
			continue;
		}
		if (!after_alnum || !p[1])
			return false;
		if (*p == '_' && p[1] == '_')
			p++;
		else if (*p == '-')
			while (p[1] == '-')
				p++;
		else if (*p != '.' && *p != '_' && *p != '/')
			return false;
		after_alnum = false;
	}
	return after_alnum;
}

static bool registry_valid(const char *p)
{
	const char *port = strrchr(p, ':');
	size_t host = port ? (size_t)(port - p) : strlen(p);

	if (port && (strspn(port + 1, "0123456789") != strlen(port + 1) || !port[1] || strlen(port + 1) > 5))
		return false;
	if (host == 0 || !is_alnum(p[0]) || !is_alnum(p[host - 1]))
		return false;
	for (size_t i = 0; i < host; i++)
		if (!is_alnum(p[i]) && p[i] != '.' && p[i] != '-')
			return false;
	return true;
}

static bool tag_valid(const char *p)
{
	if (!is_alnum(p[0]) && p[0] != '_')
		return false;
	for (const char *c = p; *c; c++)
		if (!is_alnum(*c) && *c != '_' && *c != '.' && *c != '-')
			return false;
	return strlen(p) <= 128;
}

/* The first component is a registry when it could not be a user name: it has a dot or a port, or is localhost. */
static bool names_registry(const char *p, size_t n)
{
	return memchr(p, '.', n) || memchr(p, ':', n) || (n == 9 && memcmp(p, "localhost", 9) == 0);
}

static int refuse(const char *text, const char *why, struct error *err)
{
	return error_set(err, ERR_INVALID, "image '%s': %s", text, why);
}

static int split_tail(const char *text, char *name, struct image_ref *r, struct error *err)
{
	char *at = strchr(name, '@'), *slash, *colon;

	if (at) {
		*at = '\0';
		if (!digest_valid(at + 1))
			return refuse(text, "what follows '@' is not sha256: and 64 hex digits", err);
		snprintf(r->digest, sizeof(r->digest), "%s", at + 1);
	}
	slash = strrchr(name, '/');
	colon = strrchr(slash ? slash : name, ':');
	if (colon) {
		*colon = '\0';
		if (!tag_valid(colon + 1))
			return refuse(text, "the tag is not 1 to 128 of letters, digits, '_', '.', '-' (starting with a letter, digit or '_')", err);
		snprintf(r->tag, sizeof(r->tag), "%s", colon + 1);
	} else if (!at) {
		snprintf(r->tag, sizeof(r->tag), "latest");
	}
	return 0;
}

static int split_name(const char *text, const char *name, struct image_ref *r, struct error *err)
{
	const char *slash = strchr(name, '/'), *rest = name;

	snprintf(r->registry, sizeof(r->registry), "docker.io");
	if (slash && names_registry(name, (size_t)(slash - name))) {
		if ((size_t)(slash - name) >= sizeof(r->registry))
			return refuse(text, "the registry's name is too long", err);
		snprintf(r->registry, sizeof(r->registry), "%.*s", (int)(slash - name), name);
		rest = slash + 1;
	}
	if (!registry_valid(r->registry))
		return refuse(text, "the part before the first '/' is no registry (host or host:port)", err);
	if (strcmp(r->registry, "index.docker.io") == 0)
		snprintf(r->registry, sizeof(r->registry), "docker.io");
	if (!*rest)
		return refuse(text, "it has no name", err);
	if (strlen(rest) > 240)
		return refuse(text, "the name is over 240 bytes", err);
	if (!repository_valid(rest))
		return refuse(text, "the name may hold lower-case letters, digits and single '.', '_', '-', '/' between them", err);
	snprintf(r->repository, sizeof(r->repository), "%s%s",
	         strcmp(r->registry, "docker.io") == 0 && !strchr(rest, '/') ? "library/" : "", rest);
	return 0;
}

static void set_familiar(struct image_ref *r)
{
	bool hub = strcmp(r->registry, "docker.io") == 0;
	const char *path = r->repository;

	if (hub && strncmp(path, "library/", 8) == 0)
		path += 8;
	snprintf(r->familiar, sizeof(r->familiar), "%s%s%s%s%s%s%s", hub ? "" : r->registry, hub ? "" : "/", path, r->tag[0] ? ":" : "",
	         r->tag, r->digest[0] ? "@" : "", r->digest);
}

int image_ref_parse(const char *text, struct image_ref *ret, struct error *err)
{
	struct image_ref r = { .is_id = false };
	char name[LIMIT_IMAGE_NAME_MAX + 1];

	if (!text || !*text)
		return error_set(err, ERR_INVALID, "image: empty");
	if (strlen(text) > LIMIT_IMAGE_NAME_MAX)
		return error_set(err, ERR_INVALID, "image: over %d bytes", LIMIT_IMAGE_NAME_MAX);
	snprintf(name, sizeof(name), "%s", text);
	if (is_id(text)) {
		r.is_id = true;
		snprintf(r.digest, sizeof(r.digest), "sha256:%.64s", strchr(text, ':') ? name + DIGEST_PREFIX : name);
		snprintf(r.familiar, sizeof(r.familiar), "%s", r.digest);
	} else if (strncmp(text, "sha256:", DIGEST_PREFIX) == 0) {
		return refuse(text, "an image id is sha256: and 64 hex digits", err);
	} else {
		if (split_tail(text, name, &r, err) != 0 || split_name(text, name, &r, err) != 0)
			return -1;
		set_familiar(&r);
	}
	*ret = r;
	return 0;
}

static bool entry_matches(const struct image_ref *ref, const char *entry, size_t n, bool present)
{
	const char *slash = memchr(entry, '/', n);
	size_t host = slash ? (size_t)(slash - entry) : n, path = n - host, have = strlen(ref->registry);

	if (n == 1 && entry[0] == '*')
		return true;
	if (n == 5 && memcmp(entry, "local", 5) == 0)
		return present;
	if (ref->is_id)
		return false;
	if (host > 2 && entry[0] == '*' && entry[1] == '.') {
		if (have < host || strncasecmp(ref->registry + have - (host - 1), entry + 1, host - 1) != 0)
			return false;
	} else if (have != host || strncasecmp(ref->registry, entry, host) != 0) {
		return false;
	}
	if (path <= 1)
		return true;
	if (entry[n - 1] == '/')
		path--;
	return strncmp(ref->repository, slash + 1, path - 1) == 0 && (ref->repository[path - 1] == '/' || ref->repository[path - 1] == '\0');
}

bool image_ref_allowed(const struct image_ref *ref, const char *list, bool present)
{
	while (*list) {
		size_t skip = strspn(list, ", \t"), n;

		list += skip;
		n = strcspn(list, ", \t");
		if (n > 0 && entry_matches(ref, list, n, present))
			return true;
		list += n;
	}
	return false;
}
