/* AEGIS against its tables in tests/unit/data, and the time a decision takes among many nodes. */
#include "daemon/aegis/aegis.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

enum { FIELDS_MAX = 5, NODES_MAX = 8 };

/* Cuts text in place at each separator; blanks around the parts are dropped. Returns the number of parts. */
static size_t split(char *text, const char *separator, char **parts, size_t max)
{
	size_t n = 0;
	while (text && n < max) {
		char *next = n + 1 < max ? strstr(text, separator) : NULL;
		if (next) {
			*next = '\0';
			next += strlen(separator);
		}
		text += strspn(text, " ");
		size_t len = strlen(text);
		while (len > 0 && text[len - 1] == ' ')
			text[--len] = '\0';
		parts[n++] = text;
		text = next;
	}
	return n;
}

/* The value when word is "key=value". */
static char *value_of(char *word, const char *key)
{
	size_t n = strlen(key);
	return strncmp(word, key, n) == 0 && word[n] == '=' ? word + n + 1 : NULL;
}

static bool flag(const char *word, const char *name, bool *to)
{
	if (strcmp(word, name) != 0)
		return false;
	*to = true;
	return true;
}

static bool number(char *word, const char *key, uint32_t *to)
{
	const char *value = value_of(word, key);
	int64_t v = 0;
	if (!value)
		return false;
	assert_int_equal(parse_i64(key, value, 0, UINT32_MAX, &v, NULL), 0);
	*to = (uint32_t)v;
	return true;
}

static void pair(char *text, struct map *to)
{
	char *slash = strchr(text, '/');
	assert_non_null(slash);
	*slash = '\0';
	map_set(to, text, slash + 1);
}

static bool spec_enum(char *word, struct spec *s)
{
	char *v;
	if ((v = value_of(word, "data")))
		return sensitivity_parse(v, &s->sensitivity) == 0;
	if ((v = value_of(word, "network")))
		return network_parse(v, &s->network) == 0;
	if ((v = value_of(word, "isolation")))
		return isolation_parse(v, &s->isolation) == 0;
	if ((v = value_of(word, "min")))
		return tier_parse(v, &s->min_tier) == 0;
	return false;
}

static bool spec_wish(char *word, struct spec *s)
{
	char *v;
	uint32_t n;
	if (number(word, "exposed", &n)) {
		s->exposures = xcalloc(n, sizeof(*s->exposures));
		s->n_exposures = n;
	} else if (number(word, "ttl", &n)) {
		s->ttl_ms = n * INT64_C(1000);
	} else if ((v = value_of(word, "region"))) {
		s->placement.preferred_region = xstrdup(v);
	} else if ((v = value_of(word, "need"))) {
		pair(v, &s->placement.required_labels);
	} else if ((v = value_of(word, "avoid"))) {
		strv_add(&s->placement.anti_affinity_keys, v);
	} else {
		return false;
	}
	return true;
}

static void read_spec(char *text, struct spec *s)
{
	char *words[32];
	size_t n = split(text, " ", words, ARRAY_LEN(words));
	spec_init(s);
	for (size_t i = 0; i < n; i++) {
		char *w = words[i];
		struct resources *r = &s->resources;
		bool known = !*w || flag(w, "repo", &s->signals.untrusted_repository) ||
			     flag(w, "generated", &s->signals.executes_generated_code) || flag(w, "secrets", &s->signals.needs_secrets) ||
			     flag(w, "mounts", &s->signals.host_mounts) || flag(w, "privileged", &s->signals.privileged) ||
			     flag(w, "writable", &s->writable_root) || number(w, "cpu", &r->cpu_millis) || number(w, "mem", &r->memory_mib) ||
			     number(w, "disk", &r->disk_mib) || number(w, "pids", &r->pids) || spec_enum(w, s) || spec_wish(w, s);
		if (!known)
			fail_msg("spec word '%s'", w);
	}
}

static void read_policy(char *text, struct policy *p)
{
	char *words[8];
	size_t n = split(text, " ", words, ARRAY_LEN(words));
	policy_strict(p);
	for (size_t i = 0; i < n; i++) {
		uint32_t v;
		if (strcmp(words[i], "trusted") == 0)
			policy_trusted_workstation(p);
		else if (number(words[i], "microvm", &v))
			p->microvm_risk_threshold = (int)v;
		else if (number(words[i], "gvisor", &v))
			p->gvisor_risk_threshold = (int)v;
		else if (number(words[i], "writable", &v))
			p->writable_root_weight = (int)v;
		else if (number(words[i], "reserve", &v))
			p->reserve_ratio = v;
		else if (*words[i] && strcmp(words[i], "strict") != 0)
			fail_msg("policy word '%s'", words[i]);
	}
}

/* A node and what its view borrows. */
struct test_node {
	struct node_view view;
	struct map labels;
	struct strv keys;
	struct node_reasons reasons;
};

static void offers(char *text, bool *tiers, bool *networks)
{
	char *words[4];
	size_t n = split(text, ",", words, ARRAY_LEN(words));
	for (size_t i = 0; i < n; i++) {
		enum tier t;
		enum network net;
		if (tiers && tier_parse(words[i], &t) == 0)
			tiers[t] = true;
		else if (networks && network_parse(words[i], &net) == 0)
			networks[net] = true;
		else
			fail_msg("offer '%s'", words[i]);
	}
}

static void reason(const char *text, char *out, size_t size)
{
	snprintf(out, size, "%s", text);
	for (char *p = out; *p; p++)
		*p = *p == '_' ? ' ' : *p;
}

static bool node_text(char *word, struct test_node *t)
{
	struct node_view *v = &t->view;
	char *text;
	if ((text = value_of(word, "tiers"))) {
		v->tiers[TIER_CONTAINER] = false;
		offers(text, v->tiers, NULL);
	} else if ((text = value_of(word, "nets"))) {
		offers(text, NULL, v->network);
	} else if ((text = value_of(word, "why-tier"))) {
		for (int i = 0; i < TIER_COUNT; i++)
			reason(text, t->reasons.tier[i], sizeof(t->reasons.tier[i]));
	} else if ((text = value_of(word, "why-net"))) {
		for (int i = 0; i < NETWORK_COUNT; i++)
			reason(text, t->reasons.network[i], sizeof(t->reasons.network[i]));
	} else if ((text = value_of(word, "region"))) {
		snprintf(v->region, sizeof(v->region), "%s", text);
	} else if ((text = value_of(word, "label"))) {
		pair(text, &t->labels);
	} else if ((text = value_of(word, "keys"))) {
		strv_add(&t->keys, text);
	} else if ((text = value_of(word, "pressure"))) {
		v->pressure = strtod(text, NULL);
	} else {
		return false;
	}
	return true;
}

static bool node_free(char *word, struct resources *free_)
{
	return number(word, "free-cpu", &free_->cpu_millis) || number(word, "free-mem", &free_->memory_mib) ||
	       number(word, "free-disk", &free_->disk_mib) || number(word, "free-pids", &free_->pids);
}

static void blank_node(size_t index, struct test_node *t)
{
	*t = (struct test_node){ .view = { .total = { 8000, 16384, 100000, 4096 }, .max_sandboxes = 100 } };
	struct node_view *v = &t->view;
	v->free = v->total;
	v->labels = &t->labels;
	v->anti_affinity = &t->keys;
	v->reasons = &t->reasons;
	v->tiers[TIER_CONTAINER] = v->network[NETWORK_DENY] = true;
	snprintf(v->id.text, sizeof(v->id.text), "019a0000-0000-7000-8000-%012zx", index);
}

static void read_node(char *text, size_t index, struct test_node *t)
{
	char *words[16];
	size_t n = split(text, " ", words, ARRAY_LEN(words));
	blank_node(index, t);
	struct node_view *v = &t->view;
	snprintf(v->name, sizeof(v->name), "%s", words[0]);
	for (size_t i = 1; i < n; i++) {
		char *w = words[i];
		bool known = flag(w, "stale", &v->stale) || flag(w, "draining", &v->draining) || flag(w, "tunnels", &v->tunnels) ||
			     flag(w, "warm", &v->warm_image) || number(w, "run", &v->sandboxes) || number(w, "max", &v->max_sandboxes) ||
			     number(w, "pids", &v->total.pids) || node_free(w, &v->free) || node_text(w, t);
		if (!known)
			fail_msg("node word '%s'", w);
	}
}

static void check_risk(char **f, const char *line)
{
	auto_spec spec;
	struct policy policy;
	struct decision d;
	decision_init(&d);
	read_spec(f[1], &spec);
	read_policy(f[2], &policy);
	aegis_assess(&spec, &policy, &d);
	auto_free char *got = xasprintf("%d %s", d.score, tier_text(d.required));
	if (strcmp(got, f[3]) != 0)
		fail_msg("%s: got %s (%s)", line, got, d.tier_reason);
	int sum = 0;
	for (size_t i = 0; i < d.n_signals; i++)
		sum += d.signals[i].points;
	assert_int_equal(d.score, sum > RISK_MAX ? RISK_MAX : sum);
	assert_true(d.tier_reason[0] != '\0');
	decision_done(&d);
}

static void check_refusal(const struct decision *d, char *expect, const char *line)
{
	char *texts[16];
	size_t n = split(expect, ";", texts, ARRAY_LEN(texts));
	if (d->placed)
		fail_msg("%s: placed on %s", line, d->node_name);
	for (size_t i = 1; i < n; i++)
		if (!strstr(d->refusal, texts[i]))
			fail_msg("%s: '%s' is not in: %s", line, texts[i], d->refusal);
	for (size_t i = 0; i < d->n_nodes; i++)
		assert_true(!d->nodes[i].fits && d->nodes[i].reason[0]);
}

static void check_place(char **f, const char *line)
{
	auto_spec spec;
	struct policy policy;
	struct decision d;
	struct test_node nodes[NODES_MAX];
	struct node_view views[NODES_MAX];
	char *texts[NODES_MAX];
	decision_init(&d);
	read_spec(f[1], &spec);
	read_policy(f[2], &policy);
	size_t n = *f[3] ? split(f[3], "|", texts, NODES_MAX) : 0;
	for (size_t i = 0; i < n; i++) {
		read_node(texts[i], i, &nodes[i]);
		views[i] = nodes[i].view;
		/* Known of every other node; it changes nothing. */
		views[i].label_bits_absent = i % 2 ? 0 : ~aegis_label_bits(&nodes[i].labels);
	}
	aegis_assess(&spec, &policy, &d);
	aegis_place(&spec, &policy, views, n, &d);
	if (strncmp(f[4], "no;", 3) == 0) {
		check_refusal(&d, f[4], line);
	} else {
		auto_free char *got = d.placed ? xasprintf("%s %d", d.node_name, d.nodes[0].rank) : xstrdup(d.refusal);
		if (strcmp(got, f[4]) != 0)
			fail_msg("%s: got %s (%s)", line, got, d.n_nodes ? d.nodes[0].reason : "");
	}
	for (size_t i = 0; i < n; i++) {
		map_done(&nodes[i].labels);
		strv_done(&nodes[i].keys);
	}
	decision_done(&d);
}

static void each_line(const char *path, size_t fields, void (*check)(char **, const char *))
{
	struct error err = ERROR_INIT;
	auto_buf content = BUF_INIT;
	if (io_read_file(path, 1 << 20, &content, &err) != 0)
		fail_msg("%s (run from the top of the source tree)", err.message);
	size_t cases = 0;
	for (char *line = content.data, *next; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (*line == '#' || !*line)
			continue;
		auto_free char *shown = xstrdup(line);
		char *f[FIELDS_MAX];
		/* The last field may hold colons of its own. */
		if (split(line, " :", f, fields) != fields)
			fail_msg("%s: %s", path, shown);
		check(f, shown);
		cases++;
	}
	assert_true(cases > 20);
}

static void risk_table(void **state)
{
	(void)state;
	each_line("tests/unit/data/aegis-risk.txt", 4, check_risk);
}

static void place_table(void **state)
{
	(void)state;
	each_line("tests/unit/data/aegis-place.txt", 5, check_place);
}

static void a_decision_repeats_itself(void **state)
{
	struct policy policy;
	struct decision d;
	auto_spec spec;
	struct test_node node;
	(void)state;
	policy_strict(&policy);
	spec_init(&spec);
	decision_init(&d);
	blank_node(1, &node);
	snprintf(node.view.name, sizeof(node.view.name), "a");
	for (int i = 0; i < 3; i++) {
		aegis_assess(&spec, &policy, &d);
		aegis_place(&spec, &policy, &node.view, 1, &d);
		assert_int_equal(d.score, 10);
		assert_int_equal(d.n_signals, 1);
		assert_string_equal(d.signals[0].name, "data internal");
		assert_true(d.placed);
		assert_int_equal(d.n_nodes, 1);
		assert_string_equal(d.node.text, node.view.id.text);
	}
	node.view.stale = true;
	aegis_place(&spec, &policy, &node.view, 1, &d);
	assert_false(d.placed);
	assert_true(d.refusal[0] != '\0');
	decision_done(&d);
}

enum { MANY = 10000 };

/* The best of ten, so that a busy machine does not fail it; instrumented builds are ten times slower. */
static void many_nodes_are_decided_quickly(void **state)
{
	struct policy policy;
	struct decision d;
	auto_spec spec;
	int64_t best = INT64_MAX;
	auto_free struct test_node *proto = xcalloc(1, sizeof(*proto));
	auto_free struct node_view *views = xcalloc(MANY, sizeof(*views));
	(void)state;
	policy_strict(&policy);
	spec_init(&spec);
	decision_init(&d);
	for (size_t i = 0; i < MANY; i++) {
		blank_node(i, proto);
		views[i] = proto->view;
		views[i].pressure = (double)((i * 7919) % MANY) / MANY * 0.9;
	}
	for (int i = 0; i < 10; i++) {
		int64_t start = clock_mono_us();
		aegis_assess(&spec, &policy, &d);
		aegis_place(&spec, &policy, views, MANY, &d);
		int64_t took = clock_mono_us() - start;
		best = took < best ? took : best;
	}
	assert_true(d.placed);
	assert_string_equal(d.node.text, views[0].id.text);
	assert_true(d.n_nodes < 100);
	print_message("among %d nodes: %lld us\n", MANY, (long long)best);
#ifdef __OPTIMIZE__
	assert_true(best < 10000);
#endif
	decision_done(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(risk_table),
		cmocka_unit_test(place_table),
		cmocka_unit_test(a_decision_repeats_itself),
		cmocka_unit_test(many_nodes_are_decided_quickly),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
