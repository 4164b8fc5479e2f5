/*
 * Secrets on their way into a sandbox: asked for from the controller, kept in memory for the commands' environment, written as files
 * by sandbox-init into memory of the sandbox. Nothing of them touches this machine's disk; after a restart they are asked for again.
 */
#include "daemon/worker/worker_priv.h"

#include "daemon/worker/exec.h"
#include "shared/crypto/secret_values.h"

enum { FILE_MS = 10 * 1000 };

static int put_file(struct worker *w, const struct id *sandbox, const struct secret_value *v, const char *user, struct error *err)
{
	auto_tlv t = TLV_INIT;

	/* Room at once: growing would leave a copy behind. */
	(void)buf_reserve(&t.own, v->value.n + 1024);
	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_SECRET);
	tlv_add_str(&t, MUX_F_NAME, v->file);
	tlv_add_str(&t, MUX_F_USER, user);
	tlv_add_bytes(&t, MUX_F_VALUE, v->value.bytes, v->value.n);
	if (initlink_ask(w->o.links, sandbox, &t, FILE_MS, err) != 0)
		return error_wrap(err, "putting /run/secrets/%s there", v->file);
	return 0;
}

int secrets_fetch(struct worker *w, const struct sandbox *s, struct secret_values *ret, struct error *err)
{
	return s->spec.n_secrets == 0 ? 0 : w->o.up->ops->secrets(w->o.up, &w->node, &s->id, ret, err);
}

int secrets_deliver(struct worker *w, const struct sandbox *s, const char *user, struct error *err)
{
	auto_secret_values v = SECRET_VALUES_INIT;

	if (s->spec.n_secrets == 0)
		return 0;
	if (secrets_fetch(w, s, &v, err) != 0)
		return -1;
	for (size_t i = 0; i < v.len; i++)
		if (v.items[i].file && put_file(w, &s->id, &v.items[i], user, err) != 0)
			return -1;
	execs_set_secrets(w->o.execs, &s->id, &v);
	return 0;
}
