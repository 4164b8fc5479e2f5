/* Shared by the module's files alone. */
#ifndef SANDBOX_CLI_REMOTE_INTERNAL_H
#define SANDBOX_CLI_REMOTE_INTERNAL_H

#include "shared/http/remote/remote.h"

#include <curl/curl.h>

struct pump;

struct remote {
	char *base, *token, *tenant, *ca_file, *pin;
	bool loopback;
	int interrupt_fd;
	CURLM *multi;         /* keeps the connection of requests */
	struct pump *pumps;   /* running streams */
};

/* A handle with everything that does not depend on the request: address, TLS, proxy, interruption. */
CURL *remote_handle(struct remote *r, const char *target, struct error *err);
bool remote_interrupted(const struct remote *r);
/* What a failed transfer means. */
int remote_failure(struct remote *r, CURL *h, CURLcode rc, const char *detail, struct error *err);
bool remote_text_clean(const char *s);

int remote_send(struct remote *r, const struct http_request *q, struct http_answer *ret, struct error *err);
int remote_stream(struct remote *r, const char *target, const void *early, size_t n, int *ret_fd, struct http_answer *ret_refusal,
                  struct error *err);

/* Takes an upgraded connection over: bytes of fd's other end ↔ messages. */
struct ws;
int pump_start(struct remote *r, CURL *take_h, struct ws *take_ws, struct buf *take_in, int take_plain, struct error *err);
/* Waits up to timeout_ms for pumps whose plain side is closed to send the rest. */
void pumps_finish(struct remote *r, int64_t timeout_ms);

#endif
