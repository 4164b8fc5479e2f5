/*
 * Handlers: the stream of events. A connection that has sent what there is waits suspended, until the controller says that there
 * are more, the daemon stops, or it is time for a sign of life (which also finds clients that have left).
 */
#include "daemon/api/handlers.h"

#include "daemon/api/server.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <event2/event.h>
#include <microhttpd.h>
#include <string.h>

enum { BLOCK = 16 * 1024, ALIVE_SECONDS = 15, RETRY_MS = 1000 };

struct event_stream {
	struct api *api;
	struct MHD_Connection *conn;
	struct MHD_Connection *waiting; /* suspended until there is more */
	struct caller who;
	struct id cursor;
	struct buf pending;
	bool lines;    /* JSON lines instead of server-sent events */
	bool follow;
	bool alive;    /* a sign of life is due */
	struct event_stream *prev, *next;
};

struct event_streams {
	pthread_mutex_t lock;
	struct event_stream *first;
	unsigned n;
	unsigned generation; /* of news; what came while somebody looked is not slept through */
	bool stopping;
	struct event *timer;
};

static void wake_all(struct event_streams *all, bool alive)
{
	pthread_mutex_lock(&all->lock);
	all->generation++;
	for (struct event_stream *s = all->first; s; s = s->next) {
		s->alive = s->alive || alive;
		if (s->waiting)
			MHD_resume_connection(steal(&s->waiting));
	}
	pthread_mutex_unlock(&all->lock);
}

static void on_news(void *ctx)
{
	wake_all(ctx, false);
}

static void on_time(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	wake_all(ctx, true);
}

struct event_streams *events_new(const struct api_options *o)
{
	struct event_streams *all = xcalloc(1, sizeof(*all));
	pthread_mutex_init(&all->lock, NULL);
	if (o->base)
		all->timer = event_new(o->base, -1, EV_PERSIST, on_time, all);
	if (o->controller)
		controller_on_event(o->controller, on_news, all);
	return all;
}

unsigned events_count(struct event_streams *all)
{
	pthread_mutex_lock(&all->lock);
	unsigned n = all->n;
	pthread_mutex_unlock(&all->lock);
	return n;
}

void events_stop(struct event_streams *all)
{
	pthread_mutex_lock(&all->lock);
	all->stopping = true;
	pthread_mutex_unlock(&all->lock);
	wake_all(all, false);
}

void events_free(struct event_streams *all, struct controller *c)
{
	if (c)
		controller_off_event(c, all);
	if (all->timer)
		event_free(all->timer);
	pthread_mutex_destroy(&all->lock);
	free(all);
}

/* --- one stream --- */

static void add_event(void *ctx, const struct event_view *e)
{
	struct event_stream *s = ctx;
	auto_json *j = cJSON_CreateObject();
	json_add_str(j, "id", e->id.text);
	json_add_str(j, "type", e->type);
	json_add_str(j, "tenant", e->tenant);
	json_add_str(j, "sandbox_id", e->sandbox.text);
	json_add_str(j, "operation_id", e->operation.text[0] ? e->operation.text : NULL);
	json_add_str(j, "detail", e->detail);
	json_add_str(j, "actor", e->actor);
	json_add_time(j, "created_at", e->created_us);
	auto_free char *text = json_print(j);
	if (s->lines)
		buf_addf(&s->pending, "%s\n", text);
	else
		buf_addf(&s->pending, "id: %s\nevent: %s\ndata: %s\n\n", e->id.text, e->type, text);
}

/* Reads on until there is something to send or no more. False: the store does not answer; the client asks again from its last id. */
static bool fill(struct event_stream *s)
{
	int n = 1;
	while (n > 0 && s->pending.len == 0)
		n = controller_events(s->api->o.controller, &s->who, &s->cursor, add_event, s, NULL);
	return n >= 0;
}

/* Nothing to send: ends, waits, or shows that the connection lives. Called locked. */
static ssize_t idle(struct event_stream *s, unsigned seen)
{
	struct event_streams *all = s->api->events;
	if (!s->follow || all->stopping)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (s->alive) {
		s->alive = false;
		buf_adds(&s->pending, s->lines ? "\n" : ":\n\n");
	} else if (all->generation == seen) {
		s->waiting = s->conn;
		MHD_suspend_connection(s->conn);
	}
	return 0;
}

static ssize_t on_read(void *cls, uint64_t pos, char *out, size_t max)
{
	(void)pos;
	struct event_stream *s = cls;
	struct event_streams *all = s->api->events;
	while (s->pending.len == 0) {
		pthread_mutex_lock(&all->lock);
		unsigned seen = all->generation;
		pthread_mutex_unlock(&all->lock);
		if (!fill(s))
			return MHD_CONTENT_READER_END_OF_STREAM;
		if (s->pending.len)
			break;
		pthread_mutex_lock(&all->lock);
		ssize_t rc = idle(s, seen);
		bool suspended = s->waiting != NULL;
		pthread_mutex_unlock(&all->lock);
		if (rc != 0 || suspended)
			return rc;
	}
	size_t n = s->pending.len < max ? s->pending.len : max;
	memcpy(out, s->pending.data, n);
	buf_consume(&s->pending, n);
	return (ssize_t)n;
}

static void on_freed(void *cls)
{
	struct event_stream *s = cls;
	struct event_streams *all = s->api->events;
	pthread_mutex_lock(&all->lock);
	if (s->prev)
		s->prev->next = s->next;
	else
		all->first = s->next;
	if (s->next)
		s->next->prev = s->prev;
	if (--all->n == 0 && all->timer)
		event_del_noblock(all->timer);
	pthread_mutex_unlock(&all->lock);
	buf_done(&s->pending);
	free(s);
}

static int link_stream(struct event_stream *s, struct error *err)
{
	struct event_streams *all = s->api->events;
	int rc = 0;
	pthread_mutex_lock(&all->lock);
	if (all->n >= LIMIT_EVENT_STREAMS_MAX) {
		rc = error_set(err, ERR_RATE_LIMITED, "%d streams of events are open already", LIMIT_EVENT_STREAMS_MAX);
	} else {
		s->next = all->first;
		if (s->next)
			s->next->prev = s;
		all->first = s;
		if (all->n++ == 0 && all->timer)
			event_add(all->timer, &(struct timeval){ .tv_sec = ALIVE_SECONDS });
	}
	pthread_mutex_unlock(&all->lock);
	return rc;
}

/* Where to begin: behind the id given, else with the oldest kept, or, to follow, with what is new. */
static int read_cursor(struct request *r, bool follow, struct id *ret, struct error *err)
{
	const char *since = target_query(&r->target, "since");
	const char *last = request_header(r, "Last-Event-ID");
	if (!since || !*since)
		since = last;
	if (since && strcmp(since, "oldest") == 0)
		return 0;
	if (since && *since)
		return id_parse(since, ret) == 0 ? 0 : error_set(err, ERR_INVALID, "since: '%.80s' is not an event's id, nor oldest", since);
	return follow ? controller_last_event(r->api->o.controller, ret, err) : 0;
}

static int read_format(struct request *r, bool *ret_lines, struct error *err)
{
	const char *format = target_query(&r->target, "format");
	if (format && strcmp(format, "sse") != 0 && strcmp(format, "lines") != 0)
		return error_set(err, ERR_INVALID, "format: '%.80s' is not one of: sse, lines", format);
	*ret_lines = format && strcmp(format, "lines") == 0;
	return 0;
}

/* Says at once that the stream is open, and from where. */
static void greet(struct event_stream *s)
{
	if (s->lines)
		buf_addf(&s->pending, "{\"since\":%s%s%s}\n", s->cursor.text[0] ? "\"" : "", s->cursor.text[0] ? s->cursor.text : "null",
			 s->cursor.text[0] ? "\"" : "");
	else
		buf_addf(&s->pending, "retry: %d\n\n", RETRY_MS);
}

int handle_events(struct request *r, struct answer *a, struct error *err)
{
	bool follow = true, lines = false;
	struct id cursor = { .text = "" };
	if (request_query_bool(r, "follow", &follow, err) != 0 || read_format(r, &lines, err) != 0 || read_cursor(r, follow, &cursor, err) != 0)
		return -1;
	struct event_stream *s = xcalloc(1, sizeof(*s));
	*s = (struct event_stream){ .api = r->api, .conn = r->conn, .who = r->caller, .cursor = cursor, .lines = lines, .follow = follow };
	if (link_stream(s, err) != 0) {
		free(s);
		return -1;
	}
	greet(s);
	a->status = MHD_HTTP_OK;
	a->response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, on_read, s, on_freed);
	MHD_add_response_header(a->response, "Content-Type", lines ? "application/x-ndjson" : "text/event-stream");
	return 0;
}
