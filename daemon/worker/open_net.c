/* See open_net.h. The interfaces are made by ip(8): of this worker's sandboxes they are named PREFIX and the end of the sandbox's id. */
#include "daemon/worker/open_net.h"

#include "daemon/address.h"
#include "daemon/worker/firewall.h"
#include "daemon/worker/netns.h"
#include "daemon/worker/tool.h"
#include "daemon/worker/worker_priv.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NODE_DIGITS = 6, BOX_DIGITS = 8, RESOLVERS_MAX = 3, SEEN_MS = 3000, SEEN_POLL_US = 20 * 1000, SENDS_MAX = 256 };

struct open_net {
	const struct daemon_config *config;
	char table[FIREWALL_NAME_MAX];
	char prefix[IFNAMSIZ];
	char pool[32];
	uint32_t base, pairs; /* of the pool, host byte order; each sandbox has two addresses */
	char resolvers[RESOLVERS_MAX * 16 + 8];
	pthread_mutex_t lock; /* while addresses are chosen and taken */
	bool offered;
};

/* --- settings --- */

static const char *tail(const char *text, size_t n)
{
	return text + strlen(text) - n;
}

struct open_net *open_net_new(const struct daemon_config *config, const struct id *node)
{
	struct open_net *o = xcalloc(1, sizeof(*o));

	o->config = config;
	snprintf(o->table, sizeof(o->table), "sandbox_%s", tail(node->text, NODE_DIGITS));
	snprintf(o->prefix, sizeof(o->prefix), "s%s", tail(node->text, NODE_DIGITS));
	pthread_mutex_init(&o->lock, NULL);
	return o;
}

void open_net_free(struct open_net *o)
{
	if (!o)
		return;
	pthread_mutex_destroy(&o->lock);
	free(o);
}

static int take_pool(struct open_net *o, struct error *err)
{
	struct subnets n;
	struct in_addr first;

	if (subnets_parse("worker.open_pool", o->config->open_pool, &n, err) != 0)
		return -1;
	memcpy(&o->base, n.items[0].bytes + 12, sizeof(o->base));
	o->base = ntohl(o->base) & (uint32_t)(0xffffffffULL << (128 - n.items[0].bits));
	o->pairs = 1U << (127 - n.items[0].bits);
	first.s_addr = htonl(o->base);
	snprintf(o->pool, sizeof(o->pool), "%s/%u", inet_ntoa(first), n.items[0].bits - 96);
	subnets_done(&n);
	return 0;
}

static void add_resolver(struct open_net *o, const char *text)
{
	struct in_addr a;
	size_t n = strlen(o->resolvers);

	/* One on this machine's loopback is not the sandbox's. */
	if (inet_pton(AF_INET, text, &a) == 1 && ntohl(a.s_addr) >> 24 != 127 && !strstr(o->resolvers, text) && n + 20 < sizeof(o->resolvers))
		snprintf(o->resolvers + n, sizeof(o->resolvers) - n, "%s%s", n ? ", " : "", text);
}

static void add_resolvers_of(struct open_net *o, const char *path)
{
	auto_buf text = BUF_INIT;
	char *rest = NULL;

	if (io_read_file(path, 64 * 1024, &text, NULL) != 0 || text.len == 0)
		return;
	for (char *line = strtok_r(text.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *words = NULL, *key = strtok_r(line, " \t", &words), *value = key ? strtok_r(NULL, " \t", &words) : NULL;

		if (value && strcmp(key, "nameserver") == 0)
			add_resolver(o, value);
	}
}

static void take_resolvers(struct open_net *o)
{
	auto_free char *own = xstrdup(o->config->open_dns);
	char *rest = NULL;

	o->resolvers[0] = '\0';
	for (char *one = strtok_r(own, ", ", &rest); one; one = strtok_r(NULL, ", ", &rest))
		add_resolver(o, one);
	if (!*o->resolvers)
		add_resolvers_of(o, "/etc/resolv.conf");
	if (!*o->resolvers)
		add_resolvers_of(o, "/run/systemd/resolve/resolv.conf");
}

void open_net_resolv(const struct open_net *o, struct buf *out)
{
	auto_free char *list = xstrdup(o->resolvers);
	char *rest = NULL;

	for (char *one = strtok_r(list, ", ", &rest); one; one = strtok_r(NULL, ", ", &rest))
		buf_addf(out, "nameserver %s\n", one);
}

/* --- rules --- */

/* Networks of IPv4 alone: the rules let nothing else pass. */
static void opened(const char *list, struct buf *out)
{
	auto_free char *copy = xstrdup(list);
	char *rest = NULL;

	for (char *one = strtok_r(copy, ", \t", &rest); one; one = strtok_r(NULL, ", \t", &rest))
		if (!strchr(one, ':'))
			buf_addf(out, "%s%s", out->len ? ", " : "", one);
}

static int apply(const struct open_net *o, struct error *err)
{
	auto_buf open = BUF_INIT, shut = BUF_INIT;

	opened(o->config->egress_open, &open);
	network_controller(o->config, false, &shut);
	struct firewall_terms t = { .table = o->table, .prefix = o->prefix, .pool = o->pool, .resolvers = o->resolvers,
				    .opened = buf_str(&open), .closed = buf_str(&shut) };
	return firewall_apply(&t, err);
}

/* --- interfaces --- */

static bool in_use(const struct ifaddrs *all, uint32_t address)
{
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		const struct sockaddr_in *a = (const void *)i->ifa_addr;

		if (a && a->sin_family == AF_INET && ntohl(a->sin_addr.s_addr) == address)
			return true;
	}
	return false;
}

/* This machine's address of a free pair; the sandbox's is the next. 0: all are taken. */
static uint32_t choose(const struct open_net *o, const struct id *sandbox)
{
	struct ifaddrs *all = NULL;
	uint32_t start = (uint32_t)strtoul(tail(sandbox->text, BOX_DIGITS), NULL, 16), found = 0;

	if (getifaddrs(&all) != 0)
		return 0;
	for (uint32_t i = 0; i < o->pairs && !found; i++) {
		uint32_t address = o->base + 2 * ((start + i) % o->pairs);

		if (!in_use(all, address))
			found = address;
	}
	freeifaddrs(all);
	return found;
}

static int ip(int netns, const char *batch, struct error *err)
{
	static const char *const argv[] = { "ip", "-batch", "-", NULL };

	return tool_run(argv, batch, netns, NULL, err);
}

/* The far end first, so that nothing is up before both have what they need. No address of IPv6 comes up by itself. */
static int make_pair(const struct open_net *o, const struct id *sandbox, int netns, struct error *err)
{
	char host[INET_ADDRSTRLEN], box[INET_ADDRSTRLEN], name[IFNAMSIZ];
	uint32_t at = choose(o, sandbox);
	struct in_addr a = { .s_addr = htonl(at) }, b = { .s_addr = htonl(at + 1) };

	if (!at)
		return error_set(err, ERR_NO_CAPACITY, "all addresses of worker.open_pool are taken");
	inet_ntop(AF_INET, &a, host, sizeof(host));
	inet_ntop(AF_INET, &b, box, sizeof(box));
	snprintf(name, sizeof(name), "%s%s", o->prefix, tail(sandbox->text, BOX_DIGITS));
	auto_free char *inside = xasprintf("link add eth0 type veth peer name %s netns %d\nlink set eth0 addrgenmode none\naddr add %s/31 dev eth0\nlink set eth0 up\n", name,
					   (int)getpid(), box);
	auto_free char *here = xasprintf("link set %s addrgenmode none\naddr add %s/31 dev %s\nlink set %s up\n", name, host, name, name);
	auto_free char *route = xasprintf("route add default via %s dev eth0\n", host);
	if (ip(netns, inside, err) != 0)
		return -1;
	return ip(-1, here, err) != 0 || ip(netns, route, err) != 0 ? -1 : 0;
}

static bool has_interface(int netns)
{
	static const char *const argv[] = { "ip", "link", "show", "eth0", NULL };

	return tool_run(argv, NULL, netns, NULL, NULL) == 0;
}

static int join(struct open_net *o, const struct id *sandbox, int netns, struct error *err)
{
	if (has_interface(netns))
		return 0;
	if (!firewall_there(o->table) && apply(o, err) != 0)
		return error_wrap(err, "the rules of open networks");
	pthread_mutex_lock(&o->lock);
	int rc = make_pair(o, sandbox, netns, err);
	pthread_mutex_unlock(&o->lock);
	return rc;
}

static bool is_own(int netns)
{
	struct stat own, other;

	return stat("/proc/self/ns/net", &own) != 0 || fstat(netns, &other) != 0 || own.st_ino == other.st_ino;
}

int open_net_join(struct open_net *o, const struct id *sandbox, pid_t pid, struct error *err)
{
	char path[64];

	if (!o->offered)
		return error_set(err, ERR_UNAVAILABLE, "this worker offers no open networks now");
	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
	auto_close int netns = open(path, O_RDONLY | O_CLOEXEC);
	if (netns < 0 || is_own(netns))
		return error_set(err, ERR_UNAVAILABLE, "the sandbox has no network namespace that can be entered");
	return join(o, sandbox, netns, err);
}

void open_net_check(struct open_net *o)
{
	struct error err = ERROR_INIT;

	if (!o->offered || firewall_there(o->table))
		return;
	log_warn("worker", "the rules of open networks (table inet %s) were taken away by another program: they are put back", o->table);
	if (apply(o, &err) != 0)
		log_error("worker", "the rules of open networks cannot be put back: %s", err.message);
}

/* --- the probe --- */

static void *make_namespace(void *arg)
{
	int *ret = arg;

	*ret = unshare(CLONE_NEWNET) == 0 ? open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC) : -1;
	return NULL;
}

/* A network namespace that nobody lives in: its descriptor keeps it. */
static int new_namespace(void)
{
	pthread_t t;
	int fd = -1;

	if (pthread_create(&t, NULL, make_namespace, &fd) != 0)
		return -1;
	pthread_join(t, NULL);
	return fd;
}

static int send_probe(int fd, const char *address)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(FIREWALL_PROBE_PORT) };

	inet_pton(AF_INET, address, &to.sin_addr);
	/* Refusals come back as errors of a later call: each packet sent before owes one at most. */
	for (int i = 0; i < SENDS_MAX; i++) {
		if (sendto(fd, "probe", 5, 0, (struct sockaddr *)&to, sizeof(to)) >= 0)
			return 0;
		if (errno != EHOSTUNREACH && errno != EACCES && errno != ECONNREFUSED && errno != EINTR)
			return -1;
	}
	return -1;
}

/* This machine's own addresses, of every interface but loopback. */
static unsigned send_to_own(int fd)
{
	struct ifaddrs *all = NULL;
	unsigned n = 0;

	if (getifaddrs(&all) != 0)
		return 0;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		char host[ADDRESS_TEXT_MAX];

		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || i->ifa_flags & IFF_LOOPBACK)
			continue;
		address_host(i->ifa_addr, host);
		n += send_probe(fd, host) == 0;
	}
	freeifaddrs(all);
	return n;
}

static int send_all(int netns, unsigned *ret_refused, struct error *err)
{
	static const char *const private[] = { "169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1" };
	auto_close int fd = netns_socket(netns, AF_INET, SOCK_DGRAM);

	if (fd < 0)
		return error_errno(err, "a socket in a new network namespace");
	*ret_refused = send_to_own(fd);
	for (size_t i = 0; i < ARRAY_LEN(private); i++)
		*ret_refused += send_probe(fd, private[i]) == 0;
	return send_probe(fd, "1.1.1.1") == 0 ? 0 : error_errno(err, "sending a packet through the rules");
}

static int see(const struct open_net *o, int netns, struct error *err)
{
	struct firewall_counts before, now;
	unsigned refused = 0;

	if (firewall_counts(o->table, &before, err) != 0 || send_all(netns, &refused, err) != 0)
		return -1;
	for (int64_t until = clock_mono_ms() + SEEN_MS;; usleep(SEEN_POLL_US)) {
		if (firewall_counts(o->table, &now, err) != 0)
			return -1;
		if (now.refused - before.refused >= refused && now.probes > before.probes)
			return 0;
		if (clock_mono_ms() > until)
			break;
	}
	if (now.refused - before.refused < refused)
		return error_set(err, ERR_UNAVAILABLE, "of %u packets to private, metadata and this machine's addresses %llu were refused", refused,
				 (unsigned long long)(now.refused - before.refused));
	return error_set(err, ERR_UNAVAILABLE, "a packet to a public address did not leave: another rule of this machine stops what it forwards (nft list ruleset)");
}

static int try(struct open_net *o, struct error *err)
{
	auto_buf forward = BUF_INIT;
	struct id probe = id_new();

	if (geteuid() != 0)
		return error_set(err, ERR_UNAVAILABLE, "the worker is not root");
	if (io_read_file("/proc/sys/net/ipv4/ip_forward", 16, &forward, err) != 0 || buf_str(&forward)[0] != '1')
		return error_set(err, ERR_UNAVAILABLE, "this machine forwards nothing: set net.ipv4.ip_forward = 1");
	if (take_pool(o, err) != 0)
		return -1;
	take_resolvers(o);
	if (!*o->resolvers)
		return error_set(err, ERR_UNAVAILABLE, "no resolver that a sandbox could reach: set worker.open_dns");
	auto_close int netns = new_namespace();
	if (netns < 0)
		return error_set(err, ERR_UNAVAILABLE, "no network namespace could be made");
	return apply(o, err) != 0 || join(o, &probe, netns, err) != 0 || see(o, netns, err) != 0 ? -1 : 0;
}

bool open_net_probe(struct open_net *o, char *ret_reason, size_t n)
{
	struct error err = ERROR_INIT;

	if (!*o->config->open_pool) {
		snprintf(ret_reason, n, "not offered: worker.open_pool is not set (docs/network.md)");
		return false;
	}
	o->offered = try(o, &err) == 0;
	if (o->offered)
		snprintf(ret_reason, n, "containers get an interface; a probe's packets to private, metadata and this machine's addresses were refused, one to a public address left");
	else
		snprintf(ret_reason, n, "not offered: %s", err.message);
	return o->offered;
}
