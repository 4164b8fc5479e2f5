/* One question to sandbox-init from a job thread: a stream that it answers by closing. */
#include "daemon/worker/initlink_priv.h"

#include "daemon/worker/mailbox.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <time.h>

/* Freed by whichever of the two, the loop or the thread that asked, is done with it last. */
struct ask {
	struct stream stream;
	struct initlinks *links;
	struct id sandbox;
	struct tlv fields;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool answered, given_up;
	struct error err;
};

static void ask_free(struct ask *a)
{
	if (a->fields.own.data)
		explicit_bzero(a->fields.own.data, a->fields.own.cap);
	tlv_done(&a->fields);
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/* Loop thread, once. */
static void answer(struct ask *a)
{
	pthread_mutex_lock(&a->lock);
	bool last = a->given_up;
	a->answered = true;
	pthread_cond_signal(&a->changed);
	pthread_mutex_unlock(&a->lock);
	if (last)
		ask_free(a);
}

static void on_closed(struct stream *s, const struct tlv *fields)
{
	struct ask *a = container_of(s, struct ask, stream);
	char text[256];
	size_t n = 0;
	const char *p = tlv_bytes(fields, MUX_F_MESSAGE, &n);

	if (tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE) != MUX_ERR_NONE)
		error_set(&a->err, ERR_UNAVAILABLE, "sandbox-init: %s", p ? text_escape(p, n, text, sizeof(text)) : "refused");
	answer(a);
}

static void on_lost(struct stream *s, enum mux_error why)
{
	struct ask *a = container_of(s, struct ask, stream);

	(void)why;
	error_set(&a->err, ERR_UNAVAILABLE, "the connection to sandbox-init broke");
	answer(a);
}

static const struct stream_ops ask_ops = { .closed = on_closed, .lost = on_lost };

static void do_ask(void *arg)
{
	struct ask *a = arg;
	struct mux *m = initlink_mux(a->links, &a->sandbox);
	uint32_t id = m ? mux_open(m, &a->fields, 0, &a->err) : 0;

	if (id == 0) {
		if (!m)
			error_set(&a->err, ERR_UNAVAILABLE, "sandbox-init is not connected");
		answer(a);
		return;
	}
	stream_bind(&a->stream, &ask_ops, m, id);
}

int initlink_ask(struct initlinks *l, const struct id *sandbox, struct tlv *take_fields, int64_t timeout_ms, struct error *err)
{
	struct ask *a = xcalloc(1, sizeof(*a));
	struct timespec until;
	bool late = false, last;
	int rc;

	a->links = l;
	a->sandbox = *sandbox;
	a->fields = *take_fields;
	*take_fields = (struct tlv)TLV_INIT;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += timeout_ms / 1000 + 1;
	mailbox_post(l->box, do_ask, a);
	pthread_mutex_lock(&a->lock);
	while (!a->answered && !late)
		late = pthread_cond_timedwait(&a->changed, &a->lock, &until) == ETIMEDOUT;
	last = a->answered;
	a->given_up = true;
	rc = !last ? error_set(err, ERR_TIMEOUT, "sandbox-init did not answer within %lld ms", (long long)timeout_ms) : 0;
	if (last && a->err.code != ERR_NONE)
		rc = error_set(err, a->err.code, "%s", a->err.message);
	pthread_mutex_unlock(&a->lock);
	if (last)
		ask_free(a);
	return rc;
}
