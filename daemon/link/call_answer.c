/*
 * Answering: see call.h. A call is the loop's while its request comes in, then a pool thread's, then the loop's again until the
 * answer is out. When its stream is lost meanwhile the thread goes on and the answer is dropped.
 */
#include "daemon/link/call.h"

#include "daemon/worker/mailbox.h"
#include "daemon/worker/muxconn.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { METHOD_MAX = 64, THREAD_IDLE_S = 10, THREAD_STACK = 512 * 1024, AHEAD_MAX = 1024 * 1024 };

struct call_in {
	struct stream stream;
	struct call_service s;
	struct call_in *next;
	char *method, *argument;
	struct buf body;
	int fd;
	bool asked; /* whole: a thread has it, or had */
	bool done;  /* answered: freed when the answer is out */
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	struct buf out;
	bool gone;
	struct error err;
	bool failed;
};

struct call_pool {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct call_in *first, **last;
	unsigned threads, idle;
	bool stopping;
};

/* --- the pool --- */

struct call_pool *call_pool_new(void)
{
	struct call_pool *p = xcalloc(1, sizeof(*p));
	pthread_condattr_t attr;
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &attr);
	pthread_condattr_destroy(&attr);
	p->last = &p->first;
	return p;
}

static struct call_in *next_call(struct call_pool *p)
{
	struct timespec until;
	bool late = false;
	pthread_mutex_lock(&p->lock);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += THREAD_IDLE_S;
	p->idle++;
	while (!p->first && !p->stopping && !late)
		late = pthread_cond_timedwait(&p->changed, &p->lock, &until) == ETIMEDOUT;
	p->idle--;
	struct call_in *c = p->first;
	if (c) {
		p->first = c->next;
		if (!p->first)
			p->last = &p->first;
	} else {
		p->threads--;
		pthread_cond_broadcast(&p->changed);
	}
	pthread_mutex_unlock(&p->lock);
	return c;
}

static void answer(struct call_in *c);

static void *pool_thread(void *arg)
{
	struct call_pool *p = arg;
	struct call_in *c;
	while ((c = next_call(p)))
		answer(c);
	return NULL;
}

static void spawn(struct call_pool *p)
{
	pthread_attr_t attr;
	pthread_t thread;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attr, pool_thread, p) != 0) {
		log_warn("link", "no thread for another call: it waits");
		pthread_mutex_lock(&p->lock);
		p->threads--;
		pthread_mutex_unlock(&p->lock);
	}
	pthread_attr_destroy(&attr);
}

static void enqueue(struct call_pool *p, struct call_in *c)
{
	pthread_mutex_lock(&p->lock);
	*p->last = c;
	p->last = &c->next;
	bool more = p->idle == 0 && p->threads < LIMIT_LINK_CALLS_MAX;
	p->threads += more;
	pthread_cond_signal(&p->changed);
	pthread_mutex_unlock(&p->lock);
	if (more)
		spawn(p);
}

void call_pool_free(struct call_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->changed);
	while (p->threads > 0)
		pthread_cond_wait(&p->changed, &p->lock);
	pthread_mutex_unlock(&p->lock);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* --- one call --- */

static struct call_in *of(struct stream *s)
{
	return container_of(s, struct call_in, stream);
}

/* Requests and answers may hold secrets. */
static void wipe(struct buf *b)
{
	if (b->data)
		explicit_bzero(b->data, b->cap);
	buf_done(b);
}

static void call_free(struct call_in *c)
{
	c->s.release(c->s.ctx);
	close_fdp(&c->fd);
	wipe(&c->body);
	wipe(&c->out);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c->method);
	free(c->argument);
	free(c);
}

static void close_with(struct stream *s, const struct error *err)
{
	auto_tlv fields = TLV_INIT;
	if (err) {
		tlv_add_str(&fields, MUX_F_CODE, error_wire(err->code));
		tlv_add_str(&fields, MUX_F_MESSAGE, err->message);
	}
	stream_close(s, &fields);
}

/* Loop thread. Frees it when all is out, or nobody takes it any more. */
static void pump(struct call_in *c)
{
	bool all = true;
	pthread_mutex_lock(&c->lock);
	if (c->stream.m && c->out.len > 0) {
		buf_consume(&c->out, mux_send(c->stream.m, c->stream.id, 0, c->out.data, c->out.len));
		all = c->out.len == 0;
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
	if (!c->done || (c->stream.m && !all))
		return;
	close_with(&c->stream, c->failed ? &c->err : NULL);
	call_free(c);
}

static void do_finish(void *arg)
{
	struct call_in *c = arg;
	c->done = true;
	pump(c);
}

static void answer(struct call_in *c)
{
	struct buf out = BUF_INIT;
	struct error err = ERROR_INIT;
	int rc = c->s.handle(c->s.ctx, c, &out, &err);
	struct mailbox *mail = c->s.mail;
	pthread_mutex_lock(&c->lock);
	if (rc == 0)
		buf_add(&c->out, out.data, out.len);
	c->failed = rc != 0;
	c->err = err;
	pthread_mutex_unlock(&c->lock);
	wipe(&out);
	mailbox_post(mail, do_finish, c);
}

static void do_pump_some(void *arg)
{
	struct call_in *c = arg;
	pthread_mutex_lock(&c->lock);
	if (c->stream.m && c->out.len > 0)
		buf_consume(&c->out, mux_send(c->stream.m, c->stream.id, 0, c->out.data, c->out.len));
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

bool call_send_all(struct call_in *c, const void *p, size_t n)
{
	pthread_mutex_lock(&c->lock);
	while (!c->gone && c->out.len >= AHEAD_MAX)
		pthread_cond_wait(&c->changed, &c->lock);
	bool wanted = !c->gone;
	if (wanted)
		buf_add(&c->out, p, n);
	pthread_mutex_unlock(&c->lock);
	mailbox_post(c->s.mail, do_pump_some, c);
	return wanted;
}

bool call_send(struct call_in *c, const void *p, size_t n)
{
	pthread_mutex_lock(&c->lock);
	bool wanted = !c->gone && c->out.len < AHEAD_MAX;
	if (wanted)
		buf_add(&c->out, p, n);
	wanted = !c->gone;
	pthread_mutex_unlock(&c->lock);
	mailbox_post(c->s.mail, do_pump_some, c); /* before the answer's: posted in order */
	return wanted;
}

const char *call_method(const struct call_in *c)
{
	return c->method;
}

const char *call_argument(const struct call_in *c)
{
	return c->argument;
}

const struct buf *call_body(const struct call_in *c)
{
	return &c->body;
}

int call_file(const struct call_in *c)
{
	return c->fd;
}

/* --- its stream --- */

static void refuse(struct call_in *c, enum error_code code, const char *text)
{
	struct error err = ERROR_INIT;
	error_set(&err, code, "%s", text);
	close_with(&c->stream, &err);
	call_free(c);
}

static void on_data(struct stream *s, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct call_in *c = of(s);
	mux_consumed(s->m, s->id, channel, offset + n);
	if (c->asked)
		return;
	if (c->fd >= 0 && io_write_full(c->fd, p, n) != 0) {
		refuse(c, ERR_SYSTEM, "the body cannot be kept: the disk is full or fails");
		return;
	}
	if (c->fd < 0)
		buf_add(&c->body, p, n);
	if (c->body.overflow)
		refuse(c, ERR_TOO_LARGE, "the request is over the limit LINK_BODY_MAX");
}

static void on_eof(struct stream *s, unsigned channel)
{
	struct call_in *c = of(s);
	(void)channel;
	if (c->asked)
		return;
	c->asked = true;
	if (c->fd >= 0)
		lseek(c->fd, 0, SEEK_SET);
	enqueue(c->s.pool, c);
}

static void gone(struct call_in *c)
{
	pthread_mutex_lock(&c->lock);
	c->gone = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	/* Else a thread has it, and will post that it is done. */
	if (!c->asked || c->done)
		call_free(c);
}

static void on_closed(struct stream *s, const struct tlv *fields)
{
	(void)fields;
	gone(of(s));
}

static void on_lost(struct stream *s, enum mux_error why)
{
	(void)why;
	gone(of(s));
}

static void on_writable(struct stream *s)
{
	pump(of(s));
}

static void on_window(struct stream *s, unsigned channel, uint64_t consumed)
{
	(void)channel;
	(void)consumed;
	pump(of(s));
}

static const struct stream_ops ops = {
	.data = on_data,
	.eof = on_eof,
	.window = on_window,
	.closed = on_closed,
	.lost = on_lost,
	.writable = on_writable,
};

static bool takes_file(const struct call_service *s, const char *method)
{
	for (const char *const *m = s->file_methods; m && *m; m++)
		if (strcmp(*m, method) == 0)
			return true;
	return false;
}

void call_take(const struct call_service *s, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct call_in *c = xcalloc(1, sizeof(*c));
	c->s = *s;
	c->fd = -1;
	c->body.max = LIMIT_LINK_BODY_MAX;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	s->hold(s->ctx);
	stream_bind(&c->stream, &ops, m, stream);
	if (tlv_str(fields, MUX_F_METHOD, METHOD_MAX, &c->method, NULL) != 0 || !c->method ||
	    tlv_str(fields, MUX_F_TEXT, LIMIT_PATH_BYTES_MAX, &c->argument, NULL) != 0) {
		refuse(c, ERR_INVALID, "a call without a method");
		return;
	}
	if (takes_file(s, c->method)) {
		c->fd = open(s->file_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (c->fd < 0) {
			refuse(c, ERR_SYSTEM, "there is no place for the body in the state directory");
			return;
		}
	}
	mux_accept(m, stream, NULL, LIMIT_MUX_WINDOW);
}
