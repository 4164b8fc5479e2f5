/* sandbox-driver-qemu [--config FILE] ACTION: one call of the protocol in docs/runtime-driver.md, request on stdin, answer on stdout. */
#include "daemon/runtime/drivers/qemu/qemu.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROTOCOL "sandbox.runtime.v1"

enum { REQUEST_MAX = 4 * MIB };

struct call {
	struct qemu_config config;
	struct id sandbox;
	const cJSON *payload;
	cJSON *result;
};

static int do_probe(struct call *c, struct error *err)
{
	return probe(&c->config, &c->sandbox, c->result, err);
}

static int do_prepare(struct call *c, struct error *err)
{
	return life_prepare(&c->config, c->payload, err);
}

static int do_create(struct call *c, struct error *err)
{
	return life_create(&c->config, &c->sandbox, c->payload, err);
}

static int do_inspect(struct call *c, struct error *err)
{
	return life_inspect(&c->config, &c->sandbox, c->result, err);
}

static int do_stats(struct call *c, struct error *err)
{
	return life_stats(&c->config, &c->sandbox, c->result, err);
}

static int do_deadline(struct call *c, struct error *err)
{
	return life_deadline(&c->config, &c->sandbox, c->payload, err);
}

static int do_kill(struct call *c, struct error *err)
{
	auto_box b;

	box_at(&c->config, &c->sandbox, &b);
	return box_kill(&b, err);
}

static int do_delete(struct call *c, struct error *err)
{
	auto_box b;

	box_at(&c->config, &c->sandbox, &b);
	return box_remove(&b, err);
}

static const struct action {
	const char *name;
	int (*run)(struct call *c, struct error *err);
} actions[] = {
	{ "probe", do_probe }, { "prepare", do_prepare }, { "create", do_create }, { "inspect", do_inspect },
	{ "kill", do_kill },   { "delete", do_delete },   { "stats", do_stats },   { "deadline", do_deadline },
};

static int read_request(struct buf *ret, struct error *err)
{
	char *room;
	ssize_t n;

	while ((room = buf_reserve(ret, 64 * 1024)) && (n = read(STDIN_FILENO, room, 64 * 1024)) > 0)
		buf_commit(ret, (size_t)n);
	return ret->overflow ? error_set(err, ERR_TOO_LARGE, "the request is over %d bytes", REQUEST_MAX) : 0;
}

static int parse_request(const struct buf *text, cJSON **ret, struct call *c, struct error *err)
{
	const cJSON *version, *id;

	if (json_parse(buf_str(text), text->len, ret, err) != 0)
		return -1;
	version = cJSON_GetObjectItemCaseSensitive(*ret, "protocol_version");
	id = cJSON_GetObjectItemCaseSensitive(*ret, "sandbox_id");
	c->payload = cJSON_GetObjectItemCaseSensitive(*ret, "payload");
	if (!cJSON_IsString(version) || strcmp(version->valuestring, PROTOCOL) != 0)
		return error_set(err, ERR_PROTOCOL, "this driver speaks " PROTOCOL);
	if (!cJSON_IsString(id) || id_parse(id->valuestring, &c->sandbox) != 0)
		return error_set(err, ERR_INVALID, "sandbox_id is no id");
	return cJSON_IsObject(c->payload) ? 0 : error_set(err, ERR_INVALID, "payload is no object");
}

static int run(const char *config, const char *action, struct call *c, struct error *err)
{
	auto_buf text = BUF_INIT_MAX(REQUEST_MAX);
	auto_json *request = NULL;

	if (read_request(&text, err) != 0 || parse_request(&text, &request, c, err) != 0 || config_load(config, &c->config, err) != 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(actions); i++)
		if (strcmp(actions[i].name, action) == 0)
			return actions[i].run(c, err);
	return error_set(err, ERR_INVALID, "no action '%.40s'", action);
}

int main(int argc, char **argv)
{
	bool with_config = argc == 4 && strcmp(argv[1], "--config") == 0;
	struct call c = { .result = cJSON_CreateObject() };
	struct error err = ERROR_INIT;
	auto_json *answer = cJSON_CreateObject();
	auto_free char *text = NULL;
	int rc;

	if (argc != 2 && !with_config) {
		fprintf(stderr, "usage: sandbox-driver-qemu [--config FILE] ACTION <REQUEST\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	umask(077);
	rc = run(with_config ? argv[2] : NULL, argv[argc - 1], &c, &err);
	json_add_bool(answer, "success", rc == 0);
	cJSON_AddItemToObject(answer, "result", rc == 0 ? c.result : cJSON_CreateNull());
	json_add_str(answer, "error", rc == 0 ? NULL : err.message);
	if (rc != 0)
		cJSON_Delete(c.result);
	config_done(&c.config);
	text = json_print(answer);
	printf("%s\n", text);
	return fflush(stdout) == 0 ? 0 : 1;
}
