/* A placement decision as text for people: score, signals, tier, and why each node fits or does not. */
#ifndef SANDBOX_CLI_EXPLAIN_H
#define SANDBOX_CLI_EXPLAIN_H

#include <cjson/cJSON.h>
#include <stdio.h>

/* Lines without a prefix on out; a NULL or foreign tree prints nothing. */
void explain_print(const cJSON *decision, FILE *out);

#endif
