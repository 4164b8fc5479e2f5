/*
 * Memory and ownership. Out of memory aborts (limits, not allocation failure, bound what we hold), except where a process
 * has said what it does instead: docs/decisions/0010-out-of-memory.md.
 * `auto_free char *p = NULL;` frees at scope end; `steal(&p)` hands ownership out and leaves NULL.
 */
#ifndef SANDBOX_BASE_MEM_H
#define SANDBOX_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

void *xmalloc(size_t n);
void *xcalloc(size_t count, size_t size);
/* Grows or shrinks an array; checks count * size for overflow. */
void *xrealloc(void *p, size_t count, size_t size);
char *xstrdup(const char *s);
/* NULL stays NULL. */
char *xstrdup0(const char *s);
char *xstrndup(const char *s, size_t n);
void *xmemdup(const void *p, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* For what a library could not allocate: says so and aborts. */
_Noreturn void out_of_memory(void);

/* Asked each time that an allocation fails: true tries it again, false aborts. Set once, before there are threads. */
void mem_when_short(bool (*again)(void));

static inline void free_charp(char **p)
{
	free(*p);
}

static inline void free_voidp(void *p)
{
	free(*(void **)p);
}

#define auto_free __attribute__((cleanup(free_voidp)))

#define steal(pp) (__extension__({ __typeof__(*(pp)) v_ = *(pp); *(pp) = NULL; v_; }))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

#endif
