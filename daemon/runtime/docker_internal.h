/* Shared by the docker_*.c files only. */
#ifndef SANDBOX_DAEMON_DOCKER_INTERNAL_H
#define SANDBOX_DAEMON_DOCKER_INTERNAL_H

#include "daemon/runtime/docker.h"
#include "shared/base/mem.h"
#include "shared/http/engine_client.h"
#include "shared/json/json.h"

#include <pthread.h>

#define LABEL_ID "io.sandbox.id"
#define LABEL_NODE "io.sandbox.node"
#define LABEL_MANAGED "io.sandbox.managed"
#define LABEL_PROBE "io.sandbox.probe"

struct docker {
	struct runtime rt;
	struct engine *engine;
	struct id node;
	pthread_mutex_t lock; /* guards allowed */
	char *allowed;
	char *gvisor_runtime; /* the engine's name of it; "": the tier is off */
	_Atomic bool no_swap_limit; /* no lock: the engine says its kernel does not account swap */
};

static inline struct docker *docker_of(struct runtime *rt)
{
	return container_of(rt, struct docker, rt);
}

enum { DOCKER_NAME_MAX = 64 };
/* "sandbox-<id>": the name of the container and of its volume. */
void docker_name(const struct id *sandbox, char out[static DOCKER_NAME_MAX]);

/* Member by dotted path; NULL when absent. */
const cJSON *docker_at(const cJSON *j, const char *path);
const char *docker_str(const cJSON *j, const char *path);  /* "" when absent */
int64_t docker_num(const cJSON *j, const char *path);      /* 0 when absent */
bool docker_true(const cJSON *j, const char *path);

/* The engine's own message of a failed answer, with the code its status stands for. Returns -1. */
int docker_refused(const struct engine_answer *a, const char *doing, struct error *err);
/* GET of a JSON document; statuses over 299 are errors. */
int docker_get(struct docker *d, const char *path, const char *doing, cJSON **ret, struct error *err);
/* A call without an interesting answer: 2xx, 304, or one of the two accepted statuses, is success. */
int docker_do(struct docker *d, const char *method, const char *path, int also, int also2, int64_t timeout_ms, const char *doing,
              struct error *err);

/* docker_create.c */
int docker_create(struct runtime *rt, const struct runtime_create *req, struct error *err);
/* docker_verify.c: what the engine says it set (an inspect answer) against what was asked (a create body). */
int docker_verify(const cJSON *asked, const cJSON *seen, struct error *err);
/* docker_image.c */
int docker_image_resolve(struct runtime *rt, const char *image, struct image_config *ret, struct error *err);
int docker_image_allowed(struct runtime *rt, const char *image, bool present, struct error *err);
void docker_set_registries(struct runtime *rt, const char *allowed);
int docker_image_list(struct runtime *rt, struct image_list *ret, struct error *err);
int docker_image_remove(struct runtime *rt, const char *image, struct error *err);
/* docker_archive.c */
int docker_image_save(struct runtime *rt, const char *image, image_sink sink, void *ctx, struct error *err);
int docker_image_load(struct runtime *rt, int fd, struct error *err);
/* docker_pull.c: what streams */
int docker_image_pull(struct runtime *rt, const struct image_pull *p, struct error *err);
int docker_image_verify(struct runtime *rt, const char *image, const struct secret *login, struct error *err);
int docker_image_import(struct runtime *rt, int fd, const char *name, const struct image_config *config, struct error *err);
/* An error line of the engine's pull and import streams, by kind. Returns -1. */
int docker_registry_error(const char *image, const char *text, struct error *err);
/* docker_probe.c */
int docker_probe(struct runtime *rt, struct runtime_probe *p, struct error *err);
/* Digest of an image of one empty directory, imported when it is not there. */
int docker_probe_image(struct docker *d, char **ret_digest, struct error *err);
/* The engine may live in another mount namespace: then the same path is another directory there. */
bool docker_sees_workspace(pid_t pid, const struct workspace_mount *w);
void docker_offer(struct tier_offer *t, bool offered, const char *reason);
/* docker_gvisor.c: j is an inspect answer */
bool docker_is_gvisor(const struct docker *d, const cJSON *j);
/* Behind a start: puts what runsc started under the limits that were asked, unless they hold already. */
int docker_gvisor_enclose(struct docker *d, const struct id *sandbox, const cJSON *j, struct runtime_status *s, struct error *err);
/* Why it ended, as far as the limits did it. */
void docker_gvisor_ended(struct docker *d, const struct id *sandbox, struct runtime_status *s);
/* Runs sandboxes of this tier; fills its offer. An error: the engine does not answer. */
int docker_gvisor_probe(struct docker *d, struct runtime_probe *p, const cJSON *info, struct error *err);

#endif
