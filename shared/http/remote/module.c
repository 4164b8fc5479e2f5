/* The module's entry, and what all its transfers have in common: address, TLS, proxies, what failures mean. */
#include "shared/http/remote/internal.h"

#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

enum { CONNECT_MS = 15000, FINISH_MS = 1500 };

bool remote_text_clean(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 127)
			return false;
	return true;
}

bool remote_interrupted(const struct remote *r)
{
	struct pollfd p = { .fd = r->interrupt_fd, .events = POLLIN };
	return r->interrupt_fd >= 0 && poll(&p, 1, 0) > 0;
}

/* Called by libcurl all the time while it waits. */
static int on_progress(void *ctx, curl_off_t down_total, curl_off_t down, curl_off_t up_total, curl_off_t up)
{
	(void)down_total;
	(void)down;
	(void)up_total;
	(void)up;
	return remote_interrupted(ctx);
}

static int on_socket(void *ctx, curl_socket_t fd, curlsocktype purpose)
{
	(void)ctx;
	(void)purpose;
	return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 ? CURL_SOCKOPT_OK : CURL_SOCKOPT_ERROR;
}

CURL *remote_handle(struct remote *r, const char *target, struct error *err)
{
	CURL *h = curl_easy_init();
	if (!h) {
		error_set(err, ERR_INTERNAL, "libcurl gives no handle");
		return NULL;
	}
	auto_free char *url = xasprintf("%s%s", r->base, target);
	curl_easy_setopt(h, CURLOPT_URL, url);
	curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(h, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(h, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(h, CURLOPT_USERAGENT, "sandbox/" SANDBOX_VERSION);
	curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	curl_easy_setopt(h, CURLOPT_TCP_NODELAY, 1L);
	curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(h, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(h, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2);
	curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(h, CURLOPT_XFERINFODATA, r);
	curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(h, CURLOPT_SOCKOPTFUNCTION, on_socket);
	if (r->ca_file) {
		curl_easy_setopt(h, CURLOPT_CAINFO, r->ca_file);
		curl_easy_setopt(h, CURLOPT_CAPATH, NULL);
	}
	if (r->pin)
		curl_easy_setopt(h, CURLOPT_PINNEDPUBLICKEY, r->pin);
	if (r->pin && !r->ca_file) {
		/* The pin names the one key that is accepted: who signed it and for which name decides nothing more. */
		curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, 0L);
	}
	/* Else the environment's proxies, by libcurl's own rules. */
	if (r->loopback)
		curl_easy_setopt(h, CURLOPT_PROXY, "");
	return h;
}

static int certificate_failure(const struct remote *r, const char *detail, struct error *err)
{
	return error_set(err, ERR_UNREACHABLE, "the server's certificate is not trusted (%s); checked against %s", detail,
			 r->ca_file ? r->ca_file : "the system's authorities, --ca-file FILE adds one");
}

int remote_failure(struct remote *r, CURL *h, CURLcode rc, const char *detail, struct error *err)
{
	long proxy_status = 0;
	curl_easy_getinfo(h, CURLINFO_HTTP_CONNECTCODE, &proxy_status);
	if (!*detail)
		detail = curl_easy_strerror(rc);
	switch ((int)rc) {
	case CURLE_ABORTED_BY_CALLBACK:
		error_set(err, ERR_TIMEOUT, "interrupted");
		if (err)
			err->sys = EINTR;
		return -1;
	case CURLE_OPERATION_TIMEDOUT: {
		double connected = 0;
		curl_easy_getinfo(h, CURLINFO_CONNECT_TIME, &connected);
		return error_set(err, connected > 0 ? ERR_TIMEOUT : ERR_UNREACHABLE, "no answer in time: %s", detail);
	}
	case CURLE_PEER_FAILED_VERIFICATION:
		return certificate_failure(r, detail, err);
	case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
		return error_set(err, ERR_FORBIDDEN, "the server's key is not the pinned one (%s): it has a new key, or another server answers", r->pin);
	case CURLE_SSL_CACERT_BADFILE:
		return error_set(err, ERR_INVALID, "the authorities in %s cannot be used: %s", r->ca_file ? r->ca_file : "the system's bundle", detail);
	}
	if (proxy_status == 407)
		return error_set(err, ERR_UNREACHABLE, "the proxy wants a user and password (407); put them into the proxy's address");
	if (proxy_status >= 300)
		return error_set(err, ERR_UNREACHABLE, "the proxy refused with %ld", proxy_status);
	return error_set(err, ERR_UNREACHABLE, "%s", detail);
}

static void module_free(struct remote *r)
{
	if (!r)
		return;
	pumps_finish(r, FINISH_MS);
	if (r->multi)
		curl_multi_cleanup(r->multi);
	if (r->token)
		explicit_bzero(r->token, strlen(r->token));
	free(r->token);
	free(r->base);
	free(r->tenant);
	free(r->ca_file);
	free(r->pin);
	free(r);
}

static int module_open(const struct remote_options *o, struct remote **ret, struct error *err)
{
	if (o->tenant && !remote_text_clean(o->tenant))
		return error_set(err, ERR_INVALID, "the tenant's name holds a control byte");
	if (o->token && !remote_text_clean(o->token))
		return error_set(err, ERR_INVALID, "the token holds a control byte (a newline at its end?)");
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return error_set(err, ERR_INTERNAL, "libcurl does not start");
	struct remote *r = xcalloc(1, sizeof(*r));
	r->base = xstrdup(o->base);
	r->token = xstrdup0(o->token);
	r->tenant = xstrdup0(o->tenant);
	r->ca_file = xstrdup0(o->ca_file);
	r->pin = xstrdup0(o->pin);
	r->loopback = o->loopback;
	r->interrupt_fd = -1;
	r->multi = curl_multi_init();
	if (!r->multi) {
		module_free(r);
		return error_set(err, ERR_INTERNAL, "libcurl gives no handle");
	}
	*ret = r;
	return 0;
}

static void module_set_interrupt(struct remote *r, int fd)
{
	r->interrupt_fd = fd;
}

const struct remote_module *sandbox_remote_module(void)
{
	static const struct remote_module module = {
		.version = SANDBOX_VERSION,
		.open = module_open,
		.send = remote_send,
		.stream = remote_stream,
		.set_interrupt = module_set_interrupt,
		.free = module_free,
	};
	return &module;
}
