/* What drivers say, taken apart: see driver_answer.h. */
#include "daemon/runtime/driver_answer.h"

#include "daemon/runtime/driver.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <limits.h>
#include <string.h>
#include <sys/wait.h>

enum { TEXT_SHOWN = 400 };

/* Foreign text for one line of ours. */
static char *shown(const char *p, size_t n)
{
	char out[4 * TEXT_SHOWN + 1];

	while (n > 0 && (p[n - 1] == '\n' || p[n - 1] == ' '))
		n--;
	return xstrdup(text_escape(p, n > TEXT_SHOWN ? TEXT_SHOWN : n, out, sizeof(out)));
}

static int check_end(const struct driver_said *s, struct error *err)
{
	bool exited = WIFEXITED(s->status);

	if (exited && WEXITSTATUS(s->status) == 0)
		return 0;
	auto_free char *text = shown(s->err->len ? (const char *)s->err->data : "", s->err->len);
	return error_set(err, ERR_UNAVAILABLE, "the driver's %s ended with %s %d%s%s", s->action, exited ? "status" : "signal",
	                 exited ? WEXITSTATUS(s->status) : WTERMSIG(s->status), *text ? ": " : "", text);
}

static int check_success(const struct driver_said *s, const cJSON *j, struct error *err)
{
	const cJSON *version = cJSON_GetObjectItemCaseSensitive(j, "protocol_version"), *success = cJSON_GetObjectItemCaseSensitive(j, "success"), *text;

	if (version && (!cJSON_IsString(version) || strcmp(version->valuestring, DRIVER_PROTOCOL) != 0))
		return error_set(err, ERR_PROTOCOL, "the driver speaks another protocol than " DRIVER_PROTOCOL);
	if (!cJSON_IsBool(success))
		return error_set(err, ERR_PROTOCOL, "the driver's answer to %s has no success", s->action);
	if (cJSON_IsTrue(success))
		return 0;
	text = cJSON_GetObjectItemCaseSensitive(j, "error");
	auto_free char *said = cJSON_IsString(text) ? shown(text->valuestring, strlen(text->valuestring)) : xstrdup("no reason given");
	return error_set(err, ERR_UNAVAILABLE, "the driver refused %s: %s", s->action, said);
}

int driver_answer(const struct driver_said *s, cJSON **ret_result, struct error *err)
{
	auto_json *j = NULL;
	struct error local = ERROR_INIT;

	if (check_end(s, err) != 0)
		return -1;
	if (json_parse((const char *)s->out->data, s->out->len, &j, &local) != 0 || !cJSON_IsObject(j))
		return error_set(err, ERR_PROTOCOL, "the driver's answer to %s is no JSON object%s%.200s", s->action, local.code ? ": " : "", local.message);
	if (check_success(s, j, err) != 0)
		return -1;
	auto_json *result = cJSON_DetachItemFromObjectCaseSensitive(j, "result");
	if (!cJSON_IsObject(result))
		return error_set(err, ERR_PROTOCOL, "the driver's answer to %s has no result object", s->action);
	if (ret_result)
		*ret_result = steal(&result);
	return 0;
}

static bool lists(const cJSON *result, const char *key, const char *word)
{
	const cJSON *item, *array = cJSON_GetObjectItemCaseSensitive(result, key);

	cJSON_ArrayForEach(item, array)
		if (cJSON_IsString(item) && strcmp(item->valuestring, word) == 0)
			return true;
	return false;
}

static bool is_word(const cJSON *result, const char *key, const char *word)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(result, key);

	return cJSON_IsString(v) && strcmp(v->valuestring, word) == 0;
}

int driver_abilities(const cJSON *result, struct driver_abilities *ret, struct error *err)
{
	struct driver_abilities can = {
		.init = is_word(result, "commands", "init"),
		.engine_images = is_word(result, "images", "engine"),
		.inspect = lists(result, "actions", "inspect"),
		.kill = lists(result, "actions", "kill"),
		.stats = lists(result, "actions", "stats"),
		.prepare = lists(result, "actions", "prepare"),
		.deadline = lists(result, "actions", "deadline"),
		.development = cJSON_IsString(cJSON_GetObjectItemCaseSensitive(result, "development")),
	};

	for (int t = 0; t < TIER_COUNT; t++)
		can.tiers[t] = lists(result, "tiers", tier_text((enum tier)t));
	if (!cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(result, "tiers")))
		return error_set(err, ERR_PROTOCOL, "the driver's probe names no tiers");
	if (can.init && !can.inspect)
		return error_set(err, ERR_PROTOCOL, "the driver starts sandbox-init itself but has no action inspect");
	*ret = can;
	return 0;
}

int driver_state(const cJSON *result, struct runtime_status *ret, struct error *err)
{
	const cJSON *pid = cJSON_GetObjectItemCaseSensitive(result, "pid"), *code = cJSON_GetObjectItemCaseSensitive(result, "exit_code");
	struct runtime_status s = { .state = RUNTIME_EXITED, .oom_killed = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(result, "oom_killed")) };

	if (is_word(result, "state", "running"))
		s.state = RUNTIME_RUNNING;
	else if (is_word(result, "state", "absent"))
		s.state = RUNTIME_ABSENT;
	else if (!is_word(result, "state", "exited"))
		return error_set(err, ERR_PROTOCOL, "the driver's inspect answers no known state");
	if (cJSON_IsNumber(code) && code->valuedouble >= 0 && code->valuedouble <= 255)
		s.exit_code = (int)code->valuedouble;
	if (s.state == RUNTIME_RUNNING && cJSON_IsNumber(pid) && pid->valuedouble >= 2 && pid->valuedouble < INT_MAX)
		s.pid = (pid_t)pid->valuedouble;
	*ret = s;
	return 0;
}

static uint64_t count_of(const cJSON *j, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

	return cJSON_IsNumber(v) && v->valuedouble > 0 && v->valuedouble < 9e15 ? (uint64_t)v->valuedouble : 0;
}

void driver_stats(const cJSON *result, struct runtime_stats *ret)
{
	*ret = (struct runtime_stats){
		.cpu_us = count_of(result, "cpu_us"),
		.memory_bytes = count_of(result, "memory_bytes"),
		.memory_limit_bytes = count_of(result, "memory_limit_bytes"),
		.pids = count_of(result, "pids"),
		.pids_limit = count_of(result, "pids_limit"),
	};
}
