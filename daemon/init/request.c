/* From fields to a request: see request.h. */
#include "daemon/init/request.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <stdint.h>

static const enum mux_field exec_fields[] = {
	MUX_F_KIND, MUX_F_WINDOW, MUX_F_OPERATION, MUX_F_ARG, MUX_F_ENV, MUX_F_CWD, MUX_F_USER, MUX_F_TIMEOUT_MS,
	MUX_F_FLAGS, MUX_F_ROWS, MUX_F_COLS, MUX_F_GROUP, MUX_F_KEEP_CAPS,
};

enum { KNOWN_FLAGS = MUX_OPEN_STDIN | MUX_OPEN_TTY | MUX_OPEN_DETACH | MUX_OPEN_SHELL_FALLBACK | MUX_OPEN_MAIN };

void request_done(struct request *r)
{
	strv_done(&r->args);
	strv_done(&r->env);
	free(r->cwd);
	free(r->user);
	r->cwd = r->user = NULL;
}

int request_operation(const struct tlv *t, char ret[static OPERATION_MAX + 1], struct error *err)
{
	size_t n = 0;
	const char *p = tlv_bytes(t, MUX_F_OPERATION, &n);
	if (!p || n == 0 || n > OPERATION_MAX || memchr(p, 0, n))
		return error_set(err, ERR_INVALID, "the operation id is missing or malformed");
	memcpy(ret, p, n);
	ret[n] = '\0';
	return 0;
}

unsigned request_size(const struct tlv *t, enum mux_field f)
{
	uint64_t v = tlv_u64(t, f, 0);
	return v > UINT16_MAX ? UINT16_MAX : (unsigned)v;
}

static size_t name_len(const char *entry)
{
	return strcspn(entry, "=");
}

/* Keeps the last entry of each name, at the place of the first. */
static int take_env(struct strv *env, struct strv *from, struct error *err)
{
	for (size_t i = 0; i < from->len; i++) {
		char *entry = from->items[i];
		size_t n = name_len(entry), at = 0;
		if (n == 0 || entry[n] != '=')
			return error_set(err, ERR_INVALID, "an environment entry is not NAME=value");
		while (at < env->len && strncmp(env->items[at], entry, n + 1) != 0)
			at++;
		from->items[i] = NULL;
		if (at == env->len) {
			strv_take(env, entry);
		} else {
			free(env->items[at]);
			env->items[at] = entry;
		}
	}
	return 0;
}

static int bad_strings(const struct error *why, const char *one, const char *many, size_t most, struct error *err)
{
	if (why->code == ERR_TOO_LARGE)
		return error_set(err, ERR_TOO_LARGE, "the %s are too long: at most %zu, each of at most %d bytes", many, most,
				 LIMIT_ARG_ONE_MAX);
	return error_set(err, ERR_INVALID, "%s holds a NUL byte, which no program can be given", one);
}

static int parse_strings(struct request *r, const struct tlv *t, struct error *err)
{
	auto_strv env = STRV_INIT;
	struct error why = ERROR_INIT;
	if (tlv_strv(t, MUX_F_ARG, LIMIT_ARGS_MAX, LIMIT_ARG_ONE_MAX, &r->args, &why) < 0)
		return bad_strings(&why, "an argument", "arguments", LIMIT_ARGS_MAX, err);
	if (r->args.len == 0 || !r->args.items[0][0])
		return error_set(err, ERR_INVALID, "no program was named");
	if (tlv_strv(t, MUX_F_ENV, LIMIT_ENV_MAX, LIMIT_ARG_ONE_MAX, &env, &why) < 0)
		return bad_strings(&why, "an environment entry", "environment entries", LIMIT_ENV_MAX, err);
	return take_env(&r->env, &env, err);
}

static int parse_groups(struct request *r, const struct tlv *t, struct error *err)
{
	/* Group ids are integers, so they may hold zero bytes: walked as fields, not as strings. */
	size_t n, at = 0;
	const uint8_t *p = tlv_raw(t, &n);
	while (at + 6 <= n) {
		size_t len = (size_t)p[at + 2] << 24 | (size_t)p[at + 3] << 16 | (size_t)p[at + 4] << 8 | p[at + 5];
		struct tlv one;
		if ((p[at] << 8 | p[at + 1]) == MUX_F_GROUP && tlv_parse(&one, p + at, 6 + len, NULL) == 0) {
			uint64_t gid = tlv_u64(&one, MUX_F_GROUP, UINT64_MAX);
			if (gid >= UINT32_MAX || r->group_count == REQUEST_GROUPS_MAX)
				return error_set(err, ERR_INVALID, "the supplementary groups are malformed or more than %d",
						 REQUEST_GROUPS_MAX);
			r->groups[r->group_count++] = (gid_t)gid;
		}
		at += 6 + len;
	}
	return 0;
}

static int parse_places(struct request *r, const struct tlv *t, struct error *err)
{
	if (tlv_str(t, MUX_F_CWD, LIMIT_PATH_BYTES_MAX, &r->cwd, NULL) < 0)
		return error_set(err, ERR_INVALID, "the working directory is malformed or longer than %d bytes", LIMIT_PATH_BYTES_MAX);
	if (tlv_str(t, MUX_F_USER, 256, &r->user, NULL) < 0)
		return error_set(err, ERR_INVALID, "the user is malformed or longer than 256 bytes");
	if (!r->cwd)
		r->cwd = xstrdup("/");
	if (r->cwd[0] != '/')
		return error_set(err, ERR_INVALID, "the working directory must be an absolute path");
	return 0;
}

int request_parse(struct request *ret, const struct tlv *t, struct error *err)
{
	auto_request r = { .cwd = NULL };
	if (tlv_only(t, exec_fields, ARRAY_LEN(exec_fields), err) < 0 || request_operation(t, r.operation, err) < 0 ||
	    parse_strings(&r, t, err) < 0 || parse_groups(&r, t, err) < 0 || parse_places(&r, t, err) < 0)
		return -1;
	r.flags = tlv_u64(t, MUX_F_FLAGS, 0);
	if (r.flags & ~(uint64_t)KNOWN_FLAGS)
		return error_set(err, ERR_INVALID, "a flag is not known to this version of sandbox-init");
	uint64_t timeout = tlv_u64(t, MUX_F_TIMEOUT_MS, 0), window = tlv_u64(t, MUX_F_WINDOW, 0);
	r.timeout_ms = timeout > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)timeout;
	r.window = window > LIMIT_MUX_WINDOW ? LIMIT_MUX_WINDOW : (uint32_t)window;
	r.rows = request_size(t, MUX_F_ROWS);
	r.cols = request_size(t, MUX_F_COLS);
	r.keep_caps = tlv_u64(t, MUX_F_KEEP_CAPS, 0) == 1;
	*ret = r;
	r = (struct request){ .cwd = NULL };
	return 0;
}

const char *request_getenv(const struct request *r, const char *name)
{
	size_t n = strlen(name);
	for (size_t i = 0; i < r->env.len; i++)
		if (strncmp(r->env.items[i], name, n) == 0 && r->env.items[i][n] == '=')
			return r->env.items[i] + n + 1;
	return NULL;
}

void request_setenv(struct request *r, const char *name, const char *value)
{
	if (!request_getenv(r, name))
		strv_take(&r->env, xasprintf("%s=%s", name, value));
}
