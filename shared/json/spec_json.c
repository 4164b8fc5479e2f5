/* Specs and commands as the API's JSON: see model_json.h. Every field a request may leave out has the API's default. */
#include "shared/json/model_json.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>

/* Generous type bounds: the rules with their own messages are spec_validate's and command_validate's. */
enum { WORD_MAX = 1024, VALUE_MAX = LIMIT_JSON_BYTES_MAX };

static void add_resources(cJSON *j, const struct resources *r)
{
	cJSON *o = cJSON_AddObjectToObject(j, "resources");
	json_add_i64(o, "cpu_millis", r->cpu_millis);
	json_add_i64(o, "memory_mib", r->memory_mib);
	json_add_i64(o, "disk_mib", r->disk_mib);
	json_add_i64(o, "pids", r->pids);
}

static void add_signals(cJSON *j, const struct signals *s)
{
	cJSON *o = cJSON_AddObjectToObject(j, "signals");
	json_add_bool(o, "untrusted_repository", s->untrusted_repository);
	json_add_bool(o, "executes_generated_code", s->executes_generated_code);
	json_add_bool(o, "needs_secrets", s->needs_secrets);
	json_add_bool(o, "host_mounts", s->host_mounts);
	json_add_bool(o, "privileged", s->privileged);
}

static void add_placement(cJSON *j, const struct placement *p)
{
	cJSON *o = cJSON_AddObjectToObject(j, "placement");
	json_add_map(o, "required_labels", &p->required_labels);
	json_add_str(o, "preferred_region", p->preferred_region);
	json_add_strv(o, "anti_affinity_keys", &p->anti_affinity_keys);
}

static void add_secrets(cJSON *j, const struct spec *s)
{
	cJSON *array = cJSON_AddArrayToObject(j, "secrets");
	for (size_t i = 0; i < s->n_secrets; i++) {
		cJSON *o = cJSON_CreateObject();
		json_add_str(o, "name", s->secrets[i].name);
		json_add_str(o, "env", s->secrets[i].env);
		json_add_str(o, "file", s->secrets[i].file);
		cJSON_AddItemToArray(array, o);
	}
}

static void add_exposures(cJSON *j, const struct spec *s)
{
	cJSON *array = cJSON_AddArrayToObject(j, "exposures");
	for (size_t i = 0; i < s->n_exposures; i++) {
		const struct exposure *e = &s->exposures[i];
		cJSON *o = cJSON_CreateObject();
		json_add_i64(o, "container_port", e->container_port);
		json_add_str(o, "protocol", protocol_text(e->protocol));
		json_add_str(o, "subdomain", e->subdomain);
		json_add_bool(o, "authenticated", e->authenticated);
		cJSON_AddItemToArray(array, o);
	}
}

cJSON *spec_to_json(const struct spec *s)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "tenant", s->tenant ? s->tenant : "");
	json_add_str(j, "image", s->image ? s->image : "");
	json_add_str(j, "name", s->name);
	json_add_strv(j, "command", &s->command);
	json_add_map(j, "env", &s->env);
	add_resources(j, &s->resources);
	json_add_str(j, "network", network_text(s->network));
	json_add_str(j, "isolation", isolation_text(s->isolation));
	json_add_str(j, "min_tier", tier_text(s->min_tier));
	json_add_str(j, "sensitivity", sensitivity_text(s->sensitivity));
	add_signals(j, &s->signals);
	json_add_i64(j, "ttl_seconds", (s->ttl_ms + 999) / 1000);
	if (s->ttl_ms % 1000)
		json_add_i64(j, "ttl_ms", s->ttl_ms);
	json_add_map(j, "labels", &s->labels);
	add_placement(j, &s->placement);
	add_exposures(j, s);
	add_secrets(j, s);
	json_add_strv(j, "egress", &s->egress);
	json_add_str(j, "agent", s->agent);
	json_add_bool(j, "writable_root", s->writable_root);
	return j;
}

/* Refuses what nobody asked for, in requests. */
static void end(struct json_reader *r, bool strict)
{
	if (strict)
		json_end(r);
}

static void get_resources(struct json_reader *r, bool strict, struct resources *ret)
{
	struct json_reader o;
	if (!json_get_object(r, "resources", JSON_OPTIONAL, &o))
		return;
	json_get_u32(&o, "cpu_millis", JSON_OPTIONAL, 0, UINT32_MAX, &ret->cpu_millis);
	json_get_u32(&o, "memory_mib", JSON_OPTIONAL, 0, UINT32_MAX, &ret->memory_mib);
	json_get_u32(&o, "disk_mib", JSON_OPTIONAL, 0, UINT32_MAX, &ret->disk_mib);
	json_get_u32(&o, "pids", JSON_OPTIONAL, 0, UINT32_MAX, &ret->pids);
	end(&o, strict);
}

static void get_signals(struct json_reader *r, bool strict, struct signals *ret)
{
	struct json_reader o;
	if (!json_get_object(r, "signals", JSON_OPTIONAL, &o))
		return;
	json_get_bool(&o, "untrusted_repository", JSON_OPTIONAL, &ret->untrusted_repository);
	json_get_bool(&o, "executes_generated_code", JSON_OPTIONAL, &ret->executes_generated_code);
	json_get_bool(&o, "needs_secrets", JSON_OPTIONAL, &ret->needs_secrets);
	json_get_bool(&o, "host_mounts", JSON_OPTIONAL, &ret->host_mounts);
	json_get_bool(&o, "privileged", JSON_OPTIONAL, &ret->privileged);
	end(&o, strict);
}

static void get_placement(struct json_reader *r, bool strict, struct placement *ret)
{
	struct json_reader o;
	if (!json_get_object(r, "placement", JSON_OPTIONAL, &o))
		return;
	json_get_map(&o, "required_labels", JSON_OPTIONAL, LIMIT_LABELS_MAX, WORD_MAX, &ret->required_labels);
	json_get_str(&o, "preferred_region", JSON_OPTIONAL, WORD_MAX, &ret->preferred_region);
	json_get_strv(&o, "anti_affinity_keys", JSON_OPTIONAL, LIMIT_LABELS_MAX, WORD_MAX, &ret->anti_affinity_keys);
	end(&o, strict);
}

static void get_exposure(struct json_reader *o, bool strict, struct exposure *ret)
{
	uint32_t port = 0;
	json_get_u32(o, "container_port", JSON_REQUIRED, 0, UINT16_MAX, &port);
	json_get_enum(o, "protocol", JSON_OPTIONAL, protocol, &ret->protocol);
	json_get_str(o, "subdomain", JSON_OPTIONAL, WORD_MAX, &ret->subdomain);
	json_get_bool(o, "authenticated", JSON_OPTIONAL, &ret->authenticated);
	ret->container_port = (uint16_t)port;
	end(o, strict);
}

static void get_exposures(struct json_reader *r, bool strict, struct spec *ret)
{
	const cJSON *array = NULL;
	size_t n = json_get_array(r, "exposures", JSON_OPTIONAL, LIMIT_EXPOSURES_MAX, &array);
	if (n == 0)
		return;
	ret->exposures = xcalloc(n, sizeof(*ret->exposures));
	ret->n_exposures = n;
	for (size_t i = 0; i < n; i++) {
		struct json_reader o;
		if (json_element(r, "exposures", array, i, &o))
			get_exposure(&o, strict, &ret->exposures[i]);
	}
}

static void get_secrets(struct json_reader *r, bool strict, struct spec *ret)
{
	const cJSON *array = NULL;
	size_t n = json_get_array(r, "secrets", JSON_OPTIONAL, LIMIT_SECRETS_PER_SANDBOX, &array);
	if (n == 0)
		return;
	ret->secrets = xcalloc(n, sizeof(*ret->secrets));
	ret->n_secrets = n;
	for (size_t i = 0; i < n; i++) {
		struct json_reader o;
		if (!json_element(r, "secrets", array, i, &o))
			return;
		json_get_str(&o, "name", JSON_REQUIRED, WORD_MAX, &ret->secrets[i].name);
		json_get_str(&o, "env", JSON_OPTIONAL, WORD_MAX, &ret->secrets[i].env);
		json_get_str(&o, "file", JSON_OPTIONAL, WORD_MAX, &ret->secrets[i].file);
		end(&o, strict);
	}
}

/* ttl_ms, when given, says the same more exactly. */
static void get_ttl(struct json_reader *r, int64_t *ret_ms)
{
	int64_t seconds = LIMIT_TTL_DEFAULT_SECONDS;
	json_get_i64(r, "ttl_seconds", JSON_OPTIONAL, 0, INT32_MAX, &seconds);
	*ret_ms = seconds * 1000;
	json_get_i64(r, "ttl_ms", JSON_OPTIONAL, 0, INT32_MAX * INT64_C(1000), ret_ms);
}

int spec_from_json(const cJSON *j, const char *name, bool strict, struct spec *ret, struct error *err)
{
	struct json_reader r;
	json_reader_init(&r, j, name, err);
	auto_spec s;
	spec_init(&s);
	json_get_str(&r, "tenant", JSON_OPTIONAL, WORD_MAX, &s.tenant);
	json_get_str(&r, "image", JSON_REQUIRED, WORD_MAX, &s.image);
	json_get_str(&r, "name", JSON_OPTIONAL, WORD_MAX, &s.name);
	json_get_strv(&r, "command", JSON_OPTIONAL, LIMIT_ARGS_MAX, VALUE_MAX, &s.command);
	json_get_map(&r, "env", JSON_OPTIONAL, LIMIT_ENV_MAX, VALUE_MAX, &s.env);
	get_resources(&r, strict, &s.resources);
	json_get_enum(&r, "network", JSON_OPTIONAL, network, &s.network);
	json_get_enum(&r, "isolation", JSON_OPTIONAL, isolation, &s.isolation);
	json_get_enum(&r, "min_tier", JSON_OPTIONAL, tier, &s.min_tier);
	json_get_enum(&r, "sensitivity", JSON_OPTIONAL, sensitivity, &s.sensitivity);
	get_signals(&r, strict, &s.signals);
	get_ttl(&r, &s.ttl_ms);
	json_get_map(&r, "labels", JSON_OPTIONAL, LIMIT_LABELS_MAX, WORD_MAX, &s.labels);
	get_placement(&r, strict, &s.placement);
	get_exposures(&r, strict, &s);
	get_secrets(&r, strict, &s);
	json_get_strv(&r, "egress", JSON_OPTIONAL, LIMIT_EGRESS_RULES_MAX, WORD_MAX, &s.egress);
	json_get_str(&r, "agent", JSON_OPTIONAL, WORD_MAX, &s.agent);
	json_get_bool(&r, "writable_root", JSON_OPTIONAL, &s.writable_root);
	end(&r, strict);
	if (!json_ok(&r))
		return -1;
	spec_done(ret);
	*ret = s;
	spec_init(&s);
	return 0;
}

cJSON *command_to_json(const struct command *c)
{
	cJSON *j = cJSON_CreateObject();
	json_add_strv(j, "argv", &c->argv);
	json_add_str(j, "cwd", c->cwd);
	json_add_str(j, "user", c->user);
	if (c->timeout_ms)
		json_add_i64(j, "timeout_seconds", (c->timeout_ms + 999) / 1000);
	else
		json_add_str(j, "timeout_seconds", NULL);
	json_add_bool(j, "tty", c->tty);
	auto_strv keys = STRV_INIT;
	for (size_t i = 0; i < c->env.len; i++)
		strv_take(&keys, xstrndup(c->env.items[i], strcspn(c->env.items[i], "=")));
	json_add_strv(j, "env_keys", &keys);
	return j;
}

/* A key with '=' in it would silently become another key once joined. */
static void get_env(struct json_reader *r, struct strv *ret)
{
	auto_map env = MAP_INIT;
	json_get_map(r, "env", JSON_OPTIONAL, LIMIT_ENV_MAX, VALUE_MAX, &env);
	for (size_t i = 0; i < env.len; i++) {
		if (!env_key_valid(env.items[i].key)) {
			json_fail(r, "env", "'%.64s' is no variable name (letters, digits and '_', no digit first)", env.items[i].key);
			return;
		}
		strv_take(ret, xasprintf("%s=%s", env.items[i].key, env.items[i].value));
	}
}

int command_from_json(const cJSON *j, const char *name, struct command *ret, struct error *err)
{
	struct json_reader r;
	json_reader_init(&r, j, name, err);
	auto_command c;
	command_init(&c);
	int64_t seconds = LIMIT_EXEC_TIMEOUT_DEFAULT_SECONDS;
	json_get_strv(&r, "argv", JSON_REQUIRED, LIMIT_ARGS_MAX, VALUE_MAX, &c.argv);
	json_get_str(&r, "cwd", JSON_OPTIONAL, VALUE_MAX, &c.cwd);
	get_env(&r, &c.env);
	json_get_str(&r, "user", JSON_OPTIONAL, WORD_MAX, &c.user);
	json_get_i64(&r, "timeout_seconds", JSON_OPTIONAL, 1, LIMIT_EXEC_TIMEOUT_MAX_SECONDS, &seconds);
	if (json_end(&r) != 0)
		return -1;
	c.timeout_ms = seconds * 1000;
	command_done(ret);
	*ret = c;
	command_init(&c);
	return 0;
}
