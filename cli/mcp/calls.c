/* Tool calls on threads of their own: start, cancel, collect. */
#include "cli/mcp/bridge.h"

#include "cli/cancel.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { STACK_BYTES = 512 * 1024 };

static void signal_fd(int fd)
{
	uint64_t one = 1;
	ssize_t n = write(fd, &one, sizeof(one));
	(void)n;
}

/* --- what threads say ---------------------------------------------------------------------------------------------- */

static void post(struct bridge *b, char *take_text, struct running *ended)
{
	struct posted *p = xcalloc(1, sizeof(*p));
	p->text = take_text;
	p->ended = ended;
	pthread_mutex_lock(&b->lock);
	*b->posted_end = p;
	b->posted_end = &p->next;
	pthread_mutex_unlock(&b->lock);
	signal_fd(b->wake_fd);
}

bool call_cancelled(const struct tool_call *c)
{
	const struct running *r = (const struct running *)(const void *)c;
	return atomic_load(&r->cancelled);
}

void call_progress(struct tool_call *c, const char *message)
{
	if (!c->progress_token || call_cancelled(c))
		return;
	auto_buf text = BUF_INIT;
	buf_addf(&text, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%lld,\"message\":",
		 c->progress_token, (long long)(clock_mono_ms() - c->started_ms));
	rpc_add_string(&text, message);
	buf_adds(&text, "}}");
	post(c->bridge, buf_steal(&text), NULL);
}

void call_leaves_running(struct tool_call *c, const char *operation)
{
	pthread_mutex_lock(&c->bridge->lock);
	struct strv *left = &c->bridge->left;
	if (left->len == LEFT_MAX) {
		free(left->items[0]);
		memmove(left->items, left->items + 1, left->len * sizeof(*left->items));
		left->len--;
	}
	strv_add(left, operation);
	pthread_mutex_unlock(&c->bridge->lock);
}

/* --- sessions -------------------------------------------------------------------------------------------------------- */

/* Texts stay the settings' own; what a session owns starts empty. */
static struct cli session_take(struct bridge *b, int interrupt)
{
	struct cli c = b->idle_count ? b->idle[--b->idle_count] : *b->settings;
	c.quiet = true;
	c.interrupt = interrupt;
	return c;
}

static void session_give_back(struct bridge *b, struct cli *c)
{
	cJSON_Delete(c->error_body);
	free(c->hint);
	c->error_body = NULL;
	c->hint = NULL;
	if (b->idle_count < IDLE_SESSIONS)
		b->idle[b->idle_count++] = *c;
	else
		session_close(c);
}

/* --- a call ---------------------------------------------------------------------------------------------------------- */

static void running_free(struct running *r)
{
	if (!r)
		return;
	cJSON_Delete(r->message);
	free(r->id);
	free(r->call.progress_token);
	close_fdp(&r->cancel_fd);
	buf_done(&r->answer);
	free(r);
}

static void *run_call(void *arg)
{
	struct running *r = arg;
	const cJSON *params = cJSON_GetObjectItemCaseSensitive(r->message, "params");
	auto_buf result = BUF_INIT;
	mcp_tool_call(&r->call, r->tool, cJSON_GetObjectItemCaseSensitive(params, "arguments"), &result);
	rpc_add_result(&r->answer, r->id, buf_str(&result), result.len);
	post(r->call.bridge, NULL, r);
	return NULL;
}

static int start_thread(struct running *r)
{
	pthread_attr_t attr;
	pthread_t thread;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	int rc = pthread_create(&thread, &attr, run_call, r);
	pthread_attr_destroy(&attr);
	return rc == 0 ? 0 : -1;
}

/* _meta.progressToken, as it was sent: a string or a whole number. */
static char *progress_token(const cJSON *params, const char *raw, size_t n)
{
	const cJSON *token = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(params, "_meta"), "progressToken");
	const char *text = cJSON_IsString(token) || cJSON_IsNumber(token) ? rpc_raw_member(raw, n, "params", &n) : NULL;
	text = text ? rpc_raw_member(text, n, "_meta", &n) : NULL;
	text = text ? rpc_raw_member(text, n, "progressToken", &n) : NULL;
	return text && n <= 256 ? xstrndup(text, n) : NULL;
}

static const struct tool *check_call(const struct bridge *b, const struct rpc_message *m, struct rpc_failure *f)
{
	const cJSON *name = cJSON_GetObjectItemCaseSensitive(m->params, "name");
	const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(m->params, "arguments");
	const struct tool *t = cJSON_IsString(name) ? mcp_tool_find(name->valuestring) : NULL;
	if (!cJSON_IsString(name))
		rpc_fail(f, RPC_INVALID_PARAMS, "tools/call needs the tool's name");
	else if (!t)
		rpc_fail(f, RPC_INVALID_PARAMS, "unknown tool: %.80s", name->valuestring);
	else if (arguments && !cJSON_IsObject(arguments))
		rpc_fail(f, RPC_INVALID_PARAMS, "arguments must be an object");
	else if (b->call_count >= CALLS_MAX)
		rpc_fail(f, RPC_INVALID_REQUEST, "%d tool calls run already; wait for one to end", CALLS_MAX);
	else
		return t;
	return NULL;
}

bool calls_start(struct bridge *b, struct batch *batch, cJSON **take_message, const struct rpc_message *m, const char *raw, size_t n,
		 struct rpc_failure *f)
{
	const struct tool *t = check_call(b, m, f);
	if (!t)
		return false;
	struct running *r = xcalloc(1, sizeof(*r));
	r->tool = t;
	r->id = xstrdup(m->id);
	r->batch = batch;
	r->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r->call.progress_token = progress_token(m->params, raw, n);
	r->message = steal(take_message);
	r->call.bridge = b;
	r->call.started_ms = clock_mono_ms();
	r->call.wait_ms = b->wait_ms;
	r->call.cli = session_take(b, r->cancel_fd);
	if (r->cancel_fd < 0 || start_thread(r) != 0) {
		rpc_fail(f, RPC_INVALID_REQUEST, "no resources for another call: %s", strerror(errno));
		session_give_back(b, &r->call.cli);
		running_free(r);
		return false;
	}
	r->next = b->calls;
	b->calls = r;
	b->call_count++;
	return true;
}

bool calls_has_id(const struct bridge *b, const char *id)
{
	for (const struct running *r = b->calls; r; r = r->next)
		if (strcmp(r->id, id) == 0)
			return true;
	return false;
}

static void cancel(struct running *r)
{
	atomic_store(&r->cancelled, true);
	signal_fd(r->cancel_fd);
}

void calls_cancel(struct bridge *b, const char *id)
{
	for (struct running *r = b->calls; r; r = r->next) {
		if (strcmp(r->id, id) != 0)
			continue;
		r->silent = true;
		cancel(r);
	}
}

void calls_cancel_all(struct bridge *b)
{
	for (struct running *r = b->calls; r; r = r->next)
		cancel(r);
}

static void bury(struct bridge *b, struct running *ended)
{
	struct running **at = &b->calls;
	while (*at != ended)
		at = &(*at)->next;
	*at = ended->next;
	b->call_count--;
	session_give_back(b, &ended->call.cli);
	if (!ended->silent)
		bridge_answer(b, ended->batch, buf_str(&ended->answer), ended->answer.len);
	if (ended->batch && --ended->batch->waiting == 0)
		batch_finish(b, ended->batch);
	running_free(ended);
}

void calls_collect(struct bridge *b)
{
	uint64_t count;
	ssize_t n = read(b->wake_fd, &count, sizeof(count));
	(void)n;
	pthread_mutex_lock(&b->lock);
	struct posted *p = steal(&b->posted);
	b->posted_end = &b->posted;
	pthread_mutex_unlock(&b->lock);
	while (p) {
		struct posted *next = p->next;
		if (p->text)
			bridge_send(b, p->text, strlen(p->text));
		if (p->ended)
			bury(b, p->ended);
		free(p->text);
		free(p);
		p = next;
	}
}

void calls_end_left(struct bridge *b, int64_t deadline_ms)
{
	struct cli c = session_take(b, -1);
	pthread_mutex_lock(&b->lock);
	for (size_t i = 0; i < b->left.len && clock_mono_ms() < deadline_ms; i++)
		cancel_operation(&c, b->left.items[i], 0, NULL, NULL);
	strv_done(&b->left);
	pthread_mutex_unlock(&b->lock);
	session_give_back(b, &c);
}
