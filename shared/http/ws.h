/*
 * WebSocket (RFC 6455) as a carriage of raw bytes: the payload of binary messages, one after the other, is the byte stream;
 * where messages begin and end means nothing. One end of a connection as a pure state machine over wslay's frames, no I/O.
 * Text, extensions, and frames masked the wrong way are refused.
 */
#ifndef SANDBOX_HTTP_WS_H
#define SANDBOX_HTTP_WS_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#define WS_PROTOCOL "sandbox-mux"

enum {
	WS_PAYLOAD_MAX = 64 * 1024,   /* of the messages sent; received ones may have any length */
	WS_PING_SECONDS = 20,         /* proxies cut what is silent for 30 s */
	WS_KEY_LEN = 24,
	WS_ACCEPT_LEN = 28,
};

struct ws;

/* client: sends masked and takes unmasked frames; a server the reverse. */
struct ws *ws_new(bool client);
void ws_free(struct ws *w);
/* Bytes of the wire: payload is appended to `data`, what is to be sent in answer (pongs, the closing handshake) to `wire`.
 * ERR_PROTOCOL: the connection is to be closed after `wire` is out. */
int ws_feed(struct ws *w, const void *p, size_t n, struct buf *data, struct buf *wire, struct error *err);
/* The peer closed: nothing more comes. */
bool ws_ended(const struct ws *w);
/* One binary message of at most WS_PAYLOAD_MAX bytes. */
void ws_send(struct ws *w, const void *p, size_t n, struct buf *wire);
void ws_ping(struct ws *w, struct buf *wire);
/* Once; code as of RFC 6455, 7.4. */
void ws_close(struct ws *w, unsigned code, struct buf *wire);

/* A fresh Sec-WebSocket-Key, and the Sec-WebSocket-Accept that belongs to one. */
void ws_key(char out[static WS_KEY_LEN + 1]);
bool ws_key_valid(const char *key);
void ws_accept(const char *key, char out[static WS_ACCEPT_LEN + 1]);
/* Does a comma separated header value hold this word? Case does not matter. */
bool ws_header_has(const char *value, const char *word);

#endif
