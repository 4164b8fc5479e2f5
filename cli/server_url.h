/* The spelling of a server's address: https://HOST[:PORT][/PREFIX]. Pure text. */
#ifndef SANDBOX_CLI_SERVER_URL_H
#define SANDBOX_CLI_SERVER_URL_H

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct server_url {
	bool tls;
	bool loopback;  /* localhost, 127.x.x.x, [::1] */
	char host[256]; /* lower case; IPv6 in brackets */
	uint16_t port;
	char *base;     /* "https://host:port/prefix", without a slash at its end: targets are appended */
};

/* Is it http or https at all? */
bool server_url_is(const char *text);
/* ERR_INVALID names what is wrong; the message never repeats user information. */
int server_url_parse(const char *text, struct server_url *ret, struct error *err);
void server_url_done(struct server_url *u);

#endif
