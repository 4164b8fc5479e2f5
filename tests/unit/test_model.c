/* The model: defaults, copies, validation, transitions, exit statuses. */
#include "shared/model/model.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void make_spec(struct spec *s)
{
	spec_init(s);
	s->tenant = xstrdup("platform");
	s->image = xstrdup("debian:12");
}

static void defaults_are_the_api_s(void **state)
{
	auto_spec s;
	(void)state;
	make_spec(&s);
	assert_int_equal(s.resources.cpu_millis, 1000);
	assert_int_equal(s.resources.memory_mib, 1024);
	assert_int_equal(s.resources.disk_mib, 10240);
	assert_int_equal(s.resources.pids, 256);
	assert_int_equal(s.network, NETWORK_DENY);
	assert_int_equal(s.sensitivity, SENSITIVITY_INTERNAL);
	assert_int_equal(s.isolation, ISOLATION_AUTO);
	assert_int_equal(s.ttl_ms, 3600000);
	assert_int_equal(spec_validate(&s, NULL), 0);
}

/* Each row spoils one field; the message must name it and, for ranges, what is allowed. */
static void spoil_cpu(struct spec *s) { s->resources.cpu_millis = 0; }
static void spoil_memory(struct spec *s) { s->resources.memory_mib = 63; }
static void spoil_disk(struct spec *s) { s->resources.disk_mib = UINT32_MAX; }
static void spoil_pids(struct spec *s) { s->resources.pids = 0; }
static void spoil_ttl_low(struct spec *s) { s->ttl_ms = 0; }
static void spoil_ttl_high(struct spec *s) { s->ttl_ms = 604800001; }
static void spoil_privileged(struct spec *s) { s->signals.privileged = true; }
static void spoil_env(struct spec *s) { map_set(&s->env, "BAD NAME", "1"); }
static void spoil_env_digit(struct spec *s) { map_set(&s->env, "1A", "1"); }
static void spoil_label(struct spec *s) { map_set(&s->labels, "-x", "1"); }
static void spoil_label_value(struct spec *s) { map_set(&s->labels, "x", "a\nb"); }
static void spoil_label_reserved(struct spec *s) { map_set(&s->labels, "io.sandbox.id", "1"); }
static void spoil_agent(struct spec *s) { s->agent = xstrdup(""); }
static void spoil_region(struct spec *s) { s->placement.preferred_region = xasprintf("%064d", 1); }

static void set(char **to, char *take_text)
{
	free(*to);
	*to = take_text;
}

static void spoil_tenant(struct spec *s) { set(&s->tenant, xstrdup("A b")); }
static void spoil_no_tenant(struct spec *s) { set(&s->tenant, NULL); }
static void spoil_no_image(struct spec *s) { set(&s->image, NULL); }
static void spoil_empty_image(struct spec *s) { set(&s->image, xstrdup("")); }
static void spoil_blank_image(struct spec *s) { set(&s->image, xstrdup("a b")); }
static void spoil_image_bytes(struct spec *s) { set(&s->image, xstrdup("caf\xc3\xa9")); }
static void spoil_long_image(struct spec *s) { set(&s->image, xasprintf("%0513d", 1)); }
static void spoil_name(struct spec *s) { set(&s->name, xstrdup("cafe")); }
static void spoil_command(struct spec *s) { strv_add(&s->command, ""); }

static void spoil_long_argument(struct spec *s)
{
	strv_add(&s->command, "true");
	strv_take(&s->command, xasprintf("%0*d", LIMIT_ARG_ONE_MAX + 1, 1));
}

static void expose(struct spec *s, uint16_t port, const char *subdomain)
{
	s->exposures = xrealloc(s->exposures, s->n_exposures + 1, sizeof(*s->exposures));
	s->exposures[s->n_exposures++] = (struct exposure){ .container_port = port, .subdomain = xstrdup0(subdomain) };
}

static void spoil_port(struct spec *s) { expose(s, 0, NULL); }
static void spoil_subdomain(struct spec *s) { expose(s, 80, "Bad"); }

static void spoil_port_twice(struct spec *s)
{
	expose(s, 80, NULL);
	expose(s, 80, "a");
}

static void validation_names_the_field(void **state)
{
	static const struct {
		void (*spoil)(struct spec *);
		const char *field, *says;
	} rows[] = {
		{ spoil_cpu, "spec.resources.cpu_millis", "allowed: 10 to 1024000" },
		{ spoil_memory, "spec.resources.memory_mib", "allowed: 64 to 16777216" },
		{ spoil_disk, "spec.resources.disk_mib", "4294967295 is out of range" },
		{ spoil_pids, "spec.resources.pids", "allowed: 8 to" },
		{ spoil_ttl_low, "spec.ttl_seconds", "allowed: 1 to 604800" },
		{ spoil_ttl_high, "spec.ttl_seconds", "allowed: 1 to 604800" },
		{ spoil_privileged, "spec.signals.privileged", "never" },
		{ spoil_env, "spec.env", "BAD NAME" },
		{ spoil_env_digit, "spec.env", "1A" },
		{ spoil_label, "spec.labels", "-x" },
		{ spoil_label_value, "spec.labels", "'x'" },
		{ spoil_label_reserved, "spec.labels", "reserved" },
		{ spoil_agent, "spec.agent", "1 to 63" },
		{ spoil_region, "spec.placement.preferred_region", "1 to 63" },
		{ spoil_tenant, "spec.tenant", "1 to 63" },
		{ spoil_no_tenant, "spec.tenant", "" },
		{ spoil_no_image, "spec.image", "required" },
		{ spoil_empty_image, "spec.image", "required" },
		{ spoil_blank_image, "spec.image", "'a b'" },
		{ spoil_image_bytes, "spec.image", "ASCII" },
		{ spoil_long_image, "spec.image", "at most 512" },
		{ spoil_name, "spec.name", "'cafe'" },
		{ spoil_command, "spec.command", "empty" },
		{ spoil_long_argument, "spec.command", "at most 131071" },
		{ spoil_port, "spec.exposures[0].container_port", "1 to 65535" },
		{ spoil_subdomain, "spec.exposures[0].subdomain", "interior" },
		{ spoil_port_twice, "spec.exposures[1].container_port", "twice" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct error err = ERROR_INIT;
		auto_spec s;
		make_spec(&s);
		rows[i].spoil(&s);
		assert_int_equal(spec_validate(&s, &err), -1);
		assert_true(err.code == ERR_INVALID || err.code == ERR_TOO_LARGE);
		if (strncmp(err.message, rows[i].field, strlen(rows[i].field)) != 0 || !strstr(err.message, rows[i].says))
			fail_msg("row %zu: %s", i, err.message);
	}
}

static void counts_are_bounded(void **state)
{
	struct error err = ERROR_INIT;
	auto_spec s;
	(void)state;
	make_spec(&s);
	for (int i = 0; i < LIMIT_EXPOSURES_MAX; i++)
		expose(&s, (uint16_t)(i + 1), NULL);
	for (int i = 0; i < LIMIT_LABELS_MAX; i++) {
		auto_free char *key = xasprintf("k%d", i);
		map_set(&s.labels, key, "");
	}
	assert_int_equal(spec_validate(&s, &err), 0);
	map_set(&s.labels, "one-more", "");
	assert_int_equal(spec_validate(&s, &err), -1);
	assert_non_null(strstr(err.message, "at most 64"));
}

static void commands(void **state)
{
	static const struct {
		const char *argv0, *env, *env2, *cwd, *user;
		int64_t timeout_ms;
		const char *refused; /* NULL: accepted */
	} rows[] = {
		{ "true", NULL, NULL, NULL, NULL, 0, NULL },
		{ "true", "A=x=y", "B=", "/a b", "1000:1000", 86400000, NULL },
		{ "true", "A=1", "AB=1", "/", "app", 1, NULL },
		{ NULL, NULL, NULL, NULL, NULL, 0, "command.argv" },
		{ "", NULL, NULL, NULL, NULL, 0, "command.argv" },
		{ "true", "=x", NULL, NULL, NULL, 0, "command.env" },
		{ "true", "A", NULL, NULL, NULL, 0, "command.env" },
		{ "true", "BAD NAME=1", NULL, NULL, NULL, 0, "command.env" },
		{ "true", "A=1", "A=2", NULL, NULL, 0, "'A' is given twice" },
		{ "true", NULL, NULL, "rel", NULL, 0, "command.cwd" },
		{ "true", NULL, NULL, "", NULL, 0, "command.cwd" },
		{ "true", NULL, NULL, NULL, "", 0, "command.user" },
		{ "true", NULL, NULL, NULL, ":g", 0, "command.user" },
		{ "true", NULL, NULL, NULL, "u:", 0, "command.user" },
		{ "true", NULL, NULL, NULL, "u:g:x", 0, "command.user" },
		{ "true", NULL, NULL, NULL, "a b", 0, "command.user" },
		{ "true", NULL, NULL, NULL, NULL, -1, "command.timeout_seconds" },
		{ "true", NULL, NULL, NULL, NULL, 86400001, "command.timeout_seconds" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct error err = ERROR_INIT;
		auto_command c;
		command_init(&c);
		if (rows[i].argv0)
			strv_add(&c.argv, rows[i].argv0);
		if (rows[i].env)
			strv_add(&c.env, rows[i].env);
		if (rows[i].env2)
			strv_add(&c.env, rows[i].env2);
		c.cwd = xstrdup0(rows[i].cwd);
		c.user = xstrdup0(rows[i].user);
		c.timeout_ms = rows[i].timeout_ms;
		int r = command_validate(&c, &err);
		if ((r == 0) != !rows[i].refused || (r != 0 && !strstr(err.message, rows[i].refused)))
			fail_msg("row %zu: %d, %s", i, r, err.message);
	}
}

static void an_argument_list_too_long_is_refused(void **state)
{
	struct error err = ERROR_INIT;
	auto_command c;
	(void)state;
	command_init(&c);
	strv_add(&c.argv, "true");
	strv_take(&c.argv, xasprintf("%0*d", LIMIT_ARG_ONE_MAX, 1));
	assert_int_equal(command_validate(&c, &err), 0);
	for (int i = 0; i < 16; i++)
		strv_take(&c.argv, xasprintf("%0*d", LIMIT_ARG_ONE_MAX, 1));
	assert_int_equal(command_validate(&c, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	assert_non_null(strstr(err.message, "argument list too long"));
}

static void the_later_variable_wins(void **state)
{
	auto_command c;
	(void)state;
	command_init(&c);
	command_set_env(&c, "A=1");
	command_set_env(&c, "AB=2");
	command_set_env(&c, "A=3");
	assert_int_equal(c.env.len, 2);
	assert_string_equal(c.env.items[0], "A=3");
	assert_string_equal(c.env.items[1], "AB=2");
}

static void copies_are_deep(void **state)
{
	auto_spec a;
	auto_spec b;
	(void)state;
	make_spec(&a);
	spec_init(&b);
	expose(&a, 80, "demo");
	map_set(&a.env, "K", "v");
	map_set(&a.placement.required_labels, "disk", "ssd");
	strv_add(&a.placement.anti_affinity_keys, "db");
	a.placement.preferred_region = xstrdup("eu");
	spec_copy(&b, &a);
	spec_copy(&b, &b);
	spec_done(&a);
	assert_string_equal(b.image, "debian:12");
	assert_string_equal(b.exposures[0].subdomain, "demo");
	assert_string_equal(map_get(&b.env, "K"), "v");
	assert_string_equal(map_get(&b.placement.required_labels, "disk"), "ssd");
	assert_true(strv_has(&b.placement.anti_affinity_keys, "db"));
	assert_string_equal(b.placement.preferred_region, "eu");

	auto_operation o;
	auto_operation p;
	operation_init(&o);
	operation_init(&p);
	o.id = id_new();
	o.error = xstrdup("why");
	strv_add(&o.command.argv, "true");
	buf_adds(&o.result.out.head, "hello");
	operation_copy(&p, &o);
	operation_done(&o);
	assert_string_equal(p.error, "why");
	assert_string_equal(p.command.argv.items[0], "true");
	assert_string_equal(buf_str(&p.result.out.head), "hello");

	auto_sandbox s;
	auto_sandbox t;
	sandbox_init(&s);
	sandbox_init(&t);
	s.spec.image = xstrdup("x");
	s.failure = xstrdup("f");
	sandbox_copy(&t, &s);
	sandbox_done(&s);
	assert_string_equal(t.spec.image, "x");
	assert_string_equal(t.failure, "f");
}

static void transitions(void **state)
{
	(void)state;
	assert_true(op_may_move(OP_PENDING, OP_RUNNING));
	assert_true(op_may_move(OP_RUNNING, OP_PENDING)); /* the worker restarted */
	assert_true(op_may_move(OP_RUNNING, OP_FAILED));
	assert_false(op_may_move(OP_SUCCEEDED, OP_FAILED));
	assert_false(op_may_move(OP_FAILED, OP_SUCCEEDED));
	assert_false(op_may_move(OP_RUNNING, OP_RUNNING));
	assert_false(op_may_move((enum op_state)99, OP_RUNNING));
	assert_false(op_may_move(OP_RUNNING, (enum op_state)99));

	static const char table[SANDBOX_COUNT][SANDBOX_COUNT + 1] = {
		/* to: scheduled creating running stopping stopped failed */
		[SANDBOX_SCHEDULED] = ".x.xxx",
		[SANDBOX_CREATING] = "..xxxx",
		[SANDBOX_RUNNING] = "...xxx",
		[SANDBOX_STOPPING] = "....xx",
		[SANDBOX_STOPPED] = "......",
		[SANDBOX_FAILED] = "...xx.",
	};
	for (int from = 0; from < SANDBOX_COUNT; from++)
		for (int to = 0; to < SANDBOX_COUNT; to++)
			if (sandbox_may_move((enum sandbox_state)from, (enum sandbox_state)to) != (table[from][to] == 'x'))
				fail_msg("%s to %s", sandbox_state_text((enum sandbox_state)from), sandbox_state_text((enum sandbox_state)to));
}

static void exit_statuses(void **state)
{
	static const struct {
		struct result result;
		int status;
	} rows[] = {
		{ { .outcome = OUTCOME_EXITED, .exit_code = 0 }, 0 },
		{ { .outcome = OUTCOME_EXITED, .exit_code = 255 }, 255 },
		{ { .outcome = OUTCOME_SIGNALED, .signal = 9 }, 137 },
		{ { .outcome = OUTCOME_SIGNALED, .signal = 15 }, 143 },
		{ { .outcome = OUTCOME_TIMEOUT, .signal = 9 }, 124 },
		{ { .outcome = OUTCOME_LOST }, 125 },
		{ { .outcome = OUTCOME_NOT_STARTED }, 125 },
		{ { .outcome = OUTCOME_NOT_STARTED, .exit_code = 3 }, 125 },
		{ { .outcome = OUTCOME_NOT_STARTED, .exit_code = 126 }, 126 },
		{ { .outcome = OUTCOME_NOT_STARTED, .exit_code = 127 }, 127 },
		{ { .outcome = OUTCOME_EXPIRED }, 125 },
		{ { .outcome = OUTCOME_DELETED }, 125 },
		{ { .outcome = OUTCOME_CANCELED }, 125 },
		{ { .outcome = OUTCOME_NONE }, 125 },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(result_exit_status(&rows[i].result), rows[i].status);
}

static void words(void **state)
{
	enum network n = NETWORK_DENY;
	enum tier t = TIER_CONTAINER;
	(void)state;
	assert_string_equal(network_text(NETWORK_RESTRICTED), "restricted_egress");
	assert_int_equal(network_parse("open_egress", &n), 0);
	assert_int_equal(n, NETWORK_OPEN);
	assert_int_equal(tier_parse("gvisor", &t), 0);
	assert_int_equal(tier_parse("GVISOR", &t), -1);
	assert_int_equal(tier_parse(NULL, &t), -1);
	assert_string_equal(tier_text((enum tier)99), "?");
	assert_int_equal(tier_isolation(TIER_GVISOR), ISOLATION_CONTAINER);
	assert_int_equal(tier_isolation(TIER_MICROVM), ISOLATION_MICROVM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_the_api_s),
		cmocka_unit_test(validation_names_the_field),
		cmocka_unit_test(counts_are_bounded),
		cmocka_unit_test(commands),
		cmocka_unit_test(an_argument_list_too_long_is_refused),
		cmocka_unit_test(the_later_variable_wins),
		cmocka_unit_test(copies_are_deep),
		cmocka_unit_test(transitions),
		cmocka_unit_test(exit_statuses),
		cmocka_unit_test(words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
