/*
 * Engine API client. Each call has a handle and a connection of its own, which on a unix socket costs a fraction of what the
 * engine does for it. A handle is not used again: libcurl 7.88 keeps a pointer to the last header of one answer in it and
 * reads it, freed by then, where the next answer begins with a folded line; and what keeps connections apart from handles
 * there (a share) does not survive a failed allocation.
 */
#include "shared/http/engine_client.h"

#include "shared/base/clock.h"
#include "shared/base/mem.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { CONNECT_MS = 5000 };

/* Create needs 1.40 (mount options, PidsLimit as sent); newer than 1.47 has not been tried. */
enum { API_MAJOR = 1, API_OLDEST = 40, API_NEWEST = 47 };

struct engine {
	char *path;
	pthread_mutex_t lock;
	char version[16]; /* "": not asked yet */
};

/* One call in hand. */
struct call {
	const struct engine_request *r;
	CURL *curl;
	struct buf body;
	struct curl_slist *headers;
	bool stopped, too_large, read_failed;
	int read_errno;
	int64_t last_moved_ms, last_tick_ms;
	curl_off_t moved;
};

static void global_init(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

int engine_new(const char *path, struct engine **ret, struct error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct engine *e;

	if (strncmp(path, "unix://", 7) == 0)
		path += 7;
	if (path[0] != '/')
		return error_set(err, ERR_INVALID,
		                 "worker.docker_socket: '%s' is not the absolute path of a unix socket (remote engines are refused: "
		                 "limits and mounts are checked on this machine)",
		                 path);
	pthread_once(&once, global_init);
	e = xcalloc(1, sizeof(*e));
	e->path = xstrdup(path);
	pthread_mutex_init(&e->lock, NULL);
	*ret = e;
	return 0;
}

void engine_free(struct engine *e)
{
	if (!e)
		return;
	pthread_mutex_destroy(&e->lock);
	free(e->path);
	free(e);
}

void engine_answer_done(struct engine_answer *a)
{
	buf_done(&a->body);
}

static void call_end(struct call *c)
{
	curl_easy_cleanup(c->curl);
	for (struct curl_slist *h = c->headers; h; h = h->next)
		explicit_bzero(h->data, strlen(h->data));
	curl_slist_free_all(c->headers);
	buf_done(&c->body);
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
	struct call *c = ctx;
	long status = 0;

	n *= size;
	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
	if (c->r->on_data && status / 100 == 2) {
		if (n > 0 && !c->r->on_data(c->r->ctx, p, n)) {
			c->stopped = true;
			return 0;
		}
		return n;
	}
	buf_add(&c->body, p, n);
	if (c->body.overflow) {
		c->too_large = true;
		return 0;
	}
	return n;
}

static size_t on_read(char *p, size_t size, size_t n, void *ctx)
{
	struct call *c = ctx;
	ssize_t got;

	do
		got = read(c->r->body_fd, p, size * n);
	while (got < 0 && errno == EINTR);
	if (got < 0) {
		c->read_failed = true;
		c->read_errno = errno;
		return CURL_READFUNC_ABORT;
	}
	return (size_t)got;
}

/* libcurl calls this at least once a second, also when nothing moves. */
static int on_progress(void *ctx, curl_off_t dltotal, curl_off_t down, curl_off_t ultotal, curl_off_t up)
{
	struct call *c = ctx;
	int64_t now = clock_mono_ms();

	(void)dltotal;
	(void)ultotal;
	if (down + up != c->moved) {
		c->moved = down + up;
		c->last_moved_ms = c->last_tick_ms = now;
	}
	if (c->r->stall_ms > 0 && now - c->last_moved_ms > c->r->stall_ms)
		return 1;
	if (c->r->on_data && now - c->last_tick_ms >= 900) {
		c->last_tick_ms = now;
		if (!c->r->on_data(c->r->ctx, NULL, 0)) {
			c->stopped = true;
			return 1;
		}
	}
	return 0;
}

static void add_header(struct call *c, const char *name, const char *value)
{
	auto_free char *line = xasprintf("%s: %s", name, value);

	c->headers = curl_slist_append(c->headers, line);
	explicit_bzero(line, strlen(line)); /* one of them is a login */
}

static void set_body(struct call *c)
{
	const struct engine_request *r = c->r;

	if (r->body_from_fd) {
		/* Length unknown: chunked, which the engine accepts for tar streams. */
		curl_easy_setopt(c->curl, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(c->curl, CURLOPT_READFUNCTION, on_read);
		curl_easy_setopt(c->curl, CURLOPT_READDATA, c);
	} else if (r->json || r->body) {
		const void *p = r->json ? r->json : r->body;
		size_t n = r->json ? strlen(r->json) : r->body_len;

		curl_easy_setopt(c->curl, CURLOPT_POST, 1L);
		curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
		curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, p);
	} else if (strcmp(r->method, "POST") == 0) {
		curl_easy_setopt(c->curl, CURLOPT_POST, 1L);
		curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE, 0L);
		curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, "");
	}
	add_header(c, "Content-Type", r->content_type ? r->content_type : "application/json");
	if (r->auth)
		add_header(c, "X-Registry-Auth", r->auth);
	add_header(c, "Expect", ""); /* no 100-continue pause before a body */
}

static void set_options(struct call *c, const struct engine *e, const char *url)
{
	const struct engine_request *r = c->r;
	int64_t timeout = r->timeout_ms == 0 ? ENGINE_TIMEOUT_MS : r->timeout_ms;

	curl_easy_setopt(c->curl, CURLOPT_UNIX_SOCKET_PATH, e->path);
	curl_easy_setopt(c->curl, CURLOPT_URL, url);
	curl_easy_setopt(c->curl, CURLOPT_PROXY, "");
	curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	if (timeout > 0)
		curl_easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, (long)timeout);
	curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, c);
	if (r->on_data || r->stall_ms > 0) {
		curl_easy_setopt(c->curl, CURLOPT_NOPROGRESS, 0L);
		curl_easy_setopt(c->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
		curl_easy_setopt(c->curl, CURLOPT_XFERINFODATA, c);
	}
	set_body(c);
	curl_easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, r->method);
	curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
}

static int connect_error(const struct call *c, const struct engine *e, struct error *err)
{
	long os = 0;

	curl_easy_getinfo(c->curl, CURLINFO_OS_ERRNO, &os);
	if (os == 0 && access(e->path, F_OK) != 0)
		os = errno;
	if (os == EACCES)
		return error_set(err, ERR_UNREACHABLE,
		                 "no right to use the Docker Engine at %s: join the group that owns it (that equals root), or run as root",
		                 e->path);
	return error_set(err, ERR_UNREACHABLE,
	                 "no Docker Engine answers at %s (%s): start it, or set worker.docker_socket to where it listens", e->path,
	                 os ? strerror((int)os) : "connection refused");
}

static int call_error(const struct call *c, const struct engine *e, CURLcode rc, struct error *err)
{
	const struct engine_request *r = c->r;

	if (c->stopped)
		return error_set(err, ERR_CONFLICT, "stopped");
	if (c->too_large)
		return error_set(err, ERR_TOO_LARGE, "the Docker Engine's answer to %s %s is over %d bytes", r->method, r->path,
		                 ENGINE_ANSWER_MAX);
	if (c->read_failed)
		return error_set(err, ERR_SYSTEM, "reading the data to upload: %s", strerror(c->read_errno));
	if (rc == CURLE_COULDNT_CONNECT)
		return connect_error(c, e, err);
	if (rc == CURLE_OPERATION_TIMEDOUT)
		return error_set(err, ERR_TIMEOUT, "the Docker Engine did not answer %s %s in time", r->method, r->path);
	if (rc == CURLE_ABORTED_BY_CALLBACK)
		return error_set(err, ERR_TIMEOUT, "the Docker Engine moved nothing for %lld s in %s %s", (long long)(r->stall_ms / 1000),
		                 r->method, r->path);
	return error_set(err, ERR_UNREACHABLE, "%s %s at the Docker Engine failed: %s", r->method, r->path, curl_easy_strerror(rc));
}

static int perform(struct engine *e, const struct engine_request *r, const char *url, struct engine_answer *ret, struct error *err)
{
	int64_t now = clock_mono_ms();
	struct call c = { .r = r, .curl = curl_easy_init(), .body = BUF_INIT_MAX(ENGINE_ANSWER_MAX), .last_moved_ms = now, .last_tick_ms = now };
	long status = 0;
	CURLcode rc;
	int result = 0;

	if (!c.curl)
		return error_set(err, ERR_INTERNAL, "libcurl gives no handle");
	set_options(&c, e, url);
	rc = curl_easy_perform(c.curl);
	curl_easy_getinfo(c.curl, CURLINFO_RESPONSE_CODE, &status);
	if (rc != CURLE_OK) {
		result = call_error(&c, e, rc, err);
	} else {
		ret->status = (int)status;
		ret->body = c.body;
		c.body = (struct buf)BUF_INIT;
	}
	call_end(&c);
	return result;
}

static size_t on_version_header(char *p, size_t size, size_t n, void *ctx)
{
	static const char name[] = "api-version:";
	char *out = ctx;
	size_t len = size * n, at = sizeof(name) - 1, m = 0;

	if (len <= at || strncasecmp(p, name, at) != 0)
		return len;
	while (at < len && p[at] == ' ')
		at++;
	while (at < len && m < 15 && (p[at] == '.' || (p[at] >= '0' && p[at] <= '9')))
		out[m++] = p[at++];
	out[m] = '\0';
	return len;
}

static int ask_version(struct engine *e, char ret[static 16], struct error *err)
{
	struct engine_request r = { .method = "GET", .path = "/_ping", .timeout_ms = 5000 };
	struct call c = { .r = &r, .curl = curl_easy_init(), .body = BUF_INIT_MAX(64 * 1024) };
	CURLcode rc;
	int result = 0;

	if (!c.curl)
		return error_set(err, ERR_INTERNAL, "libcurl gives no handle");
	ret[0] = '\0';
	set_options(&c, e, "http://engine/_ping");
	curl_easy_setopt(c.curl, CURLOPT_HEADERFUNCTION, on_version_header);
	curl_easy_setopt(c.curl, CURLOPT_HEADERDATA, ret);
	rc = curl_easy_perform(c.curl);
	if (rc != CURLE_OK)
		result = call_error(&c, e, rc, err);
	else if (ret[0] == '\0')
		result = error_set(err, ERR_UNAVAILABLE, "what answers at %s names no API version: it is no Docker Engine", e->path);
	call_end(&c);
	return result;
}

int engine_version(struct engine *e, char ret[static 16], struct error *err)
{
	char found[16];
	int major = 0, minor = 0;

	pthread_mutex_lock(&e->lock);
	memcpy(ret, e->version, sizeof(e->version));
	pthread_mutex_unlock(&e->lock);
	if (ret[0])
		return 0;
	if (ask_version(e, found, err) != 0)
		return -1;
	if (sscanf(found, "%d.%d", &major, &minor) != 2 || major != API_MAJOR || minor < API_OLDEST)
		return error_set(err, ERR_UNAVAILABLE, "the Docker Engine at %s speaks API %s; %d.%d or newer is needed", e->path, found,
		                 API_MAJOR, API_OLDEST);
	if (minor > API_NEWEST)
		minor = API_NEWEST;
	snprintf(ret, 16, "%d.%d", major, minor);
	pthread_mutex_lock(&e->lock);
	memcpy(e->version, ret, 16);
	pthread_mutex_unlock(&e->lock);
	return 0;
}

static void forget_version(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	e->version[0] = '\0';
	pthread_mutex_unlock(&e->lock);
}

int engine_call(struct engine *e, const struct engine_request *r, struct engine_answer *ret, struct error *err)
{
	auto_free char *url = NULL;
	struct error local = ERROR_INIT;
	char version[16];

	if (r->unversioned) {
		url = xasprintf("http://engine%s", r->path);
	} else {
		if (engine_version(e, version, err) != 0)
			return -1;
		url = xasprintf("http://engine/v%s%s", version, r->path);
	}
	if (perform(e, r, url, ret, &local) == 0)
		return 0;
	/* Another engine may answer next time. */
	if (local.code == ERR_UNREACHABLE)
		forget_version(e);
	return error_set(err, local.code, "%s", local.message);
}

char *engine_escape(const char *text)
{
	static const char hex[] = "0123456789ABCDEF";
	auto_buf out = BUF_INIT;

	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || strchr("-._~", *p)) {
			buf_addc(&out, (char)*p);
		} else {
			buf_addc(&out, '%');
			buf_addc(&out, hex[*p >> 4]);
			buf_addc(&out, hex[*p & 15]);
		}
	}
	return buf_steal(&out);
}
