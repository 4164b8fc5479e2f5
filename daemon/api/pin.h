/* The pin of a server's key, as clients compare it: "sha256//" and the base64 of the SHA-256 of its public key. */
#ifndef SANDBOX_DAEMON_API_PIN_H
#define SANDBOX_DAEMON_API_PIN_H

#include "shared/base/error.h"

#include <stddef.h>

enum { PIN_TEXT_MAX = 64 };

/* Of the first certificate in a PEM file. */
int pin_of_certificate(const char *path, char ret[static PIN_TEXT_MAX], struct error *err);

#endif
