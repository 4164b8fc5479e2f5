/* Trees read as records and written again: hard links, attributes, and directories that appear whole or not at all. */
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/mux/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static char scratch[64];
static struct buf troubles;

static int set_up(void **state)
{
	(void)state;
	snprintf(scratch, sizeof(scratch), "/tmp/test_tree.XXXXXX");
	assert_non_null(mkdtemp(scratch));
	assert_int_equal(chdir(scratch), 0);
	buf_reset(&troubles);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	buf_done(&troubles);
	assert_int_equal(chdir("/"), 0);
	return io_remove_tree(scratch, NULL);
}

static int open_path(const char *path, int flags)
{
	return open(path, flags | O_CLOEXEC);
}

static void on_trouble(void *ctx, const struct tree_trouble *t)
{
	(void)ctx;
	buf_addf(&troubles, "%d %s: %s\n", t->loss, t->path, t->text);
}

static struct tree_write *writer(const char *path, const char *name)
{
	struct tree_target to = { .path = path, .name = name, .open_path = open_path, .trouble = on_trouble, .file_mode = 0777, .dir_mode = 01777 };
	return tree_write_new(&to);
}

static int on_record(void *ctx, const struct record *r, struct error *err)
{
	return r->type == RECORD_DONE ? tree_write_finish(ctx, err) : tree_write_record(ctx, r, err);
}

static int feed(struct tree_write *w, struct buf *b, struct error *err)
{
	struct record_reader in;
	record_reader_init(&in, on_record, w);
	int r = record_feed(&in, buf_str(b), b->len, err);
	record_reader_done(&in);
	buf_done(b);
	return r;
}

/* Reads `from` and writes it to `to`. */
static void copy_tree(const char *from, const char *to)
{
	struct tree_source s = { .path = from, .open_path = open_path, .trouble = on_trouble };
	struct tree_read *t;
	struct error err = ERROR_INIT;
	auto_buf b = BUF_INIT;
	assert_int_equal(tree_read_new(&s, &t, &err), 0);
	while (tree_read_some(t, &b))
		continue;
	tree_read_free(t);
	record_add_done(&b, 0, 0, 0, "");
	struct tree_write *w = writer(to, NULL);
	if (feed(w, &b, &err) != 0)
		fail_msg("%s", err.message);
	tree_write_free(w);
}

static void entry(struct buf *b, enum record_type type, enum record_kind kind, const char *path, const char *target)
{
	struct record_entry e = { .kind = kind, .mode = kind == RECORD_DIRECTORY ? 0755 : 0644, .sec = 1000000000, .path = path, .target = target };
	record_add_entry(b, type, &e);
}

static void file(struct buf *b, const char *path, const char *text)
{
	uint8_t head[RECORD_HEAD_LEN];
	entry(b, RECORD_ENTRY, RECORD_FILE, path, "");
	record_put_head(head, RECORD_DATA, strlen(text));
	buf_add(b, head, sizeof(head));
	buf_adds(b, text);
	record_add_number(b, RECORD_END, strlen(text));
}

static void make(const char *path, const char *text)
{
	assert_int_equal(io_write_file_atomic(path, text, strlen(text), 0644, false, NULL), 0);
}

static void assert_file(const char *path, const char *text)
{
	auto_buf b = BUF_INIT;
	struct error err = ERROR_INIT;
	if (io_read_file(path, 1 << 20, &b, &err) != 0)
		fail_msg("%s", err.message);
	assert_string_equal(buf_str(&b), text);
}

static ino_t inode(const char *path)
{
	struct stat st;
	assert_int_equal(lstat(path, &st), 0);
	return st.st_ino;
}

/* --- hard links ------------------------------------------------------------------------------------------------------------ */

static void names_of_one_file_stay_names_of_one_file(void **state)
{
	(void)state;
	assert_int_equal(mkdir("src", 0755) | mkdir("src/sub", 0755), 0);
	make("src/a", "one");
	make("src/other", "two");
	assert_int_equal(link("src/a", "src/b") | link("src/a", "src/sub/c"), 0);
	copy_tree("src", "copy");
	assert_string_equal(buf_str(&troubles), "");
	assert_file("copy/sub/c", "one");
	assert_int_equal(inode("copy/a"), inode("copy/b"));
	assert_int_equal(inode("copy/a"), inode("copy/sub/c"));
	assert_int_not_equal(inode("copy/a"), inode("copy/other"));
	/* Again, over what is there. */
	copy_tree("src/.", "copy");
	assert_string_equal(buf_str(&troubles), "");
	assert_int_equal(inode("copy/a"), inode("copy/sub/c"));
}

static void many_files_with_two_names_each(void **state)
{
	(void)state;
	char a[64], b[64];
	assert_int_equal(mkdir("src", 0755), 0);
	for (int i = 0; i < 500; i++) {
		snprintf(a, sizeof(a), "src/a%d", i);
		snprintf(b, sizeof(b), "src/b%d", i);
		make(a, a);
		assert_int_equal(link(a, b), 0);
	}
	copy_tree("src", "copy");
	assert_string_equal(buf_str(&troubles), "");
	for (int i = 0; i < 500; i++) {
		snprintf(a, sizeof(a), "copy/a%d", i);
		snprintf(b, sizeof(b), "copy/b%d", i);
		assert_int_equal(inode(a), inode(b));
	}
}

static void a_hard_link_reaches_nothing_outside(void **state)
{
	static const char *const targets[] = { "../safe", "/etc/passwd", "", ".", "a/../../safe" };
	(void)state;
	make("safe", "safe");
	for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
		auto_buf b = BUF_INIT;
		struct error err = ERROR_INIT;
		struct tree_write *w = writer("out", NULL);
		entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "");
		entry(&b, RECORD_ENTRY, RECORD_HARDLINK, "h", targets[i]);
		assert_int_equal(feed(w, &b, &err), -1);
		assert_int_equal(err.code, ERR_PROTOCOL);
		tree_write_free(w);
		assert_int_equal(access("out", F_OK), -1);
	}
	/* Through a link that was sent before, and to what is no file. */
	auto_buf b = BUF_INIT;
	struct error err = ERROR_INIT;
	struct tree_write *w = writer("out", NULL);
	entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "");
	entry(&b, RECORD_ENTRY, RECORD_SYMLINK, "up", "..");
	entry(&b, RECORD_ENTRY, RECORD_HARDLINK, "h", "up/safe");
	entry(&b, RECORD_ENTRY, RECORD_HARDLINK, "g", "up");
	record_add_done(&b, 0, 0, 0, "");
	assert_int_equal(feed(w, &b, &err), 0);
	tree_write_free(w);
	assert_int_equal(access("out/h", F_OK) | access("out/g", F_OK), -1);
	assert_non_null(strstr(buf_str(&troubles), "h: "));
	assert_non_null(strstr(buf_str(&troubles), "g: "));
}

static void a_hard_link_to_what_failed_takes_no_older_file(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	struct error err = ERROR_INIT;
	assert_int_equal(mkdir("out", 0755), 0);
	make("out/a", "old");
	struct tree_write *w = writer("out", NULL);
	entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "");
	entry(&b, RECORD_ENTRY, RECORD_FILE, "a", "");
	record_add_text(&b, RECORD_ABORT, 0, NULL, "I/O error");
	entry(&b, RECORD_ENTRY, RECORD_HARDLINK, "b", "a");
	record_add_done(&b, 0, 0, 0, "");
	assert_int_equal(feed(w, &b, &err), 0);
	tree_write_free(w);
	assert_file("out/a", "old");
	assert_int_equal(access("out/b", F_OK), -1);
}

/* --- attributes ------------------------------------------------------------------------------------------------------------ */

static void attributes_of_the_user_go_along(void **state)
{
	(void)state;
	char value[64];
	assert_int_equal(mkdir("src", 0755) | mkdir("src/d", 0755), 0);
	make("src/f", "x");
	make("src/d/in", "y");
	if (setxattr("src/f", "user.note", "a\0b", 3, 0) != 0) {
		print_message("%s keeps no extended attributes (%s)\n", scratch, strerror(errno));
		skip();
	}
	assert_int_equal(setxattr("src/f", "user.empty", "", 0, 0) | setxattr("src/d", "user.dir", "deep", 4, 0) | setxattr("src", "user.top", "t", 1, 0), 0);
	copy_tree("src", "copy");
	assert_string_equal(buf_str(&troubles), "");
	assert_int_equal(getxattr("copy/f", "user.note", value, sizeof(value)), 3);
	assert_memory_equal(value, "a\0b", 3);
	assert_int_equal(getxattr("copy/f", "user.empty", value, sizeof(value)), 0);
	assert_int_equal(getxattr("copy/d", "user.dir", value, sizeof(value)), 4);
	assert_int_equal(getxattr("copy", "user.top", value, sizeof(value)), 1);
	assert_int_equal(listxattr("copy/d/in", value, sizeof(value)), 0);
}

static void other_attributes_are_no_record(void **state)
{
	static const char *const names[] = { "security.capability", "trusted.x", "system.posix_acl_access", "user.", "user" };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		auto_buf b = BUF_INIT;
		struct error err = ERROR_INIT;
		struct tree_write *w = writer("f", NULL);
		entry(&b, RECORD_ENTRY, RECORD_FILE, "", "");
		record_add_xattr(&b, names[i], "v", 1);
		record_add_number(&b, RECORD_END, 0);
		assert_int_equal(feed(w, &b, &err), -1);
		assert_int_equal(err.code, ERR_PROTOCOL);
		tree_write_free(w);
		assert_int_equal(access("f", F_OK), -1);
	}
}

/* --- whole or not at all --------------------------------------------------------------------------------------------------- */

static int names_in(const char *dir)
{
	auto_dir DIR *d = opendir(dir);
	int n = 0;
	assert_non_null(d);
	while (readdir(d))
		n++;
	return n - 2;
}

static void a_new_directory_appears_when_it_is_complete(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	struct error err = ERROR_INIT;
	struct stat st;
	struct tree_write *w = writer("new", NULL);
	entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "");
	file(&b, "a", "1");
	entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "sub", "");
	file(&b, "sub/b", "2");
	entry(&b, RECORD_LEAVE, RECORD_DIRECTORY, "sub", "");
	assert_int_equal(feed(w, &b, &err), 0);
	assert_int_equal(access("new", F_OK), -1);
	entry(&b, RECORD_LEAVE, RECORD_DIRECTORY, "", "");
	record_add_done(&b, 0, 0, 0, "");
	assert_int_equal(feed(w, &b, &err), 0);
	tree_write_free(w);
	assert_file("new/sub/b", "2");
	assert_int_equal(stat("new", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(st.st_mtim.tv_sec, 1000000000);
	assert_int_equal(names_in("."), 1);
}

static void what_breaks_off_leaves_nothing(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	struct error err = ERROR_INIT;
	assert_int_equal(mkdir("old", 0755), 0);
	make("old/kept", "kept");
	/* A new top; a new directory in one that was there. */
	for (int i = 0; i < 2; i++) {
		struct tree_write *w = writer(i ? "old" : "new", NULL);
		entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "");
		entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "d", "");
		file(&b, "d/a", "1");
		entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "d/closed", "");
		file(&b, "d/closed/a", "1");
		entry(&b, RECORD_LEAVE, RECORD_DIRECTORY, "d/closed", "");
		entry(&b, RECORD_ENTRY, RECORD_FILE, "d/half", "");
		assert_int_equal(feed(w, &b, &err), 0);
		tree_write_free(w);
		assert_int_equal(names_in("."), 1);
		assert_int_equal(names_in("old"), 1);
	}
}

static void a_place_that_is_taken_meanwhile_is_not_overwritten(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	struct error err = ERROR_INIT;
	struct tree_write *w = writer("new", NULL);
	entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "");
	file(&b, "a", "1");
	assert_int_equal(feed(w, &b, &err), 0);
	assert_int_equal(mkdir("new", 0755), 0);
	make("new/theirs", "theirs");
	entry(&b, RECORD_LEAVE, RECORD_DIRECTORY, "", "");
	assert_int_equal(feed(w, &b, &err), -1);
	assert_non_null(strstr(err.message, "new"));
	tree_write_free(w);
	assert_file("new/theirs", "theirs");
	assert_int_equal(names_in("new"), 1);
	assert_int_equal(names_in("."), 1);
}

static void entries_out_of_order_find_their_places(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	struct error err = ERROR_INIT;
	assert_int_equal(mkdir("out", 0755), 0);
	struct tree_write *w = writer("out", NULL);
	entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "");
	entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "a", "");
	entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "b", ""); /* a is still being built */
	file(&b, "b/one", "1");
	file(&b, "a/two", "2");
	file(&b, "ab", "no part of a");
	entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "a", ""); /* named again */
	file(&b, "a/three", "3");
	file(&b, "a/two", "2 again");
	file(&b, "a", "a file where the directory will be");
	entry(&b, RECORD_LEAVE, RECORD_DIRECTORY, "b", "");
	entry(&b, RECORD_LEAVE, RECORD_DIRECTORY, "a", "");
	file(&b, "a/late", "4");
	record_add_done(&b, 0, 0, 0, "");
	assert_int_equal(feed(w, &b, &err), 0);
	tree_write_free(w);
	assert_string_equal(buf_str(&troubles), "1 a: Is a directory\n");
	assert_file("out/b/one", "1");
	assert_file("out/a/two", "2 again");
	assert_file("out/a/three", "3");
	assert_file("out/a/late", "4");
	assert_file("out/ab", "no part of a");
	assert_int_equal(names_in("out"), 3);
	assert_int_equal(names_in("out/a"), 3);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(names_of_one_file_stay_names_of_one_file),
		TEST(many_files_with_two_names_each),
		TEST(a_hard_link_reaches_nothing_outside),
		TEST(a_hard_link_to_what_failed_takes_no_older_file),
		TEST(attributes_of_the_user_go_along),
		TEST(other_attributes_are_no_record),
		TEST(a_new_directory_appears_when_it_is_complete),
		TEST(what_breaks_off_leaves_nothing),
		TEST(a_place_that_is_taken_meanwhile_is_not_overwritten),
		TEST(entries_out_of_order_find_their_places),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
