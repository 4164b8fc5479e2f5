/* Why a stream was refused: see refusal.h. */
#include "daemon/link/refusal.h"

#include "shared/base/mem.h"
#include "shared/model/model.h"

static const struct {
	enum mux_error mux;
	enum error_code code;
} errors[] = {
	{ MUX_ERR_NONE, ERR_NONE },
	{ MUX_ERR_REFUSED, ERR_INVALID },
	{ MUX_ERR_NOT_FOUND, ERR_NOT_FOUND },
	{ MUX_ERR_FORBIDDEN, ERR_FORBIDDEN },
	{ MUX_ERR_FORBIDDEN, ERR_UNAUTHORIZED },
	{ MUX_ERR_UNAVAILABLE, ERR_UNAVAILABLE },
	{ MUX_ERR_CONFLICT, ERR_CONFLICT },
	{ MUX_ERR_TOO_LARGE, ERR_TOO_LARGE },
	{ MUX_ERR_EXPIRED, ERR_EXPIRED },
	{ MUX_ERR_NO_PROGRAM, ERR_NOT_FOUND },
	{ MUX_ERR_NOT_EXECUTABLE, ERR_INVALID },
	{ MUX_ERR_BAD_CWD, ERR_INVALID },
	{ MUX_ERR_BAD_USER, ERR_INVALID },
	{ MUX_ERR_RESOURCES, ERR_UNAVAILABLE },
	{ MUX_ERR_RESOURCES, ERR_RATE_LIMITED },
	{ MUX_ERR_DELETED, ERR_NOT_FOUND },
	{ MUX_ERR_LOST, ERR_UNAVAILABLE },
	{ MUX_ERR_CONNECT, ERR_UNAVAILABLE },
	{ MUX_ERR_IO, ERR_SYSTEM },
};

enum error_code code_of_mux_error(enum mux_error e)
{
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		if (errors[i].mux == e)
			return errors[i].code;
	}
	return ERR_INTERNAL;
}

enum mux_error mux_error_of_code(enum error_code c)
{
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		if (errors[i].code == c)
			return errors[i].mux;
	}
	return MUX_ERR_UNAVAILABLE;
}

void refusal_fields(struct tlv *fields, enum mux_error why, const char *text)
{
	tlv_add_u64(fields, MUX_F_OUTCOME, OUTCOME_NOT_STARTED);
	tlv_add_u64(fields, MUX_F_ERROR, why);
	tlv_add_str(fields, MUX_F_MESSAGE, text);
}
