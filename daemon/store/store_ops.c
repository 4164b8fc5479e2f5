/* Rows of operations and their captured output: see store.h. */
#include "daemon/store/internal.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"

/* How many of the newest operations are searched for one by its last digits. */
enum { SUFFIX_AMONG = 10000 };

/* The program and its arguments as far as a record needs them; the rest is counted. */
static void pack_argv(const struct strv *argv, struct buf *out)
{
	for (size_t i = 0; i < argv->len; i++) {
		size_t n = strlen(argv->items[i]) + 1;
		if (out->len + n > LIMIT_RECORD_ARGV_MAX) {
			buf_addf(out, "… (%zu more arguments)", argv->len - i);
			buf_addc(out, '\0');
			return;
		}
		buf_add(out, argv->items[i], n);
	}
}

static void pack_env_keys(const struct strv *env, struct buf *out)
{
	for (size_t i = 0; i < env->len && out->len < LIMIT_RECORD_ARGV_MAX; i++) {
		buf_add(out, env->items[i], strcspn(env->items[i], "="));
		buf_addc(out, '\0');
	}
}

int store_op_insert(struct db_tx *tx, const struct op_new *op, int64_t now, struct error *err)
{
	const struct command *c = op->command;
	auto_buf argv = BUF_INIT, keys = BUF_INIT;
	struct db_stmt *s = db_query(tx, Q_OP_INSERT);
	db_bind_text(s, 1, op->id.text);
	db_bind_text(s, 2, op->sandbox->id.text);
	db_bind_text(s, 3, op->sandbox->node.text);
	db_bind_text(s, 4, op->sandbox->tenant);
	db_bind_text(s, 5, op_kind_text(op->kind));
	db_bind_text(s, 6, op_state_text(op->state));
	db_bind_i64(s, 7, op->attempts + (op->state == OP_RUNNING));
	db_bind_text(s, 8, op->boot_id ? op->boot_id : "");
	db_bind_i64(s, 9, now);
	db_bind_i64(s, 10, op_ended(op->state) ? now : 0);
	db_bind_text(s, 11, op->actor);
	if (c) {
		pack_argv(&c->argv, &argv);
		pack_env_keys(&c->env, &keys);
		db_bind_bytes(s, 12, argv.data, argv.len);
		db_bind_bytes(s, 13, keys.data, keys.len);
		db_bind_bytes(s, 14, c->cwd, c->cwd ? strlen(c->cwd) : 0);
		db_bind_text(s, 15, c->user);
	}
	db_bind_i64(s, 16, c ? c->timeout_ms : 0);
	db_bind_i64(s, 17, c && c->tty);
	db_bind_i64(s, 18, op->detached);
	return db_run(s, NULL, err);
}

/* --- error codes as words that do not change when the table of errors grows --- */

static const char *const code_words[ERR_COUNT] = {
#define X(id, wire, http, exit, summary) [ERR_##id] = #id,
#include "shared/base/errors.def"
#undef X
};

static enum error_code read_code(const char *word)
{
	for (int i = 1; word && i < ERR_COUNT; i++)
		if (strcmp(word, code_words[i]) == 0)
			return (enum error_code)i;
	return word ? ERR_INTERNAL : ERR_NONE;
}

/* --- reading --- */

static int read_head(struct db_stmt *s, struct op_head *h, struct error *err)
{
	*h = (struct op_head){ .attempt = (uint32_t)db_i64(s, 6) };
	copy_id(&h->id, db_text(s, 0));
	copy_id(&h->sandbox, db_text(s, 1));
	copy_id(&h->node, db_text(s, 2));
	copy_text(h->tenant, sizeof(h->tenant), db_text(s, 3));
	if (READ_ENUM(op_kind, s, 4, &h->kind, err) != 0)
		return -1;
	return READ_ENUM(op_state, s, 5, &h->state, err);
}

static void read_command(struct db_stmt *s, struct command *c)
{
	size_t n = 0;
	const void *p = db_bytes(s, 20, &n);
	store_unpack(p, n, &c->argv);
	p = db_bytes(s, 21, &n);
	store_unpack(p, n, &c->env);
	p = db_bytes(s, 22, &n);
	c->cwd = p ? xstrndup(p, n) : NULL;
	c->user = xstrdup0(db_text(s, 23));
	c->timeout_ms = db_i64(s, 24);
	c->tty = db_i64(s, 25) != 0;
}

static int read_row(struct db_stmt *s, struct operation *o, struct error *err)
{
	struct op_head h;
	if (read_head(s, &h, err) != 0 || READ_ENUM(outcome, s, 11, &o->result.outcome, err) != 0)
		return -1;
	o->id = h.id;
	o->sandbox_id = h.sandbox;
	o->kind = h.kind;
	o->state = h.state;
	o->attempt = h.attempt;
	copy_text(o->tenant, sizeof(o->tenant), h.tenant);
	o->created_us = db_i64(s, 7);
	o->updated_us = db_i64(s, 8);
	o->has_result = db_i64(s, 10) != 0;
	o->result.exit_code = (int)db_i64(s, 12);
	o->result.signal = (int)db_i64(s, 13);
	o->result.oom_killed = db_i64(s, 14) != 0;
	o->result.truncated = db_i64(s, 15) != 0;
	o->result.out.total = (uint64_t)db_i64(s, 16);
	o->result.err.total = (uint64_t)db_i64(s, 17);
	o->error_code = read_code(db_text(s, 18));
	o->error = xstrdup0(db_text(s, 19));
	read_command(s, &o->command);
	o->detached = db_i64(s, 26) != 0;
	return 0;
}

static int read_output(struct db_tx *tx, struct operation *o, struct error *err)
{
	struct buf *const parts[] = { &o->result.out.head, &o->result.out.tail, &o->result.err.head, &o->result.err.tail };
	struct db_stmt *s = db_query(tx, Q_OUTPUT_GET);
	db_bind_text(s, 1, o->id.text);
	int rc = db_step(s, err);
	for (int i = 0; rc == 1 && i < (int)ARRAY_LEN(parts); i++) {
		size_t n = 0;
		const void *p = db_bytes(s, i, &n);
		if (n)
			buf_add(parts[i], p, n);
	}
	db_reset(s);
	return rc < 0 ? -1 : 0;
}

int store_op_get(struct db_tx *tx, const struct id *id, struct operation *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_OP_GET);
	db_bind_text(s, 1, id->text);
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	struct operation o;
	operation_init(&o);
	rc = read_row(s, &o, err);
	db_reset(s);
	if (rc != 0 || read_output(tx, &o, err) != 0) {
		operation_done(&o);
		return -1;
	}
	operation_done(ret);
	*ret = o;
	return 1;
}

int store_op_head(struct db_tx *tx, const struct id *id, struct op_head *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_OP_HEAD);
	db_bind_text(s, 1, id->text);
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	rc = read_head(s, ret, err) == 0 ? 1 : -1;
	db_reset(s);
	return rc;
}

/* All rows of a bound statement, without their output. */
static int read_rows(struct db_stmt *s, struct operation **ret, size_t *ret_len, struct error *err)
{
	struct operation *items = NULL;
	size_t n = 0;
	int rc;
	while ((rc = db_step(s, err)) == 1) {
		if (n % 64 == 0)
			items = xrealloc(items, n + 64, sizeof(*items));
		operation_init(&items[n++]);
		if (read_row(s, &items[n - 1], err) != 0) {
			rc = -1;
			break;
		}
	}
	db_reset(s);
	if (rc == 0) {
		*ret = items;
		*ret_len = n;
		return 0;
	}
	for (size_t i = 0; i < n; i++)
		operation_done(&items[i]);
	free(items);
	return -1;
}

int store_op_match(struct db_tx *tx, const char *suffix, const char *tenant, struct operation *ret, size_t max, struct error *err)
{
	struct operation *items = NULL;
	size_t n = 0;
	struct db_stmt *s = db_query(tx, Q_OP_BY_SUFFIX);
	db_bind_text(s, 1, suffix);
	db_bind_text(s, 2, tenant ? tenant : "");
	db_bind_i64(s, 3, (int64_t)max);
	db_bind_i64(s, 4, SUFFIX_AMONG);
	if (read_rows(s, &items, &n, err) != 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		operation_done(&ret[i]);
		ret[i] = items[i];
	}
	free(items);
	return (int)n;
}

int store_op_page(struct db_tx *tx, const struct id *sandbox, const char *tenant, size_t limit, struct operation **ret, size_t *ret_len,
		  struct error *err)
{
	struct db_stmt *s = db_query(tx, sandbox ? Q_OP_PAGE_SANDBOX : tenant ? Q_OP_PAGE_TENANT : Q_OP_PAGE);
	int n = 1;
	if (sandbox || tenant)
		db_bind_text(s, n++, sandbox ? sandbox->text : tenant);
	db_bind_i64(s, n, (int64_t)limit);
	if (read_rows(s, ret, ret_len, err) != 0)
		return -1;
	for (size_t i = 0; i < *ret_len; i++) {
		struct result *r = &(*ret)[i].result;
		r->truncated = r->truncated || r->out.total || r->err.total;
	}
	return 0;
}

int store_op_open_execs(struct db_tx *tx, const struct id *node, struct operation **ret, size_t *ret_len, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_OP_OPEN_EXECS);
	db_bind_text(s, 1, node->text);
	return read_rows(s, ret, ret_len, err);
}

/* --- heads --- */

void op_list_done(struct op_list *l)
{
	free(l->items);
	*l = (struct op_list){ .len = 0 };
}

int store_op_open(struct db_tx *tx, const struct op_filter *f, struct op_list *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, f->creates ? Q_OP_OPEN_CREATES : f->other_boot ? Q_OP_OTHER_BOOT : f->sandbox ? Q_OP_OPEN_SANDBOX : Q_OP_OPEN_NODE);
	struct op_list l = { .len = 0 };
	int rc;
	if (!f->creates)
		db_bind_text(s, 1, f->other_boot ? f->other_boot : f->node->text);
	if (f->sandbox || f->other_boot)
		db_bind_text(s, 2, f->sandbox ? f->sandbox->text : f->node ? f->node->text : "");
	while ((rc = db_step(s, err)) == 1) {
		if (l.len % 64 == 0)
			l.items = xrealloc(l.items, l.len + 64, sizeof(*l.items));
		if (read_head(s, &l.items[l.len++], err) != 0) {
			rc = -1;
			break;
		}
	}
	db_reset(s);
	if (rc < 0) {
		op_list_done(&l);
		return -1;
	}
	*ret = l;
	return 0;
}

int store_op_exec_count(struct db_tx *tx, const struct sandbox_head *h, int64_t *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_OP_EXEC_COUNT);
	db_bind_text(s, 1, h->node.text);
	db_bind_text(s, 2, h->id.text);
	if (db_step(s, err) < 0)
		return -1;
	*ret = db_i64(s, 0);
	db_reset(s);
	return 0;
}

int store_op_running(struct db_tx *tx, int64_t *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_OP_RUNNING);
	if (db_step(s, err) < 0)
		return -1;
	*ret = db_i64(s, 0);
	db_reset(s);
	return 0;
}

int store_op_next(struct db_tx *tx, const struct id *node, int64_t now, bool take, struct op_head *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, take ? Q_OP_TAKE_WORK : Q_OP_NEXT_WORK);
	db_bind_text(s, 1, node->text);
	db_bind_i64(s, 2, now);
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	rc = read_head(s, ret, err) == 0 ? 1 : -1;
	db_reset(s);
	return rc;
}

int store_op_retries(struct db_tx *tx, op_retry_fn fn, void *ctx, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_OP_NEXT_RETRY);
	int rc;
	while ((rc = db_step(s, err)) == 1) {
		struct id node;
		copy_id(&node, db_text(s, 0));
		fn(ctx, &node, db_i64(s, 1));
	}
	return rc;
}

/* --- changes --- */

static int set_output(struct db_tx *tx, const struct id *op, const struct result *r, struct error *err)
{
	const struct buf *const parts[] = { &r->out.head, &r->out.tail, &r->err.head, &r->err.tail };
	size_t kept = 0;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		kept += parts[i]->len;
	if (kept == 0)
		return 0;
	struct db_stmt *s = db_query(tx, Q_OUTPUT_ADD);
	db_bind_text(s, 1, op->text);
	for (int i = 0; i < (int)ARRAY_LEN(parts); i++)
		db_bind_bytes(s, 2 + i, parts[i]->data, parts[i]->len);
	return db_run(s, NULL, err);
}

static int set_result(struct db_tx *tx, const struct op_head *h, const struct result *r, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_OP_SET_RESULT);
	db_bind_text(s, 1, h->id.text);
	db_bind_text(s, 2, outcome_text(r->outcome));
	db_bind_i64(s, 3, r->exit_code);
	db_bind_i64(s, 4, r->signal);
	db_bind_i64(s, 5, r->oom_killed);
	db_bind_i64(s, 6, r->truncated);
	db_bind_i64(s, 7, (int64_t)r->out.total);
	db_bind_i64(s, 8, (int64_t)r->err.total);
	db_bind_i64(s, 9, h->kind == OPK_EXEC);
	return db_run(s, NULL, err) == 0 ? set_output(tx, &h->id, r, err) : -1;
}

int store_op_move(struct db_tx *tx, struct op_head *h, const struct op_change *change, int64_t now, struct error *err)
{
	if (!op_may_move(h->state, change->to))
		return error_set(err, ERR_INTERNAL, "operation %s may not go from %s to %s", h->id.text, op_state_text(h->state),
				 op_state_text(change->to));
	int64_t changed = 0;
	struct db_stmt *s = db_query(tx, Q_OP_MOVE);
	db_bind_text(s, 1, h->id.text);
	db_bind_text(s, 2, op_state_text(h->state));
	db_bind_text(s, 3, op_state_text(change->to));
	db_bind_i64(s, 4, change->attempt);
	db_bind_i64(s, 5, change->not_before_us);
	db_bind_i64(s, 6, now);
	db_bind_i64(s, 7, op_ended(change->to) ? now : 0);
	db_bind_text(s, 8, (unsigned)change->code < ERR_COUNT ? code_words[change->code] : NULL);
	db_bind_text(s, 9, change->error);
	if (db_run(s, &changed, err) != 0)
		return -1;
	if (changed != 1)
		return error_set(err, ERR_INTERNAL, "operation %s was not %s any more", h->id.text, op_state_text(h->state));
	h->state = change->to;
	h->attempt = change->attempt;
	return change->result ? set_result(tx, h, change->result, err) : 0;
}
