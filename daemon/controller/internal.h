/*
 * Inside daemon/controller: the state, and one change (a transaction with what must happen after its commit).
 *
 * Order of locks: the queue's, a transaction, then `nodes.lock`; the others are leaves. Callbacks run after the commit, outside
 * every lock but the one that guards their registration.
 */
#ifndef SANDBOX_DAEMON_CONTROLLER_INTERNAL_H
#define SANDBOX_DAEMON_CONTROLLER_INTERNAL_H

#include "daemon/controller/controller.h"
#include "daemon/controller/identity.h"
#include "daemon/controller/tunnels.h"
#include "daemon/store/identity.h"
#include "daemon/store/store.h"
#include "shared/model/egress.h"
#include "shared/base/buf.h"
#include "shared/base/mem.h"

#include <pthread.h>

enum { BOOT_TEXT_MAX = 64 };

/* What of the configuration decides here; replaced as a whole on reload. */
struct settings {
	struct policy policy;
	int64_t max_ttl_ms;
	int64_t retention_ms;
	struct quota quota; /* of tenants that have none of their own */
};

/* views is contiguous for AEGIS; extra[i] belongs to views[i] and does not move. */
struct node_extra;
struct nodes {
	pthread_mutex_t lock;
	struct node_view *views;
	struct node_extra **extra;
	size_t len, cap;
	uint32_t *slots;   /* by id: a position plus one; 0: free */
	size_t n_slots;    /* a power of two */
	bool tunnels;      /* what the views say */
	int64_t look_ms;   /* monotonic: until then none becomes stale */
	int64_t read_ms; /* monotonic: when the store was last read */
	int64_t follow_ms; /* for how long what was read is fresh, in a shared store */
	int64_t loaded_ms; /* monotonic: when this controller began */
	int64_t now_us;  /* the store's time while it is being read */
};

struct watches;
struct shares;
struct hooks;
struct metrics;
struct queue;
struct pools;

/* An operation whose begin was being committed when the store's connection was lost: nobody knows whether it was. */
struct doubt {
	struct id op;     /* "": none */
	uint32_t attempt;
};

struct vault;
struct controller {
	struct store *store;
	struct vault *vault;
	pthread_mutex_t settings_lock;
	struct settings settings;
	struct tunnel_offer offer; /* under settings_lock */
	struct egress_terms egress; /* with settings_lock: what of them is the server's */
	struct nodes nodes;
	struct watches *watches;
	struct shares *shares;
	struct hooks *hooks;
	struct metrics *metrics;
	struct queue *queue;
	struct pools *pools;
	pthread_mutex_t doubts_lock;
	struct doubt *doubts;
	size_t n_doubts;
};

struct settings controller_settings(struct controller *c);

/* --- change.c: one transaction and its consequences --- */

struct change_event;
struct measure {
	enum op_kind kind;
	bool queued;          /* leased now; else ended, as: */
	bool succeeded;
	enum outcome outcome; /* NONE: only succeeded says */
	int64_t took_us;
};
struct change {
	struct controller *c;
	struct db_tx *tx;
	int64_t now;
	struct id *ended;             /* operations that ended */
	struct measure *measures;     /* what they and the leases took, for metrics */
	size_t n_measures;
	size_t n_ended;
	struct id *work;              /* nodes that may have something to lease */
	size_t n_work;
	struct reservation *given;    /* given back to nodes */
	size_t n_given;
	const struct reservation *taken; /* taken in memory: given back when the change fails */
	int64_t wake_us;              /* a deadline that may be earlier than those known, 0: none */
	struct change_event *events;  /* written at the end of the transaction: see store_event_lock */
	size_t n_events;
	bool routes;                  /* tunnels were added or removed */
	struct doubt doubt;           /* what to look at again when the commit's end is unknown */
};
int change_begin(struct controller *c, enum db_mode mode, struct change *ret, struct error *err);
/* Commits, then tells nodes, watchers, workers and the timer. */
int change_commit(struct change *ch, struct error *err);
void change_done(struct change *ch); /* rolls back what was not committed */
#define auto_change __attribute__((cleanup(change_done))) struct change
#define CHANGE_INIT { .c = NULL }

/* lookup_head, then nobody else changes the sandbox until the change is done. */
int change_lookup(struct change *ch, const struct caller *who, const char *ref, struct sandbox_head *ret, struct error *err);
/* What a sandbox holds of its node is free again, also in memory once this is committed. */
int change_release(struct change *ch, const struct id *sandbox, struct error *err);
/* The operation's row, its sandbox locked likewise. 1, 0 or -1 as store_op_head. */
int change_op(struct change *ch, const struct id *op, struct op_head *ret, struct error *err);
void change_work(struct change *ch, const struct id *node);
void change_wake(struct change *ch, int64_t at_us);
/* Moves an operation to an end, notes it for its watchers, writes its event. */
int change_end_op(struct change *ch, struct op_head *op, const struct op_change *to, struct error *err);
/* Ends an operation that produced nothing with this outcome and text. */
int change_fail_op(struct change *ch, struct op_head *op, enum outcome outcome, enum error_code code, const char *text, struct error *err);
int change_move(struct change *ch, struct sandbox_head *h, const struct sandbox_change *to, const char *actor, struct error *err);
/* The sandbox leaves the live ones: its commands end with this outcome, what it held is free again. */
int change_end_sandbox(struct change *ch, struct sandbox_head *h, const struct sandbox_change *to, enum outcome execs, struct error *err);
/* Written when the change is committed. */
void change_event(struct change *ch, const struct sandbox_head *h, const char *type, const char *detail, const char *actor);

/* --- access.c --- */

bool access_visible(const struct caller *who, const char *tenant);
/* The tenant to filter by; NULL: all. */
const char *access_filter(const struct caller *who);
int access_may_mutate(const struct caller *who, struct error *err);
/* The tenant a create acts in; asked may be NULL or "". */
int access_tenant(const struct caller *who, const char *asked, const char **ret, struct error *err);

/* The tenant whose secrets and logins are meant; asked NULL or "": the caller's own. */
int access_named_tenant(const struct caller *who, const char *asked, const char **ret, struct error *err);

/* --- create.c, queue.c --- */

/* A create as controller_create, whoever waits. */
int create_now(struct controller *c, const struct caller *who, const struct spec *spec, const char *key, struct create_result *ret,
	       struct error *err);
uint64_t spec_hash(const struct spec *s);
/* Decides and takes a place. ERR_NO_CAPACITY when there is none: d says why. */
int create_reserve(struct change *ch, const struct spec *s, struct decision *d, struct reservation *r, struct error *err);

struct queue *queue_new(void);
void queue_free(struct queue *q);
/* How many wait for capacity. */
unsigned queue_len(struct controller *c);
/* A create behind those that wait. */
int queue_create(struct controller *c, const struct caller *who, const struct spec *spec, const char *key, struct create_result *ret,
		 struct error *err);
/* Tries those that wait; lowers *next_us to when they want to be tried again. */
void queue_serve(struct controller *c, int64_t *next_us);

/* --- pool.c, pool_keep.c --- */

struct pools *pools_new(void);
void pools_free(struct pools *p);
void pools_set(struct controller *c, const struct daemon_config *config);
/* A sandbox that waits and equals what is asked (d was assessed). 1: *ret is its id, d says placed; 0: none. */
int pools_claim(struct change *ch, const struct spec *s, struct id *ret, struct decision *d, struct error *err);
/* Starts and ends what the configuration wants; lowers *next_us to when to look again. */
int pools_keep(struct controller *c, int64_t *next_us, struct error *err);
void pools_metrics(struct controller *c, struct buf *out);
/* Makes a decision say that a sandbox of a pool would be handed out, where one is ready. */
int pools_explain(struct controller *c, struct db_tx *tx, const struct spec *s, struct decision *d, struct error *err);
bool pools_any(struct controller *c);
/* Ends as few of those that wait as would let in a request that was refused (d). False: that would not help. */
bool pools_yield(struct controller *c, const struct spec *s, const struct decision *d);

/* --- audit.c --- */

/* ERR_NO_CAPACITY or, for the lifetime, ERR_INVALID when one more sandbox would be over its tenant's quota. */
int quota_check(struct controller *c, struct db_tx *tx, const struct spec *s, struct error *err);
int quota_check_ttl(struct controller *c, struct db_tx *tx, const char *tenant, int64_t ttl_ms, struct error *err);
int quota_in_force(struct controller *c, struct db_tx *tx, const char *tenant, struct quota *ret, struct error *err);

/* --- secrets.c --- */

/* Whether everything a spec asks for is there and can be given. ERR_NOT_FOUND, ERR_INVALID. */
int secrets_check(struct controller *c, struct db_tx *tx, const struct spec *s, struct error *err);

/* Unlocks the vault; its key is made with the first that is sealed, and only then. */
int vault_ready(struct controller *c, struct db_tx *tx, struct error *err);

/* --- egress.c --- */

/* Takes the rules of the configuration; when they cannot be read the old ones stay. */
int egress_configure(struct controller *c, const struct daemon_config *config, struct error *err);

/* --- lookup.c --- */

int lookup_head(struct db_tx *tx, const struct caller *who, const char *ref, struct sandbox_head *ret, struct error *err);
/* Why nothing can be done with one that ended; always -1. */
int lookup_ended(struct db_tx *tx, const struct sandbox_head *h, struct error *err);
/* "web (…8 digits)" or the id: how messages name a sandbox. */
enum { LABEL_MAX = NAME_MAX_LEN + ID_TEXT_LEN + 8 };
const char *lookup_label(const struct sandbox_head *h, char out[static LABEL_MAX]);
int lookup_load(struct controller *c, struct db_tx *tx, const struct id *id, struct sandbox *ret, struct error *err);
int lookup_operation(struct db_tx *tx, const struct id *id, struct operation *ret, struct error *err);
/* The unfinished create of a sandbox: 1, 0 when there is none, -1. */
int lookup_create(struct db_tx *tx, const struct sandbox_head *h, struct op_head *ret, struct error *err);

/* --- nodes.c --- */

int nodes_load(struct controller *c, struct error *err);
void nodes_done(struct controller *c);
void nodes_metrics(struct controller *c, struct buf *out);
/* Fills the decision; take (may be NULL) gets node and is taken in memory when placed. */
void nodes_place(struct controller *c, const struct spec *spec, struct decision *d, struct reservation *take);
void nodes_give(struct controller *c, const struct reservation *r);
/* Calls fn for every node as it is now, under their lock. */
typedef void (*node_fn)(void *ctx, const struct node_view *v);
void nodes_each(struct controller *c, node_fn fn, void *ctx);
/* Reads again what is taken, and what nodes of other controllers report: they place there too. */
int nodes_refresh(struct controller *c, struct db_tx *tx, struct error *err);
/* The same in a shared store, when the last time is some while ago. */
int nodes_follow(struct controller *c, struct db_tx *tx, struct error *err);
struct node_info;
/* What is known of a node beside its record. */
void nodes_describe(struct controller *c, const struct id *node, struct node_info *ret);
void nodes_set_draining(struct controller *c, const struct id *node, bool draining);
/* The boot its commands are noted with; a node that never said one is on this machine. */
void nodes_set_boot(struct controller *c, const struct id *node, const char *boot_id);
void nodes_boot(struct controller *c, const struct id *node, char ret[static BOOT_TEXT_MAX]);
void nodes_let_go(struct controller *c, const struct id *node);
void nodes_forget(struct controller *c, const struct id *node);
bool nodes_reachable(struct controller *c, const struct id *node);
/* What waits for it waits until it is back, which may be never. */
bool nodes_away(struct controller *c, const struct id *node, char ret_name[static NAME_MAX_LEN + 1]);

/* More than one is known; one of them is away. */
bool nodes_several(struct controller *c);
bool nodes_any_away(struct controller *c);

/* --- strand.c --- */

/* How often unfinished creates are looked at for nodes that went away, where there are several. */
enum { STRAND_LOOK_US = 5 * 1000 * 1000 };
/* Places creates anew whose node is away and cannot have begun with what the user asked for; lowers *next_us to when to look again. */
int strand_look(struct controller *c, int64_t *next_us, struct error *err);
/* Whether a create that a node was given may have started something of the user's there. */
bool strand_may_have_begun(const struct sandbox *s, uint32_t attempt);

/* --- watch.c, hooks.c --- */

struct watches *watches_new(void);
void watches_free(struct watches *w);
void watches_fire(struct watches *w, const struct id *operation);
/* Looks whether something that is watched has ended without our doing. */
void watches_look(struct controller *c);

struct hooks *hooks_new(void);
void hooks_free(struct hooks *h);
void hooks_work(struct hooks *h, const struct id *node);
void hooks_all_work(struct hooks *h);
void hooks_event(struct hooks *h);
void hooks_routes(struct hooks *h);
/* Tells the timer when now_us + after_us, of the store's clock, is earlier than what it waits for. */
void hooks_wake(struct hooks *h, int64_t now_us, int64_t after_us);
/* Around the computing of the next deadline: what is announced between the two is not lost. Returns the earliest. */
void hooks_begin_wake(struct hooks *h);
int64_t hooks_end_wake(struct hooks *h, int64_t at_us);
/* Progress texts of running creates; NULL text forgets. */
void hooks_progress(struct hooks *h, const struct id *operation, const char *text);
char *hooks_get_progress(struct hooks *h, const struct id *operation); /* NULL: none; the caller frees */

/* --- lease.c, controller.c --- */

/* Back to pending, for another attempt; one that is not wanted any more ends. */
int requeue_one(struct change *ch, struct op_head *op, struct error *err);
/* Commands of another boot: nothing of them is left. node NULL: of all nodes but those that joined from elsewhere. */
int end_lost_execs(struct controller *c, const struct id *node, const char *boot_id, struct error *err);
/* Running creates and deletes of the node but those held go back, commands of another boot end. */
int requeue_all(struct controller *c, const struct id *node, const char *boot_id, const struct strv *held, struct error *err);

/* --- token.c --- */

/* A fresh secret, and its hash. */
void secret_new(const char *prefix, char secret[static TOKEN_SECRET_LEN + 1], char hash[static TOKEN_HASH_LEN + 1]);

/* --- metrics.c --- */

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);
void metrics_add(struct metrics *m, const struct measure *one);
/* Notes that an operation was leased or has ended; counted when the change is committed. */
void change_measure(struct change *ch, const struct op_head *op, bool queued, const struct op_change *to);

/* --- doubts.c: what a lost commit left --- */

void doubts_add(struct controller *c, const struct doubt *d);
/* Ends commands nobody was given and hands out leases nobody got. -1: some are left for later. */
int doubts_settle(struct controller *c, struct error *err);

/* --- tunnels.c --- */

int tunnels_check_offer(struct controller *c, struct error *err);
int tunnels_check_data(enum sensitivity s, struct error *err);
/* A tunnel of a sandbox that is new or runs. */
int tunnels_add(struct change *ch, const struct sandbox_head *h, const struct tunnel_request *q, enum tunnel_state state, struct tunnel_result *ret,
                struct error *err);
/* What becomes of its tunnels when a sandbox moves. */
int tunnels_follow(struct change *ch, const struct sandbox_head *h, enum sandbox_state to, struct error *err);
/* Removes those whose time has come; *ret_next: the next time, when it is earlier. */
int tunnels_expire(struct controller *c, int64_t *ret_next, struct error *err);
/* A sandbox's, replacing *ret (freed). */
int tunnels_of(struct controller *c, struct db_tx *tx, const struct id *sandbox, struct tunnel **ret, size_t *ret_n, struct error *err);

/* Fills in host name and address. */
void tunnel_address(const struct tunnel_offer *o, struct tunnel *t);
/* A label for this tenant: the one asked for, when it is free, or (asked NULL) one nobody can guess. */
int tunnels_claim(struct change *ch, const char *tenant, const char *asked, char ret[static TUNNEL_LABEL_MAX + 1], struct error *err);

/* --- shares.c --- */

struct shares *shares_new(void);
void shares_free(struct shares *s);
bool shares_hold(struct shares *all, const char *label);
void shares_routes(struct shares *all, tunnel_route_fn fn, void *ctx);

/* --- delete.c --- */

/* Wants the end of a live sandbox. The delete operation's id is h->delete_op afterwards. */
int delete_begin(struct change *ch, struct sandbox_head *h, enum outcome why, const char *actor, struct error *err);

/* FNV-1a, for telling two request bodies of one key apart. */
#define HASH_INIT UINT64_C(0xcbf29ce484222325)
static inline uint64_t hash_bytes(uint64_t h, const void *p, size_t n)
{
	for (const unsigned char *b = p; n > 0; n--, b++)
		h = (h ^ *b) * UINT64_C(0x100000001b3);
	return h;
}
static inline uint64_t hash_text(uint64_t h, const char *s)
{
	return hash_bytes(h, s ? s : "", s ? strlen(s) + 1 : 0);
}

static inline bool id_eq(const struct id *a, const struct id *b)
{
	return strcmp(a->text, b->text) == 0;
}

#endif
