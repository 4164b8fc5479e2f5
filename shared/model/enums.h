/* Enums of the model, expanded from enums.def: `enum tier { TIER_CONTAINER, … }`, tier_text(), tier_parse(). */
#ifndef SANDBOX_MODEL_ENUMS_H
#define SANDBOX_MODEL_ENUMS_H


/* The prefix cannot be passed through the row macro, so each enum expands with its own V. */
#define NETWORK_V(id, wire) NETWORK_##id,
#define ISOLATION_V(id, wire) ISOLATION_##id,
#define TIER_V(id, wire) TIER_##id,
#define SENSITIVITY_V(id, wire) SENSITIVITY_##id,
#define SANDBOX_V(id, wire) SANDBOX_##id,
#define OP_V(id, wire) OP_##id,
#define OPK_V(id, wire) OPK_##id,
#define OUTCOME_V(id, wire) OUTCOME_##id,
#define ROLE_V(id, wire) ROLE_##id,
#define PROTOCOL_V(id, wire) PROTOCOL_##id,
#define TUNNEL_V(id, wire) TUNNEL_##id,
#define TUNNEL_AUTH_V(id, wire) TUNNEL_AUTH_##id,

#define ENUM(type, PREFIX, ROWS) \
	enum type { ROWS(PREFIX##_V) PREFIX##_COUNT }; \
	/* The wire word; never NULL ("?" when out of range). */ \
	const char *type##_text(enum type v); \
	/* 0 and *ret, or -1 when the word is unknown. */ \
	int type##_parse(const char *text, enum type *ret);
#include "shared/model/enums.def"
#undef ENUM

#endif
