/* The records of commands: a row before the command is handed to its worker, its result afterwards. */
#include "daemon/controller/internal.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"

#define ROUTE "POST /v1/sandboxes/exec"

/* Not running yet: says what to wait for. */
static int refuse_unborn(struct change *ch, const struct sandbox_head *h, struct error *err)
{
	char label[LABEL_MAX];
	struct op_head create;
	int rc = lookup_create(ch->tx, h, &create, err);
	if (rc < 0)
		return -1;
	return error_set(err, ERR_CONFLICT, "sandbox %s is still being created: sandbox wait %s", lookup_label(h, label),
			 rc ? create.id.text : h->id.text);
}

static int refuse_expired(const struct sandbox_head *h, struct error *err)
{
	char label[LABEL_MAX], when[RFC3339_MAX];
	return error_set(err, ERR_EXPIRED, "sandbox %s expired at %s", lookup_label(h, label), time_rfc3339(h->expires_us, when));
}

static int check_running(struct change *ch, const struct sandbox_head *h, struct error *err)
{
	char label[LABEL_MAX];
	switch (h->state) {
	case SANDBOX_SCHEDULED:
	case SANDBOX_CREATING:
		return refuse_unborn(ch, h, err);
	case SANDBOX_STOPPING:
		if (h->end_reason == OUTCOME_EXPIRED)
			return refuse_expired(h, err);
		return error_set(err, ERR_CONFLICT, "sandbox %s is being deleted", lookup_label(h, label));
	case SANDBOX_STOPPED:
	case SANDBOX_FAILED:
	case SANDBOX_COUNT:
		return lookup_ended(ch->tx, h, err);
	case SANDBOX_RUNNING:
		break;
	}
	return h->expires_us <= ch->now ? refuse_expired(h, err) : 0;
}

static int check_count(struct change *ch, const struct sandbox_head *h, struct error *err)
{
	char label[LABEL_MAX];
	int64_t n = 0;
	if (store_op_exec_count(ch->tx, h, &n, err) != 0)
		return -1;
	if (n >= LIMIT_EXECS_PER_SANDBOX)
		return error_set(err, ERR_RATE_LIMITED, "%d commands run in sandbox %s already: wait for some to end", LIMIT_EXECS_PER_SANDBOX,
				 lookup_label(h, label));
	return 0;
}

static uint64_t hash_strv(uint64_t hash, const struct strv *v)
{
	for (size_t i = 0; i < v->len; i++)
		hash = hash_text(hash, v->items[i]);
	return hash_bytes(hash, "\1", 1);
}

static uint64_t hash_command(const struct sandbox_head *h, const struct command *cmd)
{
	uint64_t hash = hash_strv(hash_strv(hash_text(HASH_INIT, h->id.text), &cmd->argv), &cmd->env);
	hash = hash_text(hash_text(hash, cmd->cwd), cmd->user);
	return hash_bytes(hash, &cmd->timeout_ms, sizeof(cmd->timeout_ms));
}

/* 1: begun before under this key; 0: new; -1: error. */
static int seen_before(struct change *ch, struct idem_key *k, struct error *err)
{
	uint64_t hash = k->body_hash;
	int rc = k->key ? store_key_get(ch->tx, k, err) : 0;
	if (rc == 1 && k->body_hash != hash)
		return error_set(err, ERR_CONFLICT, "Idempotency-Key '%s' was used with another command: use a new key", k->key);
	return rc;
}

static int write_command(struct change *ch, const struct sandbox_head *h, const struct exec_request *req, struct idem_key *k, const char *actor,
			 struct error *err)
{
	k->sandbox = h->id;
	k->operation = id_new();
	char boot[BOOT_TEXT_MAX];
	nodes_boot(ch->c, &h->node, boot);
	struct op_new op = { .id = k->operation, .sandbox = h, .kind = OPK_EXEC, .state = OP_RUNNING, .command = req->command,
			     .detached = req->detached, .boot_id = *boot ? boot : store_boot_id(ch->c->store), .actor = actor };
	if (store_op_insert(ch->tx, &op, ch->now, err) != 0)
		return -1;
	ch->doubt = (struct doubt){ .op = op.id, .attempt = 1 };
	return k->key ? store_key_add(ch->tx, k, ch->now, err) : 0;
}

static int begin(struct change *ch, const struct caller *who, const struct exec_request *req, struct sandbox_head *h, struct idem_key *k,
		 bool *ret_seen, struct error *err)
{
	if (change_lookup(ch, who, req->sandbox, h, err) != 0)
		return -1;
	*k = (struct idem_key){ .tenant = h->tenant, .route = ROUTE, .key = req->idempotency_key,
				.body_hash = req->idempotency_key ? hash_command(h, req->command) : 0 };
	int seen = seen_before(ch, k, err);
	*ret_seen = seen == 1;
	if (seen != 0)
		return seen < 0 ? -1 : 0;
	if (check_running(ch, h, err) != 0 || check_count(ch, h, err) != 0 || (req->reachable && req->reachable(req->ctx, &h->node, err) != 0) ||
	    write_command(ch, h, req, k, who->who, err) != 0)
		return -1;
	return change_commit(ch, err);
}

int controller_exec_begin_once(struct controller *c, const struct caller *who, const struct exec_request *req, struct exec_grant *ret,
			       bool *ret_seen, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct sandbox_head h;
	struct idem_key k;
	if (access_may_mutate(who, err) != 0 || command_validate(req->command, err) != 0 || change_begin(c, DB_WRITE, &ch, err) != 0 ||
	    begin(&ch, who, req, &h, &k, ret_seen, err) != 0)
		return -1;
	*ret = (struct exec_grant){ .operation = k.operation, .sandbox = h.id, .node = h.node,
				    .deadline_us = store_wall(c->store, h.expires_us), .writable_root = h.writable_root };
	return 0;
}

int controller_exec_begin(struct controller *c, const struct caller *who, const char *sandbox_ref, const struct command *cmd,
			  struct exec_grant *ret, struct error *err)
{
	bool seen;
	return controller_exec_begin_once(c, who, &(struct exec_request){ .sandbox = sandbox_ref, .command = cmd }, ret, &seen, err);
}

int controller_exec_end(struct controller *c, const struct id *operation, const struct result *result, enum error_code code,
			const char *error, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct op_head op;
	struct result none;
	if (change_begin(c, DB_WRITE, &ch, err) != 0)
		return -1;
	int rc = change_op(&ch, operation, &op, err);
	if (rc == 0 || (rc == 1 && (op_ended(op.state) || op.kind != OPK_EXEC)))
		return 0;
	if (rc < 0)
		return -1;
	result_init(&none);
	none.outcome = OUTCOME_NOT_STARTED;
	struct op_change to = { .attempt = op.attempt, .result = result ? result : &none, .code = code, .error = error };
	/* Success is a positive record: it ran, ended by itself, and said 0. */
	to.to = to.result->outcome == OUTCOME_EXITED && to.result->exit_code == 0 && code == ERR_NONE ? OP_SUCCEEDED : OP_FAILED;
	return change_end_op(&ch, &op, &to, err) == 0 ? change_commit(&ch, err) : -1;
}
