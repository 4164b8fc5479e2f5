/*
 * Times two commands in turn, A B A B …, as whole processes: `bench_pair RUNS A… :: B…`. Prints one line of JSON with the
 * medians in milliseconds and the median of the pairwise ratios A/B. stdin is /dev/null, stdout is thrown away.
 */
#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static double run_ms(char **argv)
{
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	int64_t start = clock_mono_us();
	pid_t pid;
	int rc = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	int status;
	if (rc != 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		fprintf(stderr, "bench_pair: %s did not run and exit 0\n", argv[0]);
		exit(1);
	}
	return (double)(clock_mono_us() - start) / 1000.0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

int main(int argc, char **argv)
{
	int64_t runs;
	struct error err = ERROR_INIT;
	if (argc < 5 || parse_i64("runs", argv[1], 1, 100000, &runs, &err) < 0) {
		fprintf(stderr, "usage: bench_pair RUNS A... :: B...\n");
		return 2;
	}
	char **a = argv + 2, **b = NULL;
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "::") == 0) {
			argv[i] = NULL;
			b = argv + i + 1;
			break;
		}
	}
	if (!b || !a[0] || !b[0]) {
		fprintf(stderr, "bench_pair: two commands with :: between them are needed\n");
		return 2;
	}
	size_t n = (size_t)runs;
	double *ta = xcalloc(n, sizeof(*ta)), *tb = xcalloc(n, sizeof(*tb)), *ratio = xcalloc(n, sizeof(*ratio));
	run_ms(a);
	run_ms(b);
	for (size_t i = 0; i < n; i++) {
		ta[i] = run_ms(a);
		tb[i] = run_ms(b);
		ratio[i] = ta[i] / tb[i];
	}
	double r = median(ratio, n);
	double ma = median(ta, n), mb = median(tb, n);
	printf("{\"a_ms\": %.3f, \"b_ms\": %.3f, \"ratio\": %.4f, \"a_p99_ms\": %.3f, \"b_p99_ms\": %.3f}\n", ma, mb, r, ta[n * 99 / 100], tb[n * 99 / 100]);
	free(ta);
	free(tb);
	free(ratio);
	return 0;
}
