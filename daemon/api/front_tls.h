/* Certificates and the TLS context of the front. */
#ifndef SANDBOX_DAEMON_API_FRONT_TLS_H
#define SANDBOX_DAEMON_API_FRONT_TLS_H

#include "shared/base/error.h"

#include <openssl/ssl.h>

/* ERR_INVALID when a file cannot be read or the two do not belong together. */
int front_context(const char *cert, const char *key, SSL_CTX **ret, struct error *err);
/* Why the last OpenSSL call failed; empties its queue. */
const char *front_tls_reason(char *out, size_t n);

#endif
