/* The create request from options: see create.h. Policy is the server's; only what cannot be meant is refused here. */
#include "cli/create.h"

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"
#include "shared/model/egress.h"
#include "shared/model/enums.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#define DEFAULT_IMAGE "sandbox-base:latest"

/* POLL: one long poll, shorter where its progress is shown; ANSWER: what an answer may take besides; SOON: how long the create itself is
 * waited for in its own call: most run by then, which saves the calls that would ask. */
enum { MIB = 1024 * 1024, POLL_S = 50, POLL_SHOWN_S = 1, ANSWER_S = 60, PAUSE_MS = 200, SOON_S = 1 };

int create_parse_cpus(const char *what, const char *text, void *field, struct error *err)
{
	const char *dot = strchr(text, '.');
	auto_free char *whole = dot ? xstrndup(text, (size_t)(dot - text)) : xstrdup(text);
	int64_t cores = 0, millis = 0;
	if (parse_i64(what, whole, 0, 10000, &cores, NULL) != 0)
		goto bad;
	if (dot) {
		size_t n = strlen(dot + 1);
		if (n < 1 || n > 3 || parse_i64(what, dot + 1, 0, 999, &millis, NULL) != 0)
			goto bad;
		for (; n < 3; n++)
			millis *= 10;
	}
	if (cores * 1000 + millis < 1)
		goto bad;
	*(int64_t *)field = cores * 1000 + millis;
	return 0;
bad:
	return error_set(err, ERR_INVALID, "%s: '%.40s' is not a number of cores such as 0.5 or 2 (0.001 to 10000)", what, text);
}

static int parse_mib(const char *what, const char *text, int64_t min_mib, int64_t max_mib, int64_t *field, struct error *err)
{
	int64_t bytes;
	if (parse_size(what, text, min_mib * MIB, max_mib * MIB, &bytes, err) != 0)
		return -1;
	if (bytes % MIB)
		return error_set(err, ERR_INVALID, "%s: '%.40s' is not a whole number of MiB", what, text);
	*field = bytes / MIB;
	return 0;
}

int create_parse_memory(const char *what, const char *text, void *field, struct error *err)
{
	return parse_mib(what, text, LIMIT_MEMORY_MIB_MIN, LIMIT_MEMORY_MIB_MAX, field, err);
}

int create_parse_disk(const char *what, const char *text, void *field, struct error *err)
{
	return parse_mib(what, text, LIMIT_DISK_MIB_MIN, LIMIT_DISK_MIB_MAX, field, err);
}

int split_pair(const char *what, const char *text, char **ret_key, const char **ret_value, struct error *err)
{
	const char *eq = strchr(text, '=');
	if (!eq || eq == text)
		return error_set(err, ERR_INVALID, "%s: '%.80s' is not KEY=VALUE", what, text);
	*ret_key = xstrndup(text, (size_t)(eq - text));
	*ret_value = eq + 1;
	return 0;
}

static int add_labels(cJSON *spec, const struct strv *labels, struct error *err)
{
	cJSON *o = cJSON_AddObjectToObject(spec, "labels");
	for (size_t i = 0; i < labels->len; i++) {
		auto_free char *key = NULL;
		const char *value;
		if (split_pair("--label", labels->items[i], &key, &value, err) != 0)
			return -1;
		if (!label_key_valid(key) || !label_value_valid(value))
			return error_set(err, ERR_INVALID, "--label: '%.80s' holds characters a label may not have", labels->items[i]);
		cJSON_DeleteItemFromObjectCaseSensitive(o, key);
		json_add_str(o, key, value);
	}
	return 0;
}

static int add_env(cJSON *spec, const struct create_options *o, struct error *err)
{
	auto_strv env = STRV_INIT;
	if (env_collect(&o->env_file, &o->env, &env, err) != 0)
		return -1;
	cJSON *object = cJSON_AddObjectToObject(spec, "env");
	for (size_t i = 0; i < env.len; i++) {
		auto_free char *key = NULL;
		const char *value;
		if (split_pair("--env", env.items[i], &key, &value, err) != 0)
			return -1;
		if (!utf8_valid(value, strlen(value)))
			return error_set(err, ERR_INVALID, "--env: the value of %s is not UTF-8; give it to exec instead", key);
		json_add_str(object, key, value);
	}
	return 0;
}

static int add_exposures(cJSON *spec, const struct strv *expose, struct error *err)
{
	cJSON *list = cJSON_AddArrayToObject(spec, "exposures");
	for (size_t i = 0; i < expose->len; i++) {
		const char *text = expose->items[i], *eq = strchr(text, '=');
		auto_free char *port_text = eq ? xstrndup(text, (size_t)(eq - text)) : xstrdup(text);
		int64_t port;
		if (parse_i64("--expose", port_text, 1, 65535, &port, err) != 0)
			return -1;
		if (eq && !eq[1])
			return error_set(err, ERR_INVALID, "--expose: '%.80s' has an empty name", text);
		cJSON *e = cJSON_CreateObject();
		json_add_i64(e, "container_port", port);
		json_add_str(e, "protocol", "http");
		json_add_bool(e, "authenticated", false);
		json_add_str(e, "subdomain", eq ? eq + 1 : NULL);
		cJSON_AddItemToArray(list, e);
	}
	return 0;
}

static int add_egress(cJSON *spec, const struct create_options *o, struct error *err)
{
	auto_egress_rules rules = EGRESS_RULES_INIT;
	if (o->allow.len == 0)
		return 0;
	if (!o->network || strcmp(o->network, "restricted") != 0)
		return error_set(err, ERR_INVALID, "--allow is for --network restricted");
	if (egress_rules_from("--allow", &o->allow, &rules, err) != 0)
		return -1;
	json_add_strv(spec, "egress", &o->allow);
	return 0;
}

#define SECRETS_DIR "/run/secrets/"

int create_add_secret(cJSON *list, const char *text, struct error *err)
{
	size_t n = strcspn(text, "=:");
	auto_free char *name = xstrndup(text, n);
	const char *rest = text[n] ? text + n + 1 : NULL;
	bool file = text[n] == ':';
	if (!secret_name_valid(name) || (rest && !*rest))
		return error_set(err, ERR_INVALID, "--secret: '%.80s' is not NAME, NAME=VARIABLE or NAME:" SECRETS_DIR "FILE", text);
	if (file && (strncmp(rest, SECRETS_DIR, strlen(SECRETS_DIR)) != 0 || !secret_file_valid(rest + strlen(SECRETS_DIR))))
		return error_set(err, ERR_INVALID, "--secret: a file of a secret is " SECRETS_DIR "FILE, not '%.80s'", rest);
	const char *env = file ? NULL : rest ? rest : name;
	if (env && !env_key_valid(env))
		return error_set(err, ERR_INVALID, "--secret: '%.80s' is no variable name: write %s=VARIABLE", env, name);
	cJSON *o = cJSON_CreateObject();
	json_add_str(o, "name", name);
	json_add_str(o, file ? "file" : "env", file ? rest + strlen(SECRETS_DIR) : env);
	cJSON_AddItemToArray(list, o);
	return 0;
}

static int add_secrets(cJSON *spec, const struct strv *secrets, struct error *err)
{
	if (secrets->len == 0)
		return 0;
	cJSON *list = cJSON_AddArrayToObject(spec, "secrets");
	for (size_t i = 0; i < secrets->len; i++)
		if (create_add_secret(list, secrets->items[i], err) != 0)
			return -1;
	return 0;
}

static void add_resources(cJSON *spec, const struct create_options *o)
{
	const struct {
		const char *key;
		int64_t value;
	} rows[] = { { "cpu_millis", o->cpu_millis }, { "memory_mib", o->memory_mib }, { "disk_mib", o->disk_mib }, { "pids", o->pids } };
	cJSON *r = cJSON_AddObjectToObject(spec, "resources");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].value)
			json_add_i64(r, rows[i].key, rows[i].value);
}

static void add_signals(cJSON *spec, const struct create_options *o)
{
	cJSON *s = cJSON_AddObjectToObject(spec, "signals");
	json_add_bool(s, "untrusted_repository", o->untrusted_repo);
	json_add_bool(s, "executes_generated_code", o->generated_code);
	json_add_bool(s, "needs_secrets", o->needs_secrets);
}

/* The words people type; the API's are longer. */
static const char *network_word(const char *word)
{
	if (!word)
		return "deny";
	if (strcmp(word, "restricted") == 0)
		return network_text(NETWORK_RESTRICTED);
	return strcmp(word, "open") == 0 ? network_text(NETWORK_OPEN) : network_text(NETWORK_DENY);
}

static void add_words(cJSON *spec, const struct create_options *o)
{
	json_add_str(spec, "network", network_word(o->network));
	if (o->isolation)
		json_add_str(spec, "isolation", o->isolation);
	if (o->tier)
		json_add_str(spec, "min_tier", o->tier);
	if (o->sensitivity)
		json_add_str(spec, "sensitivity", o->sensitivity);
	if (o->writable_root)
		json_add_bool(spec, "writable_root", true);
	if (o->ttl_ms)
		json_add_i64(spec, "ttl_seconds", (o->ttl_ms + 999) / 1000);
	if (o->ttl_ms % 1000)
		json_add_i64(spec, "ttl_ms", o->ttl_ms);
}

static int add_command(cJSON *spec, const struct words *start, struct error *err)
{
	cJSON *argv = cJSON_AddArrayToObject(spec, "command");
	for (size_t i = 0; i < start->len; i++) {
		if (!utf8_valid(start->items[i], strlen(start->items[i])))
			return error_set(err, ERR_INVALID, "argument %zu of the start command is not UTF-8; run it with exec instead", i + 1);
		cJSON_AddItemToArray(argv, cJSON_CreateString(start->items[i]));
	}
	return 0;
}

int create_spec(struct cli *cli, const struct create_options *o, const struct words *start, cJSON **ret, struct error *err)
{
	auto_json *spec = cJSON_CreateObject();
	char shown[160];
	if (o->name && !name_valid(o->name))
		return error_set(err, ERR_INVALID, "--name: '%s' is not a name: a lower-case letter, then up to 62 letters, digits and "
				 "dashes, not what an id could begin with (four or more hex digits)", text_escape(o->name, strlen(o->name), shown, sizeof(shown)));
	if (cli->tenant && *cli->tenant)
		json_add_str(spec, "tenant", cli->tenant);
	json_add_str(spec, "image", o->image ? o->image : DEFAULT_IMAGE);
	if (o->name)
		json_add_str(spec, "name", o->name);
	add_resources(spec, o);
	add_words(spec, o);
	add_signals(spec, o);
	if (add_command(spec, start, err) != 0 || add_env(spec, o, err) != 0 || add_labels(spec, &o->labels, err) != 0 ||
	    add_exposures(spec, &o->expose, err) != 0 || add_secrets(spec, &o->secrets, err) != 0 ||
	    add_egress(spec, o, err) != 0)
		return -1;
	*ret = steal(&spec);
	return 0;
}

/* One request. capacity_s 0: a refusal comes at once; end_s 0: so does the answer. */
struct ask {
	const cJSON *spec;
	const char *key;
	int64_t capacity_s, end_s;
};

static int send_create(struct cli *cli, const struct ask *q, cJSON **ret, struct error *err)
{
	auto_json *body = cJSON_CreateObject();
	auto_json *answer = NULL;
	auto_free char *target = xstrdup("/v1/sandboxes");
	if (q->capacity_s || q->end_s) {
		free(target);
		target = xasprintf("/v1/sandboxes?%s=%lld", q->capacity_s ? "wait_capacity" : "wait", (long long)(q->capacity_s ? q->capacity_s : q->end_s));
	}
	cJSON_AddItemReferenceToObject(body, "spec", (cJSON *)q->spec);
	struct call c = { .method = "POST", .target = target, .body = body, .key = q->key, .timeout_ms = (q->capacity_s + q->end_s + ANSWER_S) * 1000 };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	if (!json_text(cJSON_GetObjectItemCaseSensitive(answer, "sandbox"), "id")[0] ||
	    !json_text(cJSON_GetObjectItemCaseSensitive(answer, "operation"), "id")[0])
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no sandbox");
	*ret = steal(&answer);
	return 0;
}

/* Cut off before the answer: the same key tells, without a wait, what is being created. The interrupt is there again afterwards.
 * e is the failure that it was cut off with, and says afterwards what is known. */
static int ask_again(struct cli *cli, const struct ask *q, cJSON **ret, struct error *e)
{
	struct error why = ERROR_INIT;
	int sig = interrupt_signal();
	interrupt_clear();
	int rc = send_create(cli, &(struct ask){ .spec = q->spec, .key = q->key }, ret, &why);
	if (!interrupt_signal())
		raise(sig);
	if (rc == 0)
		return 0;
	if (why.code == ERR_NO_CAPACITY)
		error_set(e, ERR_NO_CAPACITY, "interrupted; nothing was created");
	else
		error_set(e, ERR_TIMEOUT, "interrupted before the server answered; whether a sandbox was created is unknown");
	e->sys = EINTR;
	return -1;
}

/* Long polls with one key: each keeps the place that the one before had. */
static int queue_up(struct cli *cli, const char *key, const cJSON *spec, int64_t max_ms, cJSON **ret, struct error *err)
{
	int64_t until_ms = clock_mono_ms() + max_ms, left_ms;
	char span[32];
	struct progress p;
	struct error e = ERROR_INIT;
	int rc = -1;
	progress_begin(&p, cli);
	while (rc != 0 && (left_ms = until_ms - clock_mono_ms()) > 0) {
		int64_t most_s = cli->progress ? POLL_SHOWN_S : POLL_S, s = (left_ms + 999) / 1000;
		progress_update(&p, "waiting for capacity");
		int64_t sent_ms = clock_mono_ms();
		rc = send_create(cli, &(struct ask){ .spec = spec, .key = key, .capacity_s = s < most_s ? s : most_s }, ret, &e);
		if (rc != 0 && e.code != ERR_NO_CAPACITY)
			break;
		/* A server that does not hold the request is not hammered. */
		if (rc != 0 && clock_mono_ms() - sent_ms < PAUSE_MS)
			poll(&(struct pollfd){ .fd = interrupt_fd(), .events = POLLIN }, 1, PAUSE_MS);
	}
	progress_end(&p);
	if (rc != 0 && err)
		*err = e;
	return rc == 0 || e.code != ERR_NO_CAPACITY ? rc : error_wrap(err, "waited %s for capacity", duration_format(max_ms, span));
}

static void hint_capacity(struct cli *cli, const struct create_options *o)
{
	const cJSON *decision = cJSON_GetObjectItemCaseSensitive(cli->error_body, "decision");
	if (json_flag(decision, "may_pass") && o->wait_capacity_ms <= 0)
		cli_hint(cli, "--wait-capacity 10m waits, in order, until there is room");
	else if (decision)
		cli_hint(cli, "`sandbox create --explain` with the same options shows the whole decision");
}

int create_send(struct cli *cli, const struct create_options *o, const cJSON *spec, cJSON **ret, struct error *err)
{
	struct idem own = idem_new();
	struct error e = ERROR_INIT;
	const char *key = o->idempotency_key ? o->idempotency_key : own.text;
	bool soon = !o->no_wait && (o->wait_timeout_ms < 0 || o->wait_timeout_ms > SOON_S * 1000);
	struct ask q = { .spec = spec, .key = key, .end_s = soon ? SOON_S : 0 };
	int rc = send_create(cli, &q, ret, &e);
	if (rc != 0 && e.code == ERR_NO_CAPACITY && o->wait_capacity_ms > 0)
		rc = queue_up(cli, key, spec, o->wait_capacity_ms, ret, &e);
	if (rc != 0 && e.sys == EINTR && interrupt_signal())
		rc = ask_again(cli, &q, ret, &e);
	else if (rc != 0 && e.code == ERR_NO_CAPACITY)
		hint_capacity(cli, o);
	if (rc != 0 && err)
		*err = e;
	return rc;
}

static bool has_ended(const cJSON *operation)
{
	const char *state = json_text(operation, "state");
	return strcmp(state, "succeeded") == 0 || strcmp(state, "failed") == 0;
}

int create_await(struct cli *cli, const struct create_options *o, const cJSON *answer, bool *ret_fresh, cJSON **ret, struct error *err)
{
	const cJSON *op = cJSON_GetObjectItemCaseSensitive(answer, "operation");
	bool fresh = has_ended(op);
	if (ret_fresh)
		*ret_fresh = fresh;
	if (!fresh)
		return operation_wait(cli, json_text(op, "id"), "creating", o->wait_timeout_ms, ret, err);
	*ret = cJSON_Duplicate(op, true);
	return 0;
}
