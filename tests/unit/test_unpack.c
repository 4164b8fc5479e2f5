/* Image tars to files: what an honest engine sends, and what a hostile image could. */
#include "daemon/runtime/drivers/qemu/unpack.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCK = 512, MAX = 1 << 20 };

static char dir[64];
static int dirfd_of;
static struct buf tar;

static int set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/sbx-unpack-XXXXXX");
	assert_non_null(mkdtemp(dir));
	auto_free char *inner = xasprintf("%s/tree", dir);
	assert_int_equal(mkdir(inner, 0755), 0);
	dirfd_of = open(inner, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	buf_reset(&tar);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	close(dirfd_of);
	return io_remove_tree(dir, NULL);
}

static void sum(uint8_t *h)
{
	unsigned total = 0;

	memset(h + 148, ' ', 8);
	for (int i = 0; i < BLOCK; i++)
		total += h[i];
	snprintf((char *)h + 148, 8, "%06o", total);
}

static void add(char type, const char *name, const char *link, const char *content)
{
	uint8_t h[BLOCK] = { 0 };
	static const uint8_t zero[BLOCK];
	size_t n = content ? strlen(content) : 0;

	snprintf((char *)h, 100, "%s", name);
	snprintf((char *)h + 100, 8, "%07o", type == '5' ? 0755 : 0644);
	snprintf((char *)h + 108, 8, "%07o", (unsigned)getuid());
	snprintf((char *)h + 116, 8, "%07o", (unsigned)getgid());
	snprintf((char *)h + 124, 12, "%011o", (unsigned)n);
	snprintf((char *)h + 136, 12, "%011o", 1000000000U);
	h[156] = (uint8_t)type;
	snprintf((char *)h + 157, 100, "%s", link ? link : "");
	memcpy(h + 257, "ustar\00000", 8);
	sum(h);
	buf_add(&tar, h, BLOCK);
	buf_add(&tar, content, n);
	buf_add(&tar, zero, (BLOCK - n % BLOCK) % BLOCK);
}

static void finish(void)
{
	static const uint8_t zero[2 * BLOCK];

	buf_add(&tar, zero, sizeof(zero));
}

static int unpack(size_t piece, struct unpack_size *size, struct error *err)
{
	struct unpack *u = unpack_new(dirfd_of, MAX);

	for (size_t at = 0; at < tar.len; at += piece)
		if (unpack_feed(u, tar.data + at, tar.len - at < piece ? tar.len - at : piece, NULL) != 0)
			break;
	return unpack_end(u, size, err);
}

static void refused(const char *why)
{
	struct unpack_size size;
	struct error err = ERROR_INIT;

	assert_int_equal(unpack(1000, &size, &err), -1);
	if (!strstr(err.message, why))
		fail_msg("'%s' does not say '%s'", err.message, why);
}

static void holds(const char *name, const char *want)
{
	auto_free char *path = xasprintf("%s/tree/%s", dir, name);
	auto_buf text = BUF_INIT;

	assert_int_equal(io_read_file(path, MAX, &text, NULL), 0);
	assert_string_equal(buf_str(&text), want);
}

static bool is_there(const char *name)
{
	auto_free char *path = xasprintf("%s/%s", dir, name);
	struct stat st;

	return lstat(path, &st) == 0;
}

static void honest(void)
{
	add('5', "./", NULL, NULL);
	add('5', "etc/", NULL, NULL);
	add('0', "etc/passwd", NULL, "root:x:0:0::/:/bin/sh\n");
	add('2', "etc/link", "passwd", NULL);
	add('1', "etc/hard", "etc/passwd", NULL);
	add('0', "deep/er/than/said", NULL, "made on the way");
	add('3', "dev/null", NULL, NULL);
	add('6', "pipe", NULL, NULL);
	add('x', "PaxHeaders/x", NULL, "25 path=a/much/longer/na\n");
	add('0', "short", NULL, "by its pax name");
	add('L', "././@LongLink", NULL, "gnu/long/name");
	add('0', "short2", NULL, "by its GNU name");
	add('0', "twice", NULL, "first");
	add('0', "twice", NULL, "second");
	finish();
}

static void an_honest_tar_becomes_files_in_any_pieces(void **state)
{
	static const size_t pieces[] = { 1, 7, 511, 512, 513, 100000 };
	struct unpack_size size;
	struct stat st;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
		tear_down(NULL);
		set_up(NULL);
		honest();
		assert_int_equal(unpack(pieces[i], &size, NULL), 0);
		holds("etc/passwd", "root:x:0:0::/:/bin/sh\n");
		holds("etc/link", "root:x:0:0::/:/bin/sh\n");
		holds("etc/hard", "root:x:0:0::/:/bin/sh\n");
		holds("deep/er/than/said", "made on the way");
		holds("a/much/longer/na", "by its pax name");
		holds("gnu/long/name", "by its GNU name");
		holds("twice", "second");
		assert_false(is_there("tree/dev/null"));
		assert_true(is_there("tree/pipe"));
		assert_int_equal(fstatat(dirfd_of, "etc/passwd", &st, 0), 0);
		assert_int_equal(st.st_mode & 07777, 0644);
		assert_int_equal(st.st_mtime, 1000000000);
		assert_true(size.bytes > 0 && size.bytes % 4096 == 0);
	}
}

static void names_never_leave_the_directory(void **state)
{
	struct unpack_size size;

	(void)state;
	add('0', "/../../abs", NULL, "x");
	finish();
	refused("leaves it");
	buf_reset(&tar);
	add('0', "a/../../up", NULL, "x");
	finish();
	refused("leaves it");
	assert_false(is_there("up"));
	buf_reset(&tar);
	add('0', "////inside", NULL, "x");
	finish();
	assert_int_equal(unpack(512, &size, NULL), 0);
	holds("inside", "x");
}

static void nothing_goes_through_a_link(void **state)
{
	(void)state;
	add('2', "out", "..", NULL);
	add('0', "out/escaped", NULL, "x");
	finish();
	refused("out/escaped");
	assert_false(is_there("escaped"));
	buf_reset(&tar);
	add('2', "up", "..", NULL);
	add('0', "file", NULL, "mine");
	add('1', "up/escaped", "file", NULL);
	finish();
	refused("up/escaped");
	assert_false(is_there("escaped"));
}

static void hard_links_lead_to_files_of_the_image_only(void **state)
{
	(void)state;
	add('1', "stolen", "../../etc/passwd", NULL);
	finish();
	refused("stolen");
	buf_reset(&tar);
	add('2', "abs", "/etc", NULL);
	add('1', "stolen", "abs/passwd", NULL);
	finish();
	refused("stolen");
	assert_false(is_there("tree/stolen"));
}

static void a_link_is_replaced_not_followed(void **state)
{
	struct unpack_size size;
	auto_free char *outside = xasprintf("%s/outside", dir);

	(void)state;
	assert_int_equal(io_write_file_atomic(outside, "kept", 4, 0644, false, NULL), 0);
	add('2', "file", "../outside", NULL);
	add('0', "file", NULL, "new");
	add('2', "place", "../outside", NULL);
	add('5', "place", NULL, NULL);
	finish();
	assert_int_equal(unpack(512, &size, NULL), 0);
	holds("file", "new");
	auto_buf text = BUF_INIT;
	assert_int_equal(io_read_file(outside, 16, &text, NULL), 0);
	assert_string_equal(buf_str(&text), "kept");
}

static void broken_tars_are_said(void **state)
{
	(void)state;
	honest();
	tar.data[BLOCK + 3] ^= 1;
	refused("damaged");
	buf_reset(&tar);
	add('0', "file", NULL, "content");
	refused("cut off");
	tar.len -= 100;
	refused("cut off");
	buf_reset(&tar);
	add('x', "pax", NULL, "999 path=short\n");
	add('0', "file", NULL, "x");
	finish();
	refused("extended head");
	buf_reset(&tar);
	add('0', "negative", NULL, "x");
	memset(tar.data + 124, 0xff, 12);
	sum((uint8_t *)tar.data);
	finish();
	refused("wrong size");
}

static void an_image_ends_where_its_bound_is(void **state)
{
	auto_free char *big = xmalloc(MAX);

	(void)state;
	memset(big, 'b', MAX - 1);
	big[MAX - 1] = '\0';
	add('0', "one", NULL, big);
	add('0', "two", NULL, "more");
	finish();
	refused("image_max");
	buf_reset(&tar);
	/* One that only says how large it is. */
	add('0', "huge", NULL, "x");
	memcpy(tar.data + 124, "77777777777", 12);
	sum((uint8_t *)tar.data);
	refused("image_max");
}

static void places_to_mount_over_are_made_or_left_alone(void **state)
{
	struct unpack_size size;
	struct stat st;

	(void)state;
	add('2', "tmp", "var/tmp", NULL);
	add('2', "var", "..", NULL);
	add('5', "proc", NULL, NULL);
	finish();
	assert_int_equal(unpack(512, &size, NULL), 0);
	assert_int_equal(unpack_place(dirfd_of, "proc", true, NULL), 0);
	assert_int_equal(unpack_place(dirfd_of, "tmp", true, NULL), 0);
	assert_int_equal(unpack_place(dirfd_of, "a/b/c", true, NULL), 0);
	assert_int_equal(unpack_place(dirfd_of, "etc/hosts", false, NULL), 0);
	assert_int_equal(unpack_place(dirfd_of, "var/escaped", true, NULL), 0);
	assert_int_equal(unpack_place(dirfd_of, "../escaped", true, NULL), -1);
	assert_false(is_there("escaped"));
	assert_int_equal(fstatat(dirfd_of, "a/b/c", &st, 0), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(fstatat(dirfd_of, "etc/hosts", &st, 0), 0);
	assert_true(S_ISREG(st.st_mode));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_honest_tar_becomes_files_in_any_pieces, set_up, tear_down),
		cmocka_unit_test_setup_teardown(names_never_leave_the_directory, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nothing_goes_through_a_link, set_up, tear_down),
		cmocka_unit_test_setup_teardown(hard_links_lead_to_files_of_the_image_only, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_link_is_replaced_not_followed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(broken_tars_are_said, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_image_ends_where_its_bound_is, set_up, tear_down),
		cmocka_unit_test_setup_teardown(places_to_mount_over_are_made_or_left_alone, set_up, tear_down),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);

	buf_done(&tar);
	return rc;
}
