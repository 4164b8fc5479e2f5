/* The model's values: defaults, copies, release, transitions. The rules for what is valid are in validate.c. */
#include "shared/model/model.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <string.h>

static void set_str(char **to, const char *from)
{
	char *copy = xstrdup0(from);
	free(*to);
	*to = copy;
}

static void free_str(char **s)
{
	free(*s);
	*s = NULL;
}

static void exposures_copy(struct spec *dst, const struct spec *src)
{
	dst->exposures = src->n_exposures ? xcalloc(src->n_exposures, sizeof(*src->exposures)) : NULL;
	dst->n_exposures = src->n_exposures;
	for (size_t i = 0; i < src->n_exposures; i++) {
		dst->exposures[i] = src->exposures[i];
		dst->exposures[i].subdomain = xstrdup0(src->exposures[i].subdomain);
	}
}

static void secrets_copy(struct spec *dst, const struct spec *src)
{
	dst->secrets = src->n_secrets ? xcalloc(src->n_secrets, sizeof(*src->secrets)) : NULL;
	for (size_t i = 0; i < src->n_secrets; i++) {
		const struct secret_use *u = &src->secrets[i];
		dst->secrets[i] = (struct secret_use){ xstrdup0(u->name), xstrdup0(u->env), xstrdup0(u->file) };
	}
}

static void secrets_done(struct spec *s)
{
	for (size_t i = 0; i < s->n_secrets; i++) {
		free(s->secrets[i].name);
		free(s->secrets[i].env);
		free(s->secrets[i].file);
	}
	free(s->secrets);
}

void spec_init(struct spec *s)
{
	*s = (struct spec){
		.resources = { .cpu_millis = 1000, .memory_mib = 1024, .disk_mib = 10240, .pids = 256 },
		.network = NETWORK_DENY,
		.isolation = ISOLATION_AUTO,
		.min_tier = TIER_CONTAINER,
		.sensitivity = SENSITIVITY_INTERNAL,
		.ttl_ms = LIMIT_TTL_DEFAULT_SECONDS * INT64_C(1000),
	};
}

void spec_done(struct spec *s)
{
	free(s->tenant);
	free(s->image);
	free(s->name);
	free(s->agent);
	strv_done(&s->command);
	map_done(&s->env);
	map_done(&s->labels);
	map_done(&s->placement.required_labels);
	strv_done(&s->placement.anti_affinity_keys);
	free(s->placement.preferred_region);
	for (size_t i = 0; i < s->n_exposures; i++)
		free(s->exposures[i].subdomain);
	free(s->exposures);
	secrets_done(s);
	strv_done(&s->egress);
	spec_init(s);
}

void spec_copy(struct spec *dst, const struct spec *src)
{
	struct spec s = *src;
	s.tenant = xstrdup0(src->tenant);
	s.image = xstrdup0(src->image);
	s.name = xstrdup0(src->name);
	s.agent = xstrdup0(src->agent);
	s.command = (struct strv)STRV_INIT;
	s.env = s.labels = (struct map)MAP_INIT;
	s.placement = (struct placement){ .preferred_region = xstrdup0(src->placement.preferred_region) };
	strv_copy(&s.command, &src->command);
	map_copy(&s.env, &src->env);
	map_copy(&s.labels, &src->labels);
	map_copy(&s.placement.required_labels, &src->placement.required_labels);
	strv_copy(&s.placement.anti_affinity_keys, &src->placement.anti_affinity_keys);
	exposures_copy(&s, src);
	secrets_copy(&s, src);
	s.egress = (struct strv)STRV_INIT;
	strv_copy(&s.egress, &src->egress);
	spec_done(dst);
	*dst = s;
}

void command_init(struct command *c)
{
	*c = (struct command){ .timeout_ms = 0 };
}

void command_done(struct command *c)
{
	strv_done(&c->argv);
	strv_done(&c->env);
	free(c->cwd);
	free(c->user);
	command_init(c);
}

void command_copy(struct command *dst, const struct command *src)
{
	struct command c = *src;
	c.argv = c.env = (struct strv)STRV_INIT;
	strv_copy(&c.argv, &src->argv);
	strv_copy(&c.env, &src->env);
	c.cwd = xstrdup0(src->cwd);
	c.user = xstrdup0(src->user);
	command_done(dst);
	*dst = c;
}

void command_set_env(struct command *c, const char *assignment)
{
	size_t key = strcspn(assignment, "=");
	for (size_t i = 0; i < c->env.len; i++) {
		const char *item = c->env.items[i];
		if (strncmp(item, assignment, key) == 0 && (item[key] == '=' || item[key] == '\0')) {
			set_str(&c->env.items[i], assignment);
			return;
		}
	}
	strv_add(&c->env, assignment);
}

static void buf_copy(struct buf *dst, const struct buf *src)
{
	struct buf copy = BUF_INIT_MAX(src->max);
	buf_add(&copy, src->data, src->len);
	buf_done(dst);
	*dst = copy;
}

void result_init(struct result *r)
{
	*r = (struct result){ .outcome = OUTCOME_NONE };
}

void result_done(struct result *r)
{
	buf_done(&r->out.head);
	buf_done(&r->out.tail);
	buf_done(&r->err.head);
	buf_done(&r->err.tail);
	result_init(r);
}

void result_copy(struct result *dst, const struct result *src)
{
	struct result r = *src;
	r.out.head = r.out.tail = r.err.head = r.err.tail = (struct buf)BUF_INIT;
	buf_copy(&r.out.head, &src->out.head);
	buf_copy(&r.out.tail, &src->out.tail);
	buf_copy(&r.err.head, &src->err.head);
	buf_copy(&r.err.tail, &src->err.tail);
	result_done(dst);
	*dst = r;
}

int result_exit_status(const struct result *r)
{
	switch (r->outcome) {
	case OUTCOME_EXITED:
		return r->exit_code;
	case OUTCOME_SIGNALED:
		return 128 + r->signal;
	case OUTCOME_TIMEOUT:
		return 124;
	case OUTCOME_NOT_STARTED:
		return r->exit_code == 126 || r->exit_code == 127 ? r->exit_code : 125;
	case OUTCOME_NONE:
	case OUTCOME_LOST:
	case OUTCOME_EXPIRED:
	case OUTCOME_DELETED:
	case OUTCOME_CANCELED:
	case OUTCOME_COUNT:
		break;
	}
	return 125;
}

void operation_init(struct operation *o)
{
	*o = (struct operation){ .state = OP_PENDING };
	command_init(&o->command);
	result_init(&o->result);
}

void operation_done(struct operation *o)
{
	result_done(&o->result);
	command_done(&o->command);
	free_str(&o->error);
	free_str(&o->progress);
	operation_init(o);
}

void operation_copy(struct operation *dst, const struct operation *src)
{
	struct operation o = *src;
	result_init(&o.result);
	command_init(&o.command);
	result_copy(&o.result, &src->result);
	command_copy(&o.command, &src->command);
	o.error = xstrdup0(src->error);
	o.progress = xstrdup0(src->progress);
	operation_done(dst);
	*dst = o;
}

#define MOVE(to) (1u << (to))

bool op_may_move(enum op_state from, enum op_state to)
{
	/* A pending operation may end without having run: refused, superseded by a delete, or nothing left to do. A running one
	 * goes back when its worker was restarted or a removal is to be retried; the attempt number fences the old holder. */
	static const unsigned moves[] = {
		[OP_PENDING] = MOVE(OP_RUNNING) | MOVE(OP_SUCCEEDED) | MOVE(OP_FAILED),
		[OP_RUNNING] = MOVE(OP_PENDING) | MOVE(OP_SUCCEEDED) | MOVE(OP_FAILED),
		[OP_SUCCEEDED] = 0,
		[OP_FAILED] = 0,
	};
	_Static_assert(ARRAY_LEN(moves) == OP_COUNT, "one row per state");
	return (unsigned)from < OP_COUNT && (unsigned)to < OP_COUNT && (moves[from] & MOVE(to));
}

bool sandbox_may_move(enum sandbox_state from, enum sandbox_state to)
{
	/* Delete wins in every state, so all but the last one lead to stopping; a failed one is still cleaned up. */
	static const unsigned moves[] = {
		[SANDBOX_SCHEDULED] = MOVE(SANDBOX_CREATING) | MOVE(SANDBOX_STOPPING) | MOVE(SANDBOX_STOPPED) | MOVE(SANDBOX_FAILED),
		[SANDBOX_CREATING] = MOVE(SANDBOX_RUNNING) | MOVE(SANDBOX_STOPPING) | MOVE(SANDBOX_STOPPED) | MOVE(SANDBOX_FAILED),
		[SANDBOX_RUNNING] = MOVE(SANDBOX_STOPPING) | MOVE(SANDBOX_STOPPED) | MOVE(SANDBOX_FAILED),
		[SANDBOX_STOPPING] = MOVE(SANDBOX_STOPPED) | MOVE(SANDBOX_FAILED),
		[SANDBOX_STOPPED] = 0,
		[SANDBOX_FAILED] = MOVE(SANDBOX_STOPPING) | MOVE(SANDBOX_STOPPED),
	};
	_Static_assert(ARRAY_LEN(moves) == SANDBOX_COUNT, "one row per state");
	return (unsigned)from < SANDBOX_COUNT && (unsigned)to < SANDBOX_COUNT && (moves[from] & MOVE(to));
}

void sandbox_init(struct sandbox *s)
{
	*s = (struct sandbox){ .state = SANDBOX_SCHEDULED, .tier = TIER_CONTAINER, .end_reason = OUTCOME_NONE };
	spec_init(&s->spec);
}

void sandbox_done(struct sandbox *s)
{
	spec_done(&s->spec);
	free_str(&s->decision);
	free_str(&s->image_digest);
	free_str(&s->failure);
	free(s->tunnels);
	sandbox_init(s);
}

void sandbox_copy(struct sandbox *dst, const struct sandbox *src)
{
	struct sandbox s = *src;
	spec_init(&s.spec);
	spec_copy(&s.spec, &src->spec);
	s.decision = xstrdup0(src->decision);
	s.image_digest = xstrdup0(src->image_digest);
	s.failure = xstrdup0(src->failure);
	s.tunnels = src->n_tunnels ? xmemdup(src->tunnels, src->n_tunnels * sizeof(*src->tunnels)) : NULL;
	sandbox_done(dst);
	*dst = s;
}

enum isolation tier_isolation(enum tier t)
{
	return t == TIER_MICROVM ? ISOLATION_MICROVM : ISOLATION_CONTAINER;
}
