/* The worker's end, inside: uplink.c (dialling), uplink_ask.c (what the worker asks), uplink_serve.c (what it is asked), credential.c. */
#ifndef SANDBOX_DAEMON_LINK_UPLINK_PRIV_H
#define SANDBOX_DAEMON_LINK_UPLINK_PRIV_H

#include "daemon/link/call.h"
#include "daemon/link/codec.h"
#include "daemon/link/uplink.h"
#include "daemon/worker/muxconn.h"
#include "shared/config/server_url.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CREDENTIAL_MAX = 4 + 64, PIN_MAX = 127, STATE_TEXT_MAX = 256 };

/* What is kept in worker.credential_file. */
struct credential {
	char secret[CREDENTIAL_MAX + 1];
	char pin[PIN_MAX + 1]; /* "": none */
};

struct uplink {
	struct upstream up;
	struct uplink_options o;
	struct server_url url;
	struct credential credential;
	char session[ID_TEXT_LEN + 1], boot_id[64];
	struct node_port *own;
	struct call_pool *pool;
	struct caller_link *calls;
	struct muxconn *conn;     /* loop thread */
	pthread_t thread;
	bool started;
	int interrupt_fd;         /* an eventfd: dialling ends */
	pthread_mutex_t lock;     /* guards what follows */
	pthread_cond_t changed;
	bool stopping, alive, up_now; /* alive: there is a connection; up_now: it has greeted */
	char state[STATE_TEXT_MAX];
	struct node_report report; /* the last one */
	bool has_report;
	struct strv held;
	void (*on_work)(void *ctx);
	void *work_ctx;
	int (*on_connect)(void *ctx, struct error *err);
	void *connect_ctx;
};

/* credential.c */
char *credential_path(const struct daemon_config *config);
/* ERR_NOT_FOUND: there is none. */
int credential_load(const struct daemon_config *config, struct credential *ret, struct error *err);
int credential_save(const struct daemon_config *config, const struct credential *c, struct error *err);
/* worker.join_token_file or SANDBOX_JOIN_TOKEN: the token, and the pin behind its dot. ERR_NOT_FOUND: neither. */
int join_token_read(const struct daemon_config *config, struct credential *ret, struct error *err);
/* Asks the controller for a credential; ret has the join token before, the credential afterwards. */
int credential_join(struct uplink *u, struct credential *ret, struct error *err);

/* What to dial with; the text is borrowed from u and c. */
struct remote_options;
void uplink_remote_options(const struct uplink *u, const struct credential *c, struct remote_options *ret);

/* uplink_ask.c */
extern const struct upstream_ops uplink_ops;
int uplink_ask(struct uplink *u, const char *method, cJSON *take_j, int64_t timeout_ms, struct buf *ret, struct error *err);

/* uplink_serve.c */
int uplink_answer(void *ctx, struct call_in *c, struct buf *answer, struct error *err);
/* Loop thread: a stream the controller opens. */
void uplink_opened(struct uplink *u, struct mux *m, uint32_t stream, const struct tlv *fields);

#endif
