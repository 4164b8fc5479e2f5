/*
 * After a restart: unfinished commands from the store, their output from the spools, their state from init. Also
 * commands that ended before somebody attached: record and spool make them whole again.
 */
#include "daemon/worker/exec_priv.h"

#include "daemon/worker/mailbox.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <dirent.h>
#include <limits.h>

/* First where it was made: while it is moved it is in both places. */
static int spool_load(const struct execs *e, const struct id *key, bool main, struct spool **ret, struct error *err)
{
	static const enum spool_place places[] = { SPOOL_LIVE, SPOOL_KEPT };
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		if (spool_path(e, places[i], key, main, path, sizeof(path)) == 0 && spool_open(path, ret, err) == 0)
			return 0;
	}
	return -1;
}

/* Takes the spool's word for what it holds. */
static void adopt_spool(struct exec *x, struct spool *take_s)
{
	x->spool = take_s;
	x->info = *spool_info(take_s);
	x->held = !x->info.detached && !x->info.main;
	for (unsigned ch = 0; ch < SPOOL_CHANNELS; ch++)
		x->acked[ch] =
			x->held ? spool_acked(take_s, (enum spool_channel)ch) : spool_total(take_s, (enum spool_channel)ch);
}

/* --- ended ones --- */

static void mark_ended(struct exec *x, const struct spool_end *end)
{
	x->end = *end;
	x->state = EXEC_ENDED;
	x->eof[SPOOL_OUT] = x->eof[SPOOL_ERR] = true;
	x->recorded = x->told = true;
	exec_settle(x); /* freed on this turn unless a reader comes */
}

/* A spool that disagrees with the record by sandbox is somebody else's. */
static struct spool *spool_of(const struct execs *e, const struct operation *op)
{
	struct spool *s = NULL;

	if (spool_load(e, &op->id, false, &s, NULL) != 0)
		return NULL;
	if (strcmp(spool_info(s)->sandbox.text, op->sandbox_id.text) == 0)
		return s;
	spool_free(s);
	return NULL;
}

/* What the record kept takes the place of a spool that retention took. */
static void restore_channel(struct exec *x, enum spool_channel ch, const struct capture *c)
{
	if (c->total == 0)
		return;
	spool_append(x->spool, ch, c->head.data, c->head.len);
	spool_skip(x->spool, ch, c->total - c->tail.len);
	spool_append(x->spool, ch, c->tail.data, c->tail.len);
}

static void restore_output(struct exec *x, const struct result *r)
{
	if (r->out.total == 0 && r->err.total == 0)
		return;
	x->spool = spool_create(NULL, &x->info);
	restore_channel(x, SPOOL_OUT, &r->out);
	restore_channel(x, SPOOL_ERR, &r->err);
}

struct exec *exec_load_ended(struct execs *e, const struct operation *op, struct error *err)
{
	struct spool_info info = { .sandbox = op->sandbox_id };
	struct spool_end end = { .outcome = op->has_result ? op->result.outcome : OUTCOME_LOST };
	struct spool *s;
	struct exec *x;

	if (!op_ended(op->state)) {
		error_set(err, ERR_UNAVAILABLE, "the daemon is still finding operation %s again", op->id.text);
		return NULL;
	}
	x = exec_new(e, &op->id, &info);
	if (op->has_result) {
		end.exit_code = op->result.exit_code;
		end.signal = op->result.signal;
		end.oom_killed = op->result.oom_killed;
	}
	if (op->error_code != ERR_NONE) {
		end.code = op->error_code;
		end.mux_error = (int)mux_error_of_code(op->error_code);
	}
	if (op->error)
		snprintf(end.text, sizeof(end.text), "%s", op->error);
	s = spool_of(e, op);
	if (s) {
		adopt_spool(x, s);
		(void)spool_finished(s, &end);
	} else if (op->has_result) {
		restore_output(x, &op->result);
	}
	mark_ended(x, &end);
	return x;
}

struct exec *exec_load_main(struct execs *e, const struct id *sandbox, struct error *err)
{
	struct spool_info info = { .sandbox = *sandbox, .main = true, .detached = true };
	struct spool_end end = exec_end_text(OUTCOME_LOST, MUX_ERR_LOST, "how the start command ended is not known");
	struct spool *s;
	struct exec *x;

	if (spool_load(e, sandbox, true, &s, err) != 0) {
		if (err->code == ERR_NOT_FOUND)
			error_set(err, ERR_NOT_FOUND, "sandbox %s has no start command, or its output is no longer kept; of other commands ask for their operations",
				  sandbox->text);
		return NULL;
	}
	x = exec_new(e, sandbox, &info);
	adopt_spool(x, s);
	(void)spool_finished(s, &end);
	mark_ended(x, &end);
	return x;
}

/* --- unfinished ones --- */

/* Its end is in the spool and only the record is missing, or init is asked. */
static void take_up(struct exec *x)
{
	struct spool_end end;

	x->delivered = true;
	if (x->spool && spool_finished(x->spool, &end)) {
		x->eof[SPOOL_OUT] = x->eof[SPOOL_ERR] = true;
		exec_end(x, &end);
		return;
	}
	x->has_stdin = x->held;
	exec_wait_link(x, LIMIT_RECOVER_WAIT_MS);
	exec_orphaned(x);
	if (initlink_mux(x->all->links, &x->box->sandbox))
		exec_dial(x);
}

static void recover_operation(struct execs *e, const struct operation *op)
{
	struct spool_info info = { .sandbox = op->sandbox_id, .detached = op->detached };
	struct spool *s;
	struct exec *x;

	if (idmap_get(&e->table, &op->id) || op->kind != OPK_EXEC || op_ended(op->state))
		return;
	x = exec_new(e, &op->id, &info);
	s = spool_of(e, op);
	if (s)
		adopt_spool(x, s);
	take_up(x);
}

static void recover_main(struct execs *e, const char *name)
{
	struct spool_info info = { .main = true, .detached = true };
	struct spool *s = NULL;
	struct id key;
	struct exec *x;

	if (strncmp(name, SPOOL_MAIN_PREFIX, strlen(SPOOL_MAIN_PREFIX)) != 0 ||
	    id_parse(name + strlen(SPOOL_MAIN_PREFIX), &key) != 0)
		return;
	if (idmap_get(&e->table, &key) || spool_load(e, &key, true, &s, NULL) != 0)
		return;
	if (!spool_info(s)->main || spool_finished(s, NULL) || strcmp(spool_info(s)->sandbox.text, key.text) != 0) {
		spool_free(s);
		return;
	}
	info.sandbox = key;
	x = exec_new(e, &key, &info);
	adopt_spool(x, s);
	take_up(x);
}

/* Start commands have no operation: their spools are the only trace. */
static void recover_mains(struct execs *e)
{
	DIR *d = opendir(e->live_dir);
	const struct dirent *entry;

	while (d && (entry = readdir(d)))
		recover_main(e, entry->d_name);
	if (d)
		closedir(d);
}

struct recovery {
	struct execs *e;
	struct operation_list list;
};

static void do_recover(void *arg)
{
	struct recovery *r = arg;

	recover_mains(r->e);
	for (size_t i = 0; i < r->list.len; i++) {
		recover_operation(r->e, &r->list.items[i]);
		operation_done(&r->list.items[i]);
	}
	if (r->list.len > 0)
		log_info("exec", "took over %zu unfinished commands", r->list.len);
	free(r->list.items);
	free(r);
}

void execs_recover(struct execs *e, const struct operation_list *unfinished)
{
	struct recovery *r = xcalloc(1, sizeof(*r));

	r->e = e;
	r->list.len = unfinished->len;
	r->list.items = xcalloc(unfinished->len, sizeof(*r->list.items));
	for (size_t i = 0; i < unfinished->len; i++) {
		operation_init(&r->list.items[i]);
		operation_copy(&r->list.items[i], &unfinished->items[i]);
	}
	mailbox_post(e->mail, do_recover, r);
}
