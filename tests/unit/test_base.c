/* shared/base: parsers, text, ids, clocks, files, unix sockets, logs. */
#include "shared/base/buf.h"
#include "shared/base/clock.h"
#include "shared/base/id.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BAD = -1 };

struct number_row {
	const char *text;
	int64_t min, max, want; /* want BAD: refused (no row here expects -1 as a value unless min says so) */
};

static void integers_are_whole_strings_in_range(void **state)
{
	static const struct number_row rows[] = {
		{ "0", 0, 10, 0 },
		{ "10", 0, 10, 10 },
		{ "11", 0, 10, BAD },
		{ "-1", 0, 10, BAD },
		{ "-5", -5, 10, -5 },
		{ "-6", -5, 10, BAD },
		{ "", 0, 10, BAD },
		{ "-", -5, 10, BAD },
		{ " 5", 0, 10, BAD },
		{ "5 ", 0, 10, BAD },
		{ "+5", 0, 10, BAD },
		{ "5x", 0, 10, BAD },
		{ "0x5", 0, 10, BAD },
		{ "1e1", 0, 10, BAD },
		{ "1.0", 0, 10, BAD },
		{ "007", 0, 10, 7 },
		{ "9223372036854775807", 0, INT64_MAX, INT64_MAX },
		{ "9223372036854775808", 0, INT64_MAX, BAD },
		{ "-9223372036854775808", INT64_MIN, 0, INT64_MIN },
		{ "-9223372036854775809", INT64_MIN, 0, BAD },
		{ "99999999999999999999", 0, INT64_MAX, BAD },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct error err = ERROR_INIT;
		int64_t v = 77;
		int r = parse_i64("port", rows[i].text, rows[i].min, rows[i].max, &v, &err);
		if (rows[i].want == BAD) {
			assert_int_equal(r, -1);
			assert_int_equal(v, 77);
			assert_int_equal(err.code, ERR_INVALID);
			assert_non_null(strstr(err.message, "port"));
			assert_non_null(strstr(err.message, "allowed"));
		} else {
			assert_int_equal(r, 0);
			assert_true(v == rows[i].want);
		}
	}
}

static void durations(void **state)
{
	static const struct {
		const char *text;
		int64_t want;
	} rows[] = {
		{ "0", BAD }, /* below the minimum of 1 s used here */
		{ "-1", BAD },
		{ "1", 1000 },
		{ "90", 90000 },
		{ "90s", 90000 },
		{ "500ms", BAD },
		{ "1500ms", 1500 },
		{ "1.5h", 5400000 },
		{ "1.5s", 1500 },
		{ "30m", 1800000 },
		{ "2d", 172800000 },
		{ "7d", 604800000 },
		{ "8d", BAD },
		{ "604801", BAD },
		{ "1e9", BAD },
		{ "99999999999999999999", BAD },
		{ "9223372036854775807d", BAD },
		{ " 5m", BAD },
		{ "5m ", BAD },
		{ "5 m", BAD },
		{ "5M", BAD }, /* months or minutes? */
		{ "5min", BAD },
		{ "5H", BAD },
		{ "", BAD },
		{ "s", BAD },
		{ ".5h", BAD },
		{ "1.h", BAD },
		{ "1,5h", BAD },
		{ "1.0000000001h", BAD },
		{ "+5m", BAD },
		{ "1h30m", BAD },
		{ "inf", BAD },
		{ "nan", BAD },
		{ "0x10", BAD },
		{ "1.9999s", 1999 },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct error err = ERROR_INIT;
		int64_t v = 77;
		int r = parse_duration_ms("ttl", rows[i].text, 1000, 604800000, &v, &err);
		if (rows[i].want == BAD) {
			assert_int_equal(r, -1);
			assert_int_equal(v, 77);
			assert_non_null(strstr(err.message, "ttl: "));
			assert_non_null(strstr(err.message, "allowed: 1s to 7d"));
		} else {
			if (r != 0)
				fail_msg("%s: %s", rows[i].text, err.message);
			assert_int_equal(v, rows[i].want);
		}
	}
}

static void sizes(void **state)
{
	static const struct {
		const char *text;
		int64_t want;
	} rows[] = {
		{ "0", 0 },	      { "1048576", 1048576 },	   { "64m", 64 << 20 },	     { "64M", 64 << 20 },  { "64mb", 64 << 20 },
		{ "512MiB", 512 << 20 }, { "1g", 1 << 30 },	   { "1G", 1 << 30 },	     { "1.5k", 1536 },	   { "1t", 1LL << 40 },
		{ "10b", 10 },	      { "0.5", 0 },		   { "2t", BAD },	     { "1p", BAD },	   { "1e3", BAD },
		{ "", BAD },	      { "m", BAD },		   { "-1", BAD },	     { "1 g", BAD },	   { " 1", BAD },
		{ "1mibb", BAD },     { "99999999999999999999", BAD }, { "9999999999999t", BAD }, { "1ki", BAD },	   { "1kk", BAD },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct error err = ERROR_INIT;
		int64_t v = 77;
		int r = parse_size("memory", rows[i].text, 0, 1LL << 40, &v, &err);
		if ((r == 0) != (rows[i].want != BAD) || v != (rows[i].want == BAD ? 77 : rows[i].want))
			fail_msg("'%s' gave %d, %lld (%s)", rows[i].text, r, (long long)v, err.message);
	}
}

static void formats_read_back(void **state)
{
	static const int64_t values[] = { 1, 999, 1000, 1024, 1500, 60000, 90000, 3600000, 5400000, 86400000, 604800000, 1LL << 30, 1536 };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		char text[32];
		int64_t v = 0;
		assert_int_equal(parse_duration_ms("x", duration_format(values[i], text), 0, INT64_MAX, &v, NULL), 0);
		assert_true(v == values[i]);
		assert_int_equal(parse_size("x", size_format(values[i], text), 0, INT64_MAX, &v, NULL), 0);
		assert_true(v == values[i]);
	}
}

static void booleans(void **state)
{
	(void)state;
	bool v = false;
	assert_int_equal(parse_bool("x", "yes", &v, NULL), 0);
	assert_true(v);
	assert_int_equal(parse_bool("x", "off", &v, NULL), 0);
	assert_false(v);
	assert_int_equal(parse_bool("x", "", &v, NULL), -1);
	assert_int_equal(parse_bool("x", "TRUE", &v, NULL), -1);
	assert_int_equal(parse_bool("x", "2", &v, NULL), -1);
}

static void names(void **state)
{
	char long_name[80];
	memset(long_name, 'z', sizeof(long_name));
	long_name[63] = '\0';
	(void)state;
	assert_true(name_valid("web"));
	assert_true(name_valid("web-1"));
	assert_true(name_valid(long_name));
	long_name[63] = 'z';
	long_name[64] = '\0';
	assert_false(name_valid(long_name));
	assert_false(name_valid(""));
	assert_false(name_valid(NULL));
	assert_false(name_valid("1web"));
	assert_false(name_valid("Web"));
	assert_false(name_valid("a_b"));
	assert_false(name_valid("cafe-babe")); /* could be part of an id */
	assert_false(name_valid("dead"));
	assert_true(name_valid("db")); /* too short for a part of an id */
	assert_true(name_valid("a-b"));
	assert_false(name_valid("a.b"));
	assert_true(tenant_valid("platform"));
	assert_true(tenant_valid("1000.a-b_c"));
	assert_false(tenant_valid("-a"));
	assert_false(tenant_valid("a b"));
	assert_true(label_key_valid("example.com/team"));
	assert_false(label_key_valid("/x"));
	assert_false(label_key_valid(""));
	assert_true(label_value_valid(""));
	assert_true(label_value_valid("é ☕"));
	assert_false(label_value_valid("a\nb"));
	assert_false(label_value_valid("\xff"));
	assert_true(env_key_valid("_A1"));
	assert_false(env_key_valid("1A"));
	assert_false(env_key_valid("A B"));
	assert_false(env_key_valid("A=B"));
	assert_false(env_key_valid(""));
}

static void utf8(void **state)
{
	static const char *const good[] = { "", "a", "é", "☕", "😀", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf" };
	static const char *const bad[] = { "\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80",
					   "\xf5\x80\x80\x80", "\xe2\x98", "a\xff" };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		assert_true(utf8_valid(good[i], strlen(good[i])));
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_false(utf8_valid(bad[i], strlen(bad[i])));
	assert_true(utf8_valid("a\0b", 3));
	assert_int_equal(utf8_cut("na\xc3", 3), 2);
	assert_int_equal(utf8_cut("na\xc3\xaf", 4), 4);
	assert_int_equal(utf8_cut("\xf0\x9f\x98", 3), 0);
	assert_int_equal(utf8_cut("a\xff", 2), 2); /* never a character: nothing to wait for */
	assert_int_equal(utf8_cut("\x80\x80\x80\x80", 4), 4);
	assert_int_equal(utf8_cut("", 0), 0);
}

static void escapes(void **state)
{
	char out[64];
	(void)state;
	assert_string_equal(text_escape("a\nb\x1b[31m", 8, out, sizeof(out)), "a\\x0ab\\x1b[31m");
	assert_string_equal(text_escape("\x7f\xc2\x85\xff", 4, out, sizeof(out)), "\\x7f\\xc2\\x85\\xff");
	assert_string_equal(text_escape("a\xe2\x80\xae" "b", 5, out, sizeof(out)), "a\\xe2\\x80\\xaeb");
	assert_string_equal(text_escape("é☕", strlen("é☕"), out, sizeof(out)), "é☕");
	assert_string_equal(text_escape("abc\n", 4, out, 7), "abc"); /* the escape does not fit whole */
	assert_string_equal(text_escape("é", 2, out, 2), "");
	assert_string_equal(text_escape("abc", 3, out, 1), "");
}

static void times(void **state)
{
	static const struct {
		const char *text;
		int64_t us;
	} rows[] = {
		{ "1970-01-01T00:00:00Z", 0 },
		{ "1970-01-01T00:00:00.000001Z", 1 },
		{ "1969-12-31T23:59:59.999999Z", -1 },
		{ "2000-02-29T12:00:00Z", 951825600000000 },
		{ "2026-01-02T03:04:05.678901Z", 1767323045678901 },
		{ "2026-01-02T05:04:05.678901+02:00", 1767323045678901 },
		{ "2026-01-01T22:04:05.6789012-05:00", 1767323045678901 },
		{ "2016-12-31T23:59:60Z", 1483228800000000 },
		{ "0001-01-01T00:00:00Z", -62135596800000000 },
		{ "9999-12-31T23:59:59.999999Z", 253402300799999999 },
	};
	static const char *const bad[] = { "", "2026-01-02", "2026-01-02T03:04:05", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-02T24:00:00Z",
					   "2026-01-02T03:04:05.Z", "2026-01-02T03:04:05Zx", "2026-01-02 03:04:05Z", "0000-01-01T00:00:00Z",
					   "2026-01-02T03:04:61Z", "2026-1-2T03:04:05Z", "2026-01-02T03:04:05+2:00", "2026-01-02T03:04:05.0123456789Z" };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char text[RFC3339_MAX];
		int64_t us = 7, again = 7;
		assert_int_equal(time_parse_rfc3339(rows[i].text, &us), 0);
		assert_true(us == rows[i].us);
		assert_int_equal(time_parse_rfc3339(time_rfc3339(us, text), &again), 0);
		assert_true(again == us);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		int64_t us = 7;
		if (time_parse_rfc3339(bad[i], &us) == 0)
			fail_msg("'%s' was accepted", bad[i]);
	}
	assert_int_equal(time_parse_rfc3339(NULL, NULL), -1);
	char text[RFC3339_MAX];
	assert_string_equal(time_rfc3339(1767323045678901, text), "2026-01-02T03:04:05.678901Z");
	assert_string_equal(time_rfc3339(INT64_MAX, text), "9999-12-31T23:59:59.999999Z");
	assert_true(clock_mono_us() <= clock_mono_us());
}

enum { IDS = 20000, ID_THREADS = 4 };

static void *make_ids(void *arg)
{
	struct id *ids = arg;
	for (int i = 0; i < IDS; i++)
		ids[i] = id_new();
	return NULL;
}

static int compare_ids(const void *a, const void *b)
{
	return strcmp(((const struct id *)a)->text, ((const struct id *)b)->text);
}

static void ids_increase_and_differ(void **state)
{
	struct id *ids = xcalloc((size_t)IDS * ID_THREADS, sizeof(*ids));
	pthread_t threads[ID_THREADS];
	(void)state;
	for (int t = 0; t < ID_THREADS; t++)
		assert_int_equal(pthread_create(&threads[t], NULL, make_ids, ids + (size_t)t * IDS), 0);
	for (int t = 0; t < ID_THREADS; t++)
		pthread_join(threads[t], NULL);
	for (int i = 1; i < IDS; i++)
		assert_true(strcmp(ids[i - 1].text, ids[i].text) < 0);
	qsort(ids, (size_t)IDS * ID_THREADS, sizeof(*ids), compare_ids);
	for (int i = 1; i < IDS * ID_THREADS; i++)
		assert_true(strcmp(ids[i - 1].text, ids[i].text) < 0);
	assert_true(id_valid(ids[0].text));
	assert_int_equal(ids[0].text[14], '7');
	assert_non_null(strchr("89ab", ids[0].text[19]));
	assert_string_equal(id_short(&ids[0]), ids[0].text + 28);
	free(ids);
}

static void ids_are_canonical(void **state)
{
	struct id id;
	(void)state;
	assert_true(id_valid("019a0000-0000-7000-8000-0123456789ab"));
	assert_false(id_valid("019A0000-0000-7000-8000-0123456789ab"));
	assert_false(id_valid("019a0000-0000-7000-8000-0123456789a"));
	assert_false(id_valid("019a0000-0000-7000-8000-0123456789abc"));
	assert_false(id_valid("019a00000000-7000-8000-0123456789ab-"));
	assert_false(id_valid(""));
	assert_false(id_valid(NULL));
	assert_int_equal(id_parse("x", &id), -1);
	struct id empty = { "" };
	assert_string_equal(id_short(&empty), "");
}

static char *temp_dir(void)
{
	char *dir = xstrdup("/tmp/sandbox-base-XXXXXX");
	assert_non_null(mkdtemp(dir));
	return dir;
}

static void atomic_writes(void **state)
{
	struct error err = ERROR_INIT;
	auto_free char *dir = temp_dir();
	auto_free char *path = xasprintf("%s/file", dir);
	auto_buf content = BUF_INIT;
	struct stat st;
	(void)state;
	mode_t old = umask(077);
	assert_int_equal(io_write_file_atomic(path, "one", 3, 0644, true, &err), 0);
	umask(old);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_int_equal(io_write_file_atomic(path, "two!", 4, 0600, false, &err), 0);
	assert_int_equal(io_read_file(path, 4, &content, &err), 0);
	assert_string_equal(buf_str(&content), "two!");
	assert_int_equal(io_read_file(path, 3, &content, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	assert_string_equal(buf_str(&content), "two!"); /* untouched by the failure */
	assert_int_equal(io_read_file(dir, 100, &content, &err), -1);
	auto_free char *missing = xasprintf("%s/none", dir);
	assert_int_equal(io_read_file(missing, 100, &content, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_int_equal(io_write_file_atomic(dir, "x", 1, 0600, false, &err), -1); /* a directory is in the way */
	assert_int_equal(io_remove_tree(dir, &err), 0);
}

/* Counts what is in a directory. */
static int entries(const char *path)
{
	auto_dir DIR *d = opendir(path);
	assert_non_null(d);
	int n = 0;
	while (readdir(d))
		n++;
	return n - 2;
}

static void a_failed_write_keeps_the_old_file_and_leaves_nothing(void **state)
{
	auto_free char *dir = temp_dir();
	auto_free char *path = xasprintf("%s/file", dir);
	char big[8192] = { 0 };
	(void)state;
	assert_int_equal(io_write_file_atomic(path, "old", 3, 0600, false, NULL), 0);
	pid_t pid = fork();
	if (pid == 0) { /* a file size limit stands in for a full disk: the first write is short, the next fails */
		struct rlimit limit = { 4096, 4096 };
		struct error err = ERROR_INIT;
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &limit);
		_exit(io_write_file_atomic(path, big, sizeof(big), 0600, true, &err) == -1 && err.sys == EFBIG ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	auto_buf content = BUF_INIT;
	assert_int_equal(io_read_file(path, 100, &content, NULL), 0);
	assert_string_equal(buf_str(&content), "old");
	assert_int_equal(entries(dir), 1);
	assert_int_equal(io_remove_tree(dir, NULL), 0);
}

static void directories(void **state)
{
	struct error err = ERROR_INIT;
	struct stat st;
	auto_free char *dir = temp_dir();
	auto_free char *deep = xasprintf("%s/a//b/c/", dir);
	auto_free char *file = xasprintf("%s/file", dir), *below = xasprintf("%s/file/x", dir);
	(void)state;
	assert_int_equal(io_mkdirs(deep, 0711, &err), 0);
	assert_int_equal(io_mkdirs(deep, 0700, &err), 0);
	assert_int_equal(stat(deep, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0711);
	assert_int_equal(io_write_file_atomic(file, "", 0, 0600, false, &err), 0);
	assert_int_equal(io_mkdirs(file, 0700, &err), -1);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_int_equal(io_mkdirs(below, 0700, &err), -1);
	assert_int_equal(io_mkdirs("", 0700, &err), -1);
	assert_int_equal(io_remove_tree(dir, &err), 0);
}

/* Deeper than descriptors and PATH_MAX would allow, with links out and directories nobody may read. */
static void hostile_trees_are_removed(void **state)
{
	struct error err = ERROR_INIT;
	auto_free char *dir = temp_dir(), *keep = temp_dir();
	auto_free char *tree = xasprintf("%s/t", dir), *link = xasprintf("%s/t/link", dir), *closed = xasprintf("%s/t/closed/in", dir);
	auto_free char *kept = xasprintf("%s/file", keep);
	(void)state;
	assert_int_equal(io_write_file_atomic(kept, "k", 1, 0600, false, NULL), 0);
	assert_int_equal(io_mkdirs(closed, 0700, &err), 0);
	assert_int_equal(symlink(keep, link), 0);
	*strrchr(closed, '/') = '\0';
	assert_int_equal(chmod(closed, 0), 0);
	auto_close int at = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 3000; i++) {
		assert_int_equal(mkdirat(at, "a-rather-long-directory-name", 0700), 0);
		int next = openat(at, "a-rather-long-directory-name", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(at);
		at = next;
	}
	if (io_remove_tree(tree, &err) != 0)
		fail_msg("%s", err.message);
	assert_int_equal(entries(dir), 0);
	assert_int_equal(access(kept, F_OK), 0);
	assert_int_equal(io_remove_tree(tree, &err), 0); /* missing is success */
	assert_int_equal(io_remove_tree(dir, &err), 0);
	assert_int_equal(io_remove_tree(keep, &err), 0);
}

static void unix_sockets_at(const char *path)
{
	struct error err = ERROR_INIT;
	struct stat st;
	struct peer peer;
	assert_int_equal(io_connect_unix(path, &err), -1);
	assert_int_equal(err.code, ERR_UNREACHABLE);
	assert_int_equal(err.sys, ENOENT);
	auto_close int listener = io_listen_unix(path, 0660, 8, &err);
	if (listener < 0)
		fail_msg("%s", err.message);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0660);
	assert_true(fcntl(listener, F_GETFD) & FD_CLOEXEC);
	auto_close int client = io_connect_unix(path, &err);
	assert_true(client >= 0);
	auto_close int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_int_equal(io_peer(server, &peer, &err), 0);
	assert_int_equal(peer.pid, getpid());
	assert_int_equal(peer.uid, geteuid());
	assert_int_equal(io_listen_unix(path, 0600, 8, &err), -1); /* in use */
	assert_int_equal(err.code, ERR_CONFLICT);
	close_fdp(&listener);
	assert_int_equal(io_connect_unix(path, &err), -1);
	assert_int_equal(err.code, ERR_UNREACHABLE);
	listener = io_listen_unix(path, 0600, 8, &err); /* stale: replaced */
	assert_true(listener >= 0);
}

static void unix_sockets(void **state)
{
	struct error err = ERROR_INIT;
	auto_free char *dir = temp_dir();
	auto_free char *near = xasprintf("%s/s", dir), *file = xasprintf("%s/file", dir);
	auto_free char *far_dir = xasprintf("%s/%0120d/%0120d", dir, 0, 0);
	auto_free char *far = xasprintf("%s/socket", far_dir);
	(void)state;
	assert_int_equal(io_mkdirs(far_dir, 0700, &err), 0);
	unix_sockets_at(near);
	unix_sockets_at(far);
	assert_int_equal(io_write_file_atomic(file, "x", 1, 0600, false, NULL), 0);
	assert_int_equal(io_listen_unix(file, 0600, 8, &err), -1); /* never replaces what is no socket */
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_int_equal(access(file, F_OK), 0);
	auto_close int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct peer peer;
	if (tcp >= 0)
		assert_int_equal(io_peer(tcp, &peer, &err), -1);
	assert_int_equal(io_remove_tree(dir, &err), 0);
}

/* What one log call writes. */
static char *logged(void (*fn)(void))
{
	int pipe_fd[2], saved = dup(STDERR_FILENO);
	assert_int_equal(pipe2(pipe_fd, O_CLOEXEC), 0);
	dup2(pipe_fd[1], STDERR_FILENO);
	fn();
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(pipe_fd[1]);
	char *text = xcalloc(1, 8192);
	assert_true(io_read_full(pipe_fd[0], text, 8191) >= 0);
	close(pipe_fd[0]);
	return text;
}

static void log_hostile(void)
{
	log_info("api", "opened path=%s", "x\n2026 error api forged");
	log_debug("api", "not shown");
}

static void log_long(void)
{
	auto_free char *text = xcalloc(1, 10001);
	memset(text, '\n', 10000);
	log_error("api", "%s", text);
}

static void log_lines_cannot_be_forged(void **state)
{
	(void)state;
	auto_free char *text = logged(log_hostile);
	assert_non_null(strstr(text, " info api opened path=x\\x0a2026 error api forged\n"));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	auto_free char *cut = logged(log_long);
	assert_in_range(strlen(cut), 2000, 4096);
	assert_ptr_equal(strchr(cut, '\n'), cut + strlen(cut) - 1);
	enum log_level level = LOG_LEVEL_INFO;
	assert_int_equal(log_level_parse("warn", &level), 0);
	assert_int_equal(level, LOG_LEVEL_WARN);
	assert_int_equal(log_level_parse("WARN", &level), -1);
}

static void buffers_stop_at_their_maximum(void **state)
{
	struct buf b = BUF_INIT_MAX(4);
	(void)state;
	buf_adds(&b, "abc");
	buf_adds(&b, "de");
	buf_addc(&b, 'x');
	assert_true(b.overflow);
	assert_string_equal(buf_str(&b), "abc");
	buf_reset(&b);
	buf_addf(&b, "%d", 1234);
	assert_string_equal(buf_str(&b), "1234");
	buf_consume(&b, 3);
	assert_string_equal(buf_str(&b), "4");
	auto_free char *s = buf_steal(&b);
	assert_string_equal(s, "4");
	assert_string_equal(buf_str(&b), "");
	buf_done(&b);
}

static void errors_keep_their_context(void **state)
{
	struct error err = ERROR_INIT;
	char big[2 * ERROR_TEXT_MAX];
	(void)state;
	memset(big, 'b', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	error_set(&err, ERR_NOT_FOUND, "no sandbox matches '%s'", "x");
	error_wrap(&err, "deleting");
	assert_string_equal(err.message, "deleting: no sandbox matches 'x'");
	assert_int_equal(err.code, ERR_NOT_FOUND);
	error_wrap(&err, "%s", big);
	assert_int_equal(strlen(err.message), ERROR_TEXT_MAX - 1);
	errno = EACCES;
	assert_int_equal(error_errno(&err, "opening"), -1);
	assert_string_equal(err.message, "opening: Permission denied");
	assert_int_equal(err.sys, EACCES);
	assert_int_equal(error_from_wire("conflict"), ERR_CONFLICT);
	assert_int_equal(error_from_wire("nonsense"), ERR_INTERNAL);
	assert_int_equal(error_set(NULL, ERR_INVALID, "nobody listens"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers_are_whole_strings_in_range),
		cmocka_unit_test(durations),
		cmocka_unit_test(sizes),
		cmocka_unit_test(formats_read_back),
		cmocka_unit_test(booleans),
		cmocka_unit_test(names),
		cmocka_unit_test(utf8),
		cmocka_unit_test(escapes),
		cmocka_unit_test(times),
		cmocka_unit_test(ids_increase_and_differ),
		cmocka_unit_test(ids_are_canonical),
		cmocka_unit_test(atomic_writes),
		cmocka_unit_test(a_failed_write_keeps_the_old_file_and_leaves_nothing),
		cmocka_unit_test(directories),
		cmocka_unit_test(hostile_trees_are_removed),
		cmocka_unit_test(unix_sockets),
		cmocka_unit_test(log_lines_cannot_be_forged),
		cmocka_unit_test(buffers_stop_at_their_maximum),
		cmocka_unit_test(errors_keep_their_context),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
