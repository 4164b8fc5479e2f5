/* Images of this machine, as the API wants them: after a pull or an import with the row that came of it. */
#include "daemon/worker/worker_priv.h"

#include "shared/base/mem.h"

#include <string.h>

int worker_images(struct worker *w, struct image_list *ret, struct error *err)
{
	return w->o.runtime->ops->image_list(w->o.runtime, ret, err);
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

int worker_image_pull(struct worker *w, const char *name, runtime_progress progress, void *ctx, struct image_list *ret, struct error *err)
{
	if (worker_image_allowed(w, name, err) != 0 || w->o.runtime->ops->image_pull(w->o.runtime, name, progress, ctx, err) != 0)
		return -1;
	return describe(w, name, ret, err);
}

int worker_image_import(struct worker *w, const char *name, int fd, struct image_list *ret, struct error *err)
{
	if (w->o.runtime->ops->image_import(w->o.runtime, fd, name, NULL, err) != 0)
		return -1;
	return describe(w, name, ret, err);
}
