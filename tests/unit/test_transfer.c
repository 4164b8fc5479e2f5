/* Copies against input that wants out of the destination, and the tar format in both directions. */
#include "cli/tar.h"
#include "cli/transfer_priv.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/mux/kinds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- a scratch directory with out/ to write into and safe/ that must stay as it is ------------------------------------------- */

static char scratch[64];
static struct cli cli = { .quiet = true };
static struct transfer_stats stats;
static struct copy copy;

static int set_up(void **state)
{
	(void)state;
	snprintf(scratch, sizeof(scratch), "/tmp/test_transfer.XXXXXX");
	assert_non_null(mkdtemp(scratch));
	assert_int_equal(chdir(scratch), 0);
	assert_int_equal(mkdir("out", 0755), 0);
	assert_int_equal(mkdir("safe", 0755), 0);
	assert_int_equal(io_write_file_atomic("safe/file", "safe", 4, 0644, false, NULL), 0);
	stats = (struct transfer_stats){ .entries = 0 };
	copy = (struct copy){ .cli = &cli, .stats = &stats };
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	assert_int_equal(chdir("/"), 0);
	return io_remove_tree(scratch, NULL);
}

static void assert_safe(void)
{
	auto_buf b = BUF_INIT;
	assert_int_equal(io_read_file("safe/file", 100, &b, NULL), 0);
	assert_string_equal(buf_str(&b), "safe");
	assert_int_equal(access("safe/evil", F_OK), -1);
	assert_int_equal(access("evil", F_OK), -1);
}

static void assert_file(const char *path, const char *text)
{
	auto_buf b = BUF_INIT;
	struct error err = ERROR_INIT;
	if (io_read_file(path, 1 << 20, &b, &err) != 0)
		fail_msg("%s", err.message);
	assert_string_equal(buf_str(&b), text);
}

/* --- building records ------------------------------------------------------------------------------------------------------ */

static void entry(struct buf *b, enum record_kind kind, unsigned mode, const char *path, const char *target)
{
	struct record_entry e = { .kind = kind, .mode = mode, .sec = 1000000000, .nsec = 500, .path = path, .target = target };
	record_add_entry(b, RECORD_ENTRY, &e);
}

static void leave(struct buf *b, unsigned mode, const char *path)
{
	struct record_entry e = { .kind = RECORD_DIRECTORY, .mode = mode, .sec = 1000000001, .path = path, .target = "" };
	record_add_entry(b, RECORD_LEAVE, &e);
}

static void data(struct buf *b, const char *text)
{
	uint8_t head[RECORD_HEAD_LEN];
	record_put_head(head, RECORD_DATA, strlen(text));
	buf_add(b, head, sizeof(head));
	buf_adds(b, text);
}

static void file(struct buf *b, unsigned mode, const char *path, const char *text)
{
	entry(b, RECORD_FILE, mode, path, "");
	data(b, text);
	record_add_number(b, RECORD_END, strlen(text));
}

/* Feeds them in pieces of a few bytes. */
static int write_tree(const char *dest, const char *name, struct buf *b, bool done)
{
	struct error err = ERROR_INIT;
	struct record_reader in;
	struct tree_writer *w = tree_writer_new(&copy, dest, name);
	if (done)
		record_add_done(b, 0, 0, 0, "/x");
	record_reader_init(&in, tree_on_record, w);
	int r = 0;
	for (size_t i = 0; i < b->len && r == 0; i += 7)
		r = record_feed(&in, b->data + i, b->len - i < 7 ? b->len - i : 7, &err);
	record_reader_done(&in);
	tree_writer_free(w);
	buf_done(b);
	return r;
}

/* --- a hostile tree -------------------------------------------------------------------------------------------------------- */

static void a_link_sent_first_redirects_nothing(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	auto_free char *target = xasprintf("%s/safe", scratch);
	entry(&b, RECORD_DIRECTORY, 0755, "", "");
	entry(&b, RECORD_SYMLINK, 0777, "abs", target);
	file(&b, 0644, "abs/evil", "x");
	entry(&b, RECORD_SYMLINK, 0777, "rel", "../../safe");
	file(&b, 0644, "rel/evil", "x");
	entry(&b, RECORD_DIRECTORY, 0755, "rel", "");
	leave(&b, 0777, "rel");
	entry(&b, RECORD_DIRECTORY, 0755, "real", "");
	entry(&b, RECORD_SYMLINK, 0777, "real/up", "../../../safe");
	file(&b, 0644, "real/up/evil", "x");
	file(&b, 0644, "real/fine", "fine");
	assert_int_equal(write_tree("out", "t", &b, true), 0);
	assert_safe();
	assert_true(stats.failed >= 4);
	assert_file("out/t/real/fine", "fine");
}

static void a_link_swapped_for_its_directory_redirects_nothing(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	entry(&b, RECORD_DIRECTORY, 0755, "", "");
	entry(&b, RECORD_DIRECTORY, 0755, "d", "");
	file(&b, 0644, "d/one", "1");
	/* A rename cannot put a link over a directory, so this entry fails; what follows goes into the directory. */
	entry(&b, RECORD_SYMLINK, 0777, "d", "../../safe");
	file(&b, 0644, "d/evil", "2");
	assert_int_equal(write_tree("out", "t", &b, true), 0);
	assert_safe();
	assert_file("out/t/d/one", "1");
	assert_file("out/t/d/evil", "2");
}

static void a_link_that_was_there_is_replaced_by_a_file_and_refused_for_a_directory(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	assert_int_equal(symlink("../safe/file", "out/f"), 0);
	assert_int_equal(symlink("../safe", "out/d"), 0);
	entry(&b, RECORD_DIRECTORY, 0755, "", "");
	file(&b, 0644, "f", "new");
	entry(&b, RECORD_DIRECTORY, 0755, "d", "");
	file(&b, 0644, "d/evil", "x");
	assert_int_equal(write_tree("out", NULL, &b, true), 0);
	assert_safe();
	assert_file("out/f", "new");
	struct stat st;
	assert_int_equal(lstat("out/f", &st), 0);
	assert_true(S_ISREG(st.st_mode));
}

static void broken_orders_end_the_copy(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	file(&b, 0644, "a", "no top yet");
	assert_int_equal(write_tree("out", "t", &b, true), -1);
	file(&b, 0644, "", "the top is a file");
	file(&b, 0644, "below", "x");
	assert_int_equal(write_tree("out", "t2", &b, true), -1);
	assert_int_equal(write_tree("out", "t3", &b, true), -1);
	record_add_text(&b, RECORD_FAIL, MUX_ERR_NOT_FOUND, NULL, "/nope: gone");
	assert_int_equal(write_tree("out", "t4", &b, false), -1);
	assert_int_equal(access("out/t4", F_OK), -1);
	entry(&b, RECORD_FILE, 0644, "", "");
	record_add_number(&b, RECORD_HOLE, INT64_MAX);
	record_add_number(&b, RECORD_HOLE, INT64_MAX);
	assert_int_equal(write_tree("out", "t5", &b, true), -1);
	assert_int_equal(access("out/t5", F_OK), -1);
}

static void set_id_bits_are_not_granted(void **state)
{
	(void)state;
	struct stat st;
	auto_buf b = BUF_INIT;
	entry(&b, RECORD_DIRECTORY, 07755, "", "");
	file(&b, 06755, "f", "x");
	leave(&b, 07755, "");
	assert_int_equal(write_tree("out/t", "n", &b, true), 0);
	assert_int_equal(stat("out/t/f", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(st.st_mtim.tv_sec, 1000000000);
	assert_int_equal(st.st_mtim.tv_nsec, 500);
	assert_int_equal(stat("out/t", &st), 0);
	assert_int_equal(st.st_mode & 06000, 0);
	assert_int_equal(st.st_mtim.tv_sec, 1000000001);
}

static int count_names(const char *dir)
{
	auto_free char *command = xasprintf("ls -A %s | wc -l", dir);
	FILE *f = popen(command, "re");
	int n = -1;
	assert_int_equal(fscanf(f, "%d", &n), 1);
	pclose(f);
	return n;
}

static void what_is_cut_short_or_aborted_leaves_no_file(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	assert_int_equal(io_write_file_atomic("out/f", "old", 3, 0644, false, NULL), 0);
	entry(&b, RECORD_FILE, 0644, "", "");
	data(&b, "half");
	assert_int_equal(write_tree("out", "f", &b, false), 0);
	assert_file("out/f", "old");
	entry(&b, RECORD_FILE, 0644, "", "");
	data(&b, "half");
	record_add_text(&b, RECORD_ABORT, 0, NULL, "I/O error");
	assert_int_equal(write_tree("out", "f", &b, true), 0);
	assert_file("out/f", "old");
	assert_int_equal(stats.failed, 1);
	assert_int_equal(count_names("out"), 1);
}

static void holes_stay_holes(void **state)
{
	(void)state;
	struct stat st;
	auto_buf b = BUF_INIT;
	entry(&b, RECORD_FILE, 0644, "", "");
	record_add_number(&b, RECORD_HOLE, 10ull << 30);
	data(&b, "x");
	record_add_number(&b, RECORD_HOLE, 10ull << 30);
	record_add_number(&b, RECORD_END, (20ull << 30) + 1);
	assert_int_equal(write_tree("out/big", "n", &b, true), 0);
	assert_int_equal(stat("out/big", &st), 0);
	assert_int_equal(st.st_size, (20ll << 30) + 1);
	assert_true(st.st_blocks < 1000);
}

static void odd_names_arrive_as_they_are(void **state)
{
	(void)state;
	char longest[256], deep[3100] = "";
	auto_buf b = BUF_INIT;
	static const char *const names[] = { "new\nline", "back\\slash", "nfd-e\xcc\x81", "bad\xff\xfe", " lead", "-dash", "tab\there" };
	memset(longest, 'n', 255);
	longest[255] = '\0';
	entry(&b, RECORD_DIRECTORY, 0755, "", "");
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		file(&b, 0644, names[i], names[i]);
	file(&b, 0644, longest, "long");
	size_t len = 0;
	while (len < 3000) {
		len += (size_t)snprintf(deep + len, sizeof(deep) - len, "%sdirectory-of-thirty-characters", len ? "/" : "");
		entry(&b, RECORD_DIRECTORY, 0755, deep, "");
	}
	snprintf(deep + len, sizeof(deep) - len, "/leaf");
	file(&b, 0644, deep, "deep");
	assert_int_equal(write_tree("out", NULL, &b, true), 0);
	assert_int_equal(stats.failed, 0);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		auto_free char *path = xasprintf("out/%s", names[i]);
		assert_file(path, names[i]);
	}
	auto_free char *path = xasprintf("out/%s", deep);
	assert_file(path, "deep");
}

/* --- where the top goes ---------------------------------------------------------------------------------------------------- */

static void places_follow_cp(void **state)
{
	(void)state;
	/* D: a directory, F: a file, for what is sent; result NULL: refused. */
	static const struct {
		char kind;
		const char *name, *dest, *result;
	} rows[] = {
		{ 'F', "f", "out", "out/f" },
		{ 'F', "f", "out/", "out/f" },
		{ 'F', "f", "out/new", "out/new" },
		{ 'F', "f", "out/nodir/", NULL },
		{ 'F', "f", "out/nodir/x", NULL },
		{ 'F', "f", "there", "there" },
		{ 'F', "f", "there/", NULL },
		{ 'F', "f", "link/h", "real/h" },
		{ 'F', "f", "filelink", "there" },
		{ 'F', "sub", "out", NULL },
		{ 'F', NULL, "out", NULL },
		{ 'D', "d", "out", "out/d/in" },
		{ 'D', "d", "out/", "out/d/in" },
		{ 'D', NULL, "out", "out/in" },
		{ 'D', "d", "out/new", "out/new/in" },
		{ 'D', "d", "out/new/", "out/new/in" },
		{ 'D', "d", "out/nodir/x", NULL },
		{ 'D', "d", "there", NULL },
		{ 'D', "d", "link", "real/d/in" },
		{ 'D', "sub", "out", "out/sub/in" },
		{ 'D', "taken", "out", NULL },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		auto_buf b = BUF_INIT;
		tear_down(NULL);
		set_up(NULL);
		assert_int_equal(mkdir("real", 0755) | mkdir("out/sub", 0755) | symlink("real", "link") | symlink("there", "filelink"), 0);
		assert_int_equal(io_write_file_atomic("there", "old", 3, 0644, false, NULL), 0);
		assert_int_equal(io_write_file_atomic("out/taken", "old", 3, 0644, false, NULL), 0);
		if (rows[i].kind == 'D') {
			entry(&b, RECORD_DIRECTORY, 0755, "", "");
			file(&b, 0644, "in", "sent");
			leave(&b, 0755, "");
		} else {
			file(&b, 0644, "", "sent");
		}
		int r = write_tree(rows[i].dest, rows[i].name, &b, true);
		if (r != (rows[i].result ? 0 : -1))
			fail_msg("row %zu", i);
		if (rows[i].result)
			assert_file(rows[i].result, "sent");
		assert_safe();
	}
}

static void source_names(void **state)
{
	(void)state;
	static const struct {
		const char *path, *name;
	} rows[] = {
		{ "d", "d" }, { "d/", "d" }, { "d//", "d" }, { "a/d", "d" }, { "/a/d/", "d" }, { "d/.", NULL }, { ".", NULL }, { "..", NULL },
		{ "/", NULL }, { "a/..", NULL }, { "a:b", "a:b" }, { "...", "..." },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		auto_free char *name = tree_name(rows[i].path);
		if (rows[i].name)
			assert_string_equal(name, rows[i].name);
		else
			assert_null(name);
	}
}

/* --- a tree read and written again ----------------------------------------------------------------------------------------- */

static void a_tree_read_and_written_is_the_same(void **state)
{
	(void)state;
	struct stat st;
	assert_int_equal(mkdir("src", 0750) | mkdir("src/empty", 0700) | symlink("gone", "src/dangling") | symlink(".", "src/loop") |
			 mkfifo("src/fifo", 0600), 0);
	assert_int_equal(io_write_file_atomic("src/f", "text", 4, 0640, false, NULL), 0);
	auto_close int big = open("src/sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(big, 50 << 20), 0);
	assert_int_equal(pwrite(big, "middle", 6, 20 << 20), 6);

	struct tree_reader *t;
	struct error err = ERROR_INIT;
	auto_buf all = BUF_INIT;
	enum produce p;
	int fd;
	assert_int_equal(tree_reader_new(&copy, "src", &t, &err), 0);
	do {
		p = tree_produce(t, &all, &fd, &err);
	} while (p == PRODUCE_MORE);
	assert_int_equal(p, PRODUCE_ALL);
	tree_reader_free(t);
	assert_true(all.len < (1 << 20));
	assert_int_equal(stats.skipped, 1);

	struct record_reader in;
	struct tree_writer *w = tree_writer_new(&copy, "out", "copy");
	record_reader_init(&in, tree_on_record, w);
	assert_int_equal(record_feed(&in, all.data, all.len, &err), 0);
	record_reader_done(&in);
	tree_writer_free(w);
	assert_file("out/copy/f", "text");
	assert_int_equal(stat("out/copy/sparse", &st), 0);
	assert_int_equal(st.st_size, 50 << 20);
	assert_true(st.st_blocks < 1000);
	assert_int_equal(stat("out/copy", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0750);
	assert_int_equal(stat("out/copy/empty", &st), 0);
	char target[16] = "";
	assert_int_equal(readlink("out/copy/dangling", target, sizeof(target) - 1), 4);
	assert_string_equal(target, "gone");
	assert_int_equal(lstat("out/copy/fifo", &st), -1);
}

static void a_missing_source_is_named(void **state)
{
	(void)state;
	struct tree_reader *t;
	struct error err = ERROR_INIT;
	assert_int_equal(tree_reader_new(&copy, "nothing-here", &t, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_non_null(strstr(err.message, "nothing-here"));
	assert_int_equal(tree_reader_new(&copy, "safe/file/", &t, &err), -1);
}

/* --- tar ------------------------------------------------------------------------------------------------------------------- */

static void headers_come_back_as_they_went(void **state)
{
	(void)state;
	char name100[101], name101[102], deep[3001], link200[201];
	memset(name100, 'a', 100);
	memset(name101, 'b', 101);
	memset(deep, 'c', 3000);
	memset(link200, 'd', 200);
	name100[100] = name101[101] = deep[3000] = link200[200] = '\0';
	char bytes[150];
	memset(bytes, 0xfe, 149);
	bytes[149] = '\0';
	static char none[] = "", t[] = "t";
	const struct tar_entry rows[] = {
		{ .type = '0', .mode = 0644, .size = 5, .sec = 1, .path = name100, .link = none },
		{ .type = '0', .mode = 04755, .size = 0, .sec = 1, .path = name101, .link = none },
		{ .type = '5', .mode = 0755, .sec = 1700000000, .nsec = 1, .path = deep, .link = none },
		{ .type = '2', .mode = 0777, .sec = 5, .path = t, .link = link200 },
		{ .type = '0', .mode = 0600, .size = 1ull << 40, .sec = -7, .nsec = 250000000, .path = t, .link = none },
		{ .type = '0', .mode = 0600, .size = 3, .sec = -1, .nsec = 999999999, .path = bytes, .link = none },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		auto_buf b = BUF_INIT;
		struct tar_entry e;
		struct error err = ERROR_INIT;
		bool end;
		size_t at = 0;
		auto_buf pax = BUF_INIT;
		tar_add_header(&b, &rows[i]);
		assert_int_equal(b.len % TAR_BLOCK, 0);
		assert_int_equal(tar_parse_header((unsigned char *)b.data, &e, &end, &err), 0);
		if (e.type == 'x') {
			buf_add(&pax, b.data + TAR_BLOCK, (size_t)e.size);
			at = TAR_BLOCK + (size_t)((e.size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK);
			free(e.path);
			free(e.link);
			assert_int_equal(tar_parse_header((unsigned char *)b.data + at, &e, &end, &err), 0);
			assert_int_equal(tar_apply_pax(buf_str(&pax), pax.len, &e, &err), 0);
		}
		assert_int_equal(at + TAR_BLOCK, b.len);
		assert_string_equal(e.path, rows[i].path);
		assert_string_equal(e.link, rows[i].link);
		assert_int_equal(e.type, rows[i].type);
		assert_int_equal(e.mode, rows[i].mode);
		assert_true(e.size == rows[i].size);
		assert_true(e.sec == rows[i].sec);
		assert_int_equal(e.nsec, rows[i].nsec);
		free(e.path);
		free(e.link);
	}
}

static void malformed_pax_is_refused(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		size_t n;
	} rows[] = {
		{ "x", 1 }, { "0 a=b\n", 6 }, { "7 a=b\n", 6 }, { "99 path=x\n", 10 }, { "10 path=x", 9 }, { "8 abcde\n", 8 },
		{ "11 path=a\0b\n", 12 }, { "12 path=a\0b\n", 12 }, { "999999999999 path=x\n", 20 }, { "3 \n", 3 }, { "16 mtime=1.2.3x\n", 16 },
		{ "10 size=-\n", 10 }, { " 10 path=x\n", 11 },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct tar_entry e = { .path = xstrdup("p"), .link = xstrdup("") };
		if (tar_apply_pax(rows[i].text, rows[i].n, &e, NULL) == 0)
			fail_msg("row %zu was taken", i);
		free(e.path);
		free(e.link);
	}
}

/* Runs a tar stream through the reader and writes what comes out into out/. */
static int unpack(struct buf *tar)
{
	int p[2];
	struct error err = ERROR_INIT;
	auto_buf all = BUF_INIT;
	enum produce r;
	int fd;
	assert_int_equal(io_write_file_atomic("stream", buf_str(tar), tar->len, 0600, false, NULL), 0);
	p[0] = open("stream", O_RDONLY | O_CLOEXEC);
	struct tar_reader *t = tar_reader_new(&copy, p[0]);
	do {
		r = tar_produce(t, &all, &fd, &err);
	} while (r == PRODUCE_MORE);
	tar_reader_free(t);
	close(p[0]);
	if (r == PRODUCE_FAILED)
		return -1;
	struct record_reader in;
	struct tree_writer *w = tree_writer_new(&copy, "out", NULL);
	record_reader_init(&in, tree_on_record, w);
	int status = record_feed(&in, all.data, all.len, &err);
	record_reader_done(&in);
	tree_writer_free(w);
	return status;
}

static void add_tar(struct buf *b, char type, const char *path, const char *link, const char *text)
{
	static const char zeros[TAR_BLOCK];
	struct tar_entry e = { .type = type, .mode = 0755, .size = strlen(text), .sec = 9, .path = (char *)(uintptr_t)path,
			       .link = (char *)(uintptr_t)link };
	tar_add_header(b, &e);
	buf_adds(b, text);
	buf_add(b, zeros, (TAR_BLOCK - strlen(text) % TAR_BLOCK) % TAR_BLOCK);
}

static void end_tar(struct buf *b)
{
	static const char zeros[2 * TAR_BLOCK];
	buf_add(b, zeros, sizeof(zeros));
}

static void tar_entries_that_lead_out_are_refused_one_by_one(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	add_tar(&b, '0', "../evil", "", "x");
	add_tar(&b, '0', "a/../../evil", "", "x");
	add_tar(&b, '2', "l", "../safe", "");
	add_tar(&b, '0', "l/evil", "", "x");
	add_tar(&b, '1', "hard", "../safe/file", "");
	add_tar(&b, '3', "dev", "", "");
	add_tar(&b, '6', "fifo", "", "");
	add_tar(&b, '0', "/abs/ok", "", "inside");
	add_tar(&b, '0', "./dot/ok", "", "inside too");
	add_tar(&b, '0', "", "", "nameless");
	end_tar(&b);
	assert_int_equal(unpack(&b), 0);
	assert_safe();
	assert_file("out/abs/ok", "inside");
	assert_file("out/dot/ok", "inside too");
	assert_int_equal(stats.skipped, 2);
	assert_true(stats.failed >= 5);
	assert_int_equal(access("out/hard", F_OK), -1);
}

static void tar_directories_get_their_modes_last(void **state)
{
	(void)state;
	struct stat st;
	auto_buf b = BUF_INIT;
	struct tar_entry d = { .type = '5', .mode = 0500, .sec = 77, .path = (char *)(uintptr_t) "closed/", .link = (char *)(uintptr_t) "" };
	tar_add_header(&b, &d);
	add_tar(&b, '0', "closed/in", "", "x");
	add_tar(&b, '0', "made/without/entry", "", "y");
	add_tar(&b, '0', "made/again", "", "z");
	end_tar(&b);
	assert_int_equal(unpack(&b), 0);
	assert_int_equal(stats.failed, 0);
	assert_int_equal(stat("out/closed", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0500);
	assert_int_equal(st.st_mtim.tv_sec, 77);
	assert_file("out/made/without/entry", "y");
	assert_file("out/made/again", "z");
	chmod("out/closed", 0700);
}

static void what_is_no_tar_stream_is_refused(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	assert_int_equal(unpack(&b), -1);
	buf_adds(&b, "short");
	assert_int_equal(unpack(&b), -1);
	for (int i = 0; i < 600; i++)
		buf_adds(&b, "noise ");
	assert_int_equal(unpack(&b), -1);
	buf_reset(&b);
	add_tar(&b, '0', "f", "", "contents that are cut");
	b.len -= TAR_BLOCK;
	assert_int_equal(unpack(&b), -1);
	buf_reset(&b);
	add_tar(&b, '0', "f", "", "x");
	b.data[130]++;
	assert_int_equal(unpack(&b), -1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_link_sent_first_redirects_nothing),
		TEST(a_link_swapped_for_its_directory_redirects_nothing),
		TEST(a_link_that_was_there_is_replaced_by_a_file_and_refused_for_a_directory),
		TEST(broken_orders_end_the_copy),
		TEST(set_id_bits_are_not_granted),
		TEST(what_is_cut_short_or_aborted_leaves_no_file),
		TEST(holes_stay_holes),
		TEST(odd_names_arrive_as_they_are),
		TEST(places_follow_cp),
		TEST(source_names),
		TEST(a_tree_read_and_written_is_the_same),
		TEST(a_missing_source_is_named),
		TEST(headers_come_back_as_they_went),
		TEST(malformed_pax_is_refused),
		TEST(tar_entries_that_lead_out_are_refused_one_by_one),
		TEST(tar_directories_get_their_modes_last),
		TEST(what_is_no_tar_stream_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
