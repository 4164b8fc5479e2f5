/* Image references and the registries policy. */
#include "shared/model/image_ref.h"

#include "shared/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void parses_what_people_write(void **state)
{
	static const struct {
		const char *text, *registry, *repository, *tag, *digest, *familiar;
	} rows[] = {
		{ "alpine", "docker.io", "library/alpine", "latest", "", "alpine:latest" },
		{ "alpine:3.19", "docker.io", "library/alpine", "3.19", "", "alpine:3.19" },
		{ "docker.io/library/alpine", "docker.io", "library/alpine", "latest", "", "alpine:latest" },
		{ "index.docker.io/library/alpine", "docker.io", "library/alpine", "latest", "", "alpine:latest" },
		{ "user/app:v1", "docker.io", "user/app", "v1", "", "user/app:v1" },
		{ "ghcr.io/a/b/c", "ghcr.io", "a/b/c", "latest", "", "ghcr.io/a/b/c:latest" },
		{ "localhost/app", "localhost", "app", "latest", "", "localhost/app:latest" },
		{ "localhost:5000/x:1", "localhost:5000", "x", "1", "", "localhost:5000/x:1" },
		{ "r:5000/x", "r:5000", "x", "latest", "", "r:5000/x:latest" },
		{ "a_b__c-d---e.f", "docker.io", "library/a_b__c-d---e.f", "latest", "", "a_b__c-d---e.f:latest" },
		{ "alpine@sha256:" HEX64, "docker.io", "library/alpine", "", "sha256:" HEX64, "alpine@sha256:" HEX64 },
		{ "alpine:3@sha256:" HEX64, "docker.io", "library/alpine", "3", "sha256:" HEX64, "alpine:3@sha256:" HEX64 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct image_ref r;
		struct error err = ERROR_INIT;

		if (image_ref_parse(rows[i].text, &r, &err) != 0)
			fail_msg("%s: %s", rows[i].text, err.message);
		assert_false(r.is_id);
		assert_string_equal(r.registry, rows[i].registry);
		assert_string_equal(r.repository, rows[i].repository);
		assert_string_equal(r.tag, rows[i].tag);
		assert_string_equal(r.digest, rows[i].digest);
		assert_string_equal(r.familiar, rows[i].familiar);
	}
}

static void ids_name_local_images(void **state)
{
	struct image_ref r;

	(void)state;
	assert_int_equal(image_ref_parse("sha256:" HEX64, &r, NULL), 0);
	assert_true(r.is_id);
	assert_string_equal(r.familiar, "sha256:" HEX64);
	assert_int_equal(image_ref_parse(HEX64, &r, NULL), 0);
	assert_true(r.is_id);
	assert_string_equal(r.digest, "sha256:" HEX64);
}

static void refuses_what_is_no_reference(void **state)
{
	static const char *const rows[] = {
		"", " ", "Alpine", "alpine:", ":tag", "alpine:-x", "alpine@", "alpine@sha256:12", ("alpine@md5:" HEX64), "a//b", "/a", "a/", "-a", "a-",
		"a..b", "a._b", "r:port/x", "r:/x", "r:123456/x", "a b", "a\nb", "a?b=c", "a&tag=x", "../../etc", "ghcr.io/", "ghcr.io", "a/%2e",
		"-r.io/x", "alpine:a b", "sha256:12", "http://r.io/x",
	};
	char longest[700];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct image_ref r;
		struct error err = ERROR_INIT;

		/* "ghcr.io" alone is a repository of the hub, as everywhere. */
		if (strcmp(rows[i], "ghcr.io") == 0) {
			assert_int_equal(image_ref_parse(rows[i], &r, &err), 0);
			assert_string_equal(r.registry, "docker.io");
			continue;
		}
		if (image_ref_parse(rows[i], &r, &err) == 0)
			fail_msg("'%s' was accepted", rows[i]);
		assert_int_equal(err.code, ERR_INVALID);
		assert_true(err.message[0]);
	}
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(image_ref_parse(longest, &(struct image_ref){ .is_id = false }, NULL), -1);
	longest[300] = '\0';
	assert_int_equal(image_ref_parse(longest, &(struct image_ref){ .is_id = false }, NULL), -1);
}

static void the_policy_matches_whole_components(void **state)
{
	static const struct {
		const char *image, *list;
		bool present, allowed;
	} rows[] = {
		{ "alpine", "*", false, true },
		{ "alpine", "", false, false },
		{ "alpine", "", true, false },
		{ "alpine", "local", false, false },
		{ "alpine", "local", true, true },
		{ "alpine", "docker.io", false, true },
		{ "alpine", "docker.io/library", false, true },
		{ "alpine", "docker.io/library/", false, true },
		{ "alpine", "docker.io/library/alpine", false, true },
		{ "alpine", "docker.io/library/alp", false, false },
		{ "user/app", "docker.io/library", false, false },
		{ "alpine", "ghcr.io", true, false },
		{ "ghcr.io/a/b", "docker.io, ghcr.io/a", false, true },
		{ "ghcr.io/ab/b", "docker.io, ghcr.io/a", false, false },
		{ "ghcr.io.evil.org/a/b", "ghcr.io", false, false },
		{ "evil-ghcr.io/a", "ghcr.io", false, false },
		{ "eu.example.com/a", "*.example.com", false, true },
		{ "example.com/a", "*.example.com", false, false },
		{ "evilexample.com/a", "*.example.com", false, false },
		{ "EU.example.com/a", "*.EXAMPLE.com", false, true },
		{ "r:5000/a", "r", false, false },
		{ "r:5000/a", "r:5000", false, true },
		{ HEX64, "docker.io", true, false },
		{ HEX64, "docker.io,local", true, true },
		{ HEX64, "*", true, true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct image_ref r;

		assert_int_equal(image_ref_parse(rows[i].image, &r, NULL), 0);
		if (image_ref_allowed(&r, rows[i].list, rows[i].present) != rows[i].allowed)
			fail_msg("%s with '%s' (present %d): expected %d", rows[i].image, rows[i].list, rows[i].present, rows[i].allowed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_what_people_write),
		cmocka_unit_test(ids_name_local_images),
		cmocka_unit_test(refuses_what_is_no_reference),
		cmocka_unit_test(the_policy_matches_whole_components),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
