/* Requests over the kept connection. */
#include "shared/http/remote/internal.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/http/answer.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 1000 };

/* One transfer. */
struct transfer {
	struct remote *r;
	const struct http_request *q;
	struct http_answer answer;
	size_t head_bytes;
	struct error failed; /* by a callback: code != 0 */
};

static void take_status(struct transfer *t, const char *line, size_t n)
{
	const char *end = line + n, *p = memchr(line, ' ', n);
	map_done(&t->answer.headers);
	t->answer.status = 0;
	t->answer.reason[0] = '\0';
	for (p = p ? p + 1 : end; p < end && isdigit((unsigned char)*p) && t->answer.status < 1000; p++)
		t->answer.status = t->answer.status * 10 + (*p - '0');
	if (p < end && *p == ' ')
		snprintf(t->answer.reason, sizeof(t->answer.reason), "%.*s", (int)(end - p - 1), p + 1);
	for (char *c = t->answer.reason; *c; c++)
		if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
			*c = '?';
}

static void take_header(struct transfer *t, const char *line, size_t n)
{
	const char *colon = memchr(line, ':', n), *value = colon ? colon + 1 : NULL, *end = line + n;
	if (!colon || colon == line)
		return;
	while (value < end && (*value == ' ' || *value == '\t'))
		value++;
	auto_free char *name = xstrndup(line, (size_t)(colon - line)), *text = xstrndup(value, (size_t)(end - value));
	for (char *c = name; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	map_set(&t->answer.headers, name, text);
}

static size_t on_header(char *line, size_t size, size_t count, void *ctx)
{
	struct transfer *t = ctx;
	size_t n = size * count, len = n;
	t->head_bytes += n;
	if (t->head_bytes > LIMIT_HTTP_HEAD_MAX) {
		error_set(&t->failed, ERR_TOO_LARGE, "the head of the answer is over the limit HTTP_HEAD_MAX (%d bytes)", LIMIT_HTTP_HEAD_MAX);
		return 0;
	}
	while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r'))
		len--;
	if (len >= 5 && memcmp(line, "HTTP/", 5) == 0)
		take_status(t, line, len);
	else
		take_header(t, line, len);
	return n;
}

static size_t on_body(char *p, size_t size, size_t count, void *ctx)
{
	struct transfer *t = ctx;
	size_t n = size * count;
	if (t->q->on_body && t->answer.status >= 200 && t->answer.status < 300)
		return t->q->on_body(t->q->ctx, p, n, &t->failed) == 0 ? n : 0;
	buf_add(&t->answer.body, p, n);
	if (!t->answer.body.overflow)
		return n;
	error_set(&t->failed, ERR_TOO_LARGE, "the answer is over the limit JSON_BYTES_MAX (%d bytes)", LIMIT_JSON_BYTES_MAX);
	return 0;
}

static size_t on_read(char *to, size_t size, size_t count, void *ctx)
{
	struct transfer *t = ctx;
	for (;;) {
		struct pollfd p[2] = { { .fd = t->q->body_fd, .events = POLLIN }, { .fd = t->r->interrupt_fd, .events = POLLIN } };
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents)
			return CURL_READFUNC_ABORT;
		if (!p[0].revents)
			continue;
		ssize_t n = read(t->q->body_fd, to, size * count);
		if (n >= 0)
			return (size_t)n;
		if (errno != EINTR && errno != EAGAIN)
			break;
	}
	error_errno(&t->failed, "reading what to send");
	return CURL_READFUNC_ABORT;
}

static int add_headers(const struct transfer *t, struct curl_slist **list, struct error *err)
{
	const struct http_request *q = t->q;
	auto_free char *bearer = t->r->token ? xasprintf("Authorization: Bearer %s", t->r->token) : NULL;
	if (bearer)
		*list = curl_slist_append(*list, bearer);
	auto_free char *tenant = t->r->tenant ? xasprintf("X-Sandbox-Tenant: %s", t->r->tenant) : NULL;
	if (tenant)
		*list = curl_slist_append(*list, tenant);
	/* No pause for a 100 that most servers never send. */
	*list = curl_slist_append(*list, "Expect:");
	if (q->from_fd)
		*list = curl_slist_append(*list, "Transfer-Encoding: chunked");
	for (size_t i = 0; q->headers && i < q->headers->len; i++) {
		const struct kv *h = &q->headers->items[i];
		if (!remote_text_clean(h->key) || !remote_text_clean(h->value))
			return error_set(err, ERR_INVALID, "the value of %s holds a control byte", h->key);
		auto_free char *line = xasprintf("%s: %s", h->key, h->value);
		*list = curl_slist_append(*list, line);
	}
	if (bearer)
		explicit_bzero(bearer, strlen(bearer));
	return 0;
}

static void set_body(CURL *h, struct transfer *t)
{
	const struct http_request *q = t->q;
	if (q->from_fd) {
		curl_easy_setopt(h, CURLOPT_POST, 1L);
		curl_easy_setopt(h, CURLOPT_READFUNCTION, on_read);
		curl_easy_setopt(h, CURLOPT_READDATA, t);
	} else if (q->body || strcmp(q->method, "POST") == 0) {
		curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(q->body ? q->n : 0));
		curl_easy_setopt(h, CURLOPT_POSTFIELDS, q->body ? q->body : "");
	}
	if (strcmp(q->method, "HEAD") == 0)
		curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
	else
		curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, q->method);
}

static void set_timeout(CURL *h, const struct http_request *q)
{
	if (q->timeout_ms < 0)
		return;
	if (!q->from_fd && !q->on_body) {
		curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)(q->timeout_ms > 0 ? q->timeout_ms : 1));
		return;
	}
	curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)(q->timeout_ms / 1000 + 1));
}

static CURLcode run(struct remote *r, CURL *h)
{
	CURLcode result = CURLE_OK;
	int running = 1;
	curl_multi_add_handle(r->multi, h);
	while (running) {
		struct curl_waitfd extra = { .fd = r->interrupt_fd, .events = CURL_WAIT_POLLIN };
		if (curl_multi_perform(r->multi, &running) != CURLM_OK ||
		    (running && curl_multi_poll(r->multi, &extra, r->interrupt_fd >= 0, WAIT_MS, NULL) != CURLM_OK)) {
			result = CURLE_FAILED_INIT;
			break;
		}
		if (running && remote_interrupted(r)) {
			result = CURLE_ABORTED_BY_CALLBACK;
			break;
		}
	}
	int left;
	for (CURLMsg *m; (m = curl_multi_info_read(r->multi, &left));)
		if (m->msg == CURLMSG_DONE && m->easy_handle == h && result == CURLE_OK)
			result = m->data.result;
	curl_multi_remove_handle(r->multi, h);
	return result;
}

static int finish(struct transfer *t, CURL *h, CURLcode rc, const char *detail, struct error *err)
{
	long proxy_status = 0;
	curl_easy_getinfo(h, CURLINFO_HTTP_CONNECTCODE, &proxy_status);
	bool safe = strcmp(t->q->method, "GET") == 0 || strcmp(t->q->method, "HEAD") == 0;
	if (rc == CURLE_OK)
		return 0;
	if (t->failed.code != ERR_NONE && rc != CURLE_ABORTED_BY_CALLBACK) {
		if (err)
			*err = t->failed;
		return -1;
	}
	if (proxy_status >= 300)
		return remote_failure(t->r, h, rc, detail, err);
	/* A server may answer and close while a body is still on its way: the answer counts. */
	if ((rc == CURLE_SEND_ERROR || rc == CURLE_RECV_ERROR) && t->answer.status >= 400)
		return 0;
	if (rc == CURLE_PARTIAL_FILE || (rc == CURLE_RECV_ERROR && t->answer.status >= 200))
		return error_set(err, ERR_PROTOCOL, "the server closed the connection within its answer");
	if (rc == CURLE_WEIRD_SERVER_REPLY || rc == CURLE_UNSUPPORTED_PROTOCOL)
		return error_set(err, ERR_PROTOCOL, "what answers there does not speak HTTP: %s", *detail ? detail : curl_easy_strerror(rc));
	if (rc == CURLE_GOT_NOTHING || rc == CURLE_SEND_ERROR || rc == CURLE_RECV_ERROR)
		return error_set(err, ERR_UNREACHABLE, "the server closed the connection without an answer%s",
				 safe ? "" : "; whether it acted is unknown");
	return remote_failure(t->r, h, rc, detail, err);
}

int remote_send(struct remote *r, const struct http_request *q, struct http_answer *ret, struct error *err)
{
	struct transfer t = { .r = r, .q = q, .answer = { .body = BUF_INIT_MAX(LIMIT_JSON_BYTES_MAX) } };
	struct curl_slist *headers = NULL;
	char detail[CURL_ERROR_SIZE] = "";
	CURL *h = remote_handle(r, q->target, err);
	if (!h)
		return -1;
	int rc = add_headers(&t, &headers, err);
	if (rc == 0) {
		curl_easy_setopt(h, CURLOPT_ERRORBUFFER, detail);
		curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
		curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
		curl_easy_setopt(h, CURLOPT_HEADERDATA, &t);
		curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
		curl_easy_setopt(h, CURLOPT_WRITEDATA, &t);
		set_body(h, &t);
		set_timeout(h, q);
		rc = finish(&t, h, run(r, h), detail, err);
	}
	curl_slist_free_all(headers);
	curl_easy_cleanup(h);
	if (rc == 0)
		*ret = t.answer;
	else
		http_answer_done(&t.answer);
	return rc;
}
