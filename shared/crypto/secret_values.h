/* Secrets on their way to the commands of one sandbox: each with the variable or the file that is to hold it. */
#ifndef SANDBOX_CRYPTO_SECRET_VALUES_H
#define SANDBOX_CRYPTO_SECRET_VALUES_H

#include "shared/crypto/secret.h"

struct secret_value {
	char *env, *file; /* one of them is NULL */
	struct secret value;
};
struct secret_values {
	struct secret_value *items;
	size_t len;
};
#define SECRET_VALUES_INIT { .items = NULL }
void secret_values_done(struct secret_values *v); /* wipes */
#define auto_secret_values __attribute__((cleanup(secret_values_done))) struct secret_values

#endif
