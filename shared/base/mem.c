/* Allocation that aborts instead of failing: see mem.h. */
#include "shared/base/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void *must(void *p)
{
	if (!p) {
		static const char text[] = "out of memory\n";
		fwrite(text, 1, sizeof(text) - 1, stderr);
		abort();
	}
	return p;
}

void *xmalloc(size_t n)
{
	return must(malloc(n ? n : 1));
}

void *xcalloc(size_t count, size_t size)
{
	return must(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t count, size_t size)
{
	if (size && count > SIZE_MAX / size)
		must(NULL);
	size_t n = count * size;
	return must(realloc(p, n ? n : 1));
}

char *xstrdup(const char *s)
{
	return must(strdup(s));
}

char *xstrdup0(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

char *xstrndup(const char *s, size_t n)
{
	return must(strndup(s, n));
}

void *xmemdup(const void *p, size_t n)
{
	void *q = xmalloc(n);
	if (n)
		memcpy(q, p, n);
	return q;
}

char *xasprintf(const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;
	va_start(ap, fmt);
	if (vasprintf(&s, fmt, ap) < 0)
		must(NULL);
	va_end(ap);
	return s;
}
