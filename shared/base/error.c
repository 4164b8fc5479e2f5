/* Error values: see error.h. */
#include "shared/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *wire;
	int http;
	int exit;
} kinds[ERR_COUNT] = {
	[ERR_NONE] = { "ok", 200, 0 },
#define X(id, wire, http, exit, summary) [ERR_##id] = { wire, http, exit },
#include "shared/base/errors.def"
#undef X
};

/* Adds ": text" behind the first n bytes, as far as there is room. */
static void append(struct error *err, int n, const char *text)
{
	size_t at = n < 0 ? 0 : (size_t)n, room = sizeof(err->message) - 1;
	if (at + 2 >= room)
		return;
	size_t len = strnlen(text, room - at - 2);
	memcpy(err->message + at, ": ", 2);
	memcpy(err->message + at + 2, text, len);
	err->message[at + 2 + len] = '\0';
}

int error_set(struct error *err, enum error_code code, const char *fmt, ...)
{
	if (!err)
		return -1;
	va_list ap;
	va_start(ap, fmt);
	err->code = code;
	err->sys = 0;
	vsnprintf(err->message, sizeof(err->message), fmt, ap);
	va_end(ap);
	return -1;
}

int error_errno(struct error *err, const char *fmt, ...)
{
	int saved = errno;
	if (!err)
		return -1;
	va_list ap;
	va_start(ap, fmt);
	err->code = ERR_SYSTEM;
	err->sys = saved;
	int n = vsnprintf(err->message, sizeof(err->message), fmt, ap);
	va_end(ap);
	append(err, n, strerror(saved));
	errno = saved;
	return -1;
}

int error_wrap(struct error *err, const char *fmt, ...)
{
	if (!err)
		return -1;
	char inner[ERROR_TEXT_MAX];
	memcpy(inner, err->message, sizeof(inner));
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(err->message, sizeof(err->message), fmt, ap);
	va_end(ap);
	append(err, n, inner);
	return -1;
}

const char *error_wire(enum error_code code)
{
	return code < ERR_COUNT ? kinds[code].wire : "internal";
}

int error_http_status(enum error_code code)
{
	return code < ERR_COUNT ? kinds[code].http : 500;
}

int error_exit_status(enum error_code code)
{
	return code < ERR_COUNT ? kinds[code].exit : 1;
}

enum error_code error_from_wire(const char *wire)
{
	for (int i = 1; i < ERR_COUNT; i++)
		if (wire && strcmp(kinds[i].wire, wire) == 0)
			return (enum error_code)i;
	return ERR_INTERNAL;
}
