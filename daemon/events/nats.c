/* libnats behind dlopen: see nats.h. The few types are opaque, so its header is not needed to build. */
#include "daemon/events/nats.h"

#include "shared/base/mem.h"

#include <dlfcn.h>
#include <string.h>

enum {
	OK = 0,
	CONNECTED = 2,           /* natsConnStatus */
	RECONNECT_WAIT_MS = 500,
	JITTER_MS = 500,
	FOR_EVER = -1,
};

/* Debian 12 has 3.4; the functions used here are the same in all of 3.x. */
static const char *const names[] = { "libnats.so.3.4", "libnats.so.3.8", "libnats.so.3.9", "libnats.so.3.10", "libnats.so.3", "libnats.so" };

typedef void (*connected_fn)(void *connection, void *ctx);

#define FUNCTIONS(F) \
	F(int, natsOptions_Create, (void **options)) \
	F(void, natsOptions_Destroy, (void *options)) \
	F(int, natsOptions_SetURL, (void *options, const char *url)) \
	F(int, natsOptions_SetServers, (void *options, const char **urls, int n)) \
	F(int, natsOptions_SetName, (void *options, const char *name)) \
	F(int, natsOptions_SetMaxReconnect, (void *options, int n)) \
	F(int, natsOptions_SetReconnectWait, (void *options, int64_t ms)) \
	F(int, natsOptions_SetReconnectJitter, (void *options, int64_t ms, int64_t tls_ms)) \
	F(int, natsOptions_SetRetryOnFailedConnect, (void *options, bool retry, connected_fn fn, void *ctx)) \
	F(int, natsOptions_SetPingInterval, (void *options, int64_t ms)) \
	F(int, natsOptions_SetUserCredentialsFromFiles, (void *options, const char *file, const char *seed)) \
	F(int, natsOptions_LoadCATrustedCertificates, (void *options, const char *file)) \
	F(int, natsOptions_SetSecure, (void *options, bool secure)) \
	F(int, natsConnection_Connect, (void **connection, void *options)) \
	F(int, natsConnection_Status, (void *connection)) \
	F(int, natsConnection_HasHeaderSupport, (void *connection)) \
	F(int, natsConnection_PublishMsg, (void *connection, void *message)) \
	F(int, natsConnection_FlushTimeout, (void *connection, int64_t ms)) \
	F(void, natsConnection_Destroy, (void *connection)) \
	F(int, natsMsg_Create, (void **message, const char *subject, const char *reply, const char *data, int n)) \
	F(int, natsMsgHeader_Set, (void *message, const char *key, const char *value)) \
	F(void, natsMsg_Destroy, (void *message)) \
	F(const char *, natsStatus_GetText, (int status))

struct nats {
	void *library;
	void *connection;
#define F(type, name, args) type (*name) args;
	FUNCTIONS(F)
#undef F
};

static int load(struct nats *n, struct error *err)
{
	for (size_t i = 0; i < ARRAY_LEN(names) && !n->library; i++)
		n->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!n->library)
		return error_set(err, ERR_UNAVAILABLE, "events.nats_url is set, but the NATS library is not installed: apt-get install libnats3.4");
	const char *missing = NULL;
	void *f;
#define F(type, name, args) \
	f = dlsym(n->library, #name); \
	memcpy(&n->name, &f, sizeof(f)); \
	missing = f ? missing : #name;
	FUNCTIONS(F)
#undef F
	return missing ? error_set(err, ERR_UNAVAILABLE, "the NATS library is too old: it lacks %s", missing) : 0;
}

static int check(const struct nats *n, int status, const char *what, enum error_code code, struct error *err)
{
	return status == OK ? 0 : error_set(err, code, "%s: %s", what, n->natsStatus_GetText(status));
}

/* Its being there makes the first connection a thing of the background too. */
static void on_connected(void *connection, void *ctx)
{
	(void)connection;
	(void)ctx;
}

/* Never prints the address: it may hold a password. */
static int set_servers(struct nats *n, void *options, const char *urls, struct error *err)
{
	enum { SERVERS_MAX = 16 };
	const char *list[SERVERS_MAX];
	int count = 0;
	auto_free char *text = xstrdup(urls);
	char *rest = NULL;
	for (char *one = strtok_r(text, ", ", &rest); one && count < SERVERS_MAX; one = strtok_r(NULL, ", ", &rest))
		list[count++] = one;
	return check(n, n->natsOptions_SetServers(options, list, count), "events.nats_url", ERR_INVALID, err);
}

static int configure(struct nats *n, void *options, const struct nats_options *o, struct error *err)
{
	if (set_servers(n, options, o->url, err) != 0)
		return -1;
	if (o->credentials && *o->credentials &&
	    check(n, n->natsOptions_SetUserCredentialsFromFiles(options, o->credentials, NULL), "events.nats_credentials", ERR_INVALID, err) != 0)
		return -1;
	if (o->ca && *o->ca && (check(n, n->natsOptions_SetSecure(options, true), "events.nats_ca", ERR_INVALID, err) != 0 ||
				check(n, n->natsOptions_LoadCATrustedCertificates(options, o->ca), "events.nats_ca", ERR_INVALID, err) != 0))
		return -1;
	int status = n->natsOptions_SetName(options, "sandboxd");
	if (status == OK)
		status = n->natsOptions_SetMaxReconnect(options, FOR_EVER);
	if (status == OK)
		status = n->natsOptions_SetReconnectWait(options, RECONNECT_WAIT_MS);
	if (status == OK)
		status = n->natsOptions_SetReconnectJitter(options, JITTER_MS, JITTER_MS);
	if (status == OK)
		status = n->natsOptions_SetPingInterval(options, 10 * 1000);
	if (status == OK)
		status = n->natsOptions_SetRetryOnFailedConnect(options, true, on_connected, NULL);
	return check(n, status, "NATS", ERR_INTERNAL, err);
}

int nats_open(const struct nats_options *o, struct nats **ret, struct error *err)
{
	struct nats *n = xcalloc(1, sizeof(*n));
	void *options = NULL;
	if (load(n, err) != 0) {
		nats_close(n);
		return -1;
	}
	int rc = check(n, n->natsOptions_Create(&options), "NATS", ERR_INTERNAL, err);
	if (rc == 0)
		rc = configure(n, options, o, err);
	/* "Not connected yet" is what it says when the server is away; the connection is made all the same. */
	if (rc == 0) {
		int status = n->natsConnection_Connect(&n->connection, options);
		if (!n->connection)
			rc = check(n, status, "events.nats_url", ERR_INVALID, err);
	}
	n->natsOptions_Destroy(options);
	if (rc != 0) {
		nats_close(n);
		return -1;
	}
	*ret = n;
	return 0;
}

/* The library stays loaded: its threads may still be ending. */
void nats_close(struct nats *n)
{
	if (!n)
		return;
	if (n->connection)
		n->natsConnection_Destroy(n->connection);
	free(n);
}

bool nats_connected(struct nats *n)
{
	return n->natsConnection_Status(n->connection) == CONNECTED;
}

int nats_publish(struct nats *n, const char *subject, const char *id, const char *text, struct error *err)
{
	void *m = NULL;
	int status = n->natsMsg_Create(&m, subject, NULL, text, (int)strlen(text));
	if (status == OK && n->natsConnection_HasHeaderSupport(n->connection) == OK)
		status = n->natsMsgHeader_Set(m, "Nats-Msg-Id", id);
	if (status == OK)
		status = n->natsConnection_PublishMsg(n->connection, m);
	n->natsMsg_Destroy(m);
	return check(n, status, "publishing to NATS", ERR_UNAVAILABLE, err);
}

int nats_flush(struct nats *n, int64_t timeout_ms, struct error *err)
{
	return check(n, n->natsConnection_FlushTimeout(n->connection, timeout_ms), "NATS", ERR_UNAVAILABLE, err);
}
