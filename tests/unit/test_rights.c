/* Which images of a worker are private, who has to be asked, and for how long an answer holds. */
#include "daemon/worker/rights.h"

#include "shared/base/io.h"
#include "shared/base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define ID "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char dir[64];

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/sandbox-rights-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return io_remove_tree(dir, NULL);
}

static struct rights *opened(void)
{
	struct rights *r = NULL;
	struct error err = ERROR_INIT;
	if (rights_new(dir, &r, &err) != 0)
		fail_msg("%s", err.message);
	return r;
}

/* What is to be asked; "": nothing, "refused": it may not be used at all. */
static char *question(struct rights *r, const char *image, const char *a, const char *b)
{
	struct strv names = STRV_INIT;
	struct error err = ERROR_INIT;
	char *text = NULL;
	if (a)
		strv_add(&names, a);
	if (b)
		strv_add(&names, b);
	int rc = rights_question(r, image, &names, &text, &err);
	if (rc != 0)
		assert_int_equal(err.code, ERR_FORBIDDEN);
	strv_done(&names);
	return rc != 0 ? xstrdup("refused") : text ? text : xstrdup("");
}

static void expect(struct rights *r, const char *image, const char *a, const char *b, const char *wanted)
{
	auto_free char *got = question(r, image, a, b);
	assert_string_equal(got, wanted);
}

static void a_repository_pulled_from_with_a_login_is_private(void **state)
{
	struct error err = ERROR_INIT;
	(void)state;
	for (int restart = 0; restart < 2; restart++) {
		struct rights *r = opened();
		if (restart == 0) {
			expect(r, "ghcr.io/org/app:1", NULL, NULL, "");
			expect(r, ID, NULL, NULL, "");
			assert_int_equal(rights_mark(r, "ghcr.io/org/app:1", &err), 0);
			assert_int_equal(rights_mark(r, "alpine", &err), 0);
			assert_int_equal(rights_mark(r, ID, &err), -1);
		}
		/* Any tag and digest of it, and nothing beside it. */
		expect(r, "ghcr.io/org/app:2", NULL, NULL, "ghcr.io/org/app:2");
		expect(r, "ghcr.io/org/app@" ID, NULL, NULL, "ghcr.io/org/app@" ID);
		expect(r, "docker.io/library/alpine:3", NULL, NULL, "alpine:3");
		expect(r, "ghcr.io/org/application:1", NULL, NULL, "");
		expect(r, "ghcr.io/org/app/more:1", NULL, NULL, "");
		expect(r, "other.io/org/app:1", NULL, NULL, "");
		/* By its id: whose are its names? */
		expect(r, ID, "ghcr.io/org/app:1", "ghcr.io/org/app@" ID, "ghcr.io/org/app@" ID);
		expect(r, ID, "ghcr.io/org/app:1", "public.io/app:1", "");
		expect(r, ID, NULL, NULL, "refused");
		rights_free(r);
	}
}

static void an_answer_holds_for_that_login_alone(void **state)
{
	struct rights *r = opened();
	struct secret none = SECRET_INIT;
	auto_secret one = SECRET_INIT, two = SECRET_INIT;
	(void)state;
	secret_set(&one, "u\0one", 5);
	secret_set(&two, "u\0two", 5);
	assert_false(rights_fresh(r, "a.io/b:1", &one));
	rights_note(r, "a.io/b:1", &one);
	assert_true(rights_fresh(r, "a.io/b:1", &one));
	assert_false(rights_fresh(r, "a.io/b:1", &two));
	assert_false(rights_fresh(r, "a.io/b:1", &none));
	assert_false(rights_fresh(r, "a.io/b:2", &one));
	/* Bounded: the oldest goes. */
	for (int i = 0; i < 300; i++)
		rights_note(r, "a.io/c:1", &two);
	assert_false(rights_fresh(r, "a.io/b:1", &one));
	rights_free(r);
}

static void a_file_that_cannot_be_read_is_an_error(void **state)
{
	struct rights *r = NULL;
	struct error err = ERROR_INIT;
	auto_free char *path = xasprintf("%s/private-images", dir);
	(void)state;
	assert_int_equal(io_mkdirs(path, 0700, &err), 0);
	assert_int_equal(rights_new(dir, &r, &err), -1);
}

static void what_could_not_be_kept_is_not_taken_for_kept(void **state)
{
	struct rights *r = opened();
	struct error err = ERROR_INIT;
	(void)state;
	assert_int_equal(io_remove_tree(dir, NULL), 0);
	assert_int_equal(rights_mark(r, "ghcr.io/org/app:1", &err), -1);
	assert_false(rights_private(r, "ghcr.io/org/app:1"));
	assert_int_equal(io_mkdirs(dir, 0700, &err), 0);
	assert_int_equal(rights_mark(r, "ghcr.io/org/app:1", &err), 0);
	rights_free(r);
	r = opened();
	assert_true(rights_private(r, "ghcr.io/org/app:1"));
	rights_free(r);
}

static void so_many_are_remembered_and_read_again(void **state)
{
	struct error err = ERROR_INIT;
	auto_free char *path = xasprintf("%s/private-images", dir);
	auto_buf text = BUF_INIT;
	(void)state;
	for (int i = 1; i < LIMIT_PRIVATE_REPOSITORIES; i++)
		buf_addf(&text, "%0200d.io/%0230d\n", i, i);
	assert_int_equal(io_write_file_atomic(path, buf_str(&text), text.len, 0600, false, &err), 0);
	for (int restart = 0; restart < 2; restart++) {
		struct rights *r = opened();
		assert_int_equal(rights_mark(r, "ghcr.io/org/app:1", &err), 0);
		assert_int_equal(rights_mark(r, "ghcr.io/org/more:1", &err), -1);
		assert_int_equal(err.code, ERR_NO_CAPACITY);
		assert_true(rights_private(r, "ghcr.io/org/app:2"));
		assert_false(rights_private(r, "ghcr.io/org/more:1"));
		rights_free(r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_repository_pulled_from_with_a_login_is_private, setup, teardown),
		cmocka_unit_test_setup_teardown(an_answer_holds_for_that_login_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(a_file_that_cannot_be_read_is_an_error, setup, teardown),
		cmocka_unit_test_setup_teardown(what_could_not_be_kept_is_not_taken_for_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(so_many_are_remembered_and_read_again, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
