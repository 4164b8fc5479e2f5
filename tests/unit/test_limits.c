/* Limits of what is asked for: one row each, tried one below, at, and one above; and that the message says what is allowed. */
#include "shared/base/limits.h"

#include "shared/base/mem.h"
#include "shared/json/json.h"
#include "shared/model/egress.h"
#include "shared/model/image_ref.h"
#include "shared/model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Asks for n of what the row is about; 0, or -1 and err. */
typedef int ask_fn(int64_t n, struct error *err);

static void make_spec(struct spec *s)
{
	spec_init(s);
	s->tenant = xstrdup("platform");
	s->image = xstrdup("debian:12");
}

static char *of_length(size_t n)
{
	char *text = xmalloc(n + 1);
	memset(text, 'a', n);
	text[n] = '\0';
	return text;
}

static int ask_cpu(int64_t n, struct error *err)
{
	auto_spec s;
	make_spec(&s);
	s.resources.cpu_millis = (uint32_t)n;
	return spec_validate(&s, err);
}

static int ask_memory(int64_t n, struct error *err)
{
	auto_spec s;
	make_spec(&s);
	s.resources.memory_mib = (uint32_t)n;
	return spec_validate(&s, err);
}

static int ask_disk(int64_t n, struct error *err)
{
	auto_spec s;
	make_spec(&s);
	s.resources.disk_mib = (uint32_t)n;
	return spec_validate(&s, err);
}

static int ask_pids(int64_t n, struct error *err)
{
	auto_spec s;
	make_spec(&s);
	s.resources.pids = (uint32_t)n;
	return spec_validate(&s, err);
}

static int ask_ttl(int64_t n, struct error *err)
{
	auto_spec s;
	make_spec(&s);
	s.ttl_ms = n * 1000;
	return spec_validate(&s, err);
}

static int ask_labels(int64_t n, struct error *err)
{
	auto_spec s;
	make_spec(&s);
	for (int64_t i = 0; i < n; i++) {
		auto_free char *key = xasprintf("k%d", (int)i);
		map_set(&s.labels, key, "");
	}
	return spec_validate(&s, err);
}

static int ask_exposures(int64_t n, struct error *err)
{
	auto_spec s;
	make_spec(&s);
	s.exposures = xcalloc((size_t)n, sizeof(*s.exposures));
	s.n_exposures = (size_t)n;
	for (int64_t i = 0; i < n; i++)
		s.exposures[i].container_port = (uint16_t)(i + 1);
	return spec_validate(&s, err);
}

static int ask_secrets(int64_t n, struct error *err)
{
	auto_spec s;
	make_spec(&s);
	s.secrets = xcalloc((size_t)n, sizeof(*s.secrets));
	s.n_secrets = (size_t)n;
	for (int64_t i = 0; i < n; i++) {
		s.secrets[i].name = xstrdup("key");
		s.secrets[i].env = xasprintf("KEY_%d", (int)i);
	}
	return spec_validate(&s, err);
}

static int ask_variables(int64_t n, struct error *err)
{
	auto_spec s;
	make_spec(&s);
	for (int64_t i = 0; i < n; i++) {
		auto_free char *key = xasprintf("K%d", (int)i);
		map_set(&s.env, key, "");
	}
	return spec_validate(&s, err);
}

static int ask_image(int64_t n, struct error *err)
{
	auto_spec s;
	make_spec(&s);
	free(s.image);
	s.image = of_length((size_t)n);
	return spec_validate(&s, err);
}

static int ask_egress(int64_t n, struct error *err)
{
	auto_spec s;
	make_spec(&s);
	s.network = NETWORK_RESTRICTED;
	for (int64_t i = 0; i < n; i++)
		strv_take(&s.egress, xasprintf("h%d.example.com", (int)i));
	return spec_validate(&s, err);
}

static int ask_arguments(int64_t n, struct error *err)
{
	auto_command c;
	command_init(&c);
	for (int64_t i = 0; i < n; i++)
		strv_take(&c.argv, xstrdup("a"));
	return command_validate(&c, err);
}

static int ask_argument(int64_t n, struct error *err)
{
	auto_command c;
	command_init(&c);
	strv_take(&c.argv, xstrdup("true"));
	strv_take(&c.argv, of_length((size_t)n));
	return command_validate(&c, err);
}

static int ask_command_variables(int64_t n, struct error *err)
{
	auto_command c;
	command_init(&c);
	strv_take(&c.argv, xstrdup("true"));
	for (int64_t i = 0; i < n; i++)
		strv_take(&c.env, xasprintf("K%d=", (int)i));
	return command_validate(&c, err);
}

static int ask_path(int64_t n, struct error *err)
{
	auto_command c;
	command_init(&c);
	strv_take(&c.argv, xstrdup("true"));
	c.cwd = of_length((size_t)n);
	c.cwd[0] = '/';
	return command_validate(&c, err);
}

static int ask_timeout(int64_t n, struct error *err)
{
	auto_command c;
	command_init(&c);
	strv_take(&c.argv, xstrdup("true"));
	c.timeout_ms = n * 1000;
	return command_validate(&c, err);
}

static int ask_json_bytes(int64_t n, struct error *err)
{
	cJSON *j = NULL;
	auto_free char *text = xmalloc((size_t)n);
	memset(text, ' ', (size_t)n);
	text[0] = '1';
	int rc = json_parse(text, (size_t)n, &j, err);
	json_freep(&j);
	return rc;
}

static int ask_json_depth(int64_t n, struct error *err)
{
	cJSON *j = NULL;
	auto_free char *text = xmalloc((size_t)n * 2);
	memset(text, '[', (size_t)n);
	memset(text + n, ']', (size_t)n);
	int rc = json_parse(text, (size_t)n * 2, &j, err);
	json_freep(&j);
	return rc;
}

/* The array itself is a value too. */
static int ask_json_values(int64_t n, struct error *err)
{
	cJSON *j = NULL;
	auto_buf b = BUF_INIT;
	buf_addc(&b, '[');
	for (int64_t i = 1; i < n; i++)
		buf_adds(&b, i == 1 ? "0" : ",0");
	buf_addc(&b, ']');
	int rc = json_parse(b.data, b.len, &j, err);
	json_freep(&j);
	return rc;
}

static const struct row {
	const char *name;
	ask_fn *ask;
	int64_t limit;
	bool least; /* a smallest value: one below is refused */
	const char *says;
} rows[] = {
	{ "CPU_MILLIS_MIN", ask_cpu, LIMIT_CPU_MILLIS_MIN, true, "spec.resources.cpu_millis" },
	{ "CPU_MILLIS_MAX", ask_cpu, LIMIT_CPU_MILLIS_MAX, false, "1024000" },
	{ "MEMORY_MIB_MIN", ask_memory, LIMIT_MEMORY_MIB_MIN, true, "spec.resources.memory_mib" },
	{ "MEMORY_MIB_MAX", ask_memory, LIMIT_MEMORY_MIB_MAX, false, "16777216" },
	{ "DISK_MIB_MIN", ask_disk, LIMIT_DISK_MIB_MIN, true, "spec.resources.disk_mib" },
	{ "DISK_MIB_MAX", ask_disk, LIMIT_DISK_MIB_MAX, false, "16777216" },
	{ "PIDS_MIN", ask_pids, LIMIT_PIDS_MIN, true, "spec.resources.pids" },
	{ "PIDS_MAX", ask_pids, LIMIT_PIDS_MAX, false, "4194304" },
	{ "TTL_MIN_SECONDS", ask_ttl, LIMIT_TTL_MIN_SECONDS, true, "allowed: 1 to 604800" },
	{ "TTL_MAX_SECONDS", ask_ttl, LIMIT_TTL_MAX_SECONDS, false, "allowed: 1 to 604800" },
	{ "LABELS_MAX", ask_labels, LIMIT_LABELS_MAX, false, "at most 64" },
	{ "EXPOSURES_MAX", ask_exposures, LIMIT_EXPOSURES_MAX, false, "at most 32" },
	{ "SECRETS_PER_SANDBOX", ask_secrets, LIMIT_SECRETS_PER_SANDBOX, false, "at most 32" },
	{ "ENV_MAX", ask_variables, LIMIT_ENV_MAX, false, "at most 1024" },
	{ "ENV_MAX", ask_command_variables, LIMIT_ENV_MAX, false, "at most 1024" },
	{ "IMAGE_NAME_MAX", ask_image, LIMIT_IMAGE_NAME_MAX, false, "at most 512" },
	{ "EGRESS_RULES_MAX", ask_egress, LIMIT_EGRESS_RULES_MAX, false, "at most 256" },
	{ "ARGS_MAX", ask_arguments, LIMIT_ARGS_MAX, false, "at most 4096" },
	{ "ARG_ONE_MAX", ask_argument, LIMIT_ARG_ONE_MAX, false, "at most 131071" },
	{ "PATH_BYTES_MAX", ask_path, LIMIT_PATH_BYTES_MAX, false, "at most 4095" },
	{ "EXEC_TIMEOUT_MAX_SECONDS", ask_timeout, LIMIT_EXEC_TIMEOUT_MAX_SECONDS, false, "1 to 86400" },
	{ "JSON_BYTES_MAX", ask_json_bytes, LIMIT_JSON_BYTES_MAX, false, "4194304" },
	{ "JSON_DEPTH_MAX", ask_json_depth, LIMIT_JSON_DEPTH_MAX, false, "64 levels" },
	{ "JSON_VALUES_MAX", ask_json_values, LIMIT_JSON_VALUES_MAX, false, "too many values" },
};

static void try_one(const struct row *r, int64_t n, bool taken)
{
	struct error err = ERROR_INIT;
	int rc = r->ask(n, &err);
	if (taken && rc != 0)
		fail_msg("%s: %lld is refused: %s", r->name, (long long)n, err.message);
	if (taken)
		return;
	if (rc == 0)
		fail_msg("%s: %lld is taken", r->name, (long long)n);
	if (err.code != ERR_INVALID && err.code != ERR_TOO_LARGE)
		fail_msg("%s: %lld is refused with %s", r->name, (long long)n, error_wire(err.code));
	if (!strstr(err.message, r->says))
		fail_msg("%s: the refusal does not say '%s': %s", r->name, r->says, err.message);
}

static void below_at_and_above(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		try_one(&rows[i], rows[i].limit - 1, !rows[i].least);
		try_one(&rows[i], rows[i].limit, true);
		try_one(&rows[i], rows[i].limit + 1, rows[i].least);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(below_at_and_above),
	};
	return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
