/*
 * What leaves sandboxes with restricted egress: sandbox-init offers a proxy on loopback and passes bytes only; here they are read, judged by
 * rules, resolved, every address checked, and connected. Event loop thread, except where said.
 */
#ifndef SANDBOX_DAEMON_EGRESS_EGRESS_H
#define SANDBOX_DAEMON_EGRESS_EGRESS_H

#include "daemon/worker/initlink.h"
#include "shared/model/egress.h"

#include <cjson/cJSON.h>

struct egress;

/* Where sandbox-init offers the proxy, inside: beyond the ephemeral ports, so that no program gets it by chance. */
enum { EGRESS_PORT = 61080 };

/* Called when an attempt was refused (loop thread; it must not wait); detail: "HOST:PORT: why". At most a few each minute and sandbox. */
typedef void (*egress_denied)(void *ctx, const struct id *sandbox, const char *detail);

/* hosts: names with fixed addresses, "NAME=ADDRESS …". */
int egress_new(struct event_base *base, struct initlinks *links, const char *hosts, struct egress **ret, struct error *err);
/* After the loop ended. */
void egress_free(struct egress *e);
/* --- what follows does nothing, and finds nothing, without an egress (e is NULL) --- */

/* Any thread; fn does not run after a call with NULL. */
void egress_on_denied(struct egress *e, egress_denied fn, void *ctx);

/* Any thread but the loop's, and not without one. Connections of the sandbox are judged by these terms from now on; those that are open and would be refused are
 * closed. ERR_INVALID: rules nobody can read. */
int egress_set(struct egress *e, const struct id *sandbox, const struct egress_terms *terms, struct error *err);
/* The sandbox is gone (any thread). */
void egress_drop(struct egress *e, const struct id *sandbox);
/* Whether a sandbox has terms here (any thread but the loop's). */
bool egress_has(struct egress *e, const struct id *sandbox);

/* Those that have terms here; the caller frees (any thread but the loop's). */
void egress_list(struct egress *e, struct id **ret, size_t *ret_n);

/* --- not without one --- */

/* {rules:[{level, rule, allowed, denied}], attempts:[{at, target, allowed, reason, rule, bytes_out, bytes_in}], open, since}: counters and the latest
 * attempts since the worker started (any thread but the loop's). ERR_NOT_FOUND. */
int egress_view(struct egress *e, const struct id *sandbox, cJSON **ret, struct error *err);
/* {target, allowed, level, rule, reason, addresses}: what a connection would meet now; resolves the name (any thread but the loop's). */
int egress_check(struct egress *e, const struct id *sandbox, const char *target, cJSON **ret, struct error *err);

#endif
