/*
 * Server addresses as people type them, in one spelling: unix:///path, or http(s)://host[:port][/prefix] with scheme and host in lower
 * case, without the scheme's own port, without a slash at the end. `host`, `host:port` and `[::1]:port` alone mean https.
 */
#ifndef SANDBOX_CONFIG_SERVER_URL_H
#define SANDBOX_CONFIG_SERVER_URL_H

#include "shared/base/error.h"

#include <stdbool.h>

struct server_url {
	char *url;      /* the one spelling */
	char *origin;   /* scheme://host[:port]; of a unix socket the url itself */
	char *path;     /* of a unix socket; else NULL */
	bool tls;
	bool loopback;  /* the host is localhost, 127.0.0.0/8 or ::1, or it is a unix socket */
};

/* ERR_INVALID with the reason: credentials, a query or fragment, blanks, a port out of range, a name that is not ASCII. The text of an
 * address that holds credentials is never repeated. */
int server_url_parse(const char *text, struct server_url *ret, struct error *err);
void server_url_done(struct server_url *u);
#define auto_server_url __attribute__((cleanup(server_url_done))) struct server_url

#endif
