/* What drivers say (docs/runtime-driver.md), taken apart. Pure: every byte of it is foreign. */
#ifndef SANDBOX_DAEMON_DRIVER_ANSWER_H
#define SANDBOX_DAEMON_DRIVER_ANSWER_H

#include "daemon/runtime/runtime.h"
#include "shared/base/buf.h"
#include "shared/json/json.h"

/* A call that ended by itself. */
struct driver_said {
	const char *action;
	int status; /* of wait(2) */
	const struct buf *out, *err;
};
/* ret_result (may be NULL): the answer's result, an object. ERR_PROTOCOL for an answer that is none, ERR_UNAVAILABLE with the driver's own text,
 * escaped, when it failed or said no. */
int driver_answer(const struct driver_said *said, cJSON **ret_result, struct error *err);

/* What a driver said of itself. */
struct driver_abilities {
	bool tiers[TIER_COUNT];
	bool init;          /* it starts sandbox-init inside */
	bool engine_images; /* it wants images resolved by the engine */
	bool inspect, kill, stats, prepare, deadline;
	bool development;   /* it says that it is not meant for production */
};
/* Of probe's result. ERR_PROTOCOL. */
int driver_abilities(const cJSON *result, struct driver_abilities *ret, struct error *err);
/* Of inspect's result: state, exit code, pid (2 … INT_MAX - 1, 0: none). ERR_PROTOCOL. */
int driver_state(const cJSON *result, struct runtime_status *ret, struct error *err);
/* Of stats' result; 0 for what it does not say. */
void driver_stats(const cJSON *result, struct runtime_stats *ret);

#endif
