/*
 * An ini file that is read, changed and written back without losing what a person wrote into it: comments, blank lines and order stay.
 *
 * Lines are `[section]`, `key = value`, comments (# or ; first) and blanks. A value is everything behind the = without the blanks around
 * it: no quoting, no continuation, no comment behind it. A key may repeat (lists); where one value is meant the last wins.
 */
#ifndef SANDBOX_CONFIG_INI_DOC_H
#define SANDBOX_CONFIG_INI_DOC_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { INI_FILE_MAX = 256 * 1024, INI_NAME_MAX = 4096, INI_VALUE_MAX = 4096 };

struct ini_doc;

struct ini_doc *ini_doc_new(void);
void ini_doc_free(struct ini_doc *d);
void ini_doc_freep(struct ini_doc **d);
#define auto_ini __attribute__((cleanup(ini_doc_freep))) struct ini_doc

/* `name` is the file as messages call it ("name:line: ..."). ERR_INVALID for a line that is none of the above, NUL or bad UTF-8. */
int ini_doc_parse(const char *name, const char *text, size_t n, struct ini_doc **ret, struct error *err);
void ini_doc_print(const struct ini_doc *d, struct buf *out);

/* The last value, NULL when absent. Borrowed until the next change. */
const char *ini_doc_get(const struct ini_doc *d, const char *section, const char *key);
/* Replaces the last one, or adds it to its section (made at the end when missing). ERR_INVALID for text that would not read back. */
int ini_doc_set(struct ini_doc *d, const char *section, const char *key, const char *value, struct error *err);
/* Every line of the key; false when there was none. */
bool ini_doc_unset(struct ini_doc *d, const char *section, const char *key);

bool ini_doc_has_section(const struct ini_doc *d, const char *section);
/* An empty section at the end, when it is not there. */
int ini_doc_add_section(struct ini_doc *d, const char *section, struct error *err);
bool ini_doc_remove_section(struct ini_doc *d, const char *section);
bool ini_doc_rename_section(struct ini_doc *d, const char *from, const char *to);

/* Walks keys (key != NULL) and section heads (key == NULL) in file order: `at` starts at 0; false at the end. */
struct ini_item {
	const char *section, *key, *value;
	unsigned line; /* 1-based */
};
bool ini_doc_next(const struct ini_doc *d, size_t *at, struct ini_item *ret);

#endif
