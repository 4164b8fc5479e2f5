/*
 * One command through a driver. sandbox-init of the host starts this in place of the command (daemon/init/through.c), so that
 * attach, logs, time limits and records are the same as for any command. A result that is not known ends this by a signal of
 * its own: no status is invented.
 */
#include "daemon/init/through.h"
#include "daemon/runtime/driver.h"
#include "daemon/runtime/external.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

struct request {
	const char *driver, *cwd, *user;
	struct id sandbox;
	int64_t timeout_ms;
	char **argv;
};

static _Noreturn void lost(const char *why)
{
	fprintf(stderr, "sandbox: %s\n", why);
	signal(THROUGH_LOST, SIG_DFL);
	raise(THROUGH_LOST);
	_exit(125);
}

static int parse(int argc, char **argv, struct request *r, struct error *err)
{
	static const struct option options[] = {
		{ "driver", required_argument, NULL, 'd' }, { "sandbox", required_argument, NULL, 's' },
		{ "cwd", required_argument, NULL, 'c' }, { "timeout-ms", required_argument, NULL, 't' },
		{ "user", required_argument, NULL, 'u' }, { NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		if (c == 'd')
			r->driver = optarg;
		else if (c == 's' && id_parse(optarg, &r->sandbox) != 0)
			return error_set(err, ERR_INVALID, "'%s' is no sandbox id", optarg);
		else if (c == 'c')
			r->cwd = optarg;
		else if (c == 'u')
			r->user = optarg;
		else if (c == 't' && parse_i64("--timeout-ms", optarg, 0, INT64_MAX / 2, &r->timeout_ms, err) != 0)
			return -1;
		else if (c == '?')
			return error_set(err, ERR_INVALID, "unknown argument");
	}
	r->argv = argv + optind;
	if (!r->driver || !*r->sandbox.text || optind >= argc)
		return error_set(err, ERR_INVALID, "usage: sandboxd driver-exec --driver PATH --sandbox ID [--cwd DIR] [--timeout-ms N] [--user U] -- ARGV...");
	return 0;
}

/* JSON carries text: a driver cannot be asked for other bytes. */
static int add_text(cJSON *array, const char *text, struct error *err)
{
	if (!utf8_valid(text, strlen(text)))
		return error_set(err, ERR_INVALID, "the driver protocol carries text only, and an argument or variable is not UTF-8");
	cJSON_AddItemToArray(array, cJSON_CreateString(text));
	return 0;
}

static int add_env(cJSON *env, struct error *err)
{
	size_t n = strlen(THROUGH_ENV);

	for (char **e = environ; *e; e++) {
		const char *name = *e + n, *value = strchr(*e, '=');

		if (strncmp(*e, THROUGH_ENV, n) != 0 || !value || value < name)
			continue;
		if (!utf8_valid(name, strlen(name)))
			return error_set(err, ERR_INVALID, "the driver protocol carries text only, and a variable is not UTF-8");
		auto_free char *key = xasprintf("%.*s", (int)(value - name), name);
		json_add_str(env, key, value + 1);
	}
	return 0;
}

static int64_t seconds_of(const struct request *r)
{
	return r->timeout_ms ? (r->timeout_ms + 999) / 1000 : DRIVER_EXEC_MS / 1000;
}

static cJSON *payload_of(const struct request *r, struct error *err)
{
	auto_json *j = cJSON_CreateObject();
	cJSON *argv = cJSON_AddArrayToObject(j, "argv"), *done = j;

	for (char **a = r->argv; *a; a++)
		if (add_text(argv, *a, err) != 0)
			return NULL;
	json_add_str(j, "cwd", r->cwd);
	if (add_env(cJSON_AddObjectToObject(j, "env"), err) != 0)
		return NULL;
	json_add_i64(j, "timeout_seconds", seconds_of(r));
	json_add_str(j, "user", r->user);
	j = NULL;
	return done;
}

static void write_channel(const cJSON *result, const char *name, int fd)
{
	auto_free char *encoded = xasprintf("%s_base64", name);
	const cJSON *bytes = cJSON_GetObjectItemCaseSensitive(result, encoded), *text = cJSON_GetObjectItemCaseSensitive(result, name);
	auto_buf b = BUF_INIT;

	if (cJSON_IsString(bytes)) {
		if (base64_decode(bytes->valuestring, &b, NULL) != 0)
			lost("the driver's answer to exec holds malformed base64");
		io_write_full(fd, b.data, b.len);
	} else if (cJSON_IsString(text)) {
		io_write_full(fd, text->valuestring, strlen(text->valuestring));
	}
}

int driver_exec_main(int argc, char **argv)
{
	struct request r = { .cwd = NULL };
	struct error err = ERROR_INIT;
	struct driver_call c = { .action = "exec", .sandbox = &r.sandbox };
	auto_json *result = NULL;
	const cJSON *code;

	signal(SIGPIPE, SIG_IGN);
	if (parse(argc, argv, &r, &err) != 0 || driver_check_file(r.driver, &err) != 0)
		lost(err.message);
	c.path = r.driver;
	c.payload = payload_of(&r, &err);
	c.timeout_ms = seconds_of(&r) * 1000 + DRIVER_EXEC_GRACE_MS;
	if (!c.payload || driver_call(&c, &result, &err) != 0)
		lost(err.message);
	code = cJSON_GetObjectItemCaseSensitive(result, "exit_code");
	write_channel(result, "stdout", STDOUT_FILENO);
	write_channel(result, "stderr", STDERR_FILENO);
	if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(result, "truncated")))
		fprintf(stderr, "sandbox: the driver left out a part of the output\n");
	if (!cJSON_IsNumber(code) || code->valuedouble < 0 || code->valuedouble > 255 || code->valuedouble != (int)code->valuedouble)
		lost("the driver's answer to exec has no exit_code from 0 to 255");
	return (int)code->valuedouble;
}
