/*
 * Placement: hard gates, then a rank. Two passes: the first over all nodes without writing text, so that thousands of
 * nodes cost microseconds; the second explains the few that are shown.
 */
#include "daemon/aegis/aegis.h"

#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Nodes a decision explains one by one; those its refusal names, in so many bytes that the remedies still fit. */
enum { EXPLAINED_MAX = 32, NAMED_MAX = 3, NAMED_BYTES = 480 };

enum gate {
	GATE_PASSED,
	GATE_STALE,
	GATE_DRAINING,
	GATE_PRESSURE,
	GATE_TIER,
	GATE_NETWORK,
	GATE_EXPOSURE,
	GATE_LABEL,
	GATE_ANTI_AFFINITY,
	GATE_COUNT_LIMIT,
	GATE_CPU,
	GATE_MEMORY,
	GATE_DISK,
	GATE_PIDS,
	GATE_RESERVE,
};

struct fit {
	double least, most; /* fractions left after placement: of the scarcest and of the most plentiful resource */
};

static double left(uint32_t free_, uint32_t asked, uint32_t total)
{
	return total == 0 || free_ < asked ? 0.0 : (double)(free_ - asked) / total;
}

static struct fit fit_of(const struct resources *ask, const struct node_view *n)
{
	const double parts[] = {
		left(n->free.cpu_millis, ask->cpu_millis, n->total.cpu_millis),
		left(n->free.memory_mib, ask->memory_mib, n->total.memory_mib),
		left(n->free.disk_mib, ask->disk_mib, n->total.disk_mib),
		left(n->free.pids, ask->pids, n->total.pids),
	};
	struct fit f = { parts[0], parts[0] };
	for (size_t i = 1; i < ARRAY_LEN(parts); i++) {
		f.least = parts[i] < f.least ? parts[i] : f.least;
		f.most = parts[i] > f.most ? parts[i] : f.most;
	}
	return f;
}

uint64_t aegis_label_bits(const struct map *labels)
{
	uint64_t bits = 0;
	for (size_t i = 0; i < labels->len; i++) {
		uint64_t hash = 14695981039346656037ULL;
		for (const char *p = labels->items[i].key; *p; p++)
			hash = (hash ^ (unsigned char)*p) * 1099511628211ULL;
		for (const char *p = labels->items[i].value; *p; p++)
			hash = (hash ^ (unsigned char)*p) * 1099511628211ULL;
		bits |= 1ULL << (hash >> 58);
	}
	return bits;
}

/* The first required label the node lacks, NULL when it has all. */
static const struct kv *missing_label(const struct spec *s, const struct node_view *n)
{
	for (size_t i = 0; i < s->placement.required_labels.len; i++) {
		const struct kv *want = &s->placement.required_labels.items[i];
		const char *have = n->labels ? map_get(n->labels, want->key) : NULL;
		if (!have || strcmp(have, want->value) != 0)
			return want;
	}
	return NULL;
}

static const char *affinity_hit(const struct spec *s, const struct node_view *n)
{
	const struct strv *keys = &s->placement.anti_affinity_keys;
	for (size_t i = 0; n->anti_affinity && i < keys->len; i++)
		if (strv_has(n->anti_affinity, keys->items[i]))
			return keys->items[i];
	return NULL;
}

static enum gate resource_gate(const struct resources *ask, const struct resources *free_)
{
	if (ask->cpu_millis > free_->cpu_millis)
		return GATE_CPU;
	if (ask->memory_mib > free_->memory_mib)
		return GATE_MEMORY;
	if (ask->disk_mib > free_->disk_mib)
		return GATE_DISK;
	return ask->pids > free_->pids ? GATE_PIDS : GATE_PASSED;
}

/* Would an empty node do? */
static bool beyond(enum gate g, const struct resources *ask, const struct node_view *n)
{
	return resource_gate(ask, &n->total) == g;
}

/* Whether the tier can have that network at all; why not: docs/decisions/0011. */
static bool reaches(const struct spec *s, enum tier required)
{
	return s->network != NETWORK_OPEN || required == TIER_CONTAINER;
}

/* Placement as a whole: the first pass fills gates and best, the second explains. */
struct pass {
	const struct spec *spec;
	const struct policy *policy;
	enum tier required;
	uint64_t label_bits; /* of the required ones */
	const struct node_view *nodes;
	size_t n;
	unsigned gates_seen; /* bit per gate */
	unsigned curable;    /* those that some node passes when sandboxes on it end */
	const struct node_view *best;
	int best_rank;
};

/*
 * The first gate the node fails: its health, what it offers, what was asked of it, what it has left. *ret_fit is set when it passes all.
 * With its labels by their bits alone: reading thousands of texts takes longer than all the rest.
 */
static enum gate check_quickly(const struct pass *ps, const struct node_view *n, struct fit *ret_fit)
{
	const struct spec *s = ps->spec;
	if (n->stale)
		return GATE_STALE;
	if (n->draining)
		return GATE_DRAINING;
	if (!(n->pressure <= ps->policy->max_host_pressure)) /* also when it is no number */
		return GATE_PRESSURE;
	if (!n->tiers[ps->required])
		return GATE_TIER;
	if (!n->network[s->network] || !reaches(s, ps->required))
		return GATE_NETWORK;
	if (s->n_exposures > 0 && !n->tunnels)
		return GATE_EXPOSURE;
	if (ps->label_bits & n->label_bits_absent)
		return GATE_LABEL;
	if (affinity_hit(s, n))
		return GATE_ANTI_AFFINITY;
	if (n->max_sandboxes > 0 && n->sandboxes >= n->max_sandboxes)
		return GATE_COUNT_LIMIT;
	enum gate resource = resource_gate(&s->resources, &n->free);
	if (resource != GATE_PASSED)
		return resource;
	*ret_fit = fit_of(&s->resources, n);
	return ret_fit->least < ps->policy->reserve_ratio ? GATE_RESERVE : GATE_PASSED;
}

static enum gate check(const struct pass *ps, const struct node_view *n, struct fit *ret_fit)
{
	enum gate g = check_quickly(ps, n, ret_fit);
	return (g == GATE_PASSED || g > GATE_LABEL) && missing_label(ps->spec, n) ? GATE_LABEL : g;
}

static int region_points(const struct spec *s, const struct node_view *n)
{
	const char *asked = s->placement.preferred_region;
	return !asked ? 20 : strcmp(asked, n->region) == 0 ? 80 : 0;
}

/* To the nearest, halves away from zero; the values here are small. */
static int nearest(double v)
{
	return (int)(v < 0 ? v - 0.5 : v + 0.5);
}

static int rank_of(const struct spec *s, const struct node_view *n, struct fit f)
{
	double pressure = n->pressure < 0.0 ? 0.0 : n->pressure > 1.0 ? 1.0 : n->pressure;
	int rank = 1000 + nearest(500 * f.least) + region_points(s, n) - nearest(220 * (f.most - f.least)) - nearest(300 * pressure);
	rank += n->warm_image ? 120 : 0;
	rank += f.least < 0.35 ? 70 : 0;
	return rank;
}

struct text {
	char *at;
	size_t size, len;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(t->at + t->len, t->size - t->len, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	if ((size_t)n < t->size - t->len) {
		t->len += (size_t)n;
		return;
	}
	t->len = utf8_cut(t->at, t->size - 1);
	t->at[t->len] = '\0';
}

static void put_offer(struct text *t, const char *kind, const char *word, const struct node_view *n, const char *reason)
{
	put(t, "%s %s not offered by node %s%s%s", kind, word, n->name, *reason ? ": " : "", reason);
}

static const char *no_open(enum tier tier)
{
	return tier == TIER_MICROVM ? "a microVM has no network device, by design" : "gVisor would need one of this machine's network stacks, or its own from its start on";
}

static void put_short(struct text *t, const char *what, const struct node_view *n, uint32_t free_, uint32_t total, uint32_t asked)
{
	if (asked > total)
		put(t, "node %s has %u %s in all, %u asked", n->name, total, what, asked);
	else
		put(t, "node %s has %u %s free, %u asked", n->name, free_, what, asked);
}

static void put_gate(struct text *t, enum gate g, const struct spec *s, const struct policy *p, enum tier required,
		     const struct node_view *n)
{
	const struct resources *ask = &s->resources;
	const struct kv *label;
	switch (g) {
	case GATE_PASSED:
		return;
	case GATE_STALE:
		put(t, "node %s has not been heard from", n->name);
		return;
	case GATE_DRAINING:
		put(t, "node %s is draining", n->name);
		return;
	case GATE_PRESSURE:
		put(t, "node %s has pressure %.2f, over %.2f", n->name, n->pressure, p->max_host_pressure);
		return;
	case GATE_TIER:
		put_offer(t, "tier", tier_text(required), n, n->reasons ? n->reasons->tier[required] : "");
		return;
	case GATE_NETWORK:
		if (!reaches(s, required))
			put(t, "network %s is for containers, and tier %s is needed: %s", network_text(s->network), tier_text(required), no_open(required));
		else
			put_offer(t, "network", network_text(s->network), n, n->reasons ? n->reasons->network[s->network] : "");
		return;
	case GATE_EXPOSURE:
		put(t, "public exposure not offered by node %s", n->name);
		return;
	case GATE_LABEL:
		label = missing_label(s, n);
		put(t, "node %s lacks the label %s=%s", n->name, label->key, label->value);
		return;
	case GATE_ANTI_AFFINITY:
		put(t, "node %s already runs a sandbox with the anti-affinity key %s", n->name, affinity_hit(s, n));
		return;
	case GATE_COUNT_LIMIT:
		put(t, "node %s runs %u sandboxes, its limit is %u", n->name, n->sandboxes, n->max_sandboxes);
		return;
	case GATE_CPU:
		put_short(t, "CPU millis", n, n->free.cpu_millis, n->total.cpu_millis, ask->cpu_millis);
		return;
	case GATE_MEMORY:
		put_short(t, "MiB of memory", n, n->free.memory_mib, n->total.memory_mib, ask->memory_mib);
		return;
	case GATE_DISK:
		put_short(t, "MiB of disk", n, n->free.disk_mib, n->total.disk_mib, ask->disk_mib);
		return;
	case GATE_PIDS:
		put_short(t, "PIDs", n, n->free.pids, n->total.pids, ask->pids);
		return;
	case GATE_RESERVE:
		put(t, "node %s would keep %.3f of its scarcest resource, %.3f must stay free", n->name, fit_of(ask, n).least, p->reserve_ratio);
		return;
	}
}

static void put_rank(struct text *t, const struct spec *s, const struct node_view *n)
{
	struct fit f = fit_of(&s->resources, n);
	put(t, "headroom %.3f, spread %.3f, pressure %.2f, region %+d", f.least, f.most - f.least, n->pressure, region_points(s, n));
	if (n->warm_image)
		put(t, ", image present");
	if (f.least < 0.35)
		put(t, ", packing");
}

/* Labels are read where they decide: of nodes better than those before, and of those that fail, for the refusal's text. */
static void scan_nodes(struct pass *ps)
{
	for (size_t i = 0; i < ps->n; i++) {
		const struct node_view *n = &ps->nodes[i];
		struct fit f;
		enum gate g = check_quickly(ps, n, &f);
		int rank = g == GATE_PASSED ? rank_of(ps->spec, n, f) : 0;
		if (g == GATE_PASSED && ps->best && (rank < ps->best_rank || (rank == ps->best_rank && strcmp(n->id.text, ps->best->id.text) > 0)))
			continue;
		if ((g == GATE_PASSED || g > GATE_LABEL) && missing_label(ps->spec, n))
			g = GATE_LABEL;
		ps->gates_seen |= 1u << g;
		if (g == GATE_PASSED) {
			ps->best = n;
			ps->best_rank = rank;
		} else if (!beyond(g, &ps->spec->resources, n)) {
			ps->curable |= 1u << g;
		}
	}
}

static void explain_node(const struct pass *ps, const struct node_view *n, struct node_verdict *v)
{
	struct fit f;
	enum gate g = check(ps, n, &f);
	struct text t = { .at = v->reason, .size = sizeof(v->reason) };
	v->id = n->id;
	memcpy(v->name, n->name, sizeof(v->name));
	v->fits = g == GATE_PASSED;
	if (v->fits) {
		v->rank = rank_of(ps->spec, n, f);
		put_rank(&t, ps->spec, n);
	} else {
		put_gate(&t, g, ps->spec, ps->policy, ps->required, n);
	}
}

/* The chosen node is always among those explained, first. */
static void explain(const struct pass *ps, struct decision *d)
{
	size_t max = ps->n < EXPLAINED_MAX ? ps->n : EXPLAINED_MAX;
	free(d->nodes);
	d->nodes = max ? xcalloc(max, sizeof(*d->nodes)) : NULL;
	d->n_nodes = 0;
	if (ps->best)
		explain_node(ps, ps->best, &d->nodes[d->n_nodes++]);
	for (size_t i = 0; i < ps->n && d->n_nodes < max; i++)
		if (&ps->nodes[i] != ps->best)
			explain_node(ps, &ps->nodes[i], &d->nodes[d->n_nodes++]);
}

static void put_tier_remedy(struct text *t, const struct decision *d)
{
	put(t, "a worker that offers %s", tier_text(d->required));
	if (d->score < d->threshold) {
		if (d->required > TIER_CONTAINER) /* there is none below */
			put(t, ", or a request that asks for a weaker tier");
		return;
	}
	put(t, ", or a request scoring below %d (now:", d->threshold);
	for (size_t i = 0; i < d->n_signals; i++)
		put(t, "%s %s %d", i ? "," : "", d->signals[i].name, d->signals[i].points);
	put(t, "), or policy.profile = trusted-workstation on your own machine");
}

/* What would satisfy each gate that stood in the way. */
static void put_remedies(struct text *t, const struct pass *ps, const struct decision *d)
{
	static const struct {
		enum gate gate;
		const char *text;
		const char *deleting; /* what else does where ending sandboxes helps */
	} remedies[] = {
		{ GATE_STALE, "a worker that reports again", "" },
		{ GATE_DRAINING, "a worker that is not draining", "" },
		{ GATE_PRESSURE, "less load on the worker", "" },
		{ GATE_EXPOSURE, "a request without exposures", "" },
		{ GATE_LABEL, "a worker with the required labels", "" },
		{ GATE_ANTI_AFFINITY, "another worker, or the end of the sandbox it must not meet", "" },
		{ GATE_COUNT_LIMIT, "deleting a sandbox, or a higher worker.max_sandboxes", "" },
		{ GATE_CPU, "asking for less CPU", ", or deleting a sandbox" },
		{ GATE_MEMORY, "asking for less memory", ", or deleting a sandbox" },
		{ GATE_DISK, "asking for less disk", ", or deleting a sandbox" },
		{ GATE_PIDS, "asking for fewer PIDs", ", or deleting a sandbox" },
		{ GATE_RESERVE, "asking for less, deleting a sandbox, or a lower policy.reserve_ratio", "" },
	};
	const struct spec *s = ps->spec;
	unsigned gates = ps->gates_seen;
	const char *separator = "";
	if (gates & 1u << GATE_TIER) {
		put_tier_remedy(t, d);
		separator = "; ";
	}
	if (gates & 1u << GATE_NETWORK) {
		if (reaches(s, d->required))
			put(t, "%sa worker that offers network %s%s", separator, network_text(s->network), s->network == NETWORK_DENY ? "" : ", or network deny");
		else
			put(t, "%snetwork restricted, which every tier has", separator);
		separator = "; ";
	}
	for (size_t i = 0; i < ARRAY_LEN(remedies); i++) {
		if (gates & 1u << remedies[i].gate) {
			put(t, "%s%s%s", separator, remedies[i].text, ps->curable & 1u << remedies[i].gate ? remedies[i].deleting : "");
			separator = "; ";
		}
	}
}

/* Of the first gate in a node's way. What an empty, healthy node would not have either, no waiting brings. */
static bool may_pass(const struct pass *ps)
{
	const unsigned states = 1u << GATE_STALE | 1u << GATE_DRAINING | 1u << GATE_PRESSURE | 1u << GATE_ANTI_AFFINITY | 1u << GATE_COUNT_LIMIT;
	const unsigned amounts = 1u << GATE_CPU | 1u << GATE_MEMORY | 1u << GATE_DISK | 1u << GATE_PIDS;

	return (ps->gates_seen & states) != 0 || (ps->curable & amounts) != 0;
}

static void refuse(const struct pass *ps, struct decision *d)
{
	struct text t = { .at = d->refusal, .size = sizeof(d->refusal) };
	put(&t, "no node can run this: risk score %d (microvm threshold %d, profile %s), required tier %s", d->score, d->threshold, d->profile,
	    tier_text(d->required));
	size_t named = d->n_nodes < NAMED_MAX ? d->n_nodes : NAMED_MAX;
	for (size_t i = 0; i < named; i++) {
		const char *reason = d->nodes[i].reason;
		size_t n = strlen(reason), max = NAMED_BYTES / named;
		put(&t, "; %.*s", (int)(n <= max ? n : utf8_cut(reason, max)), reason);
	}
	if (ps->n > named)
		put(&t, "; and %zu more", ps->n - named);
	put(&t, ". What would do: ");
	d->may_pass = may_pass(ps);
	if (ps->n == 0)
		put(&t, "a worker; none is known");
	else
		put_remedies(&t, ps, d);
}

void aegis_place(const struct spec *spec, const struct policy *policy, const struct node_view *nodes, size_t n, struct decision *d)
{
	struct pass ps = { .spec = spec, .policy = policy, .required = d->required, .nodes = nodes, .n = n,
			   .label_bits = aegis_label_bits(&spec->placement.required_labels) };
	d->placed = false;
	d->refusal[0] = '\0';
	d->may_pass = false;
	if (spec->signals.privileged) {
		snprintf(d->refusal, sizeof(d->refusal), "privileged sandboxes are never run");
		return;
	}
	scan_nodes(&ps);
	explain(&ps, d);
	if (!ps.best) {
		refuse(&ps, d);
		return;
	}
	d->placed = true;
	d->node = ps.best->id;
	memcpy(d->node_name, ps.best->name, sizeof(d->node_name));
}
