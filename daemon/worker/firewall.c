/* The table: see firewall.h. */
#include "daemon/worker/firewall.h"

#include "daemon/egress/addresses.h"
#include "daemon/worker/tool.h"
#include "shared/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Before the chains of others (0), which cannot let pass what is dropped here. */
static const char chains[] =
	"	counter refused { }\n"
	"	counter probes { }\n"
	"	chain here {\n"
	"		type filter hook input priority -10; policy accept;\n"
	"		iifname \"%s*\" counter name refused reject with icmpx type admin-prohibited\n"
	"	}\n"
	"	chain through {\n"
	"		type filter hook forward priority -10; policy accept;\n"
	"		iifname \"%s*\" jump leaving\n"
	"		oifname \"%s*\" jump coming\n"
	"	}\n"
	"	chain leaving {\n"
	"		meta nfproto != ipv4 counter name refused drop\n"
	"		ip saddr != %s counter name refused drop\n"
	"		fib saddr . iif oif missing counter name refused drop\n"
	"		oifname \"%s*\" counter name refused reject with icmpx type admin-prohibited\n"
	"		ct state established,related accept\n";
static const char rest[] =
	"		ip daddr @closed counter name refused reject with icmpx type admin-prohibited\n"
	"	}\n"
	"	chain coming {\n"
	"		ct state established,related accept\n"
	"		counter name refused drop\n"
	"	}\n"
	"	chain wire {\n"
	"		type filter hook postrouting priority 90; policy accept;\n"
	"		ip saddr %s udp dport %d counter name probes drop\n"
	"	}\n"
	"	chain translate {\n"
	"		type nat hook postrouting priority 100; policy accept;\n"
	"		ip saddr %s oifname != \"%s*\" masquerade\n"
	"	}\n"
	"}\n";

void firewall_text(const struct firewall_terms *t, struct buf *out)
{
	buf_addf(out, "table inet %s { }\ndelete table inet %s\ntable inet %s {\n", t->table, t->table, t->table);
	buf_adds(out, "	set closed {\n		type ipv4_addr; flags interval; auto-merge\n		elements = { ");
	addresses_refused_text(out);
	buf_addf(out, "%s%s }\n	}\n", *t->closed ? ", " : "", t->closed);
	buf_addf(out, chains, t->prefix, t->prefix, t->prefix, t->pool, t->prefix);
	if (*t->resolvers)
		buf_addf(out, "		ip daddr { %s } meta l4proto { tcp, udp } th dport 53 accept\n", t->resolvers);
	if (*t->opened)
		buf_addf(out, "		ip daddr { %s } accept\n", t->opened);
	buf_addf(out, rest, t->pool, FIREWALL_PROBE_PORT, t->pool, t->prefix);
}

/* Docker refuses to forward what is not its own, and has a chain where others say what they forward. */
static int pass_docker(const struct firewall_terms *t, struct error *err)
{
	static const char *const list[] = { "nft", "list", "chain", "ip", "filter", "DOCKER-USER", NULL };
	static const char *const apply[] = { "nft", "-f", "-", NULL };
	auto_buf there = BUF_INIT, text = BUF_INIT;
	auto_free char *name = xasprintf("\"%s*\"", t->prefix);

	if (tool_run(list, NULL, -1, &there, NULL) != 0 || strstr(buf_str(&there), name))
		return 0;
	buf_addf(&text, "insert rule ip filter DOCKER-USER iifname %s accept\n", name);
	buf_addf(&text, "insert rule ip filter DOCKER-USER oifname %s ct state established,related accept\n", name);
	return tool_run(apply, buf_str(&text), -1, NULL, err);
}

int firewall_apply(const struct firewall_terms *t, struct error *err)
{
	static const char *const apply[] = { "nft", "-f", "-", NULL };
	auto_buf text = BUF_INIT;

	firewall_text(t, &text);
	return tool_run(apply, buf_str(&text), -1, NULL, err) != 0 ? -1 : pass_docker(t, err);
}

bool firewall_there(const char *table)
{
	const char *const list[] = { "nft", "list", "chain", "inet", table, "leaving", NULL };

	return tool_run(list, NULL, -1, NULL, NULL) == 0;
}

/* "counter NAME { packets N bytes M }", over lines. */
static uint64_t packets_of(const char *text, const char *name)
{
	auto_free char *head = xasprintf("counter %s {", name);
	const char *at = strstr(text, head);

	at = at ? strstr(at, "packets ") : NULL;
	return at ? strtoull(at + strlen("packets "), NULL, 10) : 0;
}

int firewall_counts(const char *table, struct firewall_counts *ret, struct error *err)
{
	const char *const list[] = { "nft", "list", "counters", "table", "inet", table, NULL };
	auto_buf text = BUF_INIT;

	if (tool_run(list, NULL, -1, &text, err) != 0)
		return -1;
	*ret = (struct firewall_counts){ .refused = packets_of(buf_str(&text), "refused"), .probes = packets_of(buf_str(&text), "probes") };
	return 0;
}
