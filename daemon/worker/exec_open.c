/* What a command of a sandbox starts with: the image's and spec's defaults under what the caller gave. */
#include "daemon/egress/egress.h"
#include "daemon/runtime/runtime.h"
#include "daemon/worker/exec_priv.h"
#include "daemon/worker/mailbox.h"

#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <limits.h>

#define DEFAULT_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* What an OPEN holds beside arguments and environment. */
enum { OPEN_REST_MAX = 16 * 1024 };

enum { DEFAULTS_MAX = 4 * 1024 * 1024, DEFAULT_ENV_MAX = 2 * LIMIT_ENV_MAX };

void defaults_free(struct defaults *d)
{
	if (!d)
		return;
	strv_done(&d->env);
	free(d->user);
	free(d->cwd);
	free(d);
}

/* "K=V" over an earlier K. */
static void env_put(struct strv *env, const char *entry)
{
	size_t key = strcspn(entry, "=") + 1;

	for (size_t i = 0; i < env->len; i++) {
		if (strncmp(env->items[i], entry, key) == 0) {
			free(env->items[i]);
			env->items[i] = xstrdup(entry);
			return;
		}
	}
	strv_add(env, entry);
}

static bool env_has(const struct strv *env, const char *key_eq)
{
	for (size_t i = 0; i < env->len; i++) {
		if (strncmp(env->items[i], key_eq, strlen(key_eq)) == 0)
			return true;
	}
	return false;
}

/* --- defaults --- */

/* The only way out, in the spellings that programs look for. */
static void proxy_env(struct strv *env)
{
	static const char *const proxies[] = { "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY" };
	static const char *const others[] = { "no_proxy=localhost,127.0.0.1,::1", "NO_PROXY=localhost,127.0.0.1,::1", "NODE_USE_ENV_PROXY=1" };

	for (size_t i = 0; i < ARRAY_LEN(proxies); i++) {
		auto_free char *entry = xasprintf("%s=http://127.0.0.1:%d", proxies[i], EGRESS_PORT);

		env_put(env, entry);
	}
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		env_put(env, others[i]);
}

static void defaults_env(const struct sandbox *s, const struct image_config *image, struct strv *env)
{
	auto_free char *id = xasprintf("SANDBOX_ID=%s", s->id.text);

	strv_add(env, DEFAULT_PATH);
	for (size_t i = 0; i < image->env.len; i++)
		env_put(env, image->env.items[i]);
	env_put(env, id);
	if (s->spec.network == NETWORK_RESTRICTED)
		proxy_env(env);
	for (size_t i = 0; i < s->spec.env.len; i++) {
		auto_free char *entry = xasprintf("%s=%s", s->spec.env.items[i].key, s->spec.env.items[i].value);

		env_put(env, entry);
	}
}

static const char *default_cwd(const struct image_config *image)
{
	if (!image->workdir || image->workdir[0] != '/' || strcmp(image->workdir, "/") == 0)
		return "/workspace";
	return image->workdir;
}

static int defaults_path(const struct execs *e, const struct id *sandbox, char *out, size_t n, struct error *err)
{
	if (snprintf(out, n, "%s/sandboxes/%s/defaults.json", e->state_dir, sandbox->text) >= (int)n)
		return error_set(err, ERR_TOO_LARGE, "state directory path is too long: %s", e->state_dir);
	return 0;
}

struct forget {
	struct execs *e;
	struct id sandbox;
};

/* The next command reads them again. */
static void do_forget(void *arg)
{
	struct forget *f = arg;
	struct box *b = idmap_get(&f->e->boxes, &f->sandbox);

	if (b) {
		defaults_free(b->defaults);
		b->defaults = NULL;
		box_release(f->e, b);
	}
	free(f);
}

int execs_set_defaults(struct execs *e, const struct sandbox *s, const struct image_config *image, struct error *err)
{
	auto_json *j = cJSON_CreateObject();
	auto_strv env = STRV_INIT;
	auto_free char *text = NULL;
	char path[PATH_MAX], *slash;
	struct forget f = { .e = e, .sandbox = s->id };

	defaults_env(s, image, &env);
	json_add_strv(j, "env", &env);
	json_add_str(j, "user", image->user && image->user[0] ? image->user : NULL);
	json_add_str(j, "cwd", default_cwd(image));
	json_add_bool(j, "secrets", s->spec.n_secrets > 0);
	text = json_print(j);
	if (defaults_path(e, &s->id, path, sizeof(path), err) != 0)
		return -1;
	slash = strrchr(path, '/');
	*slash = '\0';
	if (io_mkdirs(path, 0700, err) != 0)
		return -1;
	*slash = '/';
	/* 0600: the environment may hold what the user calls secret. */
	if (io_write_file_atomic(path, text, strlen(text), 0600, false, err) != 0)
		return error_wrap(err, "keeping the defaults of the sandbox");
	mailbox_post(e->mail, do_forget, memcpy(xmalloc(sizeof(f)), &f, sizeof(f)));
	return 0;
}

static int defaults_read(const char *path, struct defaults *d, struct error *err)
{
	auto_buf text = BUF_INIT;
	auto_json *j = NULL;
	struct json_reader r;

	if (io_read_file(path, DEFAULTS_MAX, &text, err) != 0 || json_parse(text.data, text.len, &j, err) != 0)
		return -1;
	json_reader_init(&r, j, "", err);
	json_get_strv(&r, "env", JSON_REQUIRED, DEFAULT_ENV_MAX, LIMIT_ARG_ONE_MAX, &d->env);
	json_get_str(&r, "user", JSON_OPTIONAL, LIMIT_PATH_BYTES_MAX, &d->user);
	json_get_str(&r, "cwd", JSON_REQUIRED, LIMIT_PATH_BYTES_MAX, &d->cwd);
	json_get_bool(&r, "secrets", JSON_OPTIONAL, &d->secrets);
	return json_ok(&r) ? 0 : -1;
}

const struct defaults *box_defaults(struct execs *e, struct box *b, struct error *err)
{
	char path[PATH_MAX];
	struct defaults *d;

	if (b->defaults)
		return b->defaults;
	if (defaults_path(e, &b->sandbox, path, sizeof(path), err) != 0)
		return NULL;
	d = xcalloc(1, sizeof(*d));
	if (defaults_read(path, d, err) != 0) {
		error_wrap(err, "the sandbox is not ready for commands");
		defaults_free(d);
		return NULL;
	}
	return b->defaults = d;
}

/* --- secrets --- */

struct gift {
	struct execs *e;
	struct id sandbox;
	struct secret_values values;
};

static void do_set_secrets(void *arg)
{
	struct gift *g = arg;
	struct box *b = box_get(g->e, &g->sandbox);

	secret_values_done(&b->secrets);
	b->secrets = g->values;
	b->has_secrets = true;
	box_release(g->e, b); /* gone meanwhile: so are they */
	free(g);
}

void execs_set_secrets(struct execs *e, const struct id *sandbox, struct secret_values *take_v)
{
	struct gift *g = xcalloc(1, sizeof(*g));

	*g = (struct gift){ .e = e, .sandbox = *sandbox, .values = *take_v };
	*take_v = (struct secret_values)SECRET_VALUES_INIT;
	mailbox_post(e->mail, do_set_secrets, g);
}

static void add_secret(struct tlv *t, const struct secret_value *v)
{
	size_t key = strlen(v->env), n = key + 1 + v->value.n;
	char *line = xmalloc(n);

	memcpy(line, v->env, key);
	line[key] = '=';
	memcpy(line + key + 1, v->value.bytes, v->value.n);
	tlv_add_bytes(t, MUX_F_ENV, line, n);
	explicit_bzero(line, n);
	free(line);
}

/* Room for all of them at once: growing would leave copies behind. */
static void reserve(struct tlv *t, const struct secret_values *v)
{
	size_t n = OPEN_REST_MAX;

	for (size_t i = 0; i < v->len; i++)
		n += v->items[i].value.n + 256;
	(void)buf_reserve(&t->own, n);
}

static bool env_has_name(const struct strv *env, const char *name)
{
	auto_free char *key = xasprintf("%s=", name);

	return env_has(env, key);
}

static void env_drop(struct strv *env, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < env->len; i++) {
		if (strncmp(env->items[i], name, n) == 0 && env->items[i][n] == '=') {
			free(env->items[i]);
			memmove(&env->items[i], &env->items[i + 1], (env->len - i) * sizeof(*env->items));
			env->len--;
			return;
		}
	}
}

/* They stand over the image's and the spec's variables, and under the command's own. */
static void add_secrets(struct tlv *t, const struct secret_values *v, struct strv *env, const struct command *cmd)
{
	if (v->len > 0)
		reserve(t, v);
	for (size_t i = 0; i < v->len; i++) {
		if (!v->items[i].env || env_has_name(&cmd->env, v->items[i].env))
			continue;
		env_drop(env, v->items[i].env);
		add_secret(t, &v->items[i]);
	}
}

void exec_forget_open(struct exec *x)
{
	if (x->open.own.data)
		explicit_bzero(x->open.own.data, x->open.own.cap);
	tlv_done(&x->open);
}

/* --- the OPEN for init --- */

static void add_env(struct tlv *t, const struct defaults *d, const struct box *b, const struct command *cmd)
{
	auto_strv env = STRV_INIT;

	strv_copy(&env, &d->env);
	add_secrets(t, &b->secrets, &env, cmd);
	for (size_t i = 0; i < cmd->env.len; i++)
		env_put(&env, cmd->env.items[i]);
	if (cmd->tty && !env_has(&env, "TERM="))
		strv_add(&env, "TERM=xterm");
	for (size_t i = 0; i < env.len; i++)
		tlv_add_str(t, MUX_F_ENV, env.items[i]);
}

int exec_build_open(struct exec *x, const struct command *cmd, bool keep_caps, unsigned flags, struct error *err)
{
	const struct defaults *d = box_defaults(x->all, x->box, err);
	struct tlv *t = &x->open;

	if (!d)
		return -1;
	if (d->secrets && !x->box->has_secrets)
		return error_set(err, ERR_UNAVAILABLE, "the sandbox's secrets are not here: the daemon was restarted and has not got them again; see its log");
	x->has_stdin = cmd->stdin_open;
	x->timeout_ms = cmd->timeout_ms;
	flags |= (cmd->stdin_open ? (unsigned)MUX_OPEN_STDIN : 0) | (cmd->tty ? (unsigned)MUX_OPEN_TTY : 0);
	tlv_add_u64(t, MUX_F_KIND, MUX_KIND_EXEC);
	tlv_add_str(t, MUX_F_OPERATION, x->key.text);
	for (size_t i = 0; i < cmd->argv.len; i++)
		tlv_add_str(t, MUX_F_ARG, cmd->argv.items[i]);
	add_env(t, d, x->box, cmd);
	tlv_add_str(t, MUX_F_CWD, cmd->cwd ? cmd->cwd : d->cwd);
	tlv_add_str(t, MUX_F_USER, cmd->user ? cmd->user : d->user);
	if (cmd->timeout_ms > 0)
		tlv_add_u64(t, MUX_F_TIMEOUT_MS, (uint64_t)cmd->timeout_ms);
	tlv_add_u64(t, MUX_F_FLAGS, flags);
	if (cmd->tty) {
		tlv_add_u64(t, MUX_F_ROWS, cmd->rows ? cmd->rows : 24);
		tlv_add_u64(t, MUX_F_COLS, cmd->cols ? cmd->cols : 80);
	}
	if (keep_caps)
		tlv_add_u64(t, MUX_F_KEEP_CAPS, 1);
	if (t->own.overflow || t->own.len > LIMIT_MUX_FIELDS_MAX - 64)
		return error_set(err, ERR_TOO_LARGE,
				 "argument list too long: arguments and environment take %zu bytes, the limit is %d; "
				 "pass large data on standard input",
				 t->own.len, LIMIT_MUX_FIELDS_MAX);
	return 0;
}
