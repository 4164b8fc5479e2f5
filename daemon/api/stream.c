/* Streams of lines: see stream.h. */
#include "daemon/api/stream.h"

#include "daemon/api/server.h"
#include "shared/base/mem.h"

#include <microhttpd.h>
#include <string.h>

enum { BACKLOG = 64 * 1024, BLOCK = 4096 };

struct stream {
	struct api *api;
	pthread_mutex_t lock;
	unsigned refs;
	struct buf pending;
	bool ended;
	bool aborted;
	struct MHD_Connection *conn;    /* of the request, while there is one */
	struct MHD_Connection *waiting; /* suspended until there is more */
	struct stream *prev, *next;     /* under the server's lock */
};

struct stream *stream_new(struct api *a)
{
	struct stream *s = xcalloc(1, sizeof(*s));
	s->api = a;
	s->refs = 2;
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_lock(&a->lock);
	s->next = a->streams;
	if (s->next)
		s->next->prev = s;
	a->streams = s;
	pthread_mutex_unlock(&a->lock);
	return s;
}

static void stream_unref(struct stream *s)
{
	pthread_mutex_lock(&s->lock);
	bool last = --s->refs == 0;
	pthread_mutex_unlock(&s->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&s->lock);
	buf_done(&s->pending);
	free(s);
}

/* Out of the server's list by the time nobody but its holder can reach it. */
static void stream_unlink(struct stream *s)
{
	struct api *a = s->api;
	pthread_mutex_lock(&a->lock);
	if (s->prev)
		s->prev->next = s->next;
	else
		a->streams = s->next;
	if (s->next)
		s->next->prev = s->prev;
	pthread_mutex_unlock(&a->lock);
}

void stream_drop(struct stream *s)
{
	stream_unlink(s);
	stream_unref(s);
}

static void on_freed(void *cls)
{
	stream_drop(cls);
}

static ssize_t on_read(void *cls, uint64_t pos, char *out, size_t max)
{
	(void)pos;
	struct stream *s = cls;
	ssize_t n;
	pthread_mutex_lock(&s->lock);
	if (s->pending.len) {
		n = (ssize_t)(s->pending.len < max ? s->pending.len : max);
		memcpy(out, s->pending.data, (size_t)n);
		buf_consume(&s->pending, (size_t)n);
	} else if (s->aborted) {
		n = MHD_CONTENT_READER_END_WITH_ERROR;
	} else if (s->ended) {
		n = MHD_CONTENT_READER_END_OF_STREAM;
	} else {
		s->waiting = s->conn;
		MHD_suspend_connection(s->conn);
		n = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return n;
}

void stream_answer(struct stream *s, struct request *r, struct answer *a)
{
	s->conn = r->conn;
	a->status = MHD_HTTP_OK;
	a->response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, on_read, s, on_freed);
	MHD_add_response_header(a->response, "Content-Type", "application/x-ndjson");
}

static void wake_locked(struct stream *s)
{
	if (s->waiting)
		MHD_resume_connection(steal(&s->waiting));
}

static void add_line(struct stream *s, cJSON *take_line, bool last)
{
	auto_free char *text = json_print(take_line);
	json_freep(&take_line);
	pthread_mutex_lock(&s->lock);
	if (last || s->pending.len < BACKLOG) {
		buf_adds(&s->pending, text);
		buf_addc(&s->pending, '\n');
	}
	s->ended = last;
	wake_locked(s);
	pthread_mutex_unlock(&s->lock);
}

void stream_progress(struct stream *s, cJSON *take_line)
{
	add_line(s, take_line, false);
}

void stream_end(struct stream *s, cJSON *take_line)
{
	add_line(s, take_line, true);
	stream_unref(s);
}

void stream_abort_all(struct api *a)
{
	pthread_mutex_lock(&a->lock);
	for (struct stream *s = a->streams; s; s = s->next) {
		pthread_mutex_lock(&s->lock);
		s->aborted = true;
		wake_locked(s);
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&a->lock);
}
