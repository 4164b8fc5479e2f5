/* A key and a self-signed certificate, for servers whose name only their own network knows. */
#ifndef SANDBOX_DAEMON_CERTIFICATE_H
#define SANDBOX_DAEMON_CERTIFICATE_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

/* PEM texts of a new P-256 key and of a certificate for `names` (DNS names or IP addresses, at least one), valid from an hour ago for
 * `days`. */
int certificate_make(const struct strv *names, int days, struct buf *ret_key, struct buf *ret_cert, struct error *err);

#endif
