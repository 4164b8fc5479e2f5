/*
 * Rules for what may leave a sandbox: targets (HOST:PORT), rules, ordered lists of rules. Pure: nothing is resolved here.
 *
 * A rule: [!]WHAT[:PORT|:FROM-TO|:*]. WHAT is a name, *.name (everything below it, not itself), * (everything), an IPv4 address
 * or network, or an IPv6 address or network with its address in brackets ([2001:db8::]/32). Without a port an allowing rule means
 * 443, a refusing one (!) every port. Networks match addresses that a program asks for by number; what a name resolves to is
 * checked elsewhere.
 */
#ifndef SANDBOX_MODEL_EGRESS_H
#define SANDBOX_MODEL_EGRESS_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdint.h>

enum { EGRESS_HOST_MAX = 253, EGRESS_RULE_TEXT_MAX = 288 };

/* Where a program inside wants to go. */
struct egress_target {
	char host[EGRESS_HOST_MAX + 1]; /* lower case, no dot at the end; an address without brackets */
	bool numeric;                   /* host is an address, held in */
	uint8_t address[16];            /* … IPv4 as mapped IPv6 */
	uint16_t port;
};

/* "name:443", "192.0.2.1:80", "[2001:db8::1]:443". default_port: what a missing port means; 0: it must be given. ERR_INVALID. Hosts that some
 * resolver would read as a number in another notation (0x7f.1, 127.1, 2130706433) are refused. */
int egress_target_parse(const char *text, uint16_t default_port, struct egress_target *ret, struct error *err);
/* "host:port", brackets where needed. Returns out. */
char *egress_target_text(const struct egress_target *t, char out[static EGRESS_RULE_TEXT_MAX]);

struct egress_rule {
	bool deny;
	enum { EGRESS_ANY, EGRESS_NAME, EGRESS_BELOW, EGRESS_NET } kind;
	char name[EGRESS_HOST_MAX + 1]; /* NAME, BELOW */
	uint8_t net[16];                /* NET: IPv4 as mapped IPv6 */
	unsigned bits;                  /* NET: of 128 */
	uint16_t first, last;           /* ports */
};

int egress_rule_parse(const char *text, struct egress_rule *ret, struct error *err);
bool egress_rule_matches(const struct egress_rule *r, const struct egress_target *t);

/* An ordered list: the first rule that matches decides, what none matches is refused. */
struct egress_rules {
	struct egress_rule *items;
	struct strv texts; /* as written, one for each */
	size_t len;
};
#define EGRESS_RULES_INIT { .items = NULL }
void egress_rules_done(struct egress_rules *r);
#define auto_egress_rules __attribute__((cleanup(egress_rules_done))) struct egress_rules
/* Replaces *ret. `what` names the list in messages. ERR_INVALID, also for more than LIMIT_EGRESS_RULES_MAX. */
int egress_rules_from(const char *what, const struct strv *texts, struct egress_rules *ret, struct error *err);
/* The same from words between blanks or commas. */
int egress_rules_from_text(const char *what, const char *text, struct egress_rules *ret, struct error *err);
/* Index of the rule that decides, -1: none matches. */
int egress_rules_find(const struct egress_rules *r, const struct egress_target *t);

/* All that decides about one sandbox, as text: what a controller tells a worker. */
struct egress_terms {
	char *server;        /* what anyone may ask for at most */
	char *tenant;        /* NULL: none of its own */
	char *standard;      /* what counts when neither tenant nor sandbox say anything */
	char *open;          /* networks that are opened although they are not public */
	struct strv sandbox; /* empty: none of its own */
};
#define EGRESS_TERMS_INIT { .server = NULL }
void egress_terms_done(struct egress_terms *t);
#define auto_egress_terms __attribute__((cleanup(egress_terms_done))) struct egress_terms

#endif
