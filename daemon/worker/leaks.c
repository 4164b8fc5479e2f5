/*
 * Leaks: what is on this machine without a record, and records without what they speak of. Only looks; reconciliation mends.
 * As there, what is there is listed before the records are read, and sandboxes with a job in hand are the job's.
 */
#include "daemon/worker/worker_priv.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <stdio.h>
#include <string.h>

enum { MOUNTS_MAX = 16 << 20 };

struct look {
	struct worker *w;
	struct owned_list owned;
	struct strv dirs, mounts;
	struct sandbox_list live;
	struct idmap by_id;
	worker_leak_fn fn;
	void *ctx;
};

static void look_done(struct look *l)
{
	owned_list_done(&l->owned);
	strv_done(&l->dirs);
	strv_done(&l->mounts);
	sandbox_list_done(&l->live);
	idmap_done(&l->by_id);
}

/* Mount points below the state directory's sandboxes. */
static int list_mounts(struct look *l, const char *base, struct error *err)
{
	auto_buf text = BUF_INIT;
	if (io_read_file("/proc/self/mounts", MOUNTS_MAX, &text, err) != 0)
		return -1;
	auto_free char *all = buf_steal(&text);
	char *rest = NULL;
	for (char *line = strtok_r(all, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *at = strchr(line, ' ');
		char *end = at ? strchr(at + 1, ' ') : NULL;
		if (!end)
			continue;
		*end = '\0';
		if (strncmp(at + 1, base, strlen(base)) == 0)
			strv_add(&l->mounts, at + 1);
	}
	return 0;
}

static int read_all(struct look *l, const char *base, struct error *err)
{
	struct worker *w = l->w;
	if (w->o.runtime->ops->list_owned(w->o.runtime, &l->owned, err) != 0 || workspaces_list(w->spaces, &l->dirs, err) != 0 ||
	    list_mounts(l, base, err) != 0 || w->o.up->ops->desired(w->o.up, &w->node, &l->live, NULL, err) != 0)
		return -1;
	for (size_t i = 0; i < l->live.len; i++)
		idmap_put(&l->by_id, &l->live.items[i].id, &l->live.items[i]);
	return 0;
}

/* Nobody is about to make or to remove it. */
static bool is_idle(struct look *l, const struct id *sandbox)
{
	if (!worker_try_take(l->w, sandbox))
		return false;
	worker_give(l->w, sandbox);
	return true;
}

static void tell(struct look *l, const char *kind, const char *name, const struct id *owner, const char *evidence)
{
	struct leak leak = { .kind = kind, .name = name, .owner = *owner, .evidence = evidence };
	if (is_idle(l, owner))
		l->fn(l->ctx, &leak);
}

static void tell_unknown(struct look *l, const char *kind, const char *name, const struct id *owner, const char *evidence)
{
	if (!idmap_get(&l->by_id, owner))
		tell(l, kind, name, owner, evidence);
}

static bool has_container(const struct look *l, const struct id *sandbox)
{
	for (size_t i = 0; i < l->owned.len; i++)
		if (strcmp(l->owned.items[i].sandbox_id.text, sandbox->text) == 0)
			return true;
	return false;
}

/* The list may be older than the record: the runtime is asked about this one. */
static void look_at_record(struct look *l, const struct sandbox *s)
{
	struct runtime_status status = { .state = RUNTIME_ABSENT };
	if (s->state != SANDBOX_RUNNING || has_container(l, &s->id) || l->w->o.up->ops->wants_delete(l->w->o.up, &s->id))
		return;
	if (l->w->o.runtime->ops->inspect(l->w->o.runtime, &s->id, &status, NULL) == 0 && status.state == RUNTIME_ABSENT)
		tell(l, "record", s->id.text, &s->id, "the record says running; the runtime has nothing of it");
}

static void look_at_all(struct look *l, size_t base_len)
{
	struct id id;
	for (size_t i = 0; i < l->owned.len; i++)
		tell_unknown(l, "container", l->owned.items[i].ref, &l->owned.items[i].sandbox_id, "labelled as this node's; no live sandbox has this id");
	for (size_t i = 0; i < l->dirs.len; i++)
		if (id_parse(l->dirs.items[i], &id) == 0)
			tell_unknown(l, "directory", l->dirs.items[i], &id, "in the state directory; no live sandbox has this id");
	for (size_t i = 0; i < l->mounts.len; i++) {
		char text[ID_TEXT_LEN + 1];
		snprintf(text, sizeof(text), "%.*s", ID_TEXT_LEN, l->mounts.items[i] + base_len);
		if (id_parse(text, &id) == 0)
			tell_unknown(l, "mount", l->mounts.items[i], &id, "mounted below the state directory; no live sandbox has this id");
	}
	for (size_t i = 0; i < l->live.len; i++)
		look_at_record(l, &l->live.items[i]);
}

int worker_leaks(struct worker *w, worker_leak_fn fn, void *ctx, struct error *err)
{
	struct look l = { .w = w, .fn = fn, .ctx = ctx };
	auto_free char *base = xasprintf("%s/sandboxes/", w->o.config->state_dir);
	pthread_mutex_lock(&w->reconciling);
	int rc = read_all(&l, base, err);
	if (rc == 0)
		look_at_all(&l, strlen(base));
	pthread_mutex_unlock(&w->reconciling);
	look_done(&l);
	return rc;
}
