/* Images of this machine, as the API wants them: after a pull or an import with the row that came of it. */
#include "daemon/worker/worker_priv.h"

#include "daemon/worker/rights.h"
#include "shared/base/mem.h"

#include <string.h>

int worker_images(struct worker *w, struct image_list *ret, struct error *err)
{
	if (w->o.runtime->ops->image_list(w->o.runtime, ret, err) != 0)
		return -1;
	for (size_t i = 0; i < ret->len; i++)
		ret->items[i].private = rights_private(w->rights, ret->items[i].name);
	return 0;
}

int worker_image_remove(struct worker *w, const char *name, struct error *err)
{
	return w->o.runtime->ops->image_remove(w->o.runtime, name, err);
}

/* The row of a list that an image name stands for. */
static struct image_info *find_image(const struct image_list *l, const char *name, const char *digest)
{
	struct image_info *same = NULL;
	for (size_t i = 0; i < l->len; i++) {
		if (strcmp(l->items[i].digest, digest) != 0)
			continue;
		if (!same || strncmp(l->items[i].name, name, strlen(name)) == 0)
			same = &l->items[i];
	}
	return same;
}

static void take_row(struct image_info *from, struct image_list *ret)
{
	*ret = (struct image_list){ .items = xcalloc(1, sizeof(*from)), .len = 1 };
	ret->items[0] = *from;
	from->name = from->digest = NULL;
}

static int describe(struct worker *w, const char *name, struct image_list *ret, struct error *err)
{
	struct image_config config = { .digest = NULL };
	struct image_list l = { .items = NULL };
	if (w->o.runtime->ops->image_resolve(w->o.runtime, name, &config, err) != 0)
		return -1;
	int rc = worker_images(w, &l, err);
	struct image_info *i = rc == 0 ? find_image(&l, name, config.digest) : NULL;
	if (i)
		take_row(i, ret);
	else if (rc == 0)
		rc = error_set(err, ERR_NOT_FOUND, "image %s was removed meanwhile", name);
	image_list_done(&l);
	image_config_done(&config);
	return rc;
}

int worker_image_allowed(struct worker *w, const char *name, struct error *err)
{
	return w->o.runtime->ops->image_allowed(w->o.runtime, name, false, err);
}

/* Whether a pull with this login will need it: what everybody can have is everybody's, also when it is fetched with a login. The registry
 * has to agree first, or whoever has a login, even a wrong one, could take from all others what is here under a name. */
static int needs_login(struct worker *w, const struct image_pull *p, bool *ret, struct error *err)
{
	const struct runtime_ops *ops = w->o.runtime->ops;
	*ret = p->login && p->login->n > 0;
	if (!*ret || rights_private(w->rights, p->image) || !ops->image_verify)
		return 0;
	if (ops->image_verify(w->o.runtime, p->image, NULL, NULL) != 0)
		return ops->image_verify(w->o.runtime, p->image, p->login, err);
	*ret = false;
	return 0;
}

/* The mark is there before the image is: what a killed worker left half done is nobody else's either. */
int image_fetch(struct worker *w, const struct image_pull *p, struct error *err)
{
	bool private;
	if (needs_login(w, p, &private, err) != 0 || (private && rights_mark(w->rights, p->image, err) != 0))
		return -1;
	return w->o.runtime->ops->image_pull(w->o.runtime, p, err);
}

int worker_image_pull(struct worker *w, const struct image_pull *p, struct image_list *ret, struct error *err)
{
	if (worker_image_allowed(w, p->image, err) != 0 || image_fetch(w, p, err) != 0)
		return -1;
	return describe(w, p->image, ret, err);
}

/* --- who may use what is here --- */

static int ask_registry(struct worker *w, const char *question, const struct secret *login, struct error *err)
{
	struct error e = ERROR_INIT;
	if (w->o.runtime->ops->image_verify(w->o.runtime, question, login, &e) == 0) {
		rights_note(w->rights, question, login);
		return 0;
	}
	if (e.code == ERR_FORBIDDEN || e.code == ERR_NOT_FOUND)
		return error_set(err, ERR_FORBIDDEN, "image '%s' is private, and its registry does not let this tenant have it%s (sandbox image login): %.300s",
				 question, login->n > 0 ? " with the login it has" : " without a login", e.message);
	return error_set(err, e.code, "image '%s' is private, and whether this tenant may use it cannot be asked: %.300s", question, e.message);
}

int image_may_use(struct worker *w, const struct sandbox *s, const struct strv *names, struct error *err)
{
	auto_secret login = SECRET_INIT;
	auto_free char *question = NULL;

	/* One of a pool is looked at when somebody claims it. */
	if (!s->spec.tenant[0] || !w->o.runtime->ops->image_verify)
		return 0;
	if (rights_question(w->rights, s->spec.image, names, &question, err) != 0)
		return -1;
	if (!question)
		return 0;
	if (w->o.up->ops->registry_login(w->o.up, &w->node, &s->id, &login, err) != 0)
		return -1;
	return rights_fresh(w->rights, question, &login) ? 0 : ask_registry(w, question, &login, err);
}

int worker_image_import(struct worker *w, const char *name, int fd, struct image_list *ret, struct error *err)
{
	if (w->o.runtime->ops->image_import(w->o.runtime, fd, name, NULL, err) != 0)
		return -1;
	return describe(w, name, ret, err);
}

int worker_image_save(struct worker *w, const char *name, image_sink sink, void *ctx, struct error *err)
{
	if (!w->o.runtime->ops->image_save)
		return error_set(err, ERR_UNAVAILABLE, "this worker's runtime keeps no images");
	return w->o.runtime->ops->image_save(w->o.runtime, name, sink, ctx, err);
}

int worker_image_mark(struct worker *w, const char *name, struct error *err)
{
	return rights_mark(w->rights, name, err);
}

int worker_image_load(struct worker *w, const char *name, int fd, struct image_list *ret, struct error *err)
{
	if (!w->o.runtime->ops->image_load)
		return error_set(err, ERR_UNAVAILABLE, "this worker's runtime keeps no images");
	if (w->o.runtime->ops->image_load(w->o.runtime, fd, err) != 0)
		return -1;
	return describe(w, name, ret, err);
}
