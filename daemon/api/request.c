/* Requests and answers: see request.h. Suspending and job threads live in server.c, which owns the connections. */
#include "daemon/api/request.h"

#include "daemon/api/server.h"
#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/model_json.h"

#include <microhttpd.h>
#include <string.h>

void answer_done(struct answer *a)
{
	free(a->body);
	map_done(&a->headers);
	if (a->response)
		MHD_destroy_response(a->response);
	*a = (struct answer){ .status = 0 };
}

void answer_json(struct answer *a, int status, cJSON *take_j)
{
	free(a->body);
	a->status = status;
	a->body = json_print(take_j);
	a->len = strlen(a->body);
	json_freep(&take_j);
}

void answer_error(struct answer *a, const struct error *e, const char *request_id)
{
	answer_json(a, error_http_status(e->code), error_to_json(e, request_id));
	if (a->status == 503 || a->status == 429)
		map_set(&a->headers, "Retry-After", "1");
}

struct request *request_new(struct api *api, bool tcp, const char *raw_target)
{
	struct request *r = xcalloc(1, sizeof(*r));
	r->api = api;
	r->tcp = tcp;
	r->started_us = clock_mono_us();
	struct id id = id_new();
	memcpy(r->caller.request_id, id.text, sizeof(r->caller.request_id));
	r->target_bad = target_parse(raw_target, &r->target, &r->err) != 0;
	return r;
}

void request_free(struct request *r)
{
	if (!r)
		return;
	if (r->create) /* before the state, which its hooks use */
		controller_create_end(r->api->o.controller, r->create, NULL, NULL);
	if (r->state_free)
		r->state_free(r->state);
	if (r->created)
		create_result_done(r->created);
	free(r->created);
	answer_done(&r->answer);
	buf_done(&r->body);
	free(r->params.tail);
	target_done(&r->target);
	free(r);
}

int request_json(struct request *r, cJSON **ret, struct error *err)
{
	if (r->body.len == 0)
		return error_set(err, ERR_INVALID, "this call wants a JSON body");
	return json_parse(buf_str(&r->body), r->body.len, ret, err);
}

const char *request_header(struct request *r, const char *name)
{
	return MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, name);
}

int request_idempotency_key(struct request *r, const char **ret, struct error *err)
{
	const char *key = request_header(r, "Idempotency-Key");
	size_t n = key ? strlen(key) : 0;
	for (size_t i = 0; i < n; i++)
		if (key[i] < 0x20 || key[i] > 0x7e)
			return error_set(err, ERR_INVALID, "Idempotency-Key must be printable ASCII");
	if (key && (n == 0 || n > 128))
		return error_set(err, ERR_INVALID, "Idempotency-Key must have 1 to 128 characters");
	*ret = key;
	return 0;
}

int request_query_bool(struct request *r, const char *name, bool *ret, struct error *err)
{
	const char *text = target_query(&r->target, name);
	return text ? parse_bool(name, text, ret, err) : 0;
}

int request_query_i64(struct request *r, const char *name, int64_t min, int64_t max, int64_t *ret, struct error *err)
{
	const char *text = target_query(&r->target, name);
	return text ? parse_i64(name, text, min, max, ret, err) : 0;
}
