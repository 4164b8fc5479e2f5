/* From options to a running stream and its end: see launch.h. */
#include "cli/launch.h"

#include "cli/create.h"
#include "cli/ending.h"
#include "cli/installers.h"
#include "cli/localio.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "shared/base/mem.h"
#include "shared/json/model_json.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* What --json keeps of each channel; more is cut in the middle and flagged. */
enum { CAPTURE_MAX = 16 * 1024 * 1024 };

static int check_options(const struct launch_options *o, struct error *err)
{
	if (o->cwd && o->cwd[0] != '/')
		return error_set(err, ERR_INVALID, "--cwd: '%s' is not an absolute path", o->cwd);
	if (o->user && !o->user[0])
		return error_set(err, ERR_INVALID, "--user: empty");
	if (o->escape && strcmp(o->escape, "none") != 0 && strlen(o->escape) != 1)
		return error_set(err, ERR_INVALID, "--escape: '%s' is neither one character nor 'none'", o->escape);
	if (o->no_stdin && o->interactive)
		return error_set(err, ERR_INVALID, "--no-stdin and --interactive exclude each other");
	if (o->status_fd >= 0 && fcntl((int)o->status_fd, F_GETFD) < 0)
		return error_set(err, ERR_INVALID, "--status-fd: descriptor %lld is not open", (long long)o->status_fd);
	return 0;
}

static int check_argv(const struct launch *l, struct error *err)
{
	if (!l->sandbox[0])
		return error_set(err, ERR_INVALID, "the sandbox's name is empty");
	if (l->argv->len > LIMIT_ARGS_MAX)
		return error_set(err, ERR_TOO_LARGE, "argument list too long: more than %d arguments", LIMIT_ARGS_MAX);
	if (!l->argv->items[0][0])
		return error_set(err, ERR_INVALID, "the command's name is empty");
	return 0;
}

static bool has_variable(const struct strv *env, const char *name)
{
	size_t n = strlen(name);
	for (size_t i = 0; i < env->len; i++) {
		if (strncmp(env->items[i], name, n) == 0 && env->items[i][n] == '=')
			return true;
	}
	return false;
}

static int add_environment(const struct launch *l, struct tlv *open, struct error *err)
{
	auto_strv env = STRV_INIT;
	if (env_collect(&l->options->env_file, &l->options->env, &env, err) != 0)
		return -1;
	const char *term = getenv("TERM");
	if (l->options->tty && term && term[0] && !has_variable(&env, "TERM"))
		strv_take(&env, xasprintf("TERM=%s", term));
	if (env.len > LIMIT_ENV_MAX)
		return error_set(err, ERR_TOO_LARGE, "more than %d environment variables", LIMIT_ENV_MAX);
	for (size_t i = 0; i < env.len; i++)
		tlv_add_str(open, MUX_F_ENV, env.items[i]);
	return 0;
}

static void add_size(struct tlv *open)
{
	uint16_t rows = 0, cols = 0;
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && (rows == 0 || cols == 0); fd++)
		terminal_size(fd, &rows, &cols);
	if (rows == 0 || cols == 0)
		return;
	tlv_add_u64(open, MUX_F_ROWS, rows);
	tlv_add_u64(open, MUX_F_COLS, cols);
}

static bool feeds_stdin(const struct launch *l)
{
	struct local_fd in;
	if (l->options->no_stdin || l->detach)
		return false;
	local_open(&in, STDIN_FILENO, false);
	bool something = in.fd >= 0 && !in.null_device;
	local_close(&in);
	/* A terminal session needs its input side even when nothing will come: the end of input is typed there. */
	return something || l->options->tty;
}

static int build_open(const struct launch *l, bool feed, struct tlv *open, struct error *err)
{
	const struct launch_options *o = l->options;
	tlv_add_u64(open, MUX_F_KIND, MUX_KIND_EXEC);
	tlv_add_str(open, MUX_F_SANDBOX, l->sandbox);
	for (size_t i = 0; i < l->argv->len; i++)
		tlv_add_str(open, MUX_F_ARG, l->argv->items[i]);
	if (add_environment(l, open, err) != 0)
		return -1;
	tlv_add_str(open, MUX_F_CWD, o->cwd);
	tlv_add_str(open, MUX_F_USER, o->user);
	if (o->timeout_ms > 0)
		tlv_add_u64(open, MUX_F_TIMEOUT_MS, (uint64_t)o->timeout_ms);
	uint64_t flags = feed ? MUX_OPEN_STDIN : 0;
	flags |= o->tty ? MUX_OPEN_TTY : 0;
	flags |= l->detach ? MUX_OPEN_DETACH : 0;
	flags |= l->shell_fallback ? MUX_OPEN_SHELL_FALLBACK : 0;
	if (flags)
		tlv_add_u64(open, MUX_F_FLAGS, flags);
	if (o->tty)
		add_size(open);
	size_t n = 0;
	tlv_raw(open, &n);
	if (n > LIMIT_MUX_FIELDS_MAX)
		return error_set(err, ERR_TOO_LARGE, "argument list too long: %zu bytes with the environment, at most %d", n, LIMIT_MUX_FIELDS_MAX);
	return 0;
}

static int escape_key(const struct launch_options *o)
{
	if (!o->escape)
		return '~';
	return strcmp(o->escape, "none") == 0 ? -1 : (unsigned char)o->escape[0];
}

static bool lacks_bytes(const struct capture *c)
{
	return c->head.len + c->tail.len < c->total;
}

/* The operation as the server keeps it, with the output that was streamed here in place of its excerpt. */
static int print_operation(struct cli *cli, const struct stream_result *r, const struct capture *out, const struct capture *errs,
                           struct error *err)
{
	auto_free char *target = session_path("/v1/operations/%s?wait=5", r->operation);
	struct call c = { .method = "GET", .target = target, .no_start = true };
	auto_json *answer = NULL;
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	cJSON *op = cJSON_GetObjectItemCaseSensitive(answer, "operation");
	struct operation o;
	operation_init(&o);
	int status = operation_from_json(op ? op : answer, "operation", &o, err);
	if (status == 0 && o.has_result) {
		struct result full = o.result;
		full.out = *out;
		full.err = *errs;
		full.truncated = lacks_bytes(out) || lacks_bytes(errs) || r->incomplete || r->left != LEFT_NOT;
		struct operation shown = o;
		shown.result = full;
		auto_json *j = operation_to_json(&shown);
		status = out_json(cli, j, err);
	} else if (status == 0) {
		status = out_json(cli, op ? op : answer, err);
	}
	operation_done(&o);
	return status;
}

static void report(struct cli *cli, const struct launch *l, const struct stream_result *r)
{
	auto_free char *text = ending_text(r, l->options->timeout_ms);
	if (text)
		ending_say(text);
	if (r->closed && r->error == MUX_ERR_NO_PROGRAM && l->no_program)
		fprintf(stderr, "hint: %s\n", l->no_program);
	if (r->closed && r->result.outcome == OUTCOME_EXITED && r->result.exit_code != 0 && installer_named(l->argv))
		installer_hint(cli, l->sandbox);
}

static int write_status(const struct launch *l, const struct stream_result *r, const struct error *failure, struct error *err)
{
	if (l->options->status_fd < 0)
		return 0;
	return ending_write((int)l->options->status_fd, r, failure, err);
}

/* A refusal before anything ran is main's to report, like every other failure of the tool. */
static bool refused(const struct stream_result *r)
{
	return r->closed && !r->accepted && ending_status(r) == STATUS_TOOL;
}

static int finish(struct cli *cli, const struct launch *l, const struct stream_result *r, const struct capture caps[2],
                  struct error *err)
{
	int status = ending_status(r);
	if (write_status(l, r, NULL, err) != 0)
		return -1;
	if (refused(r)) {
		auto_free char *text = ending_text(r, 0);
		return error_set(err, ending_code(r->error), "%s", text);
	}
	report(cli, l, r);
	if (cli->json && r->operation[0] && print_operation(cli, r, &caps[0], &caps[1], err) != 0)
		return -1;
	return status;
}

static int detached(struct cli *cli, const struct stream_result *r, struct error *err)
{
	if (!cli->json) {
		out_line("%s", r->operation);
		return 0;
	}
	auto_json *j = cJSON_CreateObject();
	json_add_str(j, "id", r->operation);
	return out_json(cli, j, err) == 0 ? 0 : -1;
}

static int run_stream(struct cli *cli, const struct launch *l, bool feed, const struct tlv *open, struct error *err)
{
	struct capture caps[2] = { { .head = BUF_INIT }, { .head = BUF_INIT } };
	bool capture = cli->json != NULL;
	struct stream_request rq = {
		.open = open, .dialler = session_dialler(cli), .detach = l->detach, .must_return = l->must_return,
		.in = feed ? STDIN_FILENO : -1, .out = STDOUT_FILENO, .err = STDERR_FILENO,
		.tty = l->options->tty, .escape = escape_key(l->options), .quiet = cli->quiet,
		.capture_out = capture ? &caps[0] : NULL, .capture_err = capture ? &caps[1] : NULL, .capture_max = CAPTURE_MAX,
	};
	struct stream_result r;
	int status = stream_run(&rq, &r, err);
	/* Accepted, it has started; its end may have come with that in one read, and is not ours to tell. */
	if (status == 0 && l->detach && r.accepted && r.left == LEFT_NOT)
		status = detached(cli, &r, err);
	else if (status == 0)
		status = finish(cli, l, &r, caps, err);
	else
		write_status(l, NULL, err, NULL);
	for (int i = 0; i < 2; i++) {
		buf_done(&caps[i].head);
		buf_done(&caps[i].tail);
	}
	result_done(&r.result);
	return status;
}

/* What would run, in place of running it. */
static int show_dry(struct cli *cli, const struct launch *l, struct error *err)
{
	auto_json *j = cJSON_CreateObject();
	cJSON *argv = cJSON_CreateArray();
	json_add_bool(j, "dry_run", true);
	json_add_str(j, "sandbox", l->sandbox);
	cJSON_AddItemToObject(j, "argv", argv);
	for (size_t i = 0; i < l->argv->len; i++)
		cJSON_AddItemToArray(argv, cJSON_CreateString(l->argv->items[i]));
	if (cli->json)
		return out_json(cli, j, err);
	auto_free char *text = json_print(argv);
	out_line("exec %s %s", l->sandbox, text);
	return 0;
}

int launch_run(struct cli *cli, const struct launch *l, struct error *err)
{
	bool feed = feeds_stdin(l);
	auto_tlv open = TLV_INIT;
	if (check_options(l->options, err) != 0 || check_argv(l, err) != 0 || build_open(l, feed, &open, err) != 0)
		return -1;
	if (cli->dry_run)
		return show_dry(cli, l, err);
	return run_stream(cli, l, feed, &open, err);
}
