/* Secrets of one sandbox: see secret_values.h. */
#include "shared/crypto/secret_values.h"

#include <stdlib.h>

void secret_values_done(struct secret_values *v)
{
	for (size_t i = 0; i < v->len; i++) {
		free(v->items[i].env);
		free(v->items[i].file);
		secret_done(&v->items[i].value);
	}
	free(v->items);
	*v = (struct secret_values)SECRET_VALUES_INIT;
}
