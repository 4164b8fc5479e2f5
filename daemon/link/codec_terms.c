/* What a worker is told about one sandbox: what it may reach, as JSON; its secrets, as fields, which leave no copies behind. See codec.h. */
#include "daemon/link/codec.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/model/model.h"

#include <arpa/inet.h>
#include <string.h>

enum { RULES_TEXT_MAX = LIMIT_EGRESS_RULES_MAX * EGRESS_RULE_TEXT_MAX, LENGTH = 4, RECORD_ROOM = 8 * 1024, FILE_MAX = 4096 };

cJSON *egress_terms_to_json(const struct egress_terms *t)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "server", t->server);
	json_add_str(j, "tenant", t->tenant);
	json_add_str(j, "standard", t->standard);
	json_add_str(j, "open", t->open);
	json_add_strv(j, "sandbox", &t->sandbox);
	return j;
}

int egress_terms_from_json(const cJSON *j, struct egress_terms *ret, struct error *err)
{
	auto_egress_terms t = EGRESS_TERMS_INIT;
	struct json_reader r;
	json_reader_init(&r, j, "", err);
	json_get_str(&r, "server", JSON_REQUIRED, RULES_TEXT_MAX, &t.server);
	json_get_str(&r, "tenant", JSON_OPTIONAL, RULES_TEXT_MAX, &t.tenant);
	json_get_str(&r, "standard", JSON_REQUIRED, RULES_TEXT_MAX, &t.standard);
	json_get_str(&r, "open", JSON_REQUIRED, RULES_TEXT_MAX, &t.open);
	json_get_strv(&r, "sandbox", JSON_REQUIRED, LIMIT_EGRESS_RULES_MAX, EGRESS_RULE_TEXT_MAX, &t.sandbox);
	if (!json_ok(&r))
		return -1;
	*ret = t;
	t = (struct egress_terms)EGRESS_TERMS_INIT;
	return 0;
}

/* --- secrets: records of fields, each behind its length --- */

static void add_record(const struct secret_value *v, struct buf *out)
{
	struct tlv t = TLV_INIT;
	size_t n;
	(void)buf_reserve(&t.own, v->value.n + RECORD_ROOM);
	tlv_add_str(&t, MUX_F_ENV, v->env);
	tlv_add_str(&t, MUX_F_PATH, v->file);
	tlv_add_bytes(&t, MUX_F_VALUE, v->value.bytes, v->value.n);
	const void *raw = tlv_raw(&t, &n);
	uint32_t length = htonl((uint32_t)n);
	buf_add(out, &length, LENGTH);
	buf_add(out, raw, n);
	explicit_bzero(t.own.data, t.own.cap);
	tlv_done(&t);
}

void secret_values_to_bytes(const struct secret_values *v, struct buf *out)
{
	size_t room = 1;
	for (size_t i = 0; i < v->len; i++)
		room += v->items[i].value.n + RECORD_ROOM;
	(void)buf_reserve(out, room); /* at once: growing would leave copies */
	for (size_t i = 0; i < v->len; i++)
		add_record(&v->items[i], out);
}

static int take_record(const void *p, size_t n, struct secret_value *ret, struct error *err)
{
	struct tlv t;
	size_t len = 0;
	if (tlv_parse(&t, p, n, err) != 0 || tlv_str(&t, MUX_F_ENV, LIMIT_ARG_ONE_MAX, &ret->env, err) != 0 ||
	    tlv_str(&t, MUX_F_PATH, FILE_MAX, &ret->file, err) != 0)
		return -1;
	const void *value = tlv_bytes(&t, MUX_F_VALUE, &len);
	if (!value || len > LIMIT_SECRET_BYTES_MAX || !ret->env == !ret->file)
		return error_set(err, ERR_PROTOCOL, "a secret that makes no sense");
	secret_set(&ret->value, value, len);
	return 0;
}

int secret_values_from_bytes(const char *p, size_t n, struct secret_values *ret, struct error *err)
{
	auto_secret_values v = SECRET_VALUES_INIT;
	uint32_t length;
	v.items = xcalloc(LIMIT_SECRETS_PER_SANDBOX, sizeof(*v.items));
	while (n > 0) {
		memcpy(&length, p, n < LENGTH ? n : LENGTH);
		if (n < LENGTH || (length = ntohl(length)) > n - LENGTH || v.len == LIMIT_SECRETS_PER_SANDBOX)
			return error_set(err, ERR_PROTOCOL, "secrets that make no sense");
		if (take_record(p + LENGTH, length, &v.items[v.len++], err) != 0)
			return -1;
		p += LENGTH + length;
		n -= LENGTH + length;
	}
	*ret = v;
	v = (struct secret_values)SECRET_VALUES_INIT;
	return 0;
}
