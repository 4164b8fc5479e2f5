/* Ids: UUIDv7 (RFC 9562), lower-case text with dashes. Time-ordered; the last digits are the random ones. */
#ifndef SANDBOX_BASE_ID_H
#define SANDBOX_BASE_ID_H

#include <stdbool.h>
#include <stddef.h>

enum { ID_TEXT_LEN = 36, ID_SHORT_LEN = 8 };

struct id {
	char text[ID_TEXT_LEN + 1];
};

/* A new id; strictly increasing within a process. */
struct id id_new(void);
bool id_valid(const char *text); /* any UUID in canonical lower-case form */
/* Copies a valid id, -1 otherwise. */
int id_parse(const char *text, struct id *ret);
/* The last 8 digits: what lists show (the first 8 of a UUIDv7 are a clock). Borrowed from id. */
const char *id_short(const struct id *id);
/* Cryptographically random bytes from the kernel. Aborts when the kernel has none. */
void random_bytes(void *p, size_t n);

#endif
