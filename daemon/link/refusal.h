/* Errors as the protocol's numbers, and the fields of a CLOSE that refuses. */
#ifndef SANDBOX_DAEMON_LINK_REFUSAL_H
#define SANDBOX_DAEMON_LINK_REFUSAL_H

#include "shared/base/error.h"
#include "shared/mux/mux.h"

enum error_code code_of_mux_error(enum mux_error e);
enum mux_error mux_error_of_code(enum error_code c);
/* CLOSE fields of a refusal. */
void refusal_fields(struct tlv *fields, enum mux_error why, const char *text);

#endif
