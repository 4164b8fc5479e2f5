/* The thread that publishes: see publisher.h. Where it stands is a mark in the store, moved only when the server has the messages. */
#include "daemon/events/publisher.h"

#include "daemon/config.h"
#include "daemon/events/nats.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define MARK "nats"

enum {
	POLL_MS = 5000,    /* looks without being told, too */
	RETRY_MS = 500,    /* while NATS or the store is away */
	FLUSH_MS = 3000,
	SUBJECT_MAX = 256,
};

struct publisher {
	struct controller *controller;
	struct nats *nats;
	char subject[128];
	struct caller system;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool news, stop;
	bool away; /* was said */
};

static void on_news(void *ctx)
{
	struct publisher *p = ctx;
	pthread_mutex_lock(&p->lock);
	p->news = true;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
}

/* False: it is to stop. */
static bool wait_news(struct publisher *p, int64_t ms)
{
	int64_t until = clock_mono_ms() + ms;
	struct timespec t = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
	pthread_mutex_lock(&p->lock);
	while (!p->stop && !(p->news && ms == POLL_MS) && pthread_cond_timedwait(&p->wake, &p->lock, &t) != ETIMEDOUT)
		continue;
	p->news = false;
	bool go_on = !p->stop;
	pthread_mutex_unlock(&p->lock);
	return go_on;
}

/* --- one pass --- */

struct pass {
	struct publisher *p;
	int rc;
	struct error err;
};

static void publish(void *ctx, const struct event_view *e)
{
	struct pass *pass = ctx;
	char subject[SUBJECT_MAX];
	if (pass->rc != 0)
		return;
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
	snprintf(subject, sizeof(subject), "%s.%s", pass->p->subject, e->type);
	pass->rc = nats_publish(pass->p->nats, subject, e->id.text, text, &pass->err);
}

/* One page. 1: there may be more; 0: no more; -1: again later, from the same place. */
static int publish_page(struct publisher *p, struct error *err)
{
	struct pass pass = { .p = p };
	struct id cursor = { .text = "" };
	if (controller_mark_get(p->controller, MARK, &cursor, err) != 0)
		return -1;
	int n = controller_events(p->controller, &p->system, &cursor, publish, &pass, err);
	if (n <= 0)
		return n;
	if (pass.rc != 0) {
		*err = pass.err;
		return -1;
	}
	if (nats_flush(p->nats, FLUSH_MS, err) != 0 || controller_mark_put(p->controller, MARK, &cursor, err) != 0)
		return -1;
	return n == EVENTS_PAGE;
}

static void note_away(struct publisher *p, bool away, const char *why)
{
	if (away && !p->away)
		log_warn("events", "not publishing: %s; events stay in the store", why);
	else if (!away && p->away)
		log_info("events", "publishing again");
	p->away = away;
}

/* How long to wait for the next. */
static int64_t pass(struct publisher *p)
{
	struct error err = ERROR_INIT;
	int rc;
	if (!controller_leads(p->controller))
		return POLL_MS;
	if (!nats_connected(p->nats)) {
		note_away(p, true, "no connection to NATS");
		return RETRY_MS;
	}
	do
		rc = publish_page(p, &err);
	while (rc == 1);
	note_away(p, rc < 0, err.message);
	return rc < 0 ? RETRY_MS : POLL_MS;
}

static void *publisher_thread(void *arg)
{
	struct publisher *p = arg;
	while (wait_news(p, pass(p)))
		continue;
	return NULL;
}

static int start_thread(struct publisher *p, struct error *err)
{
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	int rc = pthread_create(&p->thread, NULL, publisher_thread, p);
	if (rc != 0) {
		errno = rc;
		return error_errno(err, "starting the publisher");
	}
	controller_on_event(p->controller, on_news, p);
	return 0;
}

int publisher_start(struct controller *c, const struct daemon_config *config, struct publisher **ret, struct error *err)
{
	*ret = NULL;
	if (!*config->nats_url)
		return 0;
	struct publisher *p = xcalloc(1, sizeof(*p));
	p->controller = c;
	p->system = (struct caller){ .role = ROLE_ADMIN, .all_tenants = true };
	snprintf(p->subject, sizeof(p->subject), "%s", config->nats_subject);
	struct nats_options o = { .url = config->nats_url, .credentials = config->nats_credentials, .ca = config->nats_ca };
	if (nats_open(&o, &p->nats, err) != 0 || start_thread(p, err) != 0) {
		nats_close(p->nats);
		free(p);
		return -1;
	}
	log_info("events", "publishing to NATS subject=%s.>", p->subject);
	*ret = p;
	return 0;
}

void publisher_stop(struct publisher *p)
{
	if (!p)
		return;
	controller_off_event(p->controller, p);
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	nats_close(p->nats);
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
