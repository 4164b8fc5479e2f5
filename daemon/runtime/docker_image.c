/* Images already in the engine's store, and which may be used. What streams is in docker_pull.c. */
#include "daemon/runtime/docker_internal.h"

#include "shared/model/image_ref.h"

#include <stdio.h>
#include <string.h>

enum { IMAGE_REMOVE_MS = 120 * 1000 };

void image_config_done(struct image_config *c)
{
	free(c->digest);
	free(c->user);
	free(c->workdir);
	strv_done(&c->env);
	strv_done(&c->entrypoint);
	strv_done(&c->cmd);
	strv_done(&c->names);
	*c = (struct image_config){ .digest = NULL };
}

void image_list_done(struct image_list *l)
{
	for (size_t i = 0; i < l->len; i++) {
		free(l->items[i].name);
		free(l->items[i].digest);
	}
	free(l->items);
	*l = (struct image_list){ .items = NULL };
}

void docker_set_registries(struct runtime *rt, const char *allowed)
{
	struct docker *d = docker_of(rt);

	pthread_mutex_lock(&d->lock);
	free(d->allowed);
	d->allowed = xstrdup(allowed);
	pthread_mutex_unlock(&d->lock);
}

int docker_image_allowed(struct runtime *rt, const char *image, bool present, struct error *err)
{
	struct docker *d = docker_of(rt);
	struct image_ref ref;
	auto_free char *list = NULL;

	if (image_ref_parse(image, &ref, err) != 0)
		return -1;
	pthread_mutex_lock(&d->lock);
	list = xstrdup(d->allowed);
	pthread_mutex_unlock(&d->lock);
	if (image_ref_allowed(&ref, list, present))
		return 0;
	if (ref.is_id)
		return error_set(err, ERR_FORBIDDEN, "an image named by its id is allowed only where policy.allowed_registries has '*' or 'local' (it is '%s')",
		                 list);
	return error_set(err, ERR_FORBIDDEN, "images from %s are not allowed here (policy.allowed_registries is '%s')", ref.registry, list);
}

static void copy_words(struct strv *dst, const cJSON *array)
{
	const cJSON *w;

	cJSON_ArrayForEach(w, array)
		if (cJSON_IsString(w))
			strv_add(dst, w->valuestring);
}

int docker_image_resolve(struct runtime *rt, const char *image, struct image_config *ret, struct error *err)
{
	struct image_config c = { .digest = NULL };
	struct error local = ERROR_INIT;
	struct image_ref ref;
	auto_json *j = NULL;
	auto_free char *path = NULL;
	const char *workdir;

	if (image_ref_parse(image, &ref, err) != 0)
		return -1;
	path = xasprintf("/images/%s/json", ref.familiar);
	if (docker_get(docker_of(rt), path, "looking for the image", &j, &local) != 0) {
		if (local.code == ERR_NOT_FOUND)
			return error_set(err, ERR_NOT_FOUND, "no image '%s' on this machine", ref.familiar);
		return error_set(err, local.code, "%s", local.message);
	}
	if (!*docker_str(j, "Id"))
		return error_set(err, ERR_PROTOCOL, "the Docker Engine describes image '%s' without an id", ref.familiar);
	if (*docker_str(j, "Os") && strcmp(docker_str(j, "Os"), "linux") != 0)
		return error_set(err, ERR_INVALID, "image '%s' is for %s, not linux", ref.familiar, docker_str(j, "Os"));
	workdir = docker_str(j, "Config.WorkingDir");
	c.digest = xstrdup(docker_str(j, "Id"));
	c.user = xstrdup(docker_str(j, "Config.User"));
	c.workdir = xstrdup(*workdir ? workdir : "/");
	copy_words(&c.env, docker_at(j, "Config.Env"));
	copy_words(&c.entrypoint, docker_at(j, "Config.Entrypoint"));
	copy_words(&c.cmd, docker_at(j, "Config.Cmd"));
	copy_words(&c.names, docker_at(j, "RepoTags"));
	copy_words(&c.names, docker_at(j, "RepoDigests"));
	*ret = c;
	return 0;
}

static void add_image(struct image_list *l, const cJSON *j, const char *name)
{
	struct image_info i = {
		.name = xstrdup(name),
		.digest = xstrdup(docker_str(j, "Id")),
		.size_bytes = docker_num(j, "Size"),
		.created_us = docker_num(j, "Created") * 1000000,
	};

	l->items = xrealloc(l->items, l->len + 1, sizeof(*l->items));
	l->items[l->len++] = i;
}

int docker_image_list(struct runtime *rt, struct image_list *ret, struct error *err)
{
	struct image_list found = { .items = NULL };
	auto_json *j = NULL;
	const cJSON *image, *tag;

	if (docker_get(docker_of(rt), "/images/json", "listing images", &j, err) != 0)
		return -1;
	cJSON_ArrayForEach(image, j)
	{
		bool named = false;

		if (cJSON_GetObjectItemCaseSensitive(docker_at(image, "Labels"), LABEL_PROBE))
			continue;
		cJSON_ArrayForEach(tag, docker_at(image, "RepoTags"))
		{
			if (!cJSON_IsString(tag) || strcmp(tag->valuestring, "<none>:<none>") == 0)
				continue;
			add_image(&found, image, tag->valuestring);
			named = true;
		}
		if (!named)
			add_image(&found, image, docker_str(image, "Id"));
	}
	*ret = found;
	return 0;
}

int docker_image_remove(struct runtime *rt, const char *image, struct error *err)
{
	struct error local = ERROR_INIT;
	struct image_ref ref;
	auto_free char *path = NULL;

	if (image_ref_parse(image, &ref, err) != 0)
		return -1;
	path = xasprintf("/images/%s", ref.familiar);
	if (docker_do(docker_of(rt), "DELETE", path, 0, 0, IMAGE_REMOVE_MS, "removing the image", &local) == 0)
		return 0;
	if (local.code == ERR_NOT_FOUND)
		return error_set(err, ERR_NOT_FOUND, "no image '%s' on this machine", ref.familiar);
	if (local.code == ERR_CONFLICT)
		return error_set(err, ERR_CONFLICT, "image '%s' is in use by a sandbox or another container: delete that first", ref.familiar);
	return error_set(err, local.code, "%s", local.message);
}
