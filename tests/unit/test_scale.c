/*
 * What a large fleet costs the controller: deciding among ten thousand nodes, following what other controllers write of them, and the
 * first page of a tenant's list among a hundred thousand sandboxes. Each is compared with a small fleet in the same run, the best of
 * several tries, so that a busy machine does not fail it; tests/bench/scale prints the figures and judges them.
 */
#include "tests/unit/controller_world.h"

#include "daemon/controller/internal.h"

#include <time.h>

/* Instrumented builds are slower by as much. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
enum { SLOWER = 20 };
#else
enum { SLOWER = 1 };
#endif

enum { NODES = 10000, ROUNDS = 400, ROWS = 100000, PAGES = 200, MANY = 5000 };

static int by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

struct figures {
	int64_t best, p50, p99;
};

static struct figures figures_of(int64_t *us, size_t n)
{
	qsort(us, n, sizeof(*us), by_size);
	return (struct figures){ .best = us[0], .p50 = us[n / 2], .p99 = us[n * 99 / 100] };
}

static void tell(const char *what, struct figures f)
{
	print_message("# figure: %s: p50 %.3f ms, p99 %.3f ms\n", what, (double)f.p50 / 1000, (double)f.p99 / 1000);
}

/* --- nodes --- */

/* Rows as heartbeats leave them, without ten thousand transactions. */
static void fill_nodes(const struct fix *f, int n)
{
	static const char *const columns = "INSERT INTO nodes (id, name, region, cpu_millis, memory_mib, disk_mib, pids, max_sandboxes, offers, seen_us) SELECT ";
	static const char *const rest = " || i, region, cpu_millis, memory_mib, disk_mib, pids, 100, offers, seen_us FROM ";
	auto_free char *sql = f->url[0] ?
		xasprintf("%s '00000000-0000-7000-9000-' || lpad(i::text, 12, '0'), 'n'%sgenerate_series(1, %d) i, (SELECT * FROM nodes LIMIT 1) s; ANALYZE nodes",
			  columns, rest, n) :
		xasprintf("WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < %d) %s printf('00000000-0000-7000-9000-%%012d', i), 'n'%sc, "
			  "(SELECT * FROM nodes LIMIT 1)", n, columns, rest);
	change_rows(f, sql);
}

static void report(struct fix *f, int i)
{
	struct node_report r = { .max_sandboxes = 100, .region = "here", .pressure = (double)(i * 7919 % NODES) / NODES * 0.9,
				 .total = { .cpu_millis = 64000, .memory_mib = 262144, .disk_mib = 1000000, .pids = 100000 } };
	snprintf(r.node.text, sizeof(r.node.text), "00000000-0000-7000-9000-%012d", i);
	snprintf(r.name, sizeof(r.name), "n%d", i);
	r.tiers[TIER_CONTAINER].offered = r.tiers[TIER_GVISOR].offered = r.network[NETWORK_DENY] = true;
	map_set(&r.labels, "disk", i % 3 ? "ssd" : "hdd");
	if (controller_heartbeat(f->c, &r, &f->err) != 0)
		fail_msg("%s", f->err.message);
	map_done(&r.labels);
}

/* What this thread has computed: what others do on the machine is not in it. */
static int64_t spent_us(void)
{
	struct timespec t;
	assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
	return (int64_t)t.tv_sec * SECOND_US + t.tv_nsec / 1000;
}

static struct figures decisions(struct fix *f, struct figures *ret_spent)
{
	int64_t took[ROUNDS], spent[ROUNDS];
	auto_spec s;
	struct decision d;
	struct policy policy;
	policy_strict(&policy);
	spec_init(&s);
	decision_init(&d);
	map_set(&s.placement.required_labels, "disk", "ssd");
	aegis_assess(&s, &policy, &d);
	for (int i = 0; i < ROUNDS; i++) {
		int64_t start = clock_mono_us(), before = spent_us();
		nodes_place(f->c, &s, &d, NULL);
		spent[i] = spent_us() - before;
		took[i] = clock_mono_us() - start;
		assert_true(d.placed);
	}
	decision_done(&d);
	*ret_spent = figures_of(spent, ROUNDS);
	return figures_of(took, ROUNDS);
}

static void ten_thousand_nodes_are_decided_among_quickly(void **state)
{
	struct fix *f = *state;
	int64_t start = clock_mono_us();
	for (int i = 1; i <= NODES; i++)
		report(f, i);
	print_message("# %d nodes reported in %lld ms\n", NODES, (long long)(clock_mono_us() - start) / 1000);
	start = clock_mono_us();
	for (int i = 1; i <= NODES; i++)
		report(f, i);
	int64_t again = (clock_mono_us() - start) / NODES;
	print_message("# figure: a heartbeat among %d nodes: %lld us\n", NODES, (long long)again);
	struct figures spent, took = decisions(f, &spent);
	tell("a decision among 10 000 nodes", took);
	tell("a decision among 10 000 nodes, processor time", spent);
	assert_true(again < 5000 * SLOWER);
	/* A millisecond on an idle machine; a busy one has its caches for others as well. What it guards against: a query, text or a lock per node. */
	assert_true(spent.best < 5000 * SLOWER);
}

static void creates_cost_the_same_in_a_large_fleet(void **state)
{
	struct fix *f = *state;
	int64_t took[ROUNDS];
	close_controller(f);
	fill_nodes(f, NODES);
	int64_t start = clock_mono_us();
	open_controller(f);
	print_message("# figure: %d nodes read at the start: %lld ms\n", NODES, (long long)(clock_mono_us() - start) / 1000);
	beat(f, 100000);
	for (int i = 0; i < ROUNDS; i++) {
		start = clock_mono_us();
		create(f, NULL, 3600 * 1000);
		took[i] = clock_mono_us() - start;
	}
	tell("a create among 10 000 nodes", figures_of(took, ROUNDS));
	expect_consistent(f);
}

/* --- lists --- */

#define FILL_COLUMNS \
	"INSERT INTO sandboxes (id, rid, tenant, name, state, live, node_id, node_name, tier, risk_score, writable_root, created_us, " \
	"updated_us, expires_us, ended_us, end_reason, spec) "
#define FILL_REST \
	"'team', NULL, 'running', 1, node_id, node_name, tier, 0, 0, created_us, updated_us, expires_us, 0, 'none', spec "

static void fill_rows(const struct fix *f, int n)
{
	auto_free char *sql = f->url[0] ? xasprintf(FILL_COLUMNS "SELECT '00000000-0000-7000-8000-' || lpad(i::text, 12, '0'), "
		"lpad(i::text, 6, '0') || '000000-0008-0007-0000-00000000', " FILL_REST
		"FROM generate_series(1, %d) i, (SELECT * FROM sandboxes LIMIT 1) s; ANALYZE sandboxes", n) : xasprintf(
		"PRAGMA synchronous=OFF; BEGIN;"
		"WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < %d) "
		FILL_COLUMNS "SELECT printf('00000000-0000-7000-8000-%%012d', i), printf('%%06d', i) || '000000-0008-0007-0000-00000000', "
		FILL_REST "FROM c, (SELECT * FROM sandboxes LIMIT 1); COMMIT", n);
	change_rows(f, sql);
}

static struct figures first_pages(struct fix *f)
{
	int64_t took[PAGES];
	for (int i = 0; i < PAGES; i++) {
		struct sandbox_list l;
		int64_t start = clock_mono_us();
		assert_int_equal(controller_list(f->c, &f->operator, &(struct list_query){ .limit = 100 }, &l, &f->err), 0);
		took[i] = clock_mono_us() - start;
		assert_int_equal(l.len, 100);
		sandbox_list_done(&l);
	}
	return figures_of(took, PAGES);
}

static void fill_and_open(struct fix *f, int n)
{
	close_controller(f);
	fill_rows(f, n);
	open_controller(f);
}

static void long_lists_start_fast(void **state)
{
	struct fix *f = *state;
	struct sandbox_list l;
	create(f, "web", 3600 * 1000);
	fill_and_open(f, ROWS);
	struct figures page = first_pages(f);
	tell("first 100 of 100 000 sandboxes of a tenant", page);
	int64_t start = clock_mono_us();
	struct sandbox s = get(f, "123450"); /* a suffix of one of them */
	int64_t suffix = clock_mono_us() - start;
	sandbox_done(&s);
	start = clock_mono_us();
	assert_int_equal(controller_list(f->c, &f->operator, &(struct list_query){ .limit = MANY }, &l, &f->err), 0);
	assert_int_equal(l.len, MANY);
	int64_t many = clock_mono_us() - start;
	sandbox_list_done(&l);
	print_message("# one by suffix in %lld us, first %d in %lld ms\n", (long long)suffix, MANY, (long long)many / 1000);
	/* The best of many tries reads neither all rows nor sorts them, however slow the machine is. */
	assert_true(page.best < 10 * 1000 * SLOWER);
	assert_true(suffix < 100 * 1000 * SLOWER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(ten_thousand_nodes_are_decided_among_quickly),
		T(creates_cost_the_same_in_a_large_fleet),
		T(long_lists_start_fast),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
