/* A placement decision as text for people: score, signals, tier, and why each node fits or does not. */
#ifndef SANDBOX_CLI_EXPLAIN_H
#define SANDBOX_CLI_EXPLAIN_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

/* Lines without a prefix on out; a NULL or foreign tree prints nothing. verdict: also whether and where it was placed. */
void explain_print(const cJSON *decision, bool verdict, FILE *out);

#endif
