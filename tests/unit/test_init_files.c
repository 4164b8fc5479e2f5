/* The file streams, the loopback dialler and the process list of a real sandbox-init, and the records they are made of. */
#include "tests/unit/init_peer.h"

#include "shared/mux/records.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/xattr.h>

static struct peer_end peer;
static char base[64];

static int set_up(void **state)
{
	(void)state;
	peer_start(&peer, "0", "0");
	snprintf(base, sizeof(base), "/tmp/sandbox-test-files-XXXXXX");
	assert_non_null(mkdtemp(base));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	peer_stop(&peer);
	assert_int_equal(io_remove_tree(base, NULL), 0);
	return 0;
}

/* "base/format" in one of a few buffers. */
static const char *at(const char *rel)
{
	static char text[8][512];
	static unsigned turn;
	char *out = text[turn++ % 8];
	snprintf(out, 512, "%s/%s", base, rel);
	return out;
}

static void make_file(const char *rel, const void *p, size_t n, mode_t mode)
{
	auto_close int fd = open(at(rel), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(fd, p, n), 0);
	assert_int_equal(fchmod(fd, mode), 0);
}

static void check_file(const char *rel, const void *p, size_t n)
{
	auto_buf got = BUF_INIT;
	struct error err = ERROR_INIT;
	if (io_read_file(at(rel), n + 1000, &got, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(got.len, n);
	if (n)
		assert_memory_equal(got.data, p, n);
}

static bool is_empty(const char *rel)
{
	auto_dir DIR *d = opendir(at(rel));
	int n = 0;
	while (readdir(d))
		n++;
	return n == 2;
}

static bool exists(const char *rel)
{
	struct stat st;
	return lstat(at(rel), &st) == 0;
}

/* --- transfers --- */

static void files_open(struct run *r, enum mux_kind kind, const char *path, const char *name, uint64_t action)
{
	auto_tlv t = TLV_INIT;
	tlv_add_u64(&t, MUX_F_KIND, kind);
	tlv_add_str(&t, MUX_F_PATH, path);
	tlv_add_str(&t, MUX_F_NAME, name);
	if (action)
		tlv_add_u64(&t, MUX_F_ACTION, action);
	run_open(r, &t, LIMIT_MUX_WINDOW);
}

/* What a transfer said, one line per record; contents of files are summed up. */
struct story {
	struct buf text;
	struct buf data; /* of all files together */
	uint64_t data_len, entries, failed;
	unsigned code;
	bool keep, done;
	int64_t sec;
	unsigned mode;
	uint64_t holes, end;
};

static int tell(void *ctx, const struct record *r, struct error *err)
{
	struct story *s = ctx;
	(void)err;
	switch (r->type) {
	case RECORD_ENTRY:
		buf_addf(&s->text, "%c %s%s%s\n", "?fdlh"[r->entry.kind], r->entry.path, *r->entry.target ? " -> " : "", r->entry.target);
		s->sec = r->entry.sec;
		s->mode = r->entry.mode;
		return 0;
	case RECORD_DATA:
		s->data_len += r->len;
		if (s->keep)
			buf_add(&s->data, r->data, r->len);
		return 0;
	case RECORD_HOLE:
		s->holes += r->number;
		return 0;
	case RECORD_END:
		s->end = r->number;
		return 0;
	case RECORD_ABORT:
		buf_addf(&s->text, "abort %s\n", r->text);
		return 0;
	case RECORD_LEAVE:
		return 0;
	case RECORD_XATTR:
		buf_addf(&s->text, "x %s=%.*s\n", r->name, (int)r->len, (const char *)r->data);
		return 0;
	case RECORD_SKIPPED:
		buf_addf(&s->text, "skipped %u %s: %s\n", r->code, r->path, r->text);
		return 0;
	case RECORD_DONE:
		s->entries = r->entries;
		s->failed = r->failed;
		s->done = true;
		buf_addf(&s->text, "done %s\n", r->path);
		return 0;
	case RECORD_FAIL:
		s->code = r->code;
		buf_addf(&s->text, "fail %u %s\n", r->code, r->text);
		return 0;
	}
	return 0;
}

static void story_done(struct story *s)
{
	buf_done(&s->text);
	buf_done(&s->data);
}

#define auto_story __attribute__((cleanup(story_done))) struct story

static void read_story(struct run *r, struct story *s)
{
	struct record_reader reader;
	struct error err = ERROR_INIT;
	record_reader_init(&reader, tell, s);
	if (record_feed(&reader, buf_str(&r->out[0]), r->out[0].len, &err) < 0)
		fail_msg("%s", err.message);
	record_reader_done(&reader);
	run_free(r);
}

static void get(const char *path, uint64_t action, struct story *s)
{
	struct run *r = run_new(&peer);
	files_open(r, MUX_KIND_FILES_GET, path, NULL, action);
	run_wait(r);
	assert_int_equal(r->error, 0);
	read_story(r, s);
}

static void put(const char *path, const char *name, const struct buf *records, struct story *s)
{
	struct run *r = run_new(&peer);
	files_open(r, MUX_KIND_FILES_PUT, path, name, 0);
	r->feed = buf_str(records);
	r->feed_len = records->len;
	r->feed_eof = true;
	run_wait(r);
	read_story(r, s);
}

static void add(struct buf *b, enum record_type type, enum record_kind kind, const char *path, const char *target, unsigned mode)
{
	struct record_entry e = { .kind = kind, .path = path, .target = target, .mode = mode, .sec = 1000000000, .nsec = 5 };
	record_add_entry(b, type, &e);
}

static void add_data(struct buf *b, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i += RECORD_DATA_MAX) {
		uint8_t head[RECORD_HEAD_LEN];
		size_t part = n - i < RECORD_DATA_MAX ? n - i : RECORD_DATA_MAX;
		record_put_head(head, RECORD_DATA, part);
		buf_add(b, head, sizeof(head));
		buf_add(b, p + i, part);
	}
}

static void add_file(struct buf *b, const char *path, const char *text, unsigned mode)
{
	add(b, RECORD_ENTRY, RECORD_FILE, path, "", mode);
	add_data(b, text, strlen(text));
	record_add_number(b, RECORD_END, strlen(text));
}

/* --- out --- */

static void a_tree_comes_out_as_it_is(void **state)
{
	(void)state;
	assert_int_equal(mkdir(at("d"), 0755), 0);
	assert_int_equal(mkdir(at("d/empty"), 0700), 0);
	make_file("d/f", "x\n", 2, 0640);
	make_file("d/nam\ne\xff", "y", 1, 0000);
	assert_int_equal(symlink("f", at("d/good")), 0);
	assert_int_equal(symlink("gone", at("d/dangling")), 0);
	assert_int_equal(symlink(".", at("d/loop")), 0);
	assert_int_equal(mkfifo(at("d/fifo"), 0644), 0);
	auto_story s = { .keep = true };
	get(at("d"), 0, &s);
	assert_string_equal(buf_str(&s.text) + 0, ({
		static char want[512];
		snprintf(want, sizeof(want), "d \nl dangling -> gone\nd empty\nf f\nskipped 0 fifo: it is a FIFO\nl good -> f\nl loop -> .\nf nam\ne\xff\ndone %s/d\n", base);
		want;
	}));
	assert_string_equal(buf_str(&s.data), "x\ny");
	assert_int_equal(s.entries, 7);
	assert_int_equal(s.failed, 1);
	auto_story list = { .keep = true };
	get(at("d"), FILES_ENTRIES_ONLY, &list);
	assert_string_equal(buf_str(&list.text), buf_str(&s.text));
	assert_int_equal(list.data_len, 0);
	make_file("d/empty/below", "x", 1, 0644);
	auto_story top = { .keep = true };
	get(at("d/"), FILES_TOP_ONLY, &top);
	assert_non_null(strstr(buf_str(&top.text), "d empty\nf f\n"));
	assert_null(strstr(buf_str(&top.text), "below"));
	assert_int_equal(top.data_len, 0);
}

static void one_thing_comes_out(void **state)
{
	(void)state;
	make_file("one", "hello", 5, 0754);
	struct timespec t[2] = { { 1234567890, 0 }, { 1234567890, 0 } };
	assert_int_equal(utimensat(AT_FDCWD, at("one"), t, 0), 0);
	assert_int_equal(symlink("one", at("link")), 0);
	assert_int_equal(mkdir(at("sub"), 0755), 0);
	assert_int_equal(symlink("sub", at("dirlink")), 0);
	auto_story s = { .keep = true };
	get(at("one"), 0, &s);
	assert_string_equal(buf_str(&s.data), "hello");
	assert_int_equal(s.sec, 1234567890);
	assert_int_equal(s.mode, 0754);
	auto_story l = { .keep = true };
	get(at("link"), 0, &l); /* the link itself */
	assert_int_equal(strncmp(buf_str(&l.text), "l  -> one\n", 10), 0);
	auto_story d = { .keep = true };
	get(at("dirlink/"), 0, &d); /* what it leads to */
	assert_int_equal(strncmp(buf_str(&d.text), "d \n", 3), 0);
	static const char *const missing[] = { "nope", "one/x", "one/", "nope/y" };
	for (size_t i = 0; i < ARRAY_LEN(missing); i++) {
		auto_story m = { .keep = true };
		get(at(missing[i]), 0, &m);
		assert_int_equal(m.code, MUX_ERR_NOT_FOUND);
		assert_non_null(strstr(buf_str(&m.text), missing[i]));
		assert_false(m.done);
	}
	auto_story p = { .keep = true };
	get("/proc/self/cmdline", 0, &p); /* says it is empty, and is not */
	assert_true(p.data_len > 5);
	auto_story dev = { .keep = true };
	get("/dev/null", 0, &dev);
	assert_non_null(strstr(buf_str(&dev.text), "skipped 0 : it is a device"));
}

static void sparse_files_stay_sparse(void **state)
{
	(void)state;
	make_file("sparse", "start", 5, 0644);
	auto_close int fd = open(at("sparse"), O_WRONLY | O_CLOEXEC);
	assert_int_equal(ftruncate(fd, 10LL << 30), 0);
	assert_int_equal(pwrite(fd, "middle", 6, 5LL << 30), 6);
	auto_story s = { .keep = false };
	int64_t start = clock_mono_ms();
	get(at("sparse"), 0, &s);
	assert_true(clock_mono_ms() - start < 3000);
	assert_true(s.end == 10ULL << 30);
	assert_true(s.data_len < 1 << 20);
	assert_true(s.holes + s.data_len == 10ULL << 30);
	auto_buf b = BUF_INIT;
	add(&b, RECORD_ENTRY, RECORD_FILE, "", "", 0600);
	add_data(&b, "start", 5);
	record_add_number(&b, RECORD_HOLE, (5ULL << 30) - 5);
	add_data(&b, "middle", 6);
	record_add_number(&b, RECORD_END, 10ULL << 30);
	record_add_done(&b, 1, 11, 0, "");
	auto_story back = { .keep = true };
	put(at("sparse2"), NULL, &b, &back);
	struct stat st;
	assert_int_equal(stat(at("sparse2"), &st), 0);
	assert_true(st.st_size == 10LL << 30);
	assert_true(st.st_blocks < 2048);
	auto_close int in = open(at("sparse2"), O_RDONLY | O_CLOEXEC);
	char text[7] = "";
	assert_int_equal(pread(in, text, 6, 5LL << 30), 6);
	assert_string_equal(text, "middle");
}

/* --- in --- */

static void a_tree_goes_in_as_it_was(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	auto_story s = { .keep = true };
	struct stat st;
	char target[16] = "";
	add(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "", 0750);
	add_file(&b, "f", "hello", 04755);
	add(&b, RECORD_ENTRY, RECORD_SYMLINK, "l", "nowhere", 0777);
	add(&b, RECORD_ENTRY, RECORD_DIRECTORY, "sub", "", 0555);
	add_file(&b, "sub/in\nside", "x", 0000);
	add(&b, RECORD_LEAVE, RECORD_DIRECTORY, "sub", "", 0555);
	add(&b, RECORD_LEAVE, RECORD_DIRECTORY, "", "", 0750);
	record_add_done(&b, 5, 6, 0, "");
	put(at("new"), "ignored-when-new", &b, &s);
	assert_true(s.done);
	assert_int_equal(s.failed, 0);
	assert_int_equal(s.entries, 5);
	assert_non_null(strstr(buf_str(&s.text), "/new\n"));
	check_file("new/f", "hello", 5);
	check_file("new/sub/in\nside", "x", 1);
	assert_int_equal(stat(at("new/f"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755); /* no set-user-id bit */
	assert_int_equal(st.st_mtim.tv_sec, 1000000000);
	assert_int_equal(stat(at("new/sub"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0555);
	assert_int_equal(st.st_mtim.tv_sec, 1000000000);
	assert_int_equal(stat(at("new"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0750);
	assert_int_equal(readlink(at("new/l"), target, 15), 7);
	/* Again, now that it is there: into it under its name; and its contents alone. */
	auto_story into = { .keep = true };
	put(at("new"), "copy", &b, &into);
	check_file("new/copy/f", "hello", 5);
	auto_story contents = { .keep = true };
	put(at("new/"), NULL, &b, &contents);
	assert_int_equal(contents.failed, 0);
	check_file("new/f", "hello", 5);
	assert_false(exists("new/new"));
}

static void where_a_file_goes(void **state)
{
	static const struct {
		const char *path, *name, *result; /* NULL: refused */
	} rows[] = {
		{ "w", "f", "w/f" }, { "w/", "f", "w/f" }, { "w/.", "f", "w/f" }, { "w/newname", "f", "w/newname" },
		{ "nodir/", "f", NULL }, { "nodir/x", "f", NULL }, { "w/old", "f", "w/old" }, { "w/old/", "f", NULL },
		{ "w/link", "f", "w/old" }, { "w/dangling", "f", "w/dangling" }, { "wl", "f", "w/f" }, { "w", "sub", NULL },
		{ "w/nodir/.", "f", NULL },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(io_remove_tree(at("w"), NULL), 0);
		unlink(at("wl"));
		assert_int_equal(mkdir(at("w"), 0755), 0);
		assert_int_equal(mkdir(at("w/sub"), 0755), 0);
		make_file("w/old", "old", 3, 0644);
		assert_int_equal(symlink("old", at("w/link")), 0);
		assert_int_equal(symlink("gone", at("w/dangling")), 0);
		assert_int_equal(symlink("w", at("wl")), 0);
		auto_buf b = BUF_INIT;
		auto_story s = { .keep = true };
		add_file(&b, "", "new!", 0644);
		record_add_done(&b, 1, 4, 0, "");
		put(at(rows[i].path), rows[i].name, &b, &s);
		if (s.done != (rows[i].result != NULL))
			fail_msg("row %zu (%s): %s", i, rows[i].path, buf_str(&s.text));
		if (rows[i].result)
			check_file(rows[i].result, "new!", 4);
		else
			assert_true(s.code != 0);
	}
}

static void what_breaks_off_leaves_nothing(void **state)
{
	(void)state;
	assert_int_equal(mkdir(at("part"), 0755), 0);
	make_file("part/f", "old", 3, 0644);
	auto_buf b = BUF_INIT;
	add(&b, RECORD_ENTRY, RECORD_FILE, "", "", 0600);
	add_data(&b, "half of it", 10);
	for (int i = 0; i < 3; i++) { /* ends, aborts, or is cut in the middle of a record */
		auto_buf c = BUF_INIT;
		auto_story s = { .keep = true };
		buf_add(&c, b.data, b.len - (i == 2 ? 3 : 0));
		if (i == 1) {
			record_add_text(&c, RECORD_ABORT, 0, NULL, "read error");
			record_add_done(&c, 0, 0, 1, "");
		}
		put(at("part"), "f", &c, &s);
		assert_int_equal(s.done, i == 1);
		check_file("part/f", "old", 3);
		auto_story list = { .keep = true };
		get(at("part"), 0, &list);
		assert_int_equal(list.entries, 2); /* no temporary file */
	}
}

static void a_tree_that_breaks_off_leaves_nothing(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	assert_int_equal(mkdir(at("room"), 0755), 0);
	add(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "", 0755);
	for (int i = 0; i < 200; i++) {
		char name[16];
		snprintf(name, sizeof(name), "f%d", i);
		add_file(&b, name, "x", 0644);
	}
	/* The stream is closed under the helper, which has made most of it by then. */
	struct run *r = run_new(&peer);
	files_open(r, MUX_KIND_FILES_PUT, at("room"), "tree", 0);
	r->feed = b.data;
	r->feed_len = b.len;
	PEER_UNTIL(&peer, !is_empty("room"));
	assert_false(exists("room/tree"));
	mux_close(peer.m, r->id, NULL);
	PEER_UNTIL(&peer, is_empty("room"));
}

static void hard_links_and_attributes_pass(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	auto_story s = { .keep = true }, back = { .keep = true };
	add(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "", 0755);
	add_file(&b, "a", "text", 0644);
	add(&b, RECORD_ENTRY, RECORD_HARDLINK, "b", "a", 0644);
	record_add_done(&b, 3, 4, 0, "");
	put(at("linked"), NULL, &b, &s);
	assert_true(s.done);
	assert_int_equal(s.failed, 0);
	bool xattrs = setxattr(at("linked/a"), "user.k", "v", 1, 0) == 0;
	get(at("linked"), 0, &back);
	static const char *const want[] = { "d \nf a\nh b -> a\n", "d \nf a\nx user.k=v\nh b -> a\n" };
	assert_int_equal(strncmp(buf_str(&back.text), want[xattrs], strlen(want[xattrs])), 0);
}

static void nothing_leaves_its_tree(void **state)
{
	static const char *const bad[] = { "../evil", "/tmp/evil", "a/../../evil", "a//b", "a/", ".", "..", "./x" };
	(void)state;
	assert_int_equal(mkdir(at("out"), 0755), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		auto_buf b = BUF_INIT;
		auto_story s = { .keep = true };
		add(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "", 0755);
		add_file(&b, bad[i], "evil", 0644);
		record_add_done(&b, 2, 4, 0, "");
		put(at("jail"), NULL, &b, &s);
		assert_false(s.done);
		assert_int_equal(s.code, MUX_ERR_REFUSED);
	}
	assert_false(exists("evil"));
	/* A link, then something through it. */
	auto_buf b = BUF_INIT;
	auto_story s = { .keep = true };
	add(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "", 0755);
	add(&b, RECORD_ENTRY, RECORD_SYMLINK, "l", at("out"), 0777);
	add_file(&b, "l/evil", "evil", 0644);
	add(&b, RECORD_ENTRY, RECORD_DIRECTORY, "l", "", 0755);
	add_file(&b, "fine", "fine", 0644);
	record_add_done(&b, 5, 8, 0, "");
	put(at("jail"), NULL, &b, &s);
	assert_true(s.done);
	assert_int_equal(s.failed, 2);
	assert_false(exists("out/evil"));
	check_file("jail/fine", "fine", 4);
	/* Records that are no tree. */
	auto_buf orphan = BUF_INIT;
	auto_story o = { .keep = true };
	add_file(&orphan, "x", "x", 0644);
	put(at("jail"), NULL, &orphan, &o);
	assert_int_equal(o.code, MUX_ERR_REFUSED);
}

static void one_failure_does_not_stop_the_rest(void **state)
{
	(void)state;
	assert_int_equal(mkdir(at("mix"), 0755), 0);
	assert_int_equal(mkdir(at("mix/a"), 0755), 0); /* a directory where a file shall go */
	make_file("mix/b", "file", 4, 0644);           /* and the other way */
	auto_buf b = BUF_INIT;
	auto_story s = { .keep = true };
	add(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "", 0755);
	add_file(&b, "a", "data", 0644);
	add(&b, RECORD_ENTRY, RECORD_DIRECTORY, "b", "", 0755);
	add_file(&b, "b/inside", "data", 0644);
	add_file(&b, "c", "data", 0644);
	record_add_done(&b, 5, 12, 0, "");
	put(at("mix"), NULL, &b, &s);
	assert_true(s.done);
	assert_int_equal(s.failed, 3);
	assert_non_null(strstr(buf_str(&s.text), " a: "));
	assert_non_null(strstr(buf_str(&s.text), " b: "));
	check_file("mix/c", "data", 4);
	check_file("mix/b", "file", 4);
}

static void an_upload_belongs_to_its_user(void **state)
{
	(void)state;
	if (geteuid() != 0) {
		print_message("not root: ownership is not tested\n");
		skip();
	}
	auto_buf b = BUF_INIT;
	auto_tlv t = TLV_INIT;
	struct stat st;
	add(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "", 0755);
	add_file(&b, "f", "data", 0644);
	add(&b, RECORD_ENTRY, RECORD_SYMLINK, "l", "f", 0777);
	record_add_done(&b, 3, 4, 0, "");
	struct run *r = run_new(&peer);
	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_FILES_PUT);
	tlv_add_str(&t, MUX_F_PATH, "owned");
	tlv_add_str(&t, MUX_F_CWD, base);
	tlv_add_str(&t, MUX_F_USER, "3000000:3000001");
	r->feed = b.data;
	r->feed_len = b.len;
	r->feed_eof = true;
	run_open(r, &t, LIMIT_MUX_WINDOW);
	run_wait(r);
	static const char *const made[] = { "owned", "owned/f", "owned/l" };
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(lstat(at(made[i]), &st), 0);
		assert_int_equal(st.st_uid, 3000000);
		assert_int_equal(st.st_gid, 3000001);
	}
}

static void long_names_and_many_files(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT, path = BUF_INIT;
	auto_story s = { .keep = false }, back = { .keep = false };
	char name[256];
	add(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "", 0755);
	for (int i = 0; i < 11; i++) { /* 2815 bytes deep */
		memset(name, 'a' + i, 255);
		name[255] = '\0';
		buf_addf(&path, "%s%s", i ? "/" : "", name);
		add(&b, RECORD_ENTRY, RECORD_DIRECTORY, buf_str(&path), "", 0755);
	}
	buf_adds(&path, "/leaf");
	add_file(&b, buf_str(&path), "deep", 0644);
	for (int i = 0; i < 10000; i++) {
		snprintf(name, sizeof(name), "file%05d", i);
		add_file(&b, name, name, 0644);
	}
	record_add_done(&b, 10013, 0, 0, "");
	int64_t start = clock_mono_ms();
	put(at("many"), NULL, &b, &s);
	assert_true(s.done);
	assert_int_equal(s.failed, 0);
	assert_int_equal(s.entries, 10013);
	int64_t mid = clock_mono_ms();
	get(at("many"), 0, &back);
	print_message("10000 files: in %d ms, out %d ms\n", (int)(mid - start), (int)(clock_mono_ms() - mid));
	assert_int_equal(back.entries, 10013);
	assert_int_equal(back.data_len, 4 + 10000 * 9);
	assert_non_null(strstr(buf_str(&back.text), buf_str(&path)));
}

static void contents_are_exact_around_the_limits(void **state)
{
	static const size_t sizes[] = { 0, 1, RECORD_DATA_MAX - 9, RECORD_DATA_MAX - 8, RECORD_DATA_MAX - 7, RECORD_DATA_MAX, RECORD_DATA_MAX + 1, 5 << 20 };
	(void)state;
	auto_free char *data = xmalloc(5 << 20);
	srand(3);
	for (size_t i = 0; i < 5 << 20; i++)
		data[i] = (char)(rand() >> 5);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		auto_buf b = BUF_INIT;
		auto_story s = { .keep = true }, back = { .keep = true };
		add(&b, RECORD_ENTRY, RECORD_FILE, "", "", 0644);
		add_data(&b, data, sizes[i]);
		record_add_number(&b, RECORD_END, sizes[i]);
		record_add_done(&b, 1, sizes[i], 0, "");
		peer.read_size = 1 + (size_t)rand() % 100000;
		put(at("exact"), NULL, &b, &s);
		assert_true(s.done);
		check_file("exact", data, sizes[i]);
		get(at("exact"), 0, &back);
		assert_int_equal(back.data.len, sizes[i]);
		if (sizes[i])
			assert_memory_equal(back.data.data, data, sizes[i]);
	}
	peer.read_size = 1 << 20;
}

static void bad_file_requests_are_refused(void **state)
{
	static const struct {
		const char *path, *name;
		uint64_t action;
	} rows[] = { { "", NULL, 0 }, { NULL, NULL, 0 }, { "/tmp", "a/b", 0 }, { "/tmp", "..", 0 }, { "/tmp", NULL, 9 }, { "/tmp", "", 0 } };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct run *r = run_new(&peer);
		files_open(r, MUX_KIND_FILES_PUT, rows[i].path, rows[i].name, rows[i].action);
		run_wait(r);
		assert_int_equal(r->error, MUX_ERR_REFUSED);
		assert_false(r->accepted);
		run_free(r);
	}
}

static void a_reader_that_leaves_ends_the_helper(void **state)
{
	(void)state;
	make_file("large", "x", 1, 0644);
	assert_int_equal(truncate(at("large"), 1), 0);
	auto_close int fd = open(at("large"), O_WRONLY | O_CLOEXEC);
	auto_free char *block = xcalloc(1, 1 << 20);
	for (int i = 0; i < 16; i++)
		assert_int_equal(io_write_full(fd, block, 1 << 20), 0);
	struct run *r = run_new(&peer);
	r->hold = true;
	files_open(r, MUX_KIND_FILES_GET, at("large"), NULL, 0);
	PEER_UNTIL(&peer, r->got[0] == LIMIT_MUX_WINDOW);
	mux_close(peer.m, r->id, NULL);
	for (int i = 0; i < 200; i++) {
		struct run *ps = run_new(&peer);
		auto_tlv t = TLV_INIT;
		tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_PS);
		run_open(ps, &t, 0);
		run_wait(ps);
		bool there = strstr(buf_str(&ps->out[0]), "sandbox-files") != NULL;
		run_free(ps);
		if (!there)
			return;
		peer_idle(&peer, 10);
	}
	fail_msg("the helper is still there");
}

/* --- dial and ps --- */

static int listen_on_loopback(int family, uint16_t *ret_port)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = family == AF_INET ? sizeof(v4) : sizeof(v6);
	void *a = family == AF_INET ? (void *)&v4 : (void *)&v6;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, a, n) < 0 || listen(fd, 4) < 0 || getsockname(fd, a, &n) < 0) {
		close_fdp(&fd);
		return -1;
	}
	*ret_port = ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port);
	return fd;
}

static struct run *dial(uint64_t port)
{
	auto_tlv t = TLV_INIT;
	struct run *r = run_new(&peer);
	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_DIAL);
	tlv_add_u64(&t, MUX_F_PORT, port);
	run_open(r, &t, LIMIT_MUX_WINDOW);
	return r;
}

static void a_dialled_port_is_a_byte_pipe(void **state)
{
	static const int families[] = { AF_INET, AF_INET6 };
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		uint16_t port = 0;
		auto_close int listener = listen_on_loopback(families[i], &port);
		if (listener < 0 && families[i] == AF_INET6) {
			print_message("no ::1 here: the second address is not tested\n");
			continue;
		}
		struct run *r = dial(port);
		PEER_UNTIL(&peer, r->accepted);
		auto_close int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		char text[32] = "";
		r->feed = "ping";
		r->feed_len = 4;
		r->feed_eof = true;
		peer_feed(r);
		peer_idle(&peer, 50);
		assert_int_equal(io_read_full(server, text, 31), 4); /* to the half-close */
		assert_string_equal(text, "ping");
		assert_int_equal(io_write_full(server, "pong, after your end", 20), 0);
		close_fdp(&server);
		run_wait(r);
		assert_int_equal(r->error, 0);
		assert_int_equal(r->eofs[0], 1);
		assert_string_equal(buf_str(&r->out[0]), "pong, after your end");
	}
}

static void a_dialled_port_may_refuse_or_reset(void **state)
{
	uint16_t port = 0;
	(void)state;
	int listener = listen_on_loopback(AF_INET, &port);
	struct run *r = dial(port);
	PEER_UNTIL(&peer, r->accepted);
	int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	struct linger now = { 1, 0 };
	setsockopt(server, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(server);
	run_wait(r); /* ends by itself, although this side sent no end */
	close(listener);
	r = dial(port);
	run_wait(r);
	assert_int_equal(r->error, MUX_ERR_CONNECT);
	assert_false(r->accepted);
	static const uint64_t wrong[] = { 0, 65536, UINT64_MAX };
	for (size_t i = 0; i < 3; i++) {
		r = dial(wrong[i]);
		run_wait(r);
		assert_int_equal(r->error, MUX_ERR_REFUSED);
	}
}

static void the_process_list_is_text(void **state)
{
	(void)state;
	struct run *r = run_start(&peer, 0, ARGV("sh", "-c", "echo ready; sleep 30; :", "tab\there\n"));
	PEER_UNTIL(&peer, r->got[1] > 0);
	auto_tlv t = TLV_INIT;
	struct run *ps = run_new(&peer);
	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_PS);
	run_open(ps, &t, 0);
	run_wait(ps);
	char pid[32];
	snprintf(pid, sizeof(pid), "\n%d\t", (int)r->pid);
	const char *line = strstr(buf_str(&ps->out[0]), pid);
	assert_non_null(line);
	assert_non_null(strstr(line, "sh -c echo ready; sleep 30; : tab\\x09here\\x0a\n"));
	mux_close(peer.m, r->id, NULL);
}

/* --- records --- */

static int count_records(void *ctx, const struct record *r, struct error *err)
{
	(void)err;
	*(unsigned *)ctx += r->type != RECORD_DATA;
	return 0;
}

static void records_survive_any_cut(void **state)
{
	(void)state;
	auto_buf b = BUF_INIT;
	add(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "", 0755);
	add_file(&b, "a/b", "hello", 0644);
	add(&b, RECORD_ENTRY, RECORD_SYMLINK, "l", "t", 0777);
	record_add_text(&b, RECORD_SKIPPED, 16, "p", "why");
	record_add_done(&b, 1, 2, 3, "/top");
	for (size_t piece = 1; piece < b.len; piece++) {
		struct record_reader r;
		struct error err = ERROR_INIT;
		unsigned count = 0;
		record_reader_init(&r, count_records, &count);
		for (size_t i = 0; i < b.len; i += piece) {
			size_t n = b.len - i < piece ? b.len - i : piece;
			auto_free void *copy = xmemdup(b.data + i, n);
			if (record_feed(&r, copy, n, &err) < 0)
				fail_msg("%s", err.message);
		}
		assert_int_equal(count, 6);
		assert_int_equal(record_feed(&r, "x", 1, NULL), 0);
		assert_int_equal(record_feed(&r, "xxxxxxx", 7, NULL), -1); /* nothing may follow DONE */
		record_reader_done(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tree_comes_out_as_it_is),
		cmocka_unit_test(one_thing_comes_out),
		cmocka_unit_test(sparse_files_stay_sparse),
		cmocka_unit_test(a_tree_goes_in_as_it_was),
		cmocka_unit_test(where_a_file_goes),
		cmocka_unit_test(what_breaks_off_leaves_nothing),
		cmocka_unit_test(a_tree_that_breaks_off_leaves_nothing),
		cmocka_unit_test(hard_links_and_attributes_pass),
		cmocka_unit_test(nothing_leaves_its_tree),
		cmocka_unit_test(one_failure_does_not_stop_the_rest),
		cmocka_unit_test(an_upload_belongs_to_its_user),
		cmocka_unit_test(long_names_and_many_files),
		cmocka_unit_test(contents_are_exact_around_the_limits),
		cmocka_unit_test(bad_file_requests_are_refused),
		cmocka_unit_test(a_reader_that_leaves_ends_the_helper),
		cmocka_unit_test(a_dialled_port_is_a_byte_pipe),
		cmocka_unit_test(a_dialled_port_may_refuse_or_reset),
		cmocka_unit_test(the_process_list_is_text),
		cmocka_unit_test(records_survive_any_cut),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
