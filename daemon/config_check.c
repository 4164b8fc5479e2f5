/* Defaults that depend on who runs the daemon, paths derived from others, and the checks of single words and of keys together. */
#include "daemon/config_priv.h"

#include "daemon/address.h"
#include "daemon/egress/resolve.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/config/server_url.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { PEER_URL_MAX = 127, STRICT_THRESHOLD = 55, NEVER_THRESHOLD = 101, RULES_FILE_MAX = 256 * 1024 };

static void set_str(char **to, char *take_text)
{
	free(*to);
	*to = take_text;
}

/* "base/leaf" */
static char *join(const char *base, const char *leaf)
{
	return xasprintf("%s/%s", base, leaf);
}

/* The state directory moves what lies in it by default: the store, and the socket of a user without a runtime directory. */
static void move_derived(char **path, const char *old_dir, const char *new_dir, const char *leaf)
{
	auto_free char *derived = join(old_dir, leaf);
	if (strcmp(*path, derived) == 0)
		set_str(path, join(new_dir, leaf));
}

void daemon_config_set_str(struct daemon_config *c, char **field, const char *text)
{
	if (field == &c->state_dir) {
		move_derived(&c->store_path, c->state_dir, text, "store.db");
		move_derived(&c->socket, c->state_dir, text, "sandboxd.sock");
	}
	if (field == &c->store_path && !*text)
		set_str(field, join(c->state_dir, "store.db"));
	else if (*text || (field != &c->state_dir && field != &c->socket && field != &c->init_path))
		set_str(field, xstrdup(text));
}

/* The user's home: $HOME when it is absolute, else the account's. NULL when there is none. */
static char *home_dir(void)
{
	const char *home = getenv("HOME");
	if (home && *home == '/')
		return xstrdup(home);
	struct passwd entry, *found = NULL;
	char text[4096];
	if (getpwuid_r(geteuid(), &entry, text, sizeof(text), &found) != 0 || !found || found->pw_dir[0] != '/')
		return NULL;
	return xstrdup(found->pw_dir);
}

/* A directory of the XDG base directory specification; relative values are to be ignored. NULL: unset and no fallback. */
static char *xdg_dir(const char *variable, const char *home, const char *fallback)
{
	const char *value = getenv(variable);
	if (value && *value == '/')
		return join(value, "sandbox");
	if (!home || !fallback)
		return NULL;
	auto_free char *base = join(home, fallback);
	return join(base, "sandbox");
}

/* Beside sandboxd in a build tree, else under ../libexec of the installed program. Removed binaries of an upgrade do not count. */
static char *find_init(void)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return xstrdup("/usr/local/libexec/sandbox/sandbox-init-" SANDBOX_VERSION);
	self[n] = '\0';
	char *slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	auto_free char *beside = join(self, "sandbox-init");
	auto_free char *installed = join(self, "../libexec/sandbox/sandbox-init-" SANDBOX_VERSION);
	char resolved[PATH_MAX];
	if (access(beside, R_OK) == 0 || !realpath(installed, resolved))
		return steal(&beside);
	return xstrdup(resolved);
}

static int user_paths(struct daemon_config *c, struct error *err)
{
	auto_free char *home = home_dir();
	char *state = xdg_dir("XDG_STATE_HOME", home, ".local/state");
	if (!state)
		return error_set(err, ERR_INVALID, "neither HOME nor XDG_STATE_HOME is set: there is no place for the daemon's state");
	set_str(&c->state_dir, state);
	auto_free char *runtime = xdg_dir("XDG_RUNTIME_DIR", NULL, NULL);
	set_str(&c->socket, join(runtime ? runtime : state, "sandboxd.sock"));
	return 0;
}

static void root_paths(struct daemon_config *c)
{
	set_str(&c->state_dir, xstrdup("/var/lib/sandbox"));
	set_str(&c->socket, xstrdup("/run/sandbox/sandboxd.sock"));
}

int daemon_config_defaults(struct daemon_config *c, struct error *err)
{
	struct daemon_config fresh;
	daemon_config_init(&fresh);
	if (geteuid() == 0) {
		root_paths(&fresh);
	} else if (user_paths(&fresh, err) != 0) {
		daemon_config_done(&fresh);
		return -1;
	}
	set_str(&fresh.store_path, join(fresh.state_dir, "store.db"));
	set_str(&fresh.init_path, find_init());
	*c = fresh;
	return 0;
}

static int check_word(const char *key, const char *value, const char *const *words, struct error *err)
{
	auto_buf list = BUF_INIT;
	for (size_t i = 0; words[i]; i++) {
		if (strcmp(value, words[i]) == 0)
			return 0;
		buf_addf(&list, "%s%s", i ? ", " : "", words[i]);
	}
	return error_set(err, ERR_INVALID, "%s: '%.64s' is not one of: %s", key, value, buf_str(&list));
}

static int check_path(const char *key, const char *path, struct error *err)
{
	if (path[0] == '/' && strlen(path) <= LIMIT_PATH_BYTES_MAX)
		return 0;
	return error_set(err, ERR_INVALID, "%s: '%.200s' is not an absolute path", key, path);
}

static int check_paths(const struct daemon_config *c, struct error *err)
{
	const char *const paths[][2] = {
		{ "daemon.state_dir", c->state_dir }, { "daemon.socket", c->socket },		{ "daemon.init_path", c->init_path },
		{ "store.path", c->store_path },      { "worker.docker_socket", c->docker_socket },
	};
	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		if (check_path(paths[i][0], paths[i][1], err) != 0)
			return -1;
	return 0;
}

/* Plain TCP beyond this machine would show tokens to whoever listens. */
static int check_listen(const struct daemon_config *c, struct error *err)
{
	struct address a;
	bool tls = *c->tls_cert || *c->tls_key;
	if (tls && (check_path("daemon.tls_cert", c->tls_cert, err) != 0 || check_path("daemon.tls_key", c->tls_key, err) != 0))
		return -1;
	if (!*c->listen)
		return 0;
	if (address_parse("daemon.listen", c->listen, &a, err) != 0)
		return -1;
	if (!tls && !c->insecure_http && !address_loopback(&a))
		return error_set(err, ERR_INVALID, "daemon.listen: %s is beyond loopback (127.0.0.1, [::1]): set daemon.tls_cert and daemon.tls_key, or "
				 "daemon.insecure_http = true where the network itself is private", c->listen);
	return 0;
}

static int check_proxies(const struct daemon_config *c, struct error *err)
{
	struct subnets n;
	if (subnets_parse("daemon.trusted_proxies", c->trusted_proxies, &n, err) != 0)
		return -1;
	subnets_done(&n);
	if (c->hosts[strspn(c->hosts, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_[]:, ")])
		return error_set(err, ERR_INVALID, "daemon.hosts: '%.100s' is not a comma separated list of host names", c->hosts);
	return 0;
}

static int check_policy(const struct daemon_config *c, struct error *err)
{
	static const char *const profiles[] = { "strict", "trusted-workstation", NULL };
	if (check_word("policy.profile", c->policy_profile, profiles, err) != 0)
		return -1;
	int64_t microvm = c->microvm_risk_threshold;
	if (microvm < 0)
		microvm = strcmp(c->policy_profile, "strict") == 0 ? STRICT_THRESHOLD : NEVER_THRESHOLD;
	if (c->gvisor_risk_threshold > microvm)
		return error_set(err, ERR_INVALID, "policy.gvisor_risk_threshold: %d is above the microvm threshold %d and would never apply",
				 (int)c->gvisor_risk_threshold, (int)microvm);
	return 0;
}

static int check_registries(const char *list, struct error *err)
{
	if (!*list)
		return error_set(err, ERR_INVALID, "policy.allowed_registries: empty (write * for all, local for none)");
	if (list[strspn(list, "abcdefghijklmnopqrstuvwxyz0123456789.-_:/[], *")] || strspn(list, ", ") > 0)
		return error_set(err, ERR_INVALID, "policy.allowed_registries: '%.100s' is not a comma separated list of registries", list);
	return 0;
}

/* "a=b, c=d", or empty. */
static int check_labels(const char *text, struct error *err)
{
	auto_free char *copy = xstrdup(text);
	char *rest = NULL;
	int n = 0;
	for (char *one = strtok_r(copy, ", ", &rest); one; one = strtok_r(NULL, ", ", &rest)) {
		char *equals = strchr(one, '=');
		if (!equals || equals == one || !label_value_valid(equals + 1) || ++n > LIMIT_NODE_LABELS_MAX)
			return error_set(err, ERR_INVALID, "worker.labels: '%.80s' is not key=value (at most %d of them)", one, LIMIT_NODE_LABELS_MAX);
	}
	return 0;
}

static int check_controller_url(const struct daemon_config *c, struct error *err)
{
	auto_server_url u = { .url = NULL };
	bool worker = strcmp(c->role, "worker") == 0;
	if (!worker && *c->controller_url)
		return error_set(err, ERR_INVALID, "worker.controller is set, but daemon.role is %s: only the role worker dials a controller", c->role);
	if (!worker)
		return 0;
	if (!*c->controller_url)
		return error_set(err, ERR_INVALID, "worker.controller is empty: the role worker needs the controller's address, https://host[:port]");
	if (server_url_parse(c->controller_url, &u, err) != 0)
		return error_wrap(err, "worker.controller");
	if (u.path)
		return error_set(err, ERR_INVALID, "worker.controller: a unix socket is no controller to dial; want https://host[:port]");
	if (!u.tls && !u.loopback && !c->insecure_http)
		return error_set(err, ERR_INVALID, "worker.controller: plain http beyond loopback shows the node's credential to the network: use https, or set "
				 "daemon.insecure_http = true where the network itself is private");
	if (*c->listen)
		return error_set(err, ERR_INVALID, "daemon.listen is set, but a worker serves nobody over the network: take it out");
	return 0;
}

/* A pair of addresses for each sandbox, and room for more than one. */
static int check_open(const struct daemon_config *c, struct error *err)
{
	struct subnets pool, dns;
	if (subnets_parse("worker.open_dns", c->open_dns, &dns, err) != 0)
		return -1;
	bool good = true;
	for (size_t i = 0; i < dns.len; i++)
		good = good && dns.items[i].bits == 128;
	subnets_done(&dns);
	if (!good || strchr(c->open_dns, ':'))
		return error_set(err, ERR_INVALID, "worker.open_dns: '%.100s' is not a list of IPv4 addresses", c->open_dns);
	if (subnets_parse("worker.open_pool", c->open_pool, &pool, err) != 0)
		return -1;
	good = pool.len == 0 || (pool.len == 1 && pool.items[0].bits >= 96 + 8 && pool.items[0].bits <= 96 + 30 && !strchr(c->open_pool, ':'));
	subnets_done(&pool);
	return good ? 0 : error_set(err, ERR_INVALID, "worker.open_pool: '%.60s' is not one IPv4 network of /8 to /30", c->open_pool);
}

static int check_peers(const struct daemon_config *c, struct error *err)
{
	struct server_url u;
	if (!*c->peers_url != !*c->peers_secret_file)
		return error_set(err, ERR_INVALID, "peers.url and peers.secret_file go together");
	if (!*c->peers_url)
		return 0;
	if (!*c->listen || strcmp(c->store_driver, "postgresql") != 0)
		return error_set(err, ERR_INVALID, "peers.url is for controllers that listen and share a PostgreSQL");
	if (strlen(c->peers_url) >= PEER_URL_MAX)
		return error_set(err, ERR_INVALID, "peers.url is longer than %d bytes", PEER_URL_MAX);
	if (server_url_parse(c->peers_url, &u, err) != 0)
		return error_wrap(err, "peers.url");
	bool plain = !u.tls && !u.loopback && !c->insecure_http;
	server_url_done(&u);
	return plain ? error_set(err, ERR_INVALID, "peers.url: plain http would show the secret; use https") : 0;
}

static int check_worker(const struct daemon_config *c, struct error *err)
{
	if (!tenant_valid(c->worker_name))
		return error_set(err, ERR_INVALID, "worker.name: '%.64s' is not 1 to 63 of a-z, 0-9, '.', '_', '-'", c->worker_name);
	if (strlen(c->worker_region) > 63 || !label_value_valid(c->worker_region))
		return error_set(err, ERR_INVALID, "worker.region: must be at most 63 bytes of printable text");
	if (strlen(c->controller_pin) > 127 || (*c->controller_pin && strncmp(c->controller_pin, "sha256//", 8) != 0))
		return error_set(err, ERR_INVALID, "worker.pin: '%.80s' is not sha256//BASE64", c->controller_pin);
	if (check_labels(c->worker_labels, err) != 0 || check_open(c, err) != 0)
		return -1;
	return check_controller_url(c, err);
}

static int check_store(const struct daemon_config *c, struct error *err)
{
	static const char *const drivers[] = { "sqlite", "postgresql", NULL };
	if (check_word("store.driver", c->store_driver, drivers, err) != 0)
		return -1;
	if (*c->secret_key_file && check_path("store.secret_key", c->secret_key_file, err) != 0)
		return -1;
	bool sqlite = strcmp(c->store_driver, "sqlite") == 0;
	if (sqlite && *c->store_url)
		return error_set(err, ERR_INVALID, "store.url is set, but store.driver is sqlite: set store.driver = postgresql, or take it out");
	if (!sqlite && !*c->store_url)
		return error_set(err, ERR_INVALID, "store.url is empty: store.driver = postgresql needs it (postgresql://user@host/name)");
	return *c->store_password_file ? check_path("store.password_file", c->store_password_file, err) : 0;
}

/* A subject is words between dots; * and > are for subscribers. */
static int check_events(const struct daemon_config *c, struct error *err)
{
	const char *s = c->nats_subject;
	size_t n = strlen(s);
	if (n == 0 || n > 100 || s[0] == '.' || s[n - 1] == '.' || strstr(s, "..") || strpbrk(s, " \t*>"))
		return error_set(err, ERR_INVALID, "events.nats_subject: '%.100s' is not a subject such as sandbox.events", s);
	if (*c->nats_credentials && check_path("events.nats_credentials", c->nats_credentials, err) != 0)
		return -1;
	return *c->nats_ca ? check_path("events.nats_ca", c->nats_ca, err) : 0;
}

/* Whether a tunnel could take the name. */
static bool under(const char *name, size_t n, const char *domain)
{
	size_t d = strlen(domain);
	if (n < d || strncasecmp(name + n - d, domain, d) != 0)
		return false;
	return n == d || name[n - d - 1] == '.';
}

/* Pages of strangers must not share a site with the API. On localhost nobody is a stranger. */
static int check_api_names(const struct daemon_config *c, struct error *err)
{
	for (const char *p = c->hosts; *p && strcmp(c->edge_domain, "localhost") != 0; p += strcspn(p, ",")) {
		p += strspn(p, ", ");
		size_t n = strcspn(p, ":, ");
		if (n > 0 && under(p, n, c->edge_domain))
			return error_set(err, ERR_INVALID, "edge.domain: '%s' holds the API's own name '%.*s' (daemon.hosts): give tunnels a domain of their own",
					 c->edge_domain, (int)n, p);
	}
	return 0;
}

static int check_edge(const struct daemon_config *c, struct error *err)
{
	static const char *const schemes[] = { "", "http", "https", NULL };
	struct subnets n;
	size_t len = strlen(c->edge_domain);
	if (len < 1 || len > 180 || strspn(c->edge_domain, "abcdefghijklmnopqrstuvwxyz0123456789-.") != len || strstr(c->edge_domain, "..") ||
	    c->edge_domain[0] == '.' || c->edge_domain[len - 1] == '.')
		return error_set(err, ERR_INVALID, "edge.domain: '%.80s' is not a domain in lower-case letters", c->edge_domain);
	if (check_word("edge.scheme", c->edge_scheme, schemes, err) != 0 || subnets_parse("edge.trusted_proxies", c->edge_trusted_proxies, &n, err) != 0)
		return -1;
	subnets_done(&n);
	if (*c->edge_link && check_path("edge.link", c->edge_link, err) != 0)
		return -1;
	if (strcmp(c->role, "edge") == 0 && (!*c->edge_link || !*c->edge_listen))
		return error_set(err, ERR_INVALID, "daemon.role is edge: it needs %s", *c->edge_listen ? "edge.link, the socket of the daemon whose tunnels it serves"
										       : "edge.listen, where visitors come in");
	return check_api_names(c, err);
}

/* Without comments: # to the end of a line. */
static void add_rules(const char *text, struct buf *out)
{
	for (const char *p = text; *p;) {
		size_t line = strcspn(p, "\n"), n = strcspn(p, "#\n");
		buf_add(out, p, n);
		buf_addc(out, ' ');
		p += line + (p[line] == '\n');
	}
}

int daemon_config_rules(const char *key, const char *value, char **ret, struct error *err)
{
	auto_buf text = BUF_INIT, words = BUF_INIT;
	auto_egress_rules rules = EGRESS_RULES_INIT;
	if (value[0] == '/') {
		if (io_read_file(value, RULES_FILE_MAX, &text, err) != 0)
			return error_wrap(err, "%s", key);
		add_rules(buf_str(&text), &words);
	} else {
		buf_adds(&words, value);
	}
	for (char *p = words.data; p && *p; p++)
		if (*p == '\r')
			*p = ' ';
	if (egress_rules_from_text(key, buf_str(&words), &rules, err) != 0)
		return -1;
	*ret = buf_steal(&words);
	return 0;
}

static int check_egress(const struct daemon_config *c, struct error *err)
{
	auto_free char *rules = NULL, *standard = NULL;
	struct subnets open;
	if (daemon_config_rules("egress.rules", c->egress_rules, &rules, err) != 0 ||
	    daemon_config_rules("egress.default", c->egress_default, &standard, err) != 0 ||
	    subnets_parse("egress.open_addresses", c->egress_open, &open, err) != 0)
		return -1;
	subnets_done(&open);
	return resolve_check_hosts("egress.hosts", c->egress_hosts, err);
}

int daemon_config_check(const struct daemon_config *c, struct error *err)
{
	static const char *const roles[] = { "all", "controller", "worker", "edge", NULL };
	enum log_level level;
	if (check_word("daemon.role", c->role, roles, err) != 0)
		return -1;
	if (log_level_parse(c->log_level, &level) != 0)
		return error_set(err, ERR_INVALID, "daemon.log_level: '%.64s' is not one of: debug, info, warn, error", c->log_level);
	if (strcmp(c->role, "edge") == 0) /* the rest of a file it shares with the daemon is not for it to read */
		return check_edge(c, err);
	if (check_paths(c, err) != 0 || check_store(c, err) != 0 || check_events(c, err) != 0 || check_listen(c, err) != 0 || check_proxies(c, err) != 0 || check_edge(c, err) != 0 || check_policy(c, err) != 0 ||
	    check_egress(c, err) != 0)
		return -1;
	return check_registries(c->allowed_registries, err) != 0 || config_pools_check(c, err) != 0 || check_peers(c, err) != 0 ? -1 : check_worker(c, err);
}
