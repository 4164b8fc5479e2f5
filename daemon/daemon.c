/*
 * The daemon put together: see daemon.h. The order of starting is the order of need, and stopping is its reverse: first
 * nobody asks any more, then nobody works any more, then the loop ends, then everything is freed by one thread.
 */
#include "daemon/daemon.h"

#include "daemon/api/api.h"
#include "daemon/api/credentials.h"
#include "daemon/api/peer.h"
#include "daemon/controller/controller.h"
#include "daemon/events/publisher.h"
#include "daemon/link/gate.h"
#include "daemon/edge_process.h"
#include "daemon/egress/egress.h"
#include "daemon/inbound.h"
#include "daemon/link/link_server.h"
#include "daemon/link/peers.h"
#include "daemon/link/uplink.h"
#include "daemon/process.h"
#include "daemon/reaper.h"
#include "daemon/store/store.h"
#include "daemon/worker/exec.h"
#include "daemon/worker/initlink.h"
#include "daemon/worker/mailbox.h"
#include "daemon/worker/muxconn.h"
#include "daemon/worker/worker.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/thread.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { API_STOP_MS = 10 * 1000, STORE_RETRY_MS = 1000 };

struct daemon {
	const struct daemon_setup *setup;
	struct daemon_config config;
	struct store *store;
	struct controller *controller;
	struct event_base *base;
	pthread_t loop;
	bool looping;
	struct muxloop *muxloop; /* of a controller without a worker; else the links' */
	struct mailbox *mail;
	struct initlinks *links;
	struct execs *execs;
	struct egress *egress;
	struct runtime *runtime;
	struct uplink *uplink;
	struct upstream *up;
	struct worker *worker;
	struct node_port *own;
	struct node_ports *ports;
	struct gate *gate;
	struct link_server *link_server;
	char *peer_secret;
	struct peers *peers;
	struct reaper *reaper;
	struct publisher *publisher;
	struct credentials *credentials;
	struct inbound *inbound;
	struct api *api;
};

char *daemon_default_config_path(void)
{
	if (geteuid() == 0)
		return xstrdup("/etc/sandbox/sandboxd.conf");
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	if (config && config[0] == '/')
		return xasprintf("%s/sandbox/sandboxd.conf", config);
	return home ? xasprintf("%s/.config/sandbox/sandboxd.conf", home) : NULL;
}

static int load_file(const struct daemon_setup *s, struct daemon_config *c, struct error *err)
{
	if (s->config_path)
		return daemon_config_load(c, s->config_path, err);
	auto_free char *path = daemon_default_config_path();
	if (!path || access(path, F_OK) != 0)
		return 0;
	return daemon_config_load(c, path, err);
}

int daemon_setup_config(const struct daemon_setup *s, struct daemon_config *ret, struct error *err)
{
	if (daemon_config_defaults(ret, err) != 0 || load_file(s, ret, err) != 0)
		return -1;
	for (size_t i = 0; i < s->sets.len; i++)
		if (daemon_config_set(ret, s->sets.items[i], err) != 0)
			return -1;
	return daemon_config_check(ret, err);
}

static void apply_log_level(const struct daemon_config *c)
{
	enum log_level level;
	if (log_level_parse(c->log_level, &level) == 0)
		log_set_level(level);
}

static void *loop_thread(void *arg)
{
	struct event_base *base = arg;
	if (event_base_loop(base, EVLOOP_NO_EXIT_ON_EMPTY) != 0)
		log_error("daemon", "the event loop ended with an error");
	return NULL;
}

static int start_loop(struct daemon *d, struct error *err)
{
	if (evthread_use_pthreads() != 0)
		return error_set(err, ERR_INTERNAL, "the event library has no threads");
	d->base = event_base_new();
	if (!d->base)
		return error_set(err, ERR_INTERNAL, "no event loop");
	int rc = pthread_create(&d->loop, NULL, loop_thread, d->base);
	if (rc != 0) {
		errno = rc;
		return error_errno(err, "starting the event loop");
	}
	d->looping = true;
	return 0;
}

static int open_store(struct daemon *d, struct error *err)
{
	const struct daemon_config *c = &d->config;
	auto_free char *path = *c->store_path ? xstrdup(c->store_path) : xasprintf("%s/store.db", c->state_dir);
	struct store_options o = { .path = path, .state_dir = c->state_dir, .url = c->store_url, .password_file = c->store_password_file,
				   .connections = (int)c->store_connections, .timeout_ms = c->store_timeout_ms };
	return store_open(&o, &d->store, err);
}

/* A database on another machine may come up after this one: that is waited for. What waiting does not mend ends the start. */
static int wait_for_store(struct daemon *d, struct error *err)
{
	struct error local = ERROR_INIT;
	bool said = false;
	while (open_store(d, &local) != 0) {
		if (local.code != ERR_UNAVAILABLE || !*d->config.store_url) {
			*err = local;
			return -1;
		}
		if (!said)
			log_warn("daemon", "waiting for the store: %s", local.message);
		said = true;
		if (!process_pause(STORE_RETRY_MS))
			return error_set(err, ERR_UNAVAILABLE, "stopped while waiting for the store: %s", local.message);
	}
	return 0;
}

static int start_controller(struct daemon *d, struct error *err)
{
	if (wait_for_store(d, err) != 0)
		return -1;
	log_info("daemon", "store=%s", store_describe(d->store));
	return controller_new(&d->config, d->store, &d->controller, err);
}

static bool is_role(const struct daemon *d, const char *role)
{
	return strcmp(d->config.role, role) == 0;
}

/* The worker's way to its controller: none but in role worker goes over the network. */
static int start_upstream(struct daemon *d, const struct id *node, struct error *err)
{
	struct uplink_options o = {
		.config = &d->config, .loop = initlinks_muxloop(d->links), .mail = initlinks_mailbox(d->links), .node = *node
	};
	if (d->controller) {
		d->up = upstream_local(d->controller);
		return 0;
	}
	if (uplink_new(&o, &d->uplink, err) != 0)
		return -1;
	d->up = uplink_upstream(d->uplink);
	return 0;
}

static int start_worker(struct daemon *d, struct error *err)
{
	struct id node;
	d->links = initlinks_new(d->base, d->config.state_dir);
	if (worker_node_id(&d->config, &node, err) != 0 || start_upstream(d, &node, err) != 0)
		return -1;
	d->execs = execs_new(d->base, d->up, d->links, d->config.state_dir);
	execs_set_retention(d->execs, d->config.retention_ms);
	if (egress_new(d->base, d->links, d->config.egress_hosts, &d->egress, err) != 0 ||
	    worker_runtime_new(&d->config, &d->runtime, err) != 0)
		return -1;
	struct worker_options o = {
		.config = &d->config, .up = d->up, .runtime = d->runtime, .links = d->links, .execs = d->execs, .egress = d->egress
	};
	if (worker_start(&o, &d->worker, err) != 0)
		return -1;
	d->own = node_port_local(d->worker, d->execs, &node, d->config.worker_name);
	node_ports_add(d->ports, d->own);
	return d->uplink ? uplink_start(d->uplink, d->own, err) : 0;
}

/* What a controller does beside answering: streams, links, deadlines, events. */
static int start_control(struct daemon *d, struct error *err)
{
	if (!d->links) {
		d->muxloop = muxloop_new(d->base);
		d->mail = mailbox_new(d->base);
	}
	struct link_server_options o = {
		.loop = d->links ? initlinks_muxloop(d->links) : d->muxloop,
		.mail = d->links ? initlinks_mailbox(d->links) : d->mail,
		.controller = d->controller,
		.ports = d->ports,
		.address = *d->config.peers_url ? d->config.peers_url : d->config.listen,
	};
	d->gate = gate_new(o.loop, o.mail, d->controller, d->ports);
	if (*d->config.listen)
		d->link_server = link_server_new(&o);
	struct peers_options p = { .config = &d->config, .loop = o.loop, .mail = o.mail, .controller = d->controller, .links = d->link_server };
	if (peers_secret(&d->config, &d->peer_secret, err) != 0)
		return -1;
	p.secret = d->peer_secret;
	if (p.secret && peers_start(&p, &d->peers, err) != 0)
		return -1;
	if (reaper_start(d->controller, &d->reaper, err) != 0)
		return -1;
	return publisher_start(d->controller, &d->config, &d->publisher, err);
}

static bool link_state(void *ctx, char *ret, size_t n)
{
	return uplink_describe(ctx, ret, n);
}

static size_t edge_checks(void *ctx, struct check_row *ret, size_t max)
{
	return inbound_checks(((struct daemon *)ctx)->inbound, ret, max);
}

static void edge_metrics(void *ctx, struct buf *out)
{
	inbound_metrics(((struct daemon *)ctx)->inbound, out);
}

static int start_api(struct daemon *d, struct error *err)
{
	struct api_options o = {
		.config = &d->config,
		.controller = d->controller,
		.nodes = d->ports,
		.gate = d->gate,
		.links = d->link_server,
		.peers = d->peers,
		.edge_checks = edge_checks,
		.edge_metrics = edge_metrics,
		.edge_ctx = d,
		.base = d->base,
	};
	bool tcp = *d->config.listen != '\0';
	if (d->uplink) {
		o.link_state = link_state;
		o.link_ctx = d->uplink;
	}
	if (tcp) {
		if (credentials_new(d->config.state_dir, d->controller, d->peer_secret, &d->credentials, err) != 0)
			return -1;
		o.token_caller = credentials_caller;
		o.token_ctx = d->credentials;
	}
	d->api = api_new(&o);
	if (d->controller && inbound_start(&d->config, d->controller, d->gate, &d->inbound, err) != 0)
		return -1;
	if (api_listen_unix(d->api, d->config.socket, err) != 0)
		return -1;
	uint16_t port = 0;
	if (tcp && api_listen_tcp(d->api, d->config.listen, &port, err) != 0)
		return -1;
	log_info("daemon", "serving socket=%s version=%s pid=%d", d->config.socket, SANDBOX_VERSION, (int)getpid());
	if (tcp)
		log_info("daemon", "serving %s=%s port=%u token-file=%s/api-token", *d->config.tls_cert ? "https" : "http", d->config.listen, port,
			 d->config.state_dir);
	return 0;
}

/* Fails early and cheaply when another daemon has the socket: the worker's probes come between this and listening. */
static int start(struct daemon *d, struct error *err)
{
	if (api_socket_free(d->config.socket, err) != 0 || io_mkdirs(d->config.state_dir, 0700, err) != 0)
		return -1;
	if ((!is_role(d, "worker") && start_controller(d, err) != 0) || start_loop(d, err) != 0)
		return -1;
	d->ports = node_ports_new();
	if ((!is_role(d, "controller") && start_worker(d, err) != 0) || (d->controller && start_control(d, err) != 0))
		return -1;
	return start_api(d, err);
}

static void stop_loop(struct daemon *d)
{
	if (!d->looping)
		return;
	event_base_loopexit(d->base, NULL);
	pthread_join(d->loop, NULL);
	d->looping = false;
}

/* False: some slow request is still at work with what would be freed. */
static bool stop(struct daemon *d)
{
	if (d->api && !api_stop(d->api, API_STOP_MS))
		return false;
	api_free(d->api);
	inbound_stop(d->inbound);
	publisher_stop(d->publisher);
	reaper_stop(d->reaper);
	peers_stop(d->peers);
	link_server_stop(d->link_server);
	uplink_stop(d->uplink);
	if (d->worker)
		worker_stop(d->worker);
	stop_loop(d);
	gate_free(d->gate);
	peers_free(d->peers);
	link_server_free(d->link_server);
	uplink_free(d->uplink);
	if (d->execs)
		execs_free(d->execs);
	egress_free(d->egress);
	mailbox_free(d->mail);
	muxloop_free(d->muxloop);
	if (d->links)
		initlinks_free(d->links);
	if (d->runtime)
		d->runtime->ops->free(d->runtime);
	node_ports_free(d->ports);
	node_port_local_free(d->own);
	if (d->up && !d->uplink)
		d->up->ops->free(d->up);
	if (d->base)
		event_base_free(d->base);
	if (d->controller)
		controller_free(d->controller);
	if (d->store)
		store_close(d->store);
	credentials_free(d->credentials);
	if (d->peer_secret)
		explicit_bzero(d->peer_secret, strlen(d->peer_secret));
	free(d->peer_secret);
	return true;
}

static void reload(struct daemon *d)
{
	struct error err = ERROR_INIT;
	struct daemon_config fresh = { .role = NULL };
	if (daemon_setup_config(d->setup, &fresh, &err) != 0) {
		log_error("daemon", "configuration not reloaded, the old one stays: %s", err.message);
	} else {
		daemon_config_reload(&d->config, &fresh);
		apply_log_level(&d->config);
		if (d->controller)
			controller_reload(d->controller, &d->config);
		if (d->worker) {
			worker_reload(d->worker);
			execs_set_retention(d->execs, d->config.retention_ms);
		}
		if (api_reload(d->api, &err) != 0)
			log_error("daemon", "certificate and names not reloaded, the old ones stay: %s", err.message);
		else
			log_info("daemon", "configuration reloaded");
	}
	daemon_config_done(&fresh);
}

static void say_ready(int fd)
{
	if (fd < 0)
		return;
	if (io_write_full(fd, "ready\n", 6) != 0)
		log_warn("daemon", "nobody reads --ready-fd: %m");
	close(fd);
}

static void serve(struct daemon *d)
{
	say_ready(d->setup->ready_fd);
	process_notify("READY=1");
	int sig;
	while ((sig = process_wait_signal()) == SIGHUP)
		reload(d);
	log_info("daemon", "stopping signal=%s", sig == SIGINT ? "INT" : "TERM");
	process_notify("STOPPING=1");
	process_allow_interrupt();
}

static void edge_ready(void *ctx)
{
	const struct daemon *d = ctx;
	say_ready(d->setup->ready_fd);
	process_notify("READY=1");
}

int daemon_run(const struct daemon_setup *s, struct error *err)
{
	struct daemon d = { .setup = s };
	if (daemon_setup_config(s, &d.config, err) != 0) {
		daemon_config_done(&d.config);
		return -1;
	}
	apply_log_level(&d.config);
	process_block_signals();
	if (is_role(&d, "edge")) {
		int rc = edge_process_run(&d.config, edge_ready, &d, err);
		daemon_config_done(&d.config);
		return rc;
	}
	int rc = start(&d, err);
	if (rc == 0)
		serve(&d);
	if (!stop(&d)) {
		/* Freeing would pull the ground from under a pull in hand; the kernel cleans up as well. */
		log_warn("daemon", "stopped with slow requests unfinished");
		_exit(rc == 0 ? 0 : 1);
	}
	daemon_config_done(&d.config);
	if (rc == 0)
		log_info("daemon", "stopped");
	return rc;
}
