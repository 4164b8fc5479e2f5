/* What workers ask over their links: see link_server.h. On threads of the pool. */
#include "daemon/controller/egress.h"
#include "daemon/controller/fleet.h"
#include "daemon/controller/registries.h"
#include "daemon/controller/secrets.h"
#include "daemon/link/codec.h"
#include "daemon/link/link_priv.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>

/* One call while it is answered. */
struct asked {
	struct node_link *l;
	struct controller *c;
	const struct buf *body;
	cJSON *j; /* the body, of methods that take JSON */
	struct buf *answer;
};

static void add_json(struct buf *out, cJSON *take_j)
{
	auto_json *j = take_j;
	auto_free char *text = json_print(j);
	buf_adds(out, text);
}

static int get_id(const struct asked *a, const char *key, struct id *ret, struct error *err)
{
	struct json_reader r;
	auto_free char *text = NULL;
	json_reader_init(&r, a->j, "", err);
	json_get_str(&r, key, JSON_REQUIRED, ID_TEXT_LEN, &text);
	if (text && id_parse(text, ret) != 0)
		json_fail(&r, key, "is not an id");
	return json_ok(&r) ? 0 : -1;
}

/* What is said of a sandbox or an operation counts only when it is on the link's node. */
static int check_sandbox(const struct asked *a, const struct id *sandbox, struct error *err)
{
	struct id node;
	if (controller_sandbox_node(a->c, sandbox, &node, err) != 0)
		return -1;
	return strcmp(node.text, a->l->node.text) == 0 ? 0 : error_set(err, ERR_FORBIDDEN, "sandbox %s is not on this node", sandbox->text);
}

static int check_operation(const struct asked *a, const struct id *operation, struct error *err)
{
	struct id node;
	if (controller_operation_node(a->c, operation, &node, err) != 0)
		return -1;
	return strcmp(node.text, a->l->node.text) == 0 ? 0 : error_set(err, ERR_FORBIDDEN, "operation %s is not of this node", operation->text);
}

static int hello(const struct asked *a, struct error *err)
{
	struct link_greeting g;
	int64_t epoch = 0;
	if (greeting_from_json(a->j, &g, err) != 0)
		return -1;
	struct link_opening o = { .node = a->l->node, .session = g.session, .boot_id = g.boot_id, .version = g.version,
				  .controller = a->l->s->o.address, .held = &g.held };
	int rc = 0;
	if (strcmp(g.report.node.text, a->l->node.text) != 0)
		rc = error_set(err, ERR_FORBIDDEN, "this credential is another node's: remove the worker's credential file and join again");
	if (rc == 0)
		rc = controller_link_open(a->c, &o, &epoch, err);
	if (rc == 0)
		rc = controller_heartbeat(a->c, &g.report, err);
	if (rc == 0) {
		a->l->epoch = epoch;
		link_greeted(a->l, remote_node_get(a->l->s, &a->l->node, g.report.name));
		cJSON *j = cJSON_CreateObject();
		json_add_i64(j, "epoch", epoch);
		json_add_str(j, "version", SANDBOX_VERSION);
		add_json(a->answer, j);
	}
	link_greeting_done(&g);
	return rc;
}

static int ready(const struct asked *a, struct error *err)
{
	(void)err;
	link_ready(a->l, remote_node_get(a->l->s, &a->l->node, ""));
	return 0;
}

static int heartbeat(const struct asked *a, struct error *err)
{
	struct node_report r;
	if (report_from_json(a->j, &r, err) != 0)
		return -1;
	int rc = strcmp(r.node.text, a->l->node.text) == 0 ? controller_heartbeat(a->c, &r, err)
							   : error_set(err, ERR_FORBIDDEN, "a report about another node");
	map_done(&r.labels);
	return rc;
}

static int lease(const struct asked *a, struct error *err)
{
	struct lease l = { .attempt = 0 };
	int rc = controller_lease(a->c, &a->l->node, &l, err);
	if (rc != 1)
		return rc;
	add_json(a->answer, lease_to_json(&l));
	lease_done(&l);
	return 0;
}

static int complete(const struct asked *a, struct error *err)
{
	struct completion done;
	if (completion_from_json(a->j, &done, err) != 0)
		return -1;
	int rc = check_operation(a, &done.operation, err) == 0 ? controller_complete(a->c, &done, err) : -1;
	completion_done(&done);
	return rc;
}

static int wants_delete(const struct asked *a, struct error *err)
{
	struct id sandbox;
	if (get_id(a, "sandbox", &sandbox, err) != 0 || check_sandbox(a, &sandbox, err) != 0)
		return -1;
	buf_adds(a->answer, controller_wants_delete(a->c, &sandbox) ? "yes" : "no");
	return 0;
}

static int deadline(const struct asked *a, struct error *err)
{
	struct id sandbox;
	if (get_id(a, "sandbox", &sandbox, err) != 0 || check_sandbox(a, &sandbox, err) != 0)
		return -1;
	buf_addf(a->answer, "%lld", (long long)controller_deadline(a->c, &sandbox));
	return 0;
}

enum { TEXT_MAX = 64 * 1024, DETAIL_MAX = 1024 };

static int progress(const struct asked *a, struct error *err)
{
	struct json_reader r;
	struct id operation;
	auto_free char *text = NULL;
	json_reader_init(&r, a->j, "", err);
	json_get_str(&r, "text", JSON_REQUIRED, TEXT_MAX, &text);
	if (!json_ok(&r) || get_id(a, "operation", &operation, err) != 0 || check_operation(a, &operation, err) != 0)
		return -1;
	controller_progress(a->c, &operation, text);
	return 0;
}

static int gone(const struct asked *a, struct error *err)
{
	struct json_reader r;
	struct id sandbox;
	auto_free char *why = NULL;
	json_reader_init(&r, a->j, "", err);
	json_get_str(&r, "why", JSON_REQUIRED, TEXT_MAX, &why);
	if (!json_ok(&r) || get_id(a, "sandbox", &sandbox, err) != 0 || check_sandbox(a, &sandbox, err) != 0)
		return -1;
	return controller_sandbox_gone(a->c, &sandbox, why, err);
}

static int desired(const struct asked *a, struct error *err)
{
	struct sandbox_list s;
	struct operation_list execs;
	if (controller_desired(a->c, &a->l->node, &s, &execs, err) != 0)
		return -1;
	desired_to_lines(&s, &execs, a->answer);
	sandbox_list_done(&s);
	operation_list_done(&execs);
	return 0;
}

static int exec_end(const struct asked *a, struct error *err)
{
	struct tlv t;
	struct exec_report r;
	if (tlv_parse(&t, buf_str(a->body), a->body->len, err) != 0 || exec_report_from_tlv(&t, &r, err) != 0)
		return -1;
	int rc = check_operation(a, &r.operation, err);
	if (rc == 0)
		rc = controller_exec_end(a->c, &r.operation, r.result, r.code, r.error, err);
	exec_report_done(&r);
	return rc;
}

static int rotate(const struct asked *a, struct error *err)
{
	char secret[NODE_SECRET_LEN + 1];
	if (controller_node_rotate(a->c, &a->l->node, secret, err) != 0)
		return -1;
	buf_adds(a->answer, secret);
	explicit_bzero(secret, sizeof(secret));
	return 0;
}

static int secrets(const struct asked *a, struct error *err)
{
	struct id sandbox;
	auto_secret_values v = SECRET_VALUES_INIT;
	if (get_id(a, "sandbox", &sandbox, err) != 0 || controller_secret_values(a->c, &a->l->node, &sandbox, &v, err) != 0)
		return -1;
	secret_values_to_bytes(&v, a->answer);
	return 0;
}

static int registry_login(const struct asked *a, struct error *err)
{
	struct id sandbox;
	auto_secret login = SECRET_INIT;
	if (get_id(a, "sandbox", &sandbox, err) != 0 || controller_registry_login_for(a->c, &a->l->node, &sandbox, &login, err) != 0)
		return -1;
	if (login.n > 0)
		buf_add(a->answer, login.bytes, login.n);
	return 0;
}

static int egress(const struct asked *a, struct error *err)
{
	struct id sandbox;
	auto_egress_terms t = EGRESS_TERMS_INIT;
	if (get_id(a, "sandbox", &sandbox, err) != 0 || controller_egress_terms(a->c, &a->l->node, &sandbox, &t, err) != 0)
		return -1;
	add_json(a->answer, egress_terms_to_json(&t));
	return 0;
}

static int egress_denied(const struct asked *a, struct error *err)
{
	struct json_reader r;
	struct id sandbox;
	auto_free char *detail = NULL;
	char shown[DETAIL_MAX + 1];
	json_reader_init(&r, a->j, "", err);
	json_get_str(&r, "detail", JSON_REQUIRED, DETAIL_MAX, &detail);
	if (!json_ok(&r) || get_id(a, "sandbox", &sandbox, err) != 0 || check_sandbox(a, &sandbox, err) != 0)
		return -1;
	controller_egress_denied(a->c, &sandbox, text_escape(detail, strlen(detail), shown, sizeof(shown)));
	return 0;
}

static const struct {
	const char *name;
	bool json, first; /* first: before the link has an epoch */
	int (*answer)(const struct asked *a, struct error *err);
} methods[] = {
	{ "hello", true, true, hello },
	{ "ready", false, false, ready },
	{ "heartbeat", true, false, heartbeat },
	{ "lease", false, false, lease },
	{ "complete", true, false, complete },
	{ "wants_delete", true, false, wants_delete },
	{ "deadline", true, false, deadline },
	{ "progress", true, false, progress },
	{ "gone", true, false, gone },
	{ "desired", false, false, desired },
	{ "exec_end", false, false, exec_end },
	{ "rotate", false, false, rotate },
	{ "secrets", true, false, secrets },
	{ "registry_login", true, false, registry_login },
	{ "egress", true, false, egress },
	{ "egress_denied", true, false, egress_denied },
};

int link_answer(void *ctx, struct call_in *c, struct buf *answer, struct error *err)
{
	struct node_link *l = ctx;
	auto_json *j = NULL;
	struct asked a = { .l = l, .c = l->s->o.controller, .body = call_body(c), .answer = answer };
	size_t i = 0;
	while (i < ARRAY_LEN(methods) && strcmp(methods[i].name, call_method(c)) != 0)
		i++;
	if (i == ARRAY_LEN(methods))
		return error_set(err, ERR_INVALID, "this controller does not know '%.40s': update it", call_method(c));
	if (!methods[i].first && (l->epoch == 0 || controller_link_check(a.c, &l->node, l->epoch, err) != 0))
		return l->epoch == 0 ? error_set(err, ERR_CONFLICT, "the link has not greeted") : -1;
	if (methods[i].json && json_parse(buf_str(a.body), a.body->len, &j, err) != 0)
		return -1;
	a.j = j;
	return methods[i].answer(&a, err);
}
