/* Exit status and text of an ended stream: see ending.h. */
#include "cli/ending.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"

#include <signal.h>
#include <string.h>

static int status_of_error(enum mux_error e)
{
	if (e == MUX_ERR_NO_PROGRAM)
		return STATUS_NO_PROGRAM;
	/* As shells do for an argument list that the kernel refuses. */
	if (e == MUX_ERR_NOT_EXECUTABLE || e == MUX_ERR_TOO_LARGE)
		return STATUS_NOT_EXECUTABLE;
	return STATUS_TOOL;
}

static bool ran_to_an_end(const struct stream_result *r)
{
	enum outcome o = r->result.outcome;
	return r->closed && (o == OUTCOME_EXITED || o == OUTCOME_SIGNALED || o == OUTCOME_TIMEOUT);
}

static int status_of_close(const struct stream_result *r)
{
	if (r->result.outcome == OUTCOME_CANCELED && r->result.signal > 0)
		return 128 + r->result.signal;
	if (!ran_to_an_end(r))
		return status_of_error(r->error);
	return r->incomplete ? STATUS_TOOL : result_exit_status(&r->result);
}

int ending_status(const struct stream_result *r)
{
	switch (r->left) {
	case LEFT_NOT:
		return status_of_close(r);
	case LEFT_SIGNAL:
		return ran_to_an_end(r) ? result_exit_status(&r->result) : 128 + r->detail;
	case LEFT_ESCAPE:
		return STATUS_HUNG_UP;
	case LEFT_READER_GONE:
		return STATUS_READER_GONE;
	case LEFT_WRITE_FAILED:
	case LEFT_CONNECTION:
		return STATUS_TOOL;
	}
	return STATUS_TOOL;
}

enum error_code ending_code(enum mux_error e)
{
	switch (e) {
	case MUX_ERR_NOT_FOUND:
		return ERR_NOT_FOUND;
	case MUX_ERR_EXPIRED:
	case MUX_ERR_DELETED:
		return ERR_EXPIRED;
	case MUX_ERR_FORBIDDEN:
		return ERR_FORBIDDEN;
	case MUX_ERR_CONFLICT:
		return ERR_CONFLICT;
	case MUX_ERR_UNAVAILABLE:
	case MUX_ERR_LOST:
		return ERR_UNAVAILABLE;
	case MUX_ERR_IO:
		return ERR_SYSTEM;
	default:
		return ERR_INVALID;
	}
}

static char *seconds_text(int64_t ms)
{
	if (ms % 1000 == 0)
		return xasprintf("%llds", (long long)(ms / 1000));
	return xasprintf("%lldms", (long long)ms);
}

/* The server's words where it has any. */
static char *with_message(const struct stream_result *r, const char *text)
{
	char safe[ERROR_TEXT_MAX];
	if (!r->message[0])
		return xstrdup(text);
	text_escape(r->message, strlen(r->message), safe, sizeof(safe));
	if (strstr(text, safe))
		return xstrdup(text);
	return text[0] ? xasprintf("%s: %s", text, safe) : xstrdup(safe);
}

static char *timeout_text(int64_t timeout_ms)
{
	if (timeout_ms <= 0)
		return xstrdup("the command ran into its time limit and was ended");
	auto_free char *limit = seconds_text(timeout_ms);
	return xasprintf("the command was ended by its time limit of %s", limit);
}

static char *text_of_close(const struct stream_result *r, int64_t timeout_ms)
{
	switch (r->result.outcome) {
	case OUTCOME_EXITED:
	case OUTCOME_SIGNALED:
		if (r->incomplete)
			return xstrdup("output was lost: the command wrote more than arrived");
		if (r->result.oom_killed && result_exit_status(&r->result) != 0)
			return xstrdup("the sandbox's memory limit ended a process of the command (--memory sets it)");
		return NULL;
	case OUTCOME_TIMEOUT:
		return timeout_text(timeout_ms);
	case OUTCOME_EXPIRED:
		return with_message(r, "the sandbox expired");
	case OUTCOME_DELETED:
		return with_message(r, "sandbox deleted");
	case OUTCOME_LOST:
		return with_message(r, "outcome unknown: lost");
	case OUTCOME_CANCELED:
		return with_message(r, "the command was cancelled");
	case OUTCOME_NONE:
	case OUTCOME_NOT_STARTED:
	case OUTCOME_COUNT:
		break;
	}
	return with_message(r, r->message[0] ? "" : "the command was not started");
}

char *ending_text(const struct stream_result *r, int64_t timeout_ms)
{
	switch (r->left) {
	case LEFT_NOT:
		return text_of_close(r, timeout_ms);
	case LEFT_SIGNAL:
		return r->detail == SIGTERM || r->detail == SIGHUP ? xasprintf("ended by %s", r->detail == SIGTERM ? "SIGTERM" : "SIGHUP") : NULL;
	case LEFT_ESCAPE:
		return xstrdup("left by the escape keys");
	case LEFT_READER_GONE:
		return NULL;
	case LEFT_WRITE_FAILED:
		return xasprintf("cannot write the command's output: %s", strerror(r->detail));
	case LEFT_CONNECTION:
		return with_message(r, "outcome unknown: lost");
	}
	return NULL;
}

void ending_say(const char *text)
{
	fflush(stdout);
	fprintf(stderr, "sandbox: %s\n", text);
}

static cJSON *ending_json(const struct stream_result *r, const struct error *failure)
{
	cJSON *j = cJSON_CreateObject();
	const struct result *e = &r->result;
	json_add_str(j, "outcome", failure ? outcome_text(OUTCOME_NOT_STARTED) : outcome_text(e->outcome));
	if (!failure && e->outcome == OUTCOME_EXITED)
		json_add_i64(j, "code", e->exit_code);
	else
		cJSON_AddNullToObject(j, "code");
	if (!failure && e->signal > 0)
		json_add_i64(j, "signal", e->signal);
	else
		cJSON_AddNullToObject(j, "signal");
	json_add_bool(j, "oom_killed", !failure && e->oom_killed);
	json_add_i64(j, "stdout_bytes", failure ? 0 : (int64_t)r->out_bytes);
	json_add_i64(j, "stderr_bytes", failure ? 0 : (int64_t)r->err_bytes);
	json_add_str(j, "operation", !failure && r->operation[0] ? r->operation : NULL);
	return j;
}

int ending_write(int fd, const struct stream_result *r, const struct error *failure, struct error *err)
{
	static const struct stream_result none = { .left = LEFT_NOT };
	auto_json *j = ending_json(r ? r : &none, failure);
	auto_free char *why = failure ? xstrdup(failure->message) : ending_text(r, 0);
	json_add_str(j, "error", why);
	auto_free char *text = json_print(j);
	auto_free char *line = xasprintf("%s\n", text);
	if (io_write_full(fd, line, strlen(line)) != 0)
		return error_errno(err, "cannot write the status to descriptor %d", fd);
	return 0;
}
