/* What the controller has to do with it: tokens, waiting for the node, and a first sandbox there. */
#include "cli/enroll/enroll.h"

#include "cli/create.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/tar.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FIRST_POLL_MS = 20, LAST_POLL_MS = 300, CANARY_MS = 120 * 1000, INIT_MAX = 8 * 1024 * 1024 };

#define CANARY_IMAGE "sandbox-canary:" SANDBOX_VERSION

int enroll_token(struct cli *cli, const char *name, int *ret_fd, struct error *err)
{
	auto_json *body = cJSON_CreateObject(), *answer = NULL;
	json_add_str(body, "name", name);
	struct call c = { .method = "POST", .target = "/v1/nodes/tokens", .body = body };
	if (session_call(cli, &c, &answer, err) != 0)
		return error_wrap(err, "asking the controller for a join token");
	const char *secret = json_text(answer, "secret");
	auto_close int fd = memfd_create("join-token", MFD_CLOEXEC);
	if (!*secret || fd < 0 || io_write_full(fd, secret, strlen(secret)) != 0 || lseek(fd, 0, SEEK_SET) != 0)
		return *secret ? error_errno(err, "keeping the join token") : error_set(err, ERR_PROTOCOL, "the controller's answer holds no token");
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int get_node(struct cli *cli, const char *name, cJSON **ret, struct error *err)
{
	auto_free char *target = session_path("/v1/nodes/%s", name);
	struct call c = { .method = "GET", .target = target };
	return session_call(cli, &c, ret, err);
}

int enroll_state(struct cli *cli, const char *name, char **ret, struct error *err)
{
	struct error e = ERROR_INIT;
	auto_json *answer = NULL;
	*ret = NULL;
	if (get_node(cli, name, &answer, &e) == 0) {
		*ret = xstrdup(json_text(cJSON_GetObjectItemCaseSensitive(answer, "node"), "state"));
		return 0;
	}
	if (e.code == ERR_NOT_FOUND)
		return 0;
	*err = e;
	return -1;
}

int enroll_forget(struct cli *cli, const char *name, struct error *err)
{
	auto_free char *target = session_path("/v1/nodes/%s?force=true", name);
	struct call c = { .method = "DELETE", .target = target };
	return session_call(cli, &c, NULL, err);
}

char *enroll_linked(struct cli *cli, const char *name)
{
	auto_json *answer = NULL;
	if (get_node(cli, name, &answer, NULL) != 0)
		return xstrdup("");
	return xstrdup(json_text(cJSON_GetObjectItemCaseSensitive(answer, "node"), "linked_at"));
}

static bool is_ready(struct cli *cli, const char *name, const char *version, const char *linked, char *ret_state, size_t n)
{
	auto_json *answer = NULL;
	if (get_node(cli, name, &answer, NULL) != 0)
		return false;
	const cJSON *node = cJSON_GetObjectItemCaseSensitive(answer, "node");
	snprintf(ret_state, n, "%s", json_text(node, "state"));
	return strcmp(ret_state, "up") == 0 && (!version || strcmp(json_text(node, "version"), version) == 0) &&
	       (!linked || strcmp(json_text(node, "linked_at"), linked) != 0);
}

int enroll_wait(struct cli *cli, const char *name, const char *version, const char *linked, int64_t timeout_ms, struct error *err)
{
	int64_t until = clock_mono_ms() + timeout_ms;
	char state[32] = "unknown";
	int wait_ms = FIRST_POLL_MS;
	while (!is_ready(cli, name, version, linked, state, sizeof(state))) {
		if (clock_mono_ms() > until)
			return error_set(err, ERR_TIMEOUT, "node %s is not up after %lld s (the controller says: %s)", name, (long long)(timeout_ms / 1000), state);
		poll(NULL, 0, wait_ms);
		wait_ms = wait_ms * 2 < LAST_POLL_MS ? wait_ms * 2 : LAST_POLL_MS;
	}
	return 0;
}

/* --- the canary --------------------------------------------------------------------------------------------------------- */

static int nothing(void *ctx, cJSON *j, struct error *err)
{
	const cJSON *error = cJSON_GetObjectItemCaseSensitive(j, "error");
	(void)ctx;
	return cJSON_IsObject(error) ? error_set(err, error_from_wire(json_text(error, "code")), "%s", json_text(error, "message")) : 0;
}

/* A new node may hold no image at all, and reach no registry: an image of one file, the static sandbox-init, is enough to run something. */
static int import_image(struct cli *cli, const char *node, const struct payload *pay, struct error *err)
{
	auto_buf tar = BUF_INIT, program = BUF_INIT;
	static const char zeros[2 * TAR_BLOCK];
	if (pay->init && io_read_file(pay->init, INIT_MAX, &program, err) != 0)
		return -1;
	if (!pay->init)
		buf_add(&program, pay->program.data, pay->program.len);
	struct tar_entry e = { .type = '0', .mode = 0755, .size = program.len, .path = (char[]){ "canary" }, .link = (char[]){ "" } };
	tar_add_header(&tar, &e);
	buf_add(&tar, program.data, program.len);
	buf_add(&tar, zeros, (TAR_BLOCK - program.len % TAR_BLOCK) % TAR_BLOCK);
	buf_add(&tar, zeros, sizeof(zeros));
	auto_close int fd = memfd_create("canary", MFD_CLOEXEC);
	if (fd < 0 || io_write_full(fd, tar.data, tar.len) != 0 || lseek(fd, 0, SEEK_SET) != 0)
		return error_errno(err, "making the canary's image");
	auto_free char *target = session_path("/v1/images/import?name=%s&node=%s", CANARY_IMAGE, node);
	struct line_call c = { .method = "POST", .target = target, .body_fd = fd, .line = nothing };
	return session_lines(cli, &c, err);
}

static void remove_image(struct cli *cli, const char *node)
{
	auto_free char *target = session_path("/v1/images/%s?node=%s", CANARY_IMAGE, node);
	struct call c = { .method = "DELETE", .target = target };
	session_call(cli, &c, NULL, NULL);
}

static cJSON *canary_spec(const char *node, const char *image)
{
	cJSON *spec = cJSON_CreateObject(), *resources = cJSON_AddObjectToObject(spec, "resources");
	cJSON *labels = cJSON_AddObjectToObject(cJSON_AddObjectToObject(spec, "placement"), "required_labels");
	json_add_str(spec, "image", image);
	json_add_i64(spec, "ttl_seconds", 300);
	json_add_i64(resources, "memory_mib", 64);
	json_add_i64(resources, "disk_mib", 64);
	json_add_str(labels, "node", node);
	return spec;
}

static int wait_call(struct cli *cli, const char *target, const cJSON *body, const char *doing, cJSON **ret, struct error *err)
{
	auto_json *answer = NULL, *ended = NULL;
	struct call c = { .method = body ? "POST" : "DELETE", .target = target, .body = body };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *operation = cJSON_GetObjectItemCaseSensitive(answer, "operation");
	if (operation_wait(cli, json_text(operation, "id"), doing, CANARY_MS, &ended, err) != 0)
		return -1;
	if (ret)
		*ret = steal(&ended);
	return 0;
}

/* Without arguments sandbox-init says how it is used, and its status is 2: that is enough of a sign of life. */
static int run_in(struct cli *cli, const char *id, bool own, struct error *err)
{
	auto_json *body = cJSON_CreateObject(), *ended = NULL;
	cJSON *argv = cJSON_AddArrayToObject(cJSON_AddObjectToObject(body, "command"), "argv");
	auto_free char *target = session_path("/v1/sandboxes/%s/exec", id);
	cJSON_AddItemToArray(argv, cJSON_CreateString(own ? "/canary" : "true"));
	json_add_str(cJSON_GetObjectItemCaseSensitive(body, "command"), "cwd", "/");
	if (wait_call(cli, target, body, "running the canary", &ended, err) != 0)
		return -1;
	const cJSON *output = cJSON_GetObjectItemCaseSensitive(ended, "output");
	if (strcmp(json_text(ended, "state"), "succeeded") == 0 || (own && json_number(output, "exit_code", -1) == 2))
		return 0;
	json_operation_error(ended, err);
	return error_wrap(err, "the canary's command");
}

static int run_canary(struct cli *cli, const char *node, const char *image, bool own, struct error *err)
{
	auto_json *body = cJSON_CreateObject(), *answer = NULL, *ended = NULL;
	cJSON_AddItemToObject(body, "spec", canary_spec(node, image));
	struct call c = { .method = "POST", .target = "/v1/sandboxes", .body = body };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	auto_free char *id = xstrdup(json_text(cJSON_GetObjectItemCaseSensitive(answer, "sandbox"), "id"));
	auto_free char *target = session_path("/v1/sandboxes/%s", id);
	const char *operation = json_text(cJSON_GetObjectItemCaseSensitive(answer, "operation"), "id");
	int rc = operation_wait(cli, operation, "starting the canary", CANARY_MS, &ended, err);
	if (rc == 0 && strcmp(json_text(ended, "state"), "succeeded") != 0)
		rc = json_operation_error(ended, err);
	if (rc == 0)
		rc = run_in(cli, id, own, err);
	int gone = wait_call(cli, target, NULL, "deleting the canary", NULL, rc == 0 ? err : NULL);
	return rc == 0 ? gone : rc;
}

int enroll_canary(struct cli *cli, const char *name, const char *image, const struct payload *pay, struct error *err)
{
	bool own = !image && (pay->init || pay->program.len);
	if (own && import_image(cli, name, pay, err) != 0)
		return error_wrap(err, "bringing the canary's image to %s", name);
	int rc = run_canary(cli, name, own ? CANARY_IMAGE : image ? image : "sandbox-base:latest", own, err);
	if (own)
		remove_image(cli, name);
	return rc == 0 ? 0 : error_wrap(err, "the canary on %s", name);
}
