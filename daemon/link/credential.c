/*
 * The worker's credential: a file of its own, mode 0600, written whole or not at all. Joining trades a join token for it over a
 * connection whose key is the pinned one, or whose certificate was checked.
 */
#include "daemon/link/uplink_priv.h"

#include "daemon/config.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/http/remote/remote.h"
#include "shared/json/model_json.h"

#include <string.h>
#include <sys/stat.h>

enum { FILE_BYTES_MAX = 4096, JOIN_MS = 30 * 1000 };

char *credential_path(const struct daemon_config *config)
{
	return *config->credential_file ? xstrdup(config->credential_file) : xasprintf("%s/node-credential", config->state_dir);
}

static int check_mode(const char *path, struct error *err)
{
	struct stat st;
	if (stat(path, &st) != 0)
		return error_errno(err, "looking at %s", path);
	if (st.st_mode & 077)
		return error_set(err, ERR_INVALID, "%s can be read by others (mode %03o): chmod 600 it, and join again when somebody may have read it", path,
				 (unsigned)st.st_mode & 0777);
	return 0;
}

/* A file of secrets, its last newline cut off. */
static int read_secret(const char *path, struct buf *ret, struct error *err)
{
	if (io_read_file(path, FILE_BYTES_MAX, ret, err) != 0 || check_mode(path, err) != 0)
		return -1;
	while (ret->len > 0 && (ret->data[ret->len - 1] == '\n' || ret->data[ret->len - 1] == ' '))
		ret->data[--ret->len] = '\0';
	return 0;
}

/* SECRET or SECRET.PIN */
static int split(const char *text, struct credential *ret, struct error *err)
{
	const char *dot = strchr(text, '.');
	size_t n = dot ? (size_t)(dot - text) : strlen(text);
	if (n > CREDENTIAL_MAX || (dot && strlen(dot + 1) > PIN_MAX))
		return error_set(err, ERR_INVALID, "it is longer than a secret and a pin");
	memcpy(ret->secret, text, n);
	ret->secret[n] = '\0';
	snprintf(ret->pin, sizeof(ret->pin), "%s", dot ? dot + 1 : "");
	return 0;
}

int credential_load(const struct daemon_config *config, struct credential *ret, struct error *err)
{
	auto_free char *path = credential_path(config);
	auto_buf text = BUF_INIT;
	int rc = read_secret(path, &text, err);
	if (rc == 0 && split(buf_str(&text), ret, err) != 0)
		rc = error_wrap(err, "%s", path);
	if (text.data)
		explicit_bzero(text.data, text.len);
	return rc;
}

int credential_save(const struct daemon_config *config, const struct credential *c, struct error *err)
{
	auto_free char *path = credential_path(config);
	auto_free char *line = xasprintf("%s%s%s\n", c->secret, *c->pin ? "." : "", c->pin);
	int rc = io_write_file_atomic(path, line, strlen(line), 0600, true, err);
	explicit_bzero(line, strlen(line));
	return rc;
}

int join_token_read(const struct daemon_config *config, struct credential *ret, struct error *err)
{
	char *env = getenv("SANDBOX_JOIN_TOKEN");
	auto_buf text = BUF_INIT;
	if (env && *env) {
		int rc = split(env, ret, err);
		explicit_bzero(env, strlen(env));
		unsetenv("SANDBOX_JOIN_TOKEN");
		return rc == 0 ? 0 : error_wrap(err, "SANDBOX_JOIN_TOKEN");
	}
	if (!*config->join_token_file)
		return error_set(err, ERR_NOT_FOUND, "no join token");
	int rc = read_secret(config->join_token_file, &text, err);
	if (rc == 0)
		rc = split(buf_str(&text), ret, err);
	if (text.data)
		explicit_bzero(text.data, text.len);
	return rc == 0 ? 0 : error_wrap(err, "worker.join_token_file");
}

void uplink_remote_options(const struct uplink *u, const struct credential *c, struct remote_options *ret)
{
	const struct daemon_config *config = u->o.config;
	const char *pin = *config->controller_pin ? config->controller_pin : c->pin;
	*ret = (struct remote_options){
		.base = u->url.url,
		.ca_file = *config->controller_ca ? config->controller_ca : NULL,
		.pin = *pin ? pin : NULL,
		.loopback = u->url.loopback,
	};
}

static int read_answer(const struct http_answer *a, struct credential *ret, struct error *err)
{
	auto_json *j = NULL;
	auto_free char *secret = NULL;
	struct json_reader r;
	struct error e = ERROR_INIT;
	if (json_parse(buf_str(&a->body), a->body.len, &j, &e) != 0)
		return error_set(err, ERR_PROTOCOL, "joining: the answer (status %d) is not one of a controller", a->status);
	if (a->status != 200)
		return error_from_json(j, err) ? error_wrap(err, "joining") : error_set(err, ERR_PROTOCOL, "joining: status %d", a->status);
	json_reader_init(&r, j, "", err);
	json_get_str(&r, "credential", JSON_REQUIRED, CREDENTIAL_MAX, &secret);
	if (!json_ok(&r))
		return -1;
	snprintf(ret->secret, sizeof(ret->secret), "%s", secret);
	explicit_bzero(secret, strlen(secret));
	return 0;
}

int credential_join(struct uplink *u, struct credential *ret, struct error *err)
{
	const struct remote_module *module = sandbox_remote_module();
	struct remote_options o;
	struct remote *remote = NULL;
	struct http_answer answer;
	auto_json *j = cJSON_CreateObject();
	auto_map headers = MAP_INIT;
	uplink_remote_options(u, ret, &o);
	json_add_str(j, "token", ret->secret);
	json_add_str(j, "name", u->o.config->worker_name);
	json_add_str(j, "node_id", u->o.node.text);
	json_add_str(j, "pin", o.pin);
	auto_free char *body = json_print(j);
	map_set(&headers, "Content-Type", "application/json");
	struct http_request q = { .method = "POST", .target = "/v1/nodes/join", .headers = &headers, .body = body, .n = strlen(body), .timeout_ms = JOIN_MS };
	int rc = module->open(&o, &remote, err);
	if (rc == 0 && (rc = module->send(remote, &q, &answer, err)) == 0) {
		rc = read_answer(&answer, ret, err);
		http_answer_done(&answer);
	}
	module->free(remote);
	explicit_bzero(body, strlen(body));
	return rc;
}
