/*
 * From the HTTP library to a handler: see dispatch.h. The library calls dispatch_access once with the head, then per piece
 * of body, then once more when all is read, and again after each suspension.
 */
#include "daemon/api/dispatch.h"

#include "daemon/api/caller.h"
#include "daemon/api/server.h"
#include "daemon/api/upload.h"
#include "daemon/controller/identity.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

void *dispatch_begin(void *cls, const char *uri, struct MHD_Connection *conn)
{
	(void)conn;
	struct listener *l = cls;
	return request_new(l->api, l->tcp, uri);
}

void dispatch_completed(void *cls, struct MHD_Connection *conn, void **ctx, enum MHD_RequestTerminationCode why)
{
	(void)cls;
	(void)conn;
	(void)why;
	struct request *r = *ctx;
	if (!r)
		return;
	if (r->counted)
		api_suspended(r->api, -1);
	upload_free(r->upload);
	r->upload = NULL;
	request_free(r);
	*ctx = NULL;
}

void request_suspend(struct request *r, int (*resume)(struct request *r, struct answer *a, struct error *err))
{
	if (!r->counted)
		api_suspended(r->api, 1);
	r->counted = true;
	r->suspended = true;
	r->resume = resume;
	MHD_suspend_connection(r->conn);
}

void request_resume(struct request *r)
{
	MHD_resume_connection(r->conn);
}

static void log_request(const struct request *r, int status)
{
	double ms = (double)(clock_mono_us() - r->started_us) / 1000.0;
	const char *id = r->route ? r->route->id : "-";
	if (status >= 500)
		log_warn("api", "request=%s %s %s status=%d ms=%.2f by=\"%s\" from=%s: %s", r->caller.request_id, r->method, id, status, ms,
			 r->caller.who, r->caller.from, r->err.message);
	else
		log_debug("api", "request=%s %s %s status=%d ms=%.2f by=\"%s\" from=%s%s%s", r->caller.request_id, r->method, id, status, ms,
			  r->caller.who, r->caller.from, status >= 400 ? ": " : "", status >= 400 ? r->err.message : "");
}

/* Of callers nobody knows only so many are noted, or they could fill the log. */
static bool worth_noting(struct request *r)
{
	return r->caller.who[0] || api_refusal_budget(r->api);
}

/* Every mutation, done or not, and every refusal. Streams note themselves. */
static void audit(struct request *r, int status)
{
	bool mutation = r->route && r->route->class != CALLER_PUBLIC && strcmp(r->route->method, "GET") != 0;
	bool refusal = status == 401 || status == 403 || status == 429;
	if (!r->api->o.controller || (!mutation && !refusal) || !worth_noting(r))
		return;
	const char *target = r->audit_target[0] ? r->audit_target : r->params.value[0];
	struct audit_entry e = {
		.action = r->route ? r->route->id : "unknown",
		.target = target,
		.code = status >= 400 ? (r->err.code ? r->err.code : ERR_INTERNAL) : ERR_NONE,
		.detail = status >= 400 ? r->err.message : NULL,
	};
	controller_audit(r->api->o.controller, &r->caller, &e);
}

static struct MHD_Response *response_of(struct answer *a)
{
	if (a->response)
		return steal(&a->response);
	if (!a->body)
		return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
	struct MHD_Response *m = MHD_create_response_from_buffer(a->len, steal(&a->body), MHD_RESPMEM_MUST_FREE);
	if (!map_get(&a->headers, "Content-Type"))
		MHD_add_response_header(m, "Content-Type", "application/json");
	return m;
}

static enum MHD_Result send_answer(struct request *r)
{
	struct answer *a = &r->answer;
	struct MHD_Response *m = response_of(a);
	MHD_add_response_header(m, "X-Request-Id", r->caller.request_id);
	MHD_add_response_header(m, "Cache-Control", "no-store");
	for (size_t i = 0; i < a->headers.len; i++)
		MHD_add_response_header(m, a->headers.items[i].key, a->headers.items[i].value);
	log_request(r, a->status);
	audit(r, a->status);
	enum MHD_Result rc = MHD_queue_response(r->conn, (unsigned)a->status, m);
	MHD_destroy_response(m);
	return rc;
}

/* status 0: the one of the error's kind. */
static void fail(struct request *r, int status)
{
	answer_error(&r->answer, &r->err, r->caller.request_id);
	if (status)
		r->answer.status = status;
	if (r->answer.status == 401)
		map_set(&r->answer.headers, "WWW-Authenticate", "Bearer");
}

static int refuse(struct request *r, int status)
{
	fail(r, status);
	return -1;
}

static int find_route(struct request *r, const struct listener *l)
{
	auto_buf allow = BUF_INIT;
	if (r->target_bad)
		return refuse(r, 0);
	r->route = route_find(r->method, &r->target, &r->params, &allow);
	/* Who is not known learns nothing about which paths exist. */
	if (caller_establish(r, l, r->route && r->route->class == CALLER_PUBLIC, &r->err) != 0)
		return refuse(r, 0);
	if (r->route)
		return 0;
	if (allow.len == 0) {
		error_set(&r->err, ERR_NOT_FOUND, "no such path; docs/api.md lists the calls");
		return refuse(r, 0);
	}
	error_set(&r->err, ERR_INVALID, "%s is not a method of this path; it takes %s", r->method, buf_str(&allow));
	map_set(&r->answer.headers, "Allow", buf_str(&allow));
	return refuse(r, MHD_HTTP_METHOD_NOT_ALLOWED);
}

/* Everything that can be said before the body is read. -1: r->answer holds the refusal. */
static int admit(struct request *r, const struct listener *l, bool *ret_has_body)
{
	*ret_has_body = request_header(r, "Transfer-Encoding") != NULL || request_header(r, "Content-Length") != NULL;
	if (find_route(r, l) != 0)
		return -1;
	if (caller_admit(r, r->route, &r->err) != 0)
		return refuse(r, 0);
	if (body_admit(r, r->route, ret_has_body, &r->err) != 0)
		return refuse(r, r->err.code == ERR_INVALID ? MHD_HTTP_UNSUPPORTED_MEDIA_TYPE : 0);
	if (route_check_query(r->route, &r->target, &r->err) != 0)
		return refuse(r, 0);
	return 0;
}

static enum MHD_Result handle(struct request *r, int (*fn)(struct request *, struct answer *, struct error *))
{
	if (fn(r, &r->answer, &r->err) != 0)
		fail(r, 0);
	else if (r->suspended)
		return MHD_YES;
	return send_answer(r);
}

static enum MHD_Result on_head(struct request *r, const struct listener *l)
{
	bool has_body;
	if (admit(r, l, &has_body) != 0) {
		/* Answering now closes the connection unread; without a body to skip it can stay open. */
		r->refused = true;
		return has_body ? send_answer(r) : MHD_YES;
	}
	if (r->route->body == BODY_STREAM && r->route->handle(r, &r->answer, &r->err) != 0) {
		fail(r, 0);
		r->refused = true;
		return has_body ? send_answer(r) : MHD_YES;
	}
	return MHD_YES;
}

/*
 * A body of unknown length that grows over its limit: the library offers no way to answer in the middle of a body, so the
 * answer is written to the socket directly (nothing was sent on it yet, and false ends the connection).
 */
static enum MHD_Result cut_off(struct request *r)
{
	error_set(&r->err, ERR_TOO_LARGE, "the body is larger than the %zu bytes this call takes", r->route->body_max);
	fail(r, 0);
	auto_buf out = BUF_INIT;
	buf_addf(&out,
		 "HTTP/1.1 413 Payload Too Large\r\nContent-Type: application/json\r\nX-Request-Id: %s\r\nConnection: close\r\n"
		 "Content-Length: %zu\r\n\r\n",
		 r->caller.request_id, r->answer.len);
	buf_add(&out, r->answer.body, r->answer.len);
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (info && send(info->connect_fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_debug("api", "request=%s: the client of an oversized body is gone", r->caller.request_id);
	log_request(r, r->answer.status);
	return MHD_NO;
}

static enum MHD_Result on_body(struct request *r, const char *data, size_t *n)
{
	if (r->refused) {
		*n = 0;
		return MHD_YES;
	}
	if (r->upload) {
		if (upload_bytes(r->upload) + *n > r->route->body_max)
			return cut_off(r);
		*n -= upload_feed(r->upload, data, *n);
		return MHD_YES;
	}
	if (r->body.len + *n > r->route->body_max)
		return cut_off(r);
	buf_add(&r->body, data, *n);
	*n = 0;
	return MHD_YES;
}

static enum MHD_Result on_complete(struct request *r)
{
	if (r->refused)
		return send_answer(r);
	if (r->route->body != BODY_STREAM)
		return handle(r, r->route->handle);
	if (r->upload)
		upload_finish(r->upload);
	return send_answer(r);
}

enum MHD_Result dispatch_access(void *cls, struct MHD_Connection *conn, const char *url, const char *method, const char *version,
				const char *data, size_t *n, void **ctx)
{
	(void)url;
	(void)version;
	struct request *r = *ctx;
	if (!r)
		return MHD_NO;
	if (r->suspended) {
		r->suspended = false;
		/* Counted until its answer is out, so that a stopping server does not cut it off. */
		if (r->resume)
			return handle(r, steal(&r->resume));
		api_suspended(r->api, -1);
		r->counted = false;
	}
	if (!r->head_seen) {
		r->head_seen = true;
		r->conn = conn;
		r->method = method;
		return on_head(r, cls);
	}
	return *n ? on_body(r, data, n) : on_complete(r);
}

static void *job_thread(void *arg)
{
	struct request *r = arg;
	struct api *a = r->api;
	r->job_rc = r->job(r, &r->answer, &r->err);
	request_resume(r); /* r is the server's again */
	api_thread_end(a);
	return NULL;
}

static int job_done(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	(void)err;
	return r->job_rc;
}

int request_block(struct request *r, int (*fn)(struct request *r, struct answer *a, struct error *err), struct error *err)
{
	struct error e = ERROR_INIT;
	r->job = fn;
	request_suspend(r, job_done);
	if (api_thread(r->api, job_thread, r, &e) == 0)
		return 0;
	if (err)
		*err = e;
	r->job_rc = -1;
	request_resume(r);
	return 0;
}
