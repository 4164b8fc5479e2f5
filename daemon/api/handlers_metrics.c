/* Handler: metrics for Prometheus. The store is asked on a thread of its own: a scrape must not hold a server thread. */
#include "daemon/api/handlers.h"

#include "daemon/api/server.h"
#include "shared/base/mem.h"

static void add_api(struct api *a, struct buf *out)
{
	pthread_mutex_lock(&a->lock);
	unsigned suspended = a->suspended, jobs = a->jobs;
	pthread_mutex_unlock(&a->lock);
	buf_addf(out,
		 "# HELP sandbox_api_connections Open connections of the API.\n# TYPE sandbox_api_connections gauge\nsandbox_api_connections %u\n"
		 "# HELP sandbox_api_waiting Requests that wait: long polls and slow work.\n# TYPE sandbox_api_waiting gauge\nsandbox_api_waiting %u\n"
		 "# HELP sandbox_api_jobs Threads that do slow work (pulls, doctor).\n# TYPE sandbox_api_jobs gauge\nsandbox_api_jobs %u\n"
		 "# HELP sandbox_event_streams Open streams of events.\n# TYPE sandbox_event_streams gauge\nsandbox_event_streams %u\n",
		 atomic_load(&a->connections), suspended, jobs, events_count(a->events));
}

static int metrics_job(struct request *r, struct answer *a, struct error *err)
{
	(void)err;
	struct buf out = BUF_INIT;
	controller_metrics(r->api->o.controller, &out);
	add_api(r->api, &out);
	if (r->api->o.edge_metrics)
		r->api->o.edge_metrics(r->api->o.edge_ctx, &out);
	a->status = r->route->status;
	a->len = out.len;
	a->body = buf_steal(&out);
	map_set(&a->headers, "Content-Type", "text/plain; version=0.0.4; charset=utf-8");
	return 0;
}

int handle_metrics(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, metrics_job, err);
}
