/* Allocation that aborts instead of failing: see mem.h. */
#include "shared/base/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool (*when_short)(void);

void mem_when_short(bool (*again)(void))
{
	when_short = again;
}

_Noreturn void out_of_memory(void)
{
	static const char text[] = "out of memory\n";
	fwrite(text, 1, sizeof(text) - 1, stderr);
	abort();
}

/* Returns when it is worth another try, else never. */
static void no_memory(void)
{
	if (!when_short || !when_short())
		out_of_memory();
}

void *xmalloc(size_t n)
{
	void *p;
	while (!(p = malloc(n ? n : 1)))
		no_memory();
	return p;
}

void *xcalloc(size_t count, size_t size)
{
	void *p;
	while (!(p = calloc(count ? count : 1, size ? size : 1)))
		no_memory();
	return p;
}

void *xrealloc(void *p, size_t count, size_t size)
{
	void *q;
	size_t n = count * size;
	if (size && count > SIZE_MAX / size)
		out_of_memory(); /* waiting does not mend it */
	while (!(q = realloc(p, n ? n : 1)))
		no_memory();
	return q;
}

char *xstrdup(const char *s)
{
	return xmemdup(s, strlen(s) + 1);
}

char *xstrdup0(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

char *xstrndup(const char *s, size_t n)
{
	size_t len = strnlen(s, n);
	char *copy = xmalloc(len + 1);
	memcpy(copy, s, len);
	copy[len] = '\0';
	return copy;
}

void *xmemdup(const void *p, size_t n)
{
	void *q = xmalloc(n);
	if (n)
		memcpy(q, p, n);
	return q;
}

/* vasprintf also fails for reasons that no memory cures: a text longer than INT_MAX, a byte sequence that is none. */
char *xasprintf(const char *fmt, ...)
{
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		abort();
	char *s = xmalloc((size_t)n + 1);
	vsnprintf(s, (size_t)n + 1, fmt, again);
	va_end(again);
	return s;
}
