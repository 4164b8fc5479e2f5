/* Text of the model's enums: see enums.h. */
#include "shared/model/enums.h"

#include <string.h>

#define TEXT_V(id, wire) wire,

#define ENUM(type, PREFIX, ROWS) \
	static const char *const type##_words[] = { ROWS(TEXT_V) }; \
	_Static_assert(sizeof(type##_words) / sizeof(type##_words[0]) == PREFIX##_COUNT, "one word per value"); \
	const char *type##_text(enum type v) \
	{ \
		return (unsigned)v < PREFIX##_COUNT ? type##_words[v] : "?"; \
	} \
	int type##_parse(const char *text, enum type *ret) \
	{ \
		for (int i = 0; text && i < PREFIX##_COUNT; i++) { \
			if (strcmp(text, type##_words[i]) == 0) { \
				*ret = (enum type)i; \
				return 0; \
			} \
		} \
		return -1; \
	}
#include "shared/model/enums.def"
#undef ENUM
