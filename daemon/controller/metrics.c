/* What the controller counts, in the text format of Prometheus: see controller.h. Counters begin with the daemon. */
#include "daemon/controller/internal.h"

#include <inttypes.h>
#include <stdatomic.h>

/* Upper bounds in microseconds; from a command's begin to a slow image pull. */
static const int64_t bounds_us[] = { 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000,
				     60000000, 300000000 };
enum { BOUNDS = ARRAY_LEN(bounds_us), PHASES = 2 };

struct histogram {
	_Atomic uint64_t buckets[BOUNDS + 1];
	_Atomic uint64_t sum_us;
};

struct metrics {
	_Atomic uint64_t ended[OPK_COUNT][OUTCOME_COUNT][2];
	struct histogram took[OPK_COUNT][PHASES]; /* queued, total */
};

static const char *const phases[PHASES] = { "queued", "total" };

struct metrics *metrics_new(void)
{
	return xcalloc(1, sizeof(struct metrics));
}

void metrics_free(struct metrics *m)
{
	free(m);
}

void metrics_add(struct metrics *m, const struct measure *one)
{
	struct histogram *h = &m->took[one->kind][one->queued ? 0 : 1];
	size_t i = 0;
	while (i < BOUNDS && one->took_us > bounds_us[i])
		i++;
	atomic_fetch_add(&h->buckets[i], 1);
	atomic_fetch_add(&h->sum_us, (uint64_t)(one->took_us > 0 ? one->took_us : 0));
	if (!one->queued)
		atomic_fetch_add(&m->ended[one->kind][one->outcome][one->succeeded], 1);
}

/* An id begins with the milliseconds of its making. */
static int64_t made_us(const struct id *id)
{
	char digits[13];
	snprintf(digits, sizeof(digits), "%.8s%.4s", id->text, id->text + 9);
	return (int64_t)strtoull(digits, NULL, 16) * 1000;
}

void change_measure(struct change *ch, const struct op_head *op, bool queued, const struct op_change *to)
{
	if (!op->tenant[0]) /* nobody waited for it */
		return;
	ch->measures = xrealloc(ch->measures, ch->n_measures + 1, sizeof(*ch->measures));
	ch->measures[ch->n_measures++] = (struct measure){
		.kind = op->kind, .queued = queued, .succeeded = to && to->to == OP_SUCCEEDED,
		.outcome = to && to->result ? to->result->outcome : OUTCOME_NONE, .took_us = ch->now - made_us(&op->id),
	};
}

/* --- text --- */

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_ended(const struct metrics *m, struct buf *out)
{
	head(out, "sandbox_operations_total", "counter", "Operations that ended, by kind and outcome.");
	for (int k = 0; k < OPK_COUNT; k++)
		for (int o = 0; o < OUTCOME_COUNT; o++)
			for (int s = 0; s < 2; s++) {
				uint64_t n = atomic_load(&m->ended[k][o][s]);
				if (n)
					buf_addf(out, "sandbox_operations_total{kind=\"%s\",outcome=\"%s\",state=\"%s\"} %" PRIu64 "\n",
						 op_kind_text((enum op_kind)k), outcome_text((enum outcome)o), s ? "succeeded" : "failed", n);
			}
}

static void add_histogram(const struct histogram *h, const char *kind, const char *phase, struct buf *out)
{
	uint64_t n = 0;
	for (size_t i = 0; i <= BOUNDS; i++) {
		n += atomic_load(&h->buckets[i]);
		char le[24] = "+Inf";
		if (i < BOUNDS)
			snprintf(le, sizeof(le), "%g", (double)bounds_us[i] / 1e6);
		buf_addf(out, "sandbox_operation_seconds_bucket{kind=\"%s\",phase=\"%s\",le=\"%s\"} %" PRIu64 "\n", kind, phase, le, n);
	}
	buf_addf(out, "sandbox_operation_seconds_sum{kind=\"%s\",phase=\"%s\"} %.6f\n", kind, phase, (double)atomic_load(&h->sum_us) / 1e6);
	buf_addf(out, "sandbox_operation_seconds_count{kind=\"%s\",phase=\"%s\"} %" PRIu64 "\n", kind, phase, n);
}

static void add_took(const struct metrics *m, struct buf *out)
{
	head(out, "sandbox_operation_seconds", "histogram", "From an operation's request to its lease (queued) and to its end (total).");
	for (int k = 0; k < OPK_COUNT; k++)
		for (int p = k == OPK_EXEC ? 1 : 0; p < PHASES; p++)
			add_histogram(&m->took[k][p], op_kind_text((enum op_kind)k), phases[p], out);
}

static void add_count(void *ctx, const char *state, int64_t n)
{
	buf_addf(ctx, "sandbox_sandboxes{state=\"%s\"} %" PRId64 "\n", state, n);
}

/* Written only whole: figures of a store that stopped answering half-way would be wrong. */
static bool add_stored(struct controller *c, struct buf *out)
{
	auto_tx *tx = NULL;
	auto_buf text = BUF_INIT;
	int64_t open = 0;
	if (store_begin(c->store, DB_READ, &tx, NULL) != 0)
		return false;
	head(&text, "sandbox_sandboxes", "gauge", "Live sandboxes by state, in the whole store.");
	if (store_sandbox_counts(tx, add_count, &text, NULL) != 0 || store_op_running(tx, &open, NULL) != 0)
		return false;
	head(&text, "sandbox_commands_running", "gauge", "Commands that run now, in the whole store.");
	buf_addf(&text, "sandbox_commands_running %" PRId64 "\n", open);
	buf_adds(out, buf_str(&text));
	return true;
}

static void add_store(struct controller *c, struct buf *out)
{
	struct db_stats s = store_stats(c->store);
	bool up = add_stored(c, out);
	head(out, "sandbox_store_up", "gauge", "1 when the store answered this scrape.");
	buf_addf(out, "sandbox_store_up %d\n", up);
	head(out, "sandbox_store_leader", "gauge", "1 when this daemon reaps and publishes for all on the store.");
	buf_addf(out, "sandbox_store_leader %d\n", store_leads(c->store));
	head(out, "sandbox_store_transactions_total", "counter", "Transactions begun.");
	buf_addf(out, "sandbox_store_transactions_total %" PRIu64 "\n", s.transactions);
	head(out, "sandbox_store_failures_total", "counter", "Transactions that could not be begun or committed.");
	buf_addf(out, "sandbox_store_failures_total %" PRIu64 "\n", s.failures);
	head(out, "sandbox_store_seconds_total", "counter", "Time spent in transactions, from begin to end.");
	buf_addf(out, "sandbox_store_seconds_total %.6f\n", (double)s.busy_us / 1e6);
}

void controller_metrics(struct controller *c, struct buf *out)
{
	head(out, "sandbox_build_info", "gauge", "Version of this daemon and its store.");
	buf_addf(out, "sandbox_build_info{version=\"%s\",store=\"%s\"} 1\n", SANDBOX_VERSION, store_describe(c->store));
	add_ended(c->metrics, out);
	add_took(c->metrics, out);
	nodes_metrics(c, out);
	head(out, "sandbox_creates_waiting", "gauge", "Creates that wait here for capacity.");
	buf_addf(out, "sandbox_creates_waiting %u\n", queue_len(c));
	pools_metrics(c, out);
	add_store(c, out);
}
