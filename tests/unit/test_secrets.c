/* Secrets: sealed values open only in their place and with their key; tenants see their own; only the node of a sandbox is given them. */
#include "tests/unit/controller_world.h"

#include "daemon/controller/registries.h"
#include "daemon/controller/secrets.h"
#include "daemon/controller/vault.h"

#include <sys/stat.h>

static int set(struct fix *f, const struct caller *who, const char *name, const char *value)
{
	auto_secret v = SECRET_INIT;
	struct secret_row row;
	f->err = (struct error)ERROR_INIT;
	secret_set(&v, value, strlen(value));
	return controller_secret_set(f->c, who, NULL, name, &v, &row, &f->err);
}

static char *key_path(const struct fix *f)
{
	return xasprintf("%s/secret.key", f->config.state_dir);
}

static int setup_keyed(void **state)
{
	setup(state);
	struct fix *f = *state;
	close_controller(f);
	free(f->config.state_dir);
	f->config.state_dir = xstrdup(f->dir);
	open_controller(f);
	beat(f, 1000);
	return 0;
}

/* --- the vault --- */

static void what_is_sealed_opens_in_its_place_alone(void **state)
{
	struct fix *f = *state;
	auto_free char *path = xasprintf("%s/k", f->dir);
	struct vault *v = vault_new(path);
	auto_secret value = SECRET_INIT, back = SECRET_INIT;
	auto_buf sealed = BUF_INIT;
	struct stat st;
	secret_set(&value, "hunter2", 7);
	assert_int_equal(vault_unlock(v, false, &f->err), -1);
	assert_int_equal(f->err.code, ERR_NOT_FOUND);
	assert_int_equal(vault_unlock(v, true, &f->err), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(vault_seal(v, "team", "A", &value, &sealed, &f->err), 0);
	assert_null(memmem(sealed.data, sealed.len, "hunter2", 7));
	assert_int_equal(vault_open(v, "team", "A", &sealed, &back, &f->err), 0);
	assert_true(secret_equal(&value, &back));
	assert_int_equal(vault_open(v, "team", "B", &sealed, &back, &f->err), -1);
	assert_int_equal(vault_open(v, "rival", "A", &sealed, &back, &f->err), -1);
	for (size_t i = 0; i < sealed.len; i++) {
		sealed.data[i] ^= 1;
		assert_int_equal(vault_open(v, "team", "A", &sealed, &back, &f->err), -1);
		sealed.data[i] ^= 1;
	}
	for (size_t n = sealed.len; n > 0; n--) {
		sealed.len = n - 1;
		assert_int_equal(vault_open(v, "team", "A", &sealed, &back, &f->err), -1);
	}
	vault_free(v);
}

static void a_key_that_others_may_read_is_refused(void **state)
{
	struct fix *f = *state;
	auto_free char *path = xasprintf("%s/open", f->dir);
	assert_int_equal(io_write_file_atomic(path, "0123456789abcdef0123456789abcdef", 32, 0644, false, NULL), 0);
	struct vault *v = vault_new(path);
	assert_int_equal(vault_unlock(v, true, &f->err), -1);
	assert_int_equal(f->err.code, ERR_FORBIDDEN);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(vault_unlock(v, true, &f->err), 0);
	vault_free(v);
	assert_int_equal(io_write_file_atomic(path, "short", 5, 0600, false, NULL), 0);
	v = vault_new(path);
	assert_int_equal(vault_unlock(v, true, &f->err), -1);
	assert_int_equal(f->err.code, ERR_INVALID);
	vault_free(v);
}

/* --- the controller --- */

static void the_key_is_never_made_anew_over_stored_secrets(void **state)
{
	struct fix *f = *state;
	auto_free char *path = key_path(f);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(set(f, &f->operator, "A", "one"), 0);
	assert_int_equal(access(path, F_OK), 0);
	close_controller(f);
	assert_int_equal(unlink(path), 0);
	open_controller(f);
	assert_int_equal(set(f, &f->operator, "A", "two"), -1);
	assert_int_equal(f->err.code, ERR_NOT_FOUND);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(controller_secret_delete(f->c, &f->operator, NULL, "A", &f->err), 0);
	assert_int_equal(set(f, &f->operator, "A", "two"), 0);
}

static size_t count(struct fix *f, const struct caller *who)
{
	struct secret_list l = { .items = NULL };
	assert_int_equal(controller_secrets(f->c, who, NULL, &l, &f->err), 0);
	size_t n = l.len;
	secret_list_done(&l);
	return n;
}

static void tenants_see_their_own(void **state)
{
	struct fix *f = *state;
	struct secret_list l;
	assert_int_equal(set(f, &f->operator, "A", "one"), 0);
	assert_int_equal(set(f, &f->operator, "A", "replaced"), 0);
	assert_int_equal(set(f, &f->other, "A", "theirs"), 0);
	assert_int_equal(set(f, &f->viewer, "B", "no"), -1);
	assert_int_equal(f->err.code, ERR_FORBIDDEN);
	assert_int_equal(count(f, &f->operator), 1);
	assert_int_equal(count(f, &f->viewer), 1);
	assert_int_equal(count(f, &f->admin), 2);
	assert_int_equal(controller_secrets(f->c, &f->operator, "rival", &l, &f->err), -1);
	assert_int_equal(f->err.code, ERR_FORBIDDEN);
	assert_int_equal(controller_secret_delete(f->c, &f->operator, "rival", "A", &f->err), -1);
	assert_int_equal(controller_secret_delete(f->c, &f->operator, NULL, "B", &f->err), -1);
	assert_int_equal(f->err.code, ERR_NOT_FOUND);
}

static void bad_names_and_values_are_refused(void **state)
{
	struct fix *f = *state;
	static const char *const names[] = { "", "1A", "a b", "../x", "-a", "é", "0123456789012345678901234567890123456789012345678901234567890123" };
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		assert_int_equal(set(f, &f->operator, names[i], "x"), -1);
		assert_int_equal(f->err.code, ERR_INVALID);
	}
	assert_int_equal(set(f, &f->operator, "A", ""), -1);
	auto_free char *big = xcalloc(1, LIMIT_SECRET_BYTES_MAX + 2);
	memset(big, 'x', LIMIT_SECRET_BYTES_MAX + 1);
	assert_int_equal(set(f, &f->operator, "A", big), -1);
	assert_int_equal(f->err.code, ERR_TOO_LARGE);
	big[LIMIT_SECRET_BYTES_MAX] = '\0';
	assert_int_equal(set(f, &f->operator, "A", big), 0);
}

static int create_with(struct fix *f, const char *secret, const char *env, const char *file, struct create_result *ret)
{
	auto_spec s;
	spec_init(&s);
	s.image = xstrdup("base");
	s.secrets = xcalloc(1, sizeof(*s.secrets));
	s.n_secrets = 1;
	s.secrets[0] = (struct secret_use){ xstrdup(secret), xstrdup0(env), xstrdup0(file) };
	f->err = (struct error)ERROR_INIT;
	create_result_init(ret);
	return controller_create(f->c, &f->operator, &s, false, NULL, ret, &f->err);
}

static void a_sandbox_is_given_what_it_asked_for_on_its_node(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	struct id elsewhere = id_new();
	auto_secret_values v = SECRET_VALUES_INIT;
	assert_int_equal(create_with(f, "A", "TOKEN", NULL, &r), -1);
	assert_int_equal(f->err.code, ERR_NOT_FOUND);
	create_result_done(&r);
	assert_int_equal(set(f, &f->other, "A", "theirs"), 0);
	assert_int_equal(create_with(f, "A", "TOKEN", NULL, &r), -1);
	create_result_done(&r);
	assert_int_equal(set(f, &f->operator, "A", "ours"), 0);
	if (create_with(f, "A", "TOKEN", NULL, &r) != 0)
		fail_msg("%s", f->err.message);
	assert_true(r.sandbox.spec.signals.needs_secrets);
	assert_int_equal(r.decision.score, 25);
	assert_int_equal(controller_secret_values(f->c, &elsewhere, &r.sandbox.id, &v, &f->err), -1);
	assert_int_equal(f->err.code, ERR_NOT_FOUND);
	assert_int_equal(controller_secret_values(f->c, &f->node, &r.sandbox.id, &v, &f->err), 0);
	assert_int_equal(v.len, 1);
	assert_string_equal(v.items[0].env, "TOKEN");
	assert_string_equal((const char *)v.items[0].value.bytes, "ours");
	create_result_done(&r);
}

static void a_variable_holds_no_zero_byte_a_file_may(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	struct secret_row row;
	auto_secret v = SECRET_INIT;
	secret_set(&v, "a\0b", 3);
	assert_int_equal(controller_secret_set(f->c, &f->operator, NULL, "RAW", &v, &row, &f->err), 0);
	assert_int_equal(create_with(f, "RAW", "RAW", NULL, &r), -1);
	assert_int_equal(f->err.code, ERR_INVALID);
	create_result_done(&r);
	assert_int_equal(create_with(f, "RAW", NULL, "raw.bin", &r), 0);
	create_result_done(&r);
}

static void uses_that_mean_nothing_are_refused(void **state)
{
	struct fix *f = *state;
	static const struct {
		const char *name, *env, *file;
	} cases[] = { { "A", NULL, NULL }, { "A", "X", "x" }, { "A", "1X", NULL }, { "A", NULL, ".x" }, { "A", NULL, "a/b" }, { "A", NULL, ".." }, { "a b", "X", NULL } };
	struct create_result r;
	assert_int_equal(set(f, &f->operator, "A", "x"), 0);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(create_with(f, cases[i].name, cases[i].env, cases[i].file, &r), -1);
		assert_int_equal(f->err.code, ERR_INVALID);
		create_result_done(&r);
	}
}

/* --- logins to registries --- */

static int set_login(struct fix *f, const struct caller *who, const char *registry, const char *user, const char *password)
{
	auto_secret s = SECRET_INIT;
	struct registry_row row;
	secret_set(&s, password, strlen(password));
	f->err = (struct error)ERROR_INIT;
	return controller_registry_set(f->c, who, &(struct registry_login){ .registry = registry, .username = user, .password = &s }, &row, &f->err);
}

/* "user:password", "": none. */
static const char *login_of(struct fix *f, const char *tenant, const char *image)
{
	static char text[256];
	auto_secret s = SECRET_INIT;
	if (controller_registry_login(f->c, tenant, image, &s, &f->err) != 0)
		fail_msg("%s", f->err.message);
	text[0] = '\0';
	if (s.n > 0)
		snprintf(text, sizeof(text), "%s:%s", (const char *)s.bytes, (const char *)s.bytes + strlen((const char *)s.bytes) + 1);
	return text;
}

static void a_login_is_its_tenants_and_its_registrys(void **state)
{
	struct fix *f = *state;
	assert_int_equal(set_login(f, &f->operator, "ghcr.io", "me", "first"), 0);
	assert_int_equal(set_login(f, &f->operator, "ghcr.io", "me", "second"), 0);
	assert_int_equal(set_login(f, &f->operator, "index.docker.io", "hub", "p"), 0);
	assert_string_equal(login_of(f, "team", "ghcr.io/a/b:1"), "me:second");
	assert_string_equal(login_of(f, "team", "alpine"), "hub:p");
	assert_string_equal(login_of(f, "team", "quay.io/a/b"), "");
	assert_string_equal(login_of(f, "rival", "ghcr.io/a/b:1"), "");
	assert_string_equal(login_of(f, "", "ghcr.io/a/b:1"), "");
	/* Not in the store as it is; and not another tenant's when its row is moved there. */
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM registry_logins WHERE CAST(sealed AS TEXT) LIKE '%second%'"), 0);
	change_rows(f, "UPDATE registry_logins SET tenant = 'rival' WHERE registry = 'ghcr.io'");
	auto_secret s = SECRET_INIT;
	assert_int_equal(controller_registry_login(f->c, "rival", "ghcr.io/a/b:1", &s, &f->err), -1);
	assert_int_equal(s.n, 0);
	assert_int_equal(controller_registry_delete(f->c, &f->operator, NULL, "docker.io", &f->err), 0);
	assert_int_equal(controller_registry_delete(f->c, &f->operator, NULL, "docker.io", &f->err), -1);
	assert_int_equal(f->err.code, ERR_NOT_FOUND);
}

static void a_worker_is_given_the_login_of_its_own_sandboxes(void **state)
{
	struct fix *f = *state;
	struct id elsewhere = id_new(), box = create(f, "box", 3600 * 1000);
	auto_secret s = SECRET_INIT;
	assert_int_equal(set_login(f, &f->operator, "docker.io", "hub", "p"), 0);
	assert_int_equal(controller_registry_login_for(f->c, &elsewhere, &box, &s, &f->err), -1);
	assert_int_equal(f->err.code, ERR_NOT_FOUND);
	assert_int_equal(controller_registry_login_for(f->c, &f->node, &box, &s, &f->err), 0);
	assert_string_equal((const char *)s.bytes, "hub");
}

static void logins_that_cannot_be_are_refused(void **state)
{
	struct fix *f = *state;
	static const char *const registries[] = { "", "https://ghcr.io", "ghcr.io/org", "no host", "Upper Case" };
	for (size_t i = 0; i < ARRAY_LEN(registries); i++)
		expect_error(f, set_login(f, &f->operator, registries[i], "me", "p"), ERR_INVALID, "registry");
	expect_error(f, set_login(f, &f->operator, "ghcr.io", "", "p"), ERR_INVALID, "username");
	expect_error(f, set_login(f, &f->operator, "ghcr.io", "a:b", "p"), ERR_INVALID, "username");
	expect_error(f, set_login(f, &f->operator, "ghcr.io", "me", ""), ERR_INVALID, "empty");
	expect_error(f, set_login(f, &f->viewer, "ghcr.io", "me", "p"), ERR_FORBIDDEN, "");
}

#undef T
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup_keyed, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_is_sealed_opens_in_its_place_alone),
		T(a_key_that_others_may_read_is_refused),
		T(the_key_is_never_made_anew_over_stored_secrets),
		T(tenants_see_their_own),
		T(bad_names_and_values_are_refused),
		T(a_sandbox_is_given_what_it_asked_for_on_its_node),
		T(a_variable_holds_no_zero_byte_a_file_may),
		T(uses_that_mean_nothing_are_refused), T(a_login_is_its_tenants_and_its_registrys),
		T(a_worker_is_given_the_login_of_its_own_sandboxes), T(logins_that_cannot_be_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
