/*
 * HTTP/1.x messages as the edge takes them: strict, because two parsers that read a message differently are a hole (one request
 * smuggled inside another). What is ambiguous is refused, never repaired. Spans point into the bytes that were parsed.
 */
#ifndef SANDBOX_DAEMON_EDGE_HTTP_H
#define SANDBOX_DAEMON_EDGE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { HTTP_FIELDS_MAX = 128 };

struct span {
	const char *p;
	size_t n;
};

struct field {
	struct span name, value; /* the value without blanks around it */
};

struct head {
	struct span method, target; /* request */
	int status;                 /* response */
	struct span reason;
	int minor;                  /* HTTP/1.minor, 0 or 1 */
	struct field fields[HTTP_FIELDS_MAX];
	size_t n;
};

/* Bytes of the head with its empty line; 0: not complete yet. `from`: bytes looked at before (0 is always right). */
size_t head_length(const char *p, size_t n, size_t from);
/* p[0..n) is one whole head. 0, or the status to refuse it with (400, 431, 501, 505) and *ret_why. */
int request_parse(const char *p, size_t n, struct head *ret, const char **ret_why);
/* 0, or -1 with *ret_why: an origin that speaks something else. */
int response_parse(const char *p, size_t n, struct head *ret, const char **ret_why);

/* The first field of this name, any case; NULL when there is none. */
const struct field *head_find(const struct head *h, const char *name);
bool span_is(struct span s, const char *text);      /* any case */
bool span_equals(struct span s, const char *text);  /* byte for byte */
bool span_begins(struct span s, const char *text);  /* any case */
/* Whether a comma-separated list field (all of this name) holds the token, any case. */
bool head_lists(const struct head *h, const char *name, const char *token);

enum body_kind { BODY_NONE, BODY_LENGTH, BODY_CHUNKED, BODY_TO_END };
struct body {
	enum body_kind kind;
	uint64_t length; /* LENGTH */
};
/* As *_parse. head_only: the answer to a HEAD request. */
int request_body(const struct head *h, struct body *ret, const char **ret_why);
int response_body(const struct head *h, bool head_only, struct body *ret, const char **ret_why);

/* The one Host of a request, lower case, without port and last dot, into out. -1: none, several, or no host name. */
int request_host(const struct head *h, char *out, size_t out_size);

/* Reads a chunked body without changing it. */
struct chunked {
	int state;
	uint64_t left;   /* of the chunk at hand */
	unsigned digits; /* of the size line */
	size_t trailer;  /* bytes of trailers so far */
	size_t line;     /* bytes of the trailer line at hand */
	bool bad_name;   /* the trailer line's name is not allowed */
	char name[24];
};
bool chunked_done(const struct chunked *c);
/* Takes bytes up to the end of the body; returns how many, -1 when they are no chunked body. data (may be NULL) gets the runs of
 * content. */
typedef void (*chunk_fn)(void *ctx, const char *p, size_t n);
ssize_t chunked_feed(struct chunked *c, const char *p, size_t n, chunk_fn data, void *ctx);

#endif
