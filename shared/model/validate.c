/* The rules that need no policy: see spec_validate and command_validate in model.h. Each message names the field and what is allowed. */
#include "shared/model/model.h"

#include "shared/base/limits.h"
#include "shared/model/egress.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <inttypes.h>
#include <string.h>

enum { USER_MAX_LEN = 128, AGENT_MAX_LEN = 63, REGION_MAX_LEN = 63, SHOWN_MAX = 64 };

/* A user's text inside a message: short and harmless. */
#define SHOWN(text) text_escape((text), strnlen((text), SHOWN_MAX), (char[SHOWN_MAX * 4 + 1]){ 0 }, SHOWN_MAX * 4 + 1)

static int check_range(const char *field, int64_t value, int64_t min, int64_t max, struct error *err)
{
	if (value >= min && value <= max)
		return 0;
	return error_set(err, ERR_INVALID, "%s: %" PRId64 " is out of range (allowed: %" PRId64 " to %" PRId64 ")", field, value, min, max);
}

static int check_count(const char *field, size_t n, size_t max, struct error *err)
{
	return n <= max ? 0 : error_set(err, ERR_INVALID, "%s: %zu entries, at most %zu are allowed", field, n, max);
}

static int check_text(const char *field, const char *text, size_t max, struct error *err)
{
	if (!text || (*text && strlen(text) <= max && label_value_valid(text)))
		return 0;
	return error_set(err, ERR_INVALID, "%s: must be 1 to %zu bytes of printable text", field, max);
}

static int check_resources(const struct resources *r, struct error *err)
{
	if (check_range("spec.resources.cpu_millis", r->cpu_millis, LIMIT_CPU_MILLIS_MIN, LIMIT_CPU_MILLIS_MAX, err) != 0)
		return -1;
	if (check_range("spec.resources.memory_mib", r->memory_mib, LIMIT_MEMORY_MIB_MIN, LIMIT_MEMORY_MIB_MAX, err) != 0)
		return -1;
	if (check_range("spec.resources.disk_mib", r->disk_mib, LIMIT_DISK_MIB_MIN, LIMIT_DISK_MIB_MAX, err) != 0)
		return -1;
	return check_range("spec.resources.pids", r->pids, LIMIT_PIDS_MIN, LIMIT_PIDS_MAX, err);
}

static int check_image(const char *image, struct error *err)
{
	if (!image || !*image)
		return error_set(err, ERR_INVALID, "spec.image: an image is required, for example debian:12");
	size_t n = strlen(image);
	if (n > LIMIT_IMAGE_NAME_MAX)
		return error_set(err, ERR_INVALID, "spec.image: %zu bytes, at most %d are allowed", n, LIMIT_IMAGE_NAME_MAX);
	for (const char *p = image; *p; p++)
		if (*p <= ' ' || *p >= 0x7f)
			return error_set(err, ERR_INVALID, "spec.image: '%s' is no image reference (no blanks, ASCII only)", SHOWN(image));
	return 0;
}

static int check_identity(const struct spec *s, struct error *err)
{
	if (!s->tenant || !tenant_valid(s->tenant))
		return error_set(err, ERR_INVALID, "spec.tenant: must be 1 to 63 of a-z, 0-9, '.', '_', '-', beginning with a letter or digit");
	if (s->name && !name_valid(s->name))
		return error_set(err, ERR_INVALID,
				 "spec.name: '%s' is not allowed (1 to 63 of a-z, 0-9 and '-', beginning with a letter, not hex digits alone)",
				 SHOWN(s->name));
	return check_image(s->image, err);
}

/* One string the kernel has to take; the list's bytes are added up in *total. */
static int check_string(const char *field, const char *s, size_t *total, struct error *err)
{
	size_t n = strlen(s);
	if (n > LIMIT_ARG_ONE_MAX)
		return error_set(err, ERR_TOO_LARGE, "%s: one string has %zu bytes, the kernel takes at most %d (use standard input for more)",
				 field, n, LIMIT_ARG_ONE_MAX);
	*total += n + 16; /* its framing */
	return 0;
}

static int check_total(const char *field, size_t total, struct error *err)
{
	if (total <= LIMIT_MUX_FIELDS_MAX - 2 * LIMIT_ARG_ONE_MAX)
		return 0;
	return error_set(err, ERR_TOO_LARGE, "%s: argument list too long (%zu bytes, at most %d; use standard input for more)", field, total,
			 LIMIT_MUX_FIELDS_MAX - 2 * LIMIT_ARG_ONE_MAX);
}

static int check_argv(const char *field, const struct strv *argv, size_t *total, struct error *err)
{
	if (check_count(field, argv->len, LIMIT_ARGS_MAX, err) != 0)
		return -1;
	for (size_t i = 0; i < argv->len; i++)
		if (check_string(field, argv->items[i], total, err) != 0)
			return -1;
	if (argv->len > 0 && argv->items[0][0] == '\0')
		return error_set(err, ERR_INVALID, "%s: the program's name is empty", field);
	return 0;
}

static int check_map_env(const struct map *env, size_t *total, struct error *err)
{
	if (check_count("spec.env", env->len, LIMIT_ENV_MAX, err) != 0)
		return -1;
	for (size_t i = 0; i < env->len; i++) {
		if (!env_key_valid(env->items[i].key))
			return error_set(err, ERR_INVALID, "spec.env: '%s' is no variable name (letters, digits and '_', no digit first)",
					 SHOWN(env->items[i].key));
		if (check_string("spec.env", env->items[i].key, total, err) != 0 || check_string("spec.env", env->items[i].value, total, err) != 0)
			return -1;
	}
	return 0;
}

static int check_labels(const char *field, const struct map *labels, struct error *err)
{
	if (check_count(field, labels->len, LIMIT_LABELS_MAX, err) != 0)
		return -1;
	for (size_t i = 0; i < labels->len; i++) {
		const char *key = labels->items[i].key;
		if (!label_key_valid(key))
			return error_set(err, ERR_INVALID,
					 "%s: '%s' is no label key (1 to 128 of letters, digits, '.', '_', '-', '/', beginning with a letter or digit)",
					 field, SHOWN(key));
		if (!label_value_valid(labels->items[i].value))
			return error_set(err, ERR_INVALID, "%s: the value of '%s' must be at most 256 bytes of printable text", field, key);
	}
	return 0;
}

static int check_own_labels(const struct map *labels, struct error *err)
{
	for (size_t i = 0; i < labels->len; i++)
		if (strncmp(labels->items[i].key, "io.sandbox.", 11) == 0)
			return error_set(err, ERR_INVALID, "spec.labels: '%s': keys beginning with io.sandbox. are reserved",
					 SHOWN(labels->items[i].key));
	return check_labels("spec.labels", labels, err);
}

static int check_placement(const struct placement *p, struct error *err)
{
	if (check_labels("spec.placement.required_labels", &p->required_labels, err) != 0)
		return -1;
	if (check_text("spec.placement.preferred_region", p->preferred_region, REGION_MAX_LEN, err) != 0)
		return -1;
	const struct strv *keys = &p->anti_affinity_keys;
	if (check_count("spec.placement.anti_affinity_keys", keys->len, LIMIT_LABELS_MAX, err) != 0)
		return -1;
	for (size_t i = 0; i < keys->len; i++)
		if (check_text("spec.placement.anti_affinity_keys", keys->items[i], 128, err) != 0)
			return -1;
	return 0;
}

static bool dns_label_valid(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-");
	return n >= 1 && n <= 63 && s[n] == '\0' && s[0] != '-' && s[n - 1] != '-';
}

static int check_exposures(const struct spec *s, struct error *err)
{
	if (check_count("spec.exposures", s->n_exposures, LIMIT_EXPOSURES_MAX, err) != 0)
		return -1;
	for (size_t i = 0; i < s->n_exposures; i++) {
		const struct exposure *e = &s->exposures[i];
		if (e->container_port == 0)
			return error_set(err, ERR_INVALID, "spec.exposures[%zu].container_port: 0 is out of range (allowed: 1 to 65535)", i);
		if (e->subdomain && !dns_label_valid(e->subdomain))
			return error_set(err, ERR_INVALID,
					 "spec.exposures[%zu].subdomain: must be 1 to 63 of a-z, 0-9 and interior '-'", i);
		for (size_t k = 0; k < i; k++)
			if (s->exposures[k].container_port == e->container_port && s->exposures[k].protocol == e->protocol)
				return error_set(err, ERR_INVALID, "spec.exposures[%zu].container_port: %u is exposed twice", i, e->container_port);
	}
	return 0;
}

static int check_secret(const struct secret_use *u, size_t i, struct error *err)
{
	if (!u->name || !secret_name_valid(u->name))
		return error_set(err, ERR_INVALID, "spec.secrets[%zu].name: must be 1 to %d of letters, digits, '.', '_', '-', beginning with a letter or '_'",
				 i, NAME_MAX_LEN);
	if (!u->env == !u->file)
		return error_set(err, ERR_INVALID, "spec.secrets[%zu]: give either env or file", i);
	if (u->env && (!env_key_valid(u->env) || strlen(u->env) > LIMIT_PATH_BYTES_MAX))
		return error_set(err, ERR_INVALID, "spec.secrets[%zu].env: '%s' is no variable name (letters, digits and '_', no digit first)", i,
				 SHOWN(u->env));
	if (u->file && !secret_file_valid(u->file))
		return error_set(err, ERR_INVALID, "spec.secrets[%zu].file: '%s' is no file name for /run/secrets (letters, digits, '.', '_', '-', no dot first)",
				 i, SHOWN(u->file));
	return 0;
}

static bool same_text(const char *a, const char *b)
{
	return a && b && strcmp(a, b) == 0;
}

static int check_secrets(const struct spec *s, struct error *err)
{
	if (check_count("spec.secrets", s->n_secrets, LIMIT_SECRETS_PER_SANDBOX, err) != 0)
		return -1;
	for (size_t i = 0; i < s->n_secrets; i++) {
		const struct secret_use *u = &s->secrets[i];
		if (check_secret(u, i, err) != 0)
			return -1;
		for (size_t k = 0; k < i; k++)
			if (same_text(u->env, s->secrets[k].env) || same_text(u->file, s->secrets[k].file))
				return error_set(err, ERR_INVALID, "spec.secrets[%zu]: '%s' is given twice", i, u->env ? u->env : u->file);
		if (u->env && map_get(&s->env, u->env))
			return error_set(err, ERR_INVALID, "spec.secrets[%zu].env: '%s' stands in spec.env too", i, u->env);
	}
	return 0;
}

static int check_egress(const struct spec *s, struct error *err)
{
	auto_egress_rules rules = EGRESS_RULES_INIT;
	if (s->egress.len > 0 && s->network != NETWORK_RESTRICTED)
		return error_set(err, ERR_INVALID, "spec.egress: rules are for network restricted_egress; this one is %s", network_text(s->network));
	return egress_rules_from("spec.egress", &s->egress, &rules, err);
}

static int check_ttl(int64_t ttl_ms, struct error *err)
{
	if (ttl_ms >= LIMIT_TTL_MIN_SECONDS * INT64_C(1000) && ttl_ms <= LIMIT_TTL_MAX_SECONDS * INT64_C(1000))
		return 0;
	return error_set(err, ERR_INVALID, "spec.ttl_seconds: %" PRId64 " is out of range (allowed: %d to %d, 7 days)", ttl_ms / 1000,
			 LIMIT_TTL_MIN_SECONDS, LIMIT_TTL_MAX_SECONDS);
}

int spec_validate(const struct spec *s, struct error *err)
{
	size_t total = 0;
	if (check_identity(s, err) != 0 || check_resources(&s->resources, err) != 0 || check_ttl(s->ttl_ms, err) != 0)
		return -1;
	if (s->signals.privileged)
		return error_set(err, ERR_INVALID, "spec.signals.privileged: privileged sandboxes are never accepted");
	if (check_argv("spec.command", &s->command, &total, err) != 0 || check_map_env(&s->env, &total, err) != 0 ||
	    check_total("spec.command and spec.env", total, err) != 0)
		return -1;
	if (check_own_labels(&s->labels, err) != 0 || check_placement(&s->placement, err) != 0 || check_exposures(s, err) != 0 ||
	    check_secrets(s, err) != 0 || check_egress(s, err) != 0)
		return -1;
	return check_text("spec.agent", s->agent, AGENT_MAX_LEN, err);
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Equal keys stand side by side once sorted. */
static int check_unique(char **keys, size_t n, struct error *err)
{
	qsort(keys, n, sizeof(*keys), compare_strings);
	for (size_t i = 1; i < n; i++)
		if (strcmp(keys[i - 1], keys[i]) == 0)
			return error_set(err, ERR_INVALID, "command.env: '%s' is given twice", SHOWN(keys[i]));
	return 0;
}

static int check_env(const struct strv *env, size_t *total, struct error *err)
{
	if (check_count("command.env", env->len, LIMIT_ENV_MAX, err) != 0)
		return -1;
	auto_strv keys = STRV_INIT;
	for (size_t i = 0; i < env->len; i++) {
		const char *item = env->items[i], *equals = strchr(item, '=');
		if (!equals)
			return error_set(err, ERR_INVALID, "command.env: '%s' is not KEY=value", SHOWN(item));
		strv_take(&keys, xstrndup(item, (size_t)(equals - item)));
		if (!env_key_valid(keys.items[i]))
			return error_set(err, ERR_INVALID, "command.env: '%s' is no variable name (letters, digits and '_', no digit first)",
					 SHOWN(keys.items[i]));
		if (check_string("command.env", item, total, err) != 0)
			return -1;
	}
	return keys.len ? check_unique(keys.items, keys.len, err) : 0;
}

static int check_cwd(const char *cwd, struct error *err)
{
	if (!cwd)
		return 0;
	if (*cwd != '/')
		return error_set(err, ERR_INVALID, "command.cwd: '%s' is not an absolute path", SHOWN(cwd));
	size_t n = strlen(cwd);
	if (n > LIMIT_PATH_BYTES_MAX)
		return error_set(err, ERR_INVALID, "command.cwd: %zu bytes, at most %d are allowed", n, LIMIT_PATH_BYTES_MAX);
	return 0;
}

/* "name", "uid", "name:group", "uid:gid"; whether they exist only the sandbox knows. */
static int check_user(const char *user, struct error *err)
{
	if (!user)
		return 0;
	size_t n = strlen(user), name = strcspn(user, ":");
	bool good = n <= USER_MAX_LEN && name > 0 && (user[name] == '\0' || (user[name + 1] && !strchr(user + name + 1, ':')));
	for (const char *p = user; good && *p; p++)
		good = (unsigned char)*p > ' ' && *p != 0x7f;
	return good ? 0 : error_set(err, ERR_INVALID, "command.user: '%s' is not USER or USER:GROUP (names or numbers)", SHOWN(user));
}

int command_validate(const struct command *c, struct error *err)
{
	size_t total = 0;
	if (c->argv.len == 0)
		return error_set(err, ERR_INVALID, "command.argv: a command is required");
	if (check_argv("command.argv", &c->argv, &total, err) != 0 || check_env(&c->env, &total, err) != 0 ||
	    check_total("command.argv and command.env", total, err) != 0)
		return -1;
	if (check_cwd(c->cwd, err) != 0 || check_user(c->user, err) != 0)
		return -1;
	if (c->timeout_ms < 0 || c->timeout_ms > LIMIT_EXEC_TIMEOUT_MAX_SECONDS * INT64_C(1000))
		return error_set(err, ERR_INVALID, "command.timeout_seconds: %" PRId64 " is out of range (allowed: 1 to %d)", c->timeout_ms / 1000,
				 LIMIT_EXEC_TIMEOUT_MAX_SECONDS);
	return 0;
}
