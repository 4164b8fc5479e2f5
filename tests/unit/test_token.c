/* Tokens: what is kept comes back for its own origin alone, and nothing that was changed or swapped opens. */
#include "cli/token.h"
#include "cli/home.h"
#include "shared/base/buf.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define HOST "https://h.example"

static char base[64];

static int make_home(void **state)
{
	(void)state;
	snprintf(base, sizeof(base), "/tmp/token.XXXXXX");
	assert_non_null(mkdtemp(base));
	setenv("HOME", base, 1);
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("XDG_DATA_HOME");
	unsetenv("SANDBOX_TOKEN");
	unsetenv("SANDBOX_PASSPHRASE");
	return 0;
}

static int remove_home(void **state)
{
	(void)state;
	return io_remove_tree(base, NULL);
}

static char *in_home(const char *path)
{
	return xasprintf("%s/%s", base, path);
}

static void keep(const char *origin, const char *text, const char *pass)
{
	auto_secret token = SECRET_INIT, passphrase = SECRET_INIT;
	struct error err = ERROR_INIT;
	secret_set(&token, text, strlen(text));
	if (pass)
		secret_set(&passphrase, pass, strlen(pass));
	if (token_keep(origin, &token, pass ? &passphrase : NULL, &err) != 0)
		fail_msg("%s", err.message);
}

static void assert_token(const char *origin, const char *want)
{
	auto_secret token = SECRET_INIT;
	struct error err = ERROR_INIT;
	if (token_for_origin(origin, &token, &err) != 0)
		fail_msg("%s", err.message);
	assert_string_equal((char *)token.bytes, want);
	assert_int_equal(token.n, strlen(want));
}

static void assert_refused(const char *origin, enum error_code code)
{
	auto_secret token = SECRET_INIT;
	struct error err = ERROR_INIT;
	assert_int_equal(token_for_origin(origin, &token, &err), -1);
	assert_int_equal(err.code, code);
	assert_null(strstr(err.message, "secretword"));
	assert_null(token.bytes);
}

static void test_a_token_comes_back_for_its_origin_alone(void **state)
{
	(void)state;
	assert_refused(HOST, ERR_UNAUTHORIZED);
	assert_int_equal(token_source(HOST), TOKEN_NONE);
	keep(HOST, "secretword", NULL);
	keep(HOST ":8443", "other", NULL);
	assert_token(HOST, "secretword");
	assert_token(HOST ":8443", "other");
	assert_int_equal(token_source(HOST), TOKEN_STORE);
	assert_refused("https://elsewhere.example", ERR_UNAUTHORIZED);
	keep(HOST, "newer", NULL);
	assert_token(HOST, "newer");
	assert_int_equal(token_forget(HOST, NULL), 0);
	struct error err = ERROR_INIT;
	assert_int_equal(token_forget(HOST, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_refused(HOST, ERR_UNAUTHORIZED);
}

static void test_a_file_moved_to_another_origin_does_not_open(void **state)
{
	(void)state;
	keep(HOST, "secretword", NULL);
	auto_free char *from = in_home(".config/sandbox/tokens/https%3A%2F%2Fh.example");
	auto_free char *to = in_home(".config/sandbox/tokens/https%3A%2F%2Fevil.example");
	assert_int_equal(rename(from, to), 0);
	assert_refused("https://evil.example", ERR_UNAUTHORIZED);
}

static void test_a_changed_file_or_key_does_not_open(void **state)
{
	(void)state;
	keep(HOST, "secretword", NULL);
	auto_free char *path = in_home(".config/sandbox/tokens/https%3A%2F%2Fh.example");
	auto_free char *key = in_home(".local/share/sandbox/token.key");
	auto_buf text = BUF_INIT, whole = BUF_INIT;
	assert_int_equal(io_read_file(path, 65536, &text, NULL), 0);
	assert_int_equal(io_read_file(path, 65536, &whole, NULL), 0);
	assert_null(strstr(text.data, "secretword"));
	char *sealed = strstr(text.data, "\"sealed\":\"") + 10;
	sealed[2] = sealed[2] == 'A' ? 'B' : 'A';
	assert_int_equal(io_write_file_atomic(path, text.data, text.len, 0600, false, NULL), 0);
	assert_refused(HOST, ERR_UNAUTHORIZED);
	for (size_t n = 0; n < whole.len; n += 7) {
		assert_int_equal(io_write_file_atomic(path, whole.data, n, 0600, false, NULL), 0);
		assert_refused(HOST, ERR_INVALID);
	}
	assert_int_equal(io_write_file_atomic(path, whole.data, whole.len, 0600, false, NULL), 0);
	assert_token(HOST, "secretword");
	assert_int_equal(io_write_file_atomic(key, "short", 5, 0600, false, NULL), 0);
	assert_refused(HOST, ERR_INVALID);
}

static void test_a_passphrase_opens_what_it_closed(void **state)
{
	(void)state;
	keep(HOST, "secretword", "right");
	assert_int_equal(token_source(HOST), TOKEN_STORE_PASSPHRASE);
	auto_free char *key = in_home(".local/share/sandbox/token.key");
	assert_int_equal(access(key, F_OK), -1);
	setenv("SANDBOX_PASSPHRASE", "wrong", 1);
	assert_refused(HOST, ERR_UNAUTHORIZED);
	setenv("SANDBOX_PASSPHRASE", "right", 1);
	assert_token(HOST, "secretword");
}

static void test_files_others_could_read_are_closed_and_links_refused(void **state)
{
	struct stat st;
	(void)state;
	keep(HOST, "secretword", NULL);
	auto_free char *path = in_home(".config/sandbox/tokens/https%3A%2F%2Fh.example");
	auto_free char *key = in_home(".local/share/sandbox/token.key");
	auto_free char *aside = in_home("aside");
	chmod(path, 0644);
	chmod(key, 0666);
	assert_token(HOST, "secretword");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat(key, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(rename(path, aside), 0);
	assert_int_equal(symlink(aside, path), 0);
	assert_refused(HOST, ERR_FORBIDDEN);
}

static void test_the_environment_wins_and_http_needs_leave(void **state)
{
	(void)state;
	keep(HOST, "kept", NULL);
	setenv("SANDBOX_TOKEN", "from-env", 1);
	assert_token(HOST, "from-env");
	assert_int_equal(token_source(HOST), TOKEN_ENVIRONMENT);
	assert_refused("http://h.example", ERR_FORBIDDEN);
	assert_token("http://127.0.0.1:8080", "from-env");
	assert_token("http://[::1]:8080", "from-env");
	setenv("SANDBOX_TOKEN", "secretword with blanks", 1);
	assert_refused(HOST, ERR_INVALID);
	auto_free char *dir = in_home(".config/sandbox");
	const char *config = "[context a]\nurl = http://h.example/pre\nallow-http = yes\n";
	setenv("SANDBOX_TOKEN", "from-env", 1);
	assert_int_equal(home_write(dir, "config", config, strlen(config), NULL), 0);
	assert_token("http://h.example", "from-env");
	unsetenv("SANDBOX_TOKEN");
}

static void test_a_helper_is_asked_as_git_asks(void **state)
{
	(void)state;
	auto_free char *helper = in_home("helper");
	auto_free char *dir = in_home(".config/sandbox");
	auto_free char *memory = in_home("memory");
	auto_free char *config = xasprintf("[context a]\nurl = " HOST "/pre\ntoken-helper = %s %s\n", helper, memory);
	static const char script[] = "#!/bin/sh\ncase $2 in\nstore) cat >\"$1\" ;;\nget) grep -q '^host=h.example$' && { echo protocol=https; grep ^password= \"$1\"; } ;;\n"
				     "erase) rm \"$1\" ;;\n*) exit 1 ;;\nesac\n";
	assert_int_equal(io_write_file_atomic(helper, script, sizeof(script) - 1, 0700, false, NULL), 0);
	assert_int_equal(io_mkdirs(dir, 0700, NULL), 0);
	assert_int_equal(home_write(dir, "config", config, strlen(config), NULL), 0);
	keep(HOST, "secretword", NULL);
	assert_int_equal(token_source(HOST), TOKEN_HELPER);
	assert_token(HOST, "secretword");
	auto_buf text = BUF_INIT;
	assert_int_equal(io_read_file(memory, 4096, &text, NULL), 0);
	assert_string_equal(text.data, "protocol=https\nhost=h.example\nusername=sandbox\npassword=secretword\n\n");
	assert_int_equal(token_forget(HOST, NULL), 0);
	assert_refused(HOST, ERR_SYSTEM);
}

static void test_secrets_compare(void **state)
{
	auto_secret a = SECRET_INIT, b = SECRET_INIT;
	(void)state;
	assert_true(secret_equal(&a, &b));
	secret_set(&a, "abc", 3);
	assert_false(secret_equal(&a, &b));
	secret_set(&b, "abc", 3);
	assert_true(secret_equal(&a, &b));
	secret_set(&b, "abd", 3);
	assert_false(secret_equal(&a, &b));
}

#define with_home(f) cmocka_unit_test_setup_teardown(f, make_home, remove_home)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_home(test_a_token_comes_back_for_its_origin_alone),
		with_home(test_a_file_moved_to_another_origin_does_not_open),
		with_home(test_a_changed_file_or_key_does_not_open),
		with_home(test_a_passphrase_opens_what_it_closed),
		with_home(test_files_others_could_read_are_closed_and_links_refused),
		with_home(test_the_environment_wins_and_http_needs_leave),
		with_home(test_a_helper_is_asked_as_git_asks),
		cmocka_unit_test(test_secrets_compare),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
