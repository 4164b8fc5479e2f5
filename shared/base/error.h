/*
 * Errors: a fixed-size value the caller allocates, so there is nothing to free.
 *
 * A fallible function takes `struct error *err` last and returns 0 or -1. `err` is written only on
 * failure, result parameters only on success. `err` may be NULL when the caller does not care.
 * Library code never logs an error it returns: exactly one layer reports it.
 */
#ifndef SANDBOX_BASE_ERROR_H
#define SANDBOX_BASE_ERROR_H

enum error_code {
	ERR_NONE = 0,
#define X(id, wire, http, exit, summary) ERR_##id,
#include "shared/base/errors.def"
#undef X
	ERR_COUNT
};

enum { ERROR_TEXT_MAX = 1024 };

struct error {
	enum error_code code;
	int sys; /* errno at the point of failure, or 0 */
	char message[ERROR_TEXT_MAX];
};

#define ERROR_INIT { .code = ERR_NONE, .sys = 0, .message = "" }

/* Fills `err`; always returns -1, so that `return error_set(...)` is one line. Text that does not fit is cut. */
int error_set(struct error *err, enum error_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same with code ERR_SYSTEM, errno recorded, and ": <strerror>" appended. */
int error_errno(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Puts "<text>: " before the message; the code stays. Returns -1. */
int error_wrap(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *error_wire(enum error_code code);   /* "not_found" …; never NULL */
int error_http_status(enum error_code code);    /* 404 … */
int error_exit_status(enum error_code code);    /* the CLI's, 0..8 */
/* The first kind with this wire code; ERR_INTERNAL for an unknown one. */
enum error_code error_from_wire(const char *wire);

#endif
