/* The route table: matching, documents, and every row against a real server (401, 403, 413, 404, 405). */
#include "daemon/api/api.h"
#include "daemon/api/caller.h"
#include "daemon/controller/decision_json.h"
#include "daemon/api/peer.h"
#include "daemon/api/request.h"
#include "daemon/api/routes.h"
#include "daemon/config.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/json/model_json.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

/* --- pure parts --- */

static void targets_are_taken_apart(void **state)
{
	(void)state;
	struct target t;
	assert_int_equal(target_parse("/v1/a%2Fb/%c3%a9?x=1&y=a+b%20c&flag&x=%3D", &t, NULL), 0);
	assert_int_equal(t.segments.len, 3);
	assert_string_equal(t.segments.items[1], "a/b");
	assert_string_equal(t.segments.items[2], "\xc3\xa9");
	assert_int_equal(t.names.len, 4);
	assert_string_equal(target_query(&t, "x"), "1");
	assert_string_equal(t.values.items[3], "=");
	assert_string_equal(target_query(&t, "y"), "a b c");
	assert_string_equal(target_query(&t, "flag"), "");
	assert_null(target_query(&t, "z"));
	target_done(&t);
	assert_int_equal(target_parse("/v1/", &t, NULL), 0);
	assert_int_equal(t.segments.len, 2);
	assert_string_equal(t.segments.items[1], "");
	target_done(&t);
}

static void bad_targets_are_refused(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"", "v1", "http://h/v1", "*", "/a%00b", "/a%2", "/a%", "/a%zz", "/a%-1", "/%ff", "/%c0%80", "/?a=%00", "/?%ed%a0%80=1",
		"/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17",
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct target t;
		struct error err = ERROR_INIT;
		if (target_parse(bad[i], &t, &err) == 0)
			fail_msg("'%s' was taken", bad[i]);
		assert_int_equal(err.code, ERR_INVALID);
	}
}

static const struct route *find(const char *method, const char *path, struct route_params *p, struct buf *allow)
{
	struct target t;
	assert_int_equal(target_parse(path, &t, NULL), 0);
	const struct route *r = route_find(method, &t, p, allow);
	target_done(&t);
	return r;
}

static void routes_are_found(void **state)
{
	(void)state;
	static const struct {
		const char *method, *path, *id; /* id NULL: no such path, "": not with this method */
	} rows[] = {
		{ "GET", "/v1/sandboxes", "list" },
		{ "HEAD", "/v1/sandboxes", "list" },
		{ "POST", "/v1/sandboxes", "create" },
		{ "PUT", "/v1/sandboxes", "" },
		{ "GET", "/v1/sandboxes/web", "inspect" },
		{ "GET", "/v1/sandboxes/", NULL },
		{ "GET", "/v1/sandboxes//stats", NULL },
		{ "GET", "/v1/sandboxes/web/stats", "stats" },
		{ "GET", "/v1/sandboxes/web/stats/x", NULL },
		{ "POST", "/v1/images/pull", "image_pull" },
		{ "DELETE", "/v1/images/pull", "image_remove" },
		{ "DELETE", "/v1/images/r.example:5000/a/b:1", "image_remove" },
		{ "GET", "/V1/sandboxes", NULL },
		{ "GET", "/", NULL },
		{ "get", "/healthz", "" },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct route_params p = { .tail = NULL };
		auto_buf allow = BUF_INIT;
		const struct route *r = find(rows[i].method, rows[i].path, &p, &allow);
		const char *got = r ? r->id : allow.len ? "" : NULL;
		if ((got != NULL) != (rows[i].id != NULL) || (got && strcmp(got, rows[i].id) != 0))
			fail_msg("%s %s: got %s", rows[i].method, rows[i].path, got ? got : "nothing");
		free(p.tail);
	}
}

static void parameters_are_taken(void **state)
{
	(void)state;
	struct target t;
	struct route_params p = { .tail = NULL };
	auto_buf allow = BUF_INIT;
	assert_int_equal(target_parse("/v1/images/r.example:5000/a%2Fb:1", &t, NULL), 0);
	assert_non_null(route_find("DELETE", &t, &p, &allow));
	assert_string_equal(p.value[0], "r.example:5000/a/b:1");
	free(p.tail);
	target_done(&t);
	assert_null(find("PATCH", "/v1/sandboxes/x", &p, &allow));
	assert_string_equal(buf_str(&allow), "GET, HEAD, DELETE");
}

static void unknown_queries_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *path;
		bool good;
	} rows[] = {
		{ "/v1/sandboxes?all=true&limit=3&tenant=a&label=a=b&label=c=d", true },
		{ "/v1/sandboxes?limit=1&limit=2", false },
		{ "/v1/sandboxes?labe=x", false },
		{ "/v1/sandboxes?label*=x", false },
		{ "/v1/sandboxes?=x", false },
		{ "/healthz?x", false },
		{ "/healthz?", true },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct target t;
		struct route_params p = { .tail = NULL };
		auto_buf allow = BUF_INIT;
		assert_int_equal(target_parse(rows[i].path, &t, NULL), 0);
		const struct route *r = route_find("GET", &t, &p, &allow);
		if ((route_check_query(r, &t, NULL) == 0) != rows[i].good)
			fail_msg("%s", rows[i].path);
		target_done(&t);
	}
}

static void tenants_of_users_do_not_meet(void **state)
{
	(void)state;
	static const struct {
		const char *user, *tenant;
	} rows[] = {
		{ "alice", "alice" }, { "a.b-c_1", "a.b-c_1" }, { "Alice", "uid-1000" }, { "default", "uid-1000" }, { "uid-0", "uid-1000" },
		{ "", "uid-1000" }, { NULL, "uid-1000" }, { "a b", "uid-1000" }, { "dom\\user", "uid-1000" }, { "_x", "uid-1000" },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char tenant[TENANT_MAX_LEN + 1];
		peer_tenant(rows[i].user, 1000, tenant);
		assert_string_equal(tenant, rows[i].tenant);
	}
}

static void admin_token_is_made_once(void **state)
{
	(void)state;
	char dir[] = "/tmp/test-routes-XXXXXX";
	assert_non_null(mkdtemp(dir));
	struct admin_token *a = NULL, *b = NULL;
	assert_int_equal(admin_token_load(dir, &a, NULL), 0);
	assert_int_equal(admin_token_load(dir, &b, NULL), 0);
	auto_free char *path = xasprintf("%s/api-token", dir);
	auto_buf text = BUF_INIT;
	assert_int_equal(io_read_file(path, 256, &text, NULL), 0);
	struct caller c = { .role = ROLE_VIEWER };
	struct error err = ERROR_INIT;
	assert_int_equal(admin_token_caller(b, buf_str(&text), &c, &err), 0);
	assert_int_equal(c.role, ROLE_ADMIN);
	text.data[text.len - 1] ^= 1;
	assert_int_equal(admin_token_caller(a, buf_str(&text), &c, &err), -1);
	assert_int_equal(err.code, ERR_UNAUTHORIZED);
	assert_int_equal(admin_token_caller(a, "", &c, &err), -1);
	buf_addc(&text, 'x');
	assert_int_equal(admin_token_caller(a, buf_str(&text), &c, &err), -1);
	admin_token_free(a);
	admin_token_free(b);
	assert_int_equal(io_remove_tree(dir, NULL), 0);
}

/* --- documents --- */

struct row {
	const char *schema, *field;
	bool always;
};
static const struct row schema_rows[] = {
#define FIELD(owner, key, kind, need, text) { #owner, #key, need },
#include "daemon/api/schemas.def"
#undef FIELD
};

static const struct row *schema_row(const char *schema, const char *field)
{
	for (size_t i = 0; i < ARRAY_LEN(schema_rows); i++)
		if (strcmp(schema_rows[i].schema, schema) == 0 && (!field || strcmp(schema_rows[i].field, field) == 0))
			return &schema_rows[i];
	return NULL;
}

/* Every key an encoder writes is documented, and every field said to be always there is. request: only the first half. */
static void check_schema(const char *schema, cJSON *take_j, bool request)
{
	for (const cJSON *k = take_j->child; k; k = k->next)
		if (!schema_row(schema, k->string))
			fail_msg("%s.%s is written but not documented", schema, k->string);
	for (size_t i = 0; !request && i < ARRAY_LEN(schema_rows); i++)
		if (strcmp(schema_rows[i].schema, schema) == 0 && schema_rows[i].always &&
		    !cJSON_HasObjectItem(take_j, schema_rows[i].field))
			fail_msg("%s.%s is documented but not written", schema, schema_rows[i].field);
	cJSON_Delete(take_j);
}

static void documents_follow_the_encoders(void **state)
{
	(void)state;
	struct sandbox s;
	sandbox_init(&s);
	s.spec.ttl_ms = 1500;
	cJSON *spec = spec_to_json(&s.spec);
	check_schema("Resources", cJSON_DetachItemFromObject(spec, "resources"), true);
	check_schema("Signals", cJSON_DetachItemFromObject(spec, "signals"), true);
	check_schema("Placement", cJSON_DetachItemFromObject(spec, "placement"), true);
	check_schema("Spec", spec, true);
	check_schema("Sandbox", sandbox_to_json(&s), false);
	sandbox_done(&s);

	struct operation o;
	operation_init(&o);
	o.kind = OPK_EXEC;
	o.has_result = true;
	o.result.out.total = o.result.err.total = 10;
	strv_add(&o.command.argv, "true");
	cJSON *j = operation_to_json(&o);
	check_schema("Output", cJSON_DetachItemFromObject(j, "output"), false);
	check_schema("CommandShown", cJSON_DetachItemFromObject(j, "command"), false);
	cJSON_AddNullToObject(j, "output");
	check_schema("Operation", j, false);
	operation_done(&o);

	struct decision d = { .n_signals = 1, .n_nodes = 1 };
	struct node_verdict v = { .fits = true };
	d.nodes = &v;
	j = decision_to_json(&d);
	check_schema("Signal", cJSON_DetachItemFromArray(cJSON_GetObjectItem(j, "signals"), 0), false);
	check_schema("Verdict", cJSON_DetachItemFromArray(cJSON_GetObjectItem(j, "nodes"), 0), false);
	check_schema("Decision", j, false);
	struct error e = ERROR_INIT;
	check_schema("Error", error_to_json(&e, "x"), false);
}

static void table_is_sound(void **state)
{
	(void)state;
	for (size_t i = 0; i < routes_len; i++) {
		const struct route *r = &routes[i];
		assert_non_null(r->handle);
		assert_true(r->summary[0] && r->detail[0]);
		assert_true(r->body == BODY_NONE ? r->body_max == 0 : r->body_max > 0);
		if (r->request && !schema_row(r->request, NULL))
			fail_msg("%s: no schema %s", r->id, r->request);
		if (r->answer && !schema_row(r->answer, NULL))
			fail_msg("%s: no schema %s", r->id, r->answer);
		for (size_t k = 0; k < i; k++)
			if (strcmp(routes[k].id, r->id) == 0 || (strcmp(routes[k].pattern, r->pattern) == 0 && strcmp(routes[k].method, r->method) == 0))
				fail_msg("%s stands twice", r->id);
	}
}

/* Every reference inside the OpenAPI document leads somewhere. */
static void check_references(const cJSON *root, const cJSON *j)
{
	for (const cJSON *k = j->child; k; k = k->next) {
		if (k->string && strcmp(k->string, "$ref") == 0) {
			const char *name = strrchr(k->valuestring, '/') + 1;
			const cJSON *schemas = cJSON_GetObjectItem(cJSON_GetObjectItem(root, "components"), "schemas");
			if (!cJSON_HasObjectItem(schemas, name))
				fail_msg("no schema %s", name);
		}
		check_references(root, k);
	}
}

static void openapi_is_whole(void **state)
{
	(void)state;
	auto_buf text = BUF_INIT;
	api_doc_openapi(&text);
	auto_json *j = NULL;
	struct error err = ERROR_INIT;
	if (json_parse(buf_str(&text), text.len, &j, &err) != 0)
		fail_msg("%s", err.message);
	check_references(j, j);
	assert_true(cJSON_HasObjectItem(cJSON_GetObjectItem(j, "paths"), "/v1/images/{name}"));
	auto_buf md = BUF_INIT;
	api_doc_markdown(&md);
	for (size_t i = 0; i < routes_len; i++)
		assert_non_null(strstr(buf_str(&md), routes[i].detail));
}

/* --- every row against a real server --- */

struct server {
	struct api *api;
	uint16_t port;
	struct daemon_config config;
};

static int by_role(void *ctx, const char *token, const char *tenant, struct caller *ret, struct error *err)
{
	(void)ctx;
	(void)tenant;
	ret->peer = strcmp(token, "peer") == 0;
	if (strcmp(token, "node") == 0)
		ret->node = id_new();
	else if (!ret->peer && role_parse(token, &ret->role) != 0)
		return error_set(err, ERR_UNAUTHORIZED, "the token is not valid here");
	snprintf(ret->tenant, sizeof(ret->tenant), "default");
	snprintf(ret->who, sizeof(ret->who), "token %s", token);
	return 0;
}

static int server_setup(void **state)
{
	struct server *s = xcalloc(1, sizeof(*s));
	struct error err = ERROR_INIT;
	assert_int_equal(daemon_config_defaults(&s->config, &err), 0);
	struct api_options o = { .config = &s->config, .token_caller = by_role };
	s->api = api_new(&o);
	if (api_listen_tcp(s->api, "127.0.0.1:0", &s->port, &err) != 0)
		fail_msg("%s", err.message);
	*state = s;
	return 0;
}

static int server_teardown(void **state)
{
	struct server *s = *state;
	assert_true(api_stop(s->api, 5000));
	api_free(s->api);
	daemon_config_done(&s->config);
	free(s);
	return 0;
}

/* Sends a head (and nothing behind it) and reads the whole answer. */
static void ask(const struct server *s, const char *head, struct buf *ret)
{
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(s->port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct timeval limit = { .tv_sec = 10 };
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(io_write_full(fd, head, strlen(head)), 0);
	for (;;) {
		char *p = buf_reserve(ret, 4096);
		ssize_t n = recv(fd, p, 4096, 0);
		if (n <= 0)
			break;
		buf_commit(ret, (size_t)n);
	}
}

struct want {
	const char *token;   /* NULL: none */
	const char *extra;   /* headers */
	const char *host;    /* NULL: the right one */
	int status;
	const char *code;
};

static void expect(const struct server *s, const char *method, const char *path, const struct want *w)
{
	auto_buf head = BUF_INIT, answer = BUF_INIT;
	buf_addf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s", method, path, w->host ? w->host : "localhost", w->extra ? w->extra : "");
	if (w->token)
		buf_addf(&head, "Authorization: Bearer %s\r\n", w->token);
	buf_adds(&head, "\r\n");
	ask(s, buf_str(&head), &answer);
	char line[32];
	snprintf(line, sizeof(line), "HTTP/1.1 %d ", w->status);
	const char *body = strstr(buf_str(&answer), "\r\n\r\n");
	if (strncmp(buf_str(&answer), line, strlen(line)) != 0 || !body)
		fail_msg("%s %s: want %d, got: %.400s", method, path, w->status, buf_str(&answer));
	assert_non_null(strstr(buf_str(&answer), "X-Request-Id: "));
	if (!w->code)
		return;
	auto_json *j = NULL;
	body += 4;
	if (json_parse(body, strlen(body), &j, NULL) != 0)
		fail_msg("%s %s: no JSON: %s", method, path, body);
	assert_string_equal(cJSON_GetObjectItem(j, "code")->valuestring, w->code);
	assert_non_null(strstr(buf_str(&answer), cJSON_GetObjectItem(j, "request_id")->valuestring));
	assert_true(strlen(cJSON_GetObjectItem(j, "message")->valuestring) > 5);
}

/* "/v1/sandboxes/{ref}/exec" → "/v1/sandboxes/x/exec" */
static char *example_path(const struct route *r)
{
	auto_buf b = BUF_INIT;
	for (const char *p = r->pattern; *p; p++) {
		buf_addc(&b, *p == '{' ? 'x' : *p);
		if (*p == '{')
			p += strcspn(p, "}");
	}
	return buf_steal(&b);
}

static void every_row_wants_a_token(void **state)
{
	for (size_t i = 0; i < routes_len; i++) {
		auto_free char *path = example_path(&routes[i]);
		if (routes[i].class == CALLER_PUBLIC)
			continue;
		expect(*state, routes[i].method, path, &(struct want){ .status = 401, .code = "unauthorized" });
		expect(*state, routes[i].method, path, &(struct want){ .token = "wrong", .status = 401, .code = "unauthorized" });
		expect(*state, routes[i].method, path,
		       &(struct want){ .extra = "Authorization: Basic YTpi\r\n", .status = 401, .code = "unauthorized" });
	}
	expect(*state, "GET", "/healthz", &(struct want){ .status = 200 });
	expect(*state, "HEAD", "/healthz", &(struct want){ .status = 200 });
}

static void every_row_wants_its_role(void **state)
{
	for (size_t i = 0; i < routes_len; i++) {
		const struct route *r = &routes[i];
		auto_free char *path = example_path(r);
		bool for_nodes = r->class == CALLER_NODE, special = for_nodes || r->class == CALLER_PEER;
		struct request as = { .caller = { .role = r->role } }, node = { .caller = { .role = ROLE_VIEWER, .node = id_new() } };
		struct request peer = { .caller = { .role = ROLE_VIEWER, .peer = true } };
		assert_int_equal(caller_admit(&as, r, NULL), special ? -1 : 0);
		assert_int_equal(caller_admit(&peer, r, NULL), r->class == CALLER_PEER || r->class == CALLER_PUBLIC ? 0 : -1);
		assert_int_equal(caller_admit(&node, r, NULL), for_nodes || r->class == CALLER_PUBLIC ? 0 : -1);
		if (r->class != CALLER_PUBLIC)
			expect(*state, r->method, path, &(struct want){ .token = for_nodes ? "admin" : "node", .status = 403, .code = "forbidden" });
		for (int role = 0; r->class != CALLER_PUBLIC && role < (int)r->role; role++) {
			expect(*state, r->method, path, &(struct want){ .token = role_text((enum role)role), .status = 403, .code = "forbidden" });
			struct request weak = { .caller = { .role = (enum role)role } };
			assert_int_equal(caller_admit(&weak, r, NULL), -1);
		}
	}
}

static const char *token_for(enum caller_class class)
{
	return class == CALLER_NODE ? "node" : class == CALLER_PEER ? "peer" : "admin";
}

static void every_row_bounds_its_body(void **state)
{
	for (size_t i = 0; i < routes_len; i++) {
		auto_free char *path = example_path(&routes[i]);
		auto_free char *length = xasprintf("Content-Type: application/json\r\nContent-Length: %zu\r\n", routes[i].body_max + 1);
		expect(*state, routes[i].method, path, &(struct want){ .token = token_for(routes[i].class), .extra = length, .status = 413, .code = "too_large" });
	}
}

/* A body of unknown length is cut off where it passes the limit, before its end. */
static void chunked_bodies_are_bounded(void **state)
{
	auto_buf extra = BUF_INIT;
	buf_adds(&extra, "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer admin\r\n\r\n2000\r\n");
	for (int i = 0; i < 0x2000; i++)
		buf_addc(&extra, ' ');
	buf_adds(&extra, "\r\nffff\r\n"); /* the rest never comes */
	expect(*state, "POST", "/v1/images/pull", &(struct want){ .extra = buf_str(&extra), .status = 413, .code = "too_large" });
}

static void tcp_is_careful(void **state)
{
	struct server *s = *state;
	char port[32];
	snprintf(port, sizeof(port), "127.0.0.1:%u", s->port);
	expect(s, "GET", "/healthz", &(struct want){ .host = port, .status = 200 });
	expect(s, "GET", "/healthz", &(struct want){ .host = "LOCALHOST", .status = 200 });
	expect(s, "GET", "/healthz", &(struct want){ .host = "evil.example", .status = 403, .code = "forbidden" });
	expect(s, "GET", "/healthz", &(struct want){ .host = "localhost.evil.example", .status = 403, .code = "forbidden" });
	expect(s, "GET", "/healthz", &(struct want){ .host = "localhost:1", .status = 403, .code = "forbidden" });
	expect(s, "GET", "/healthz", &(struct want){ .extra = "Origin: http://localhost\r\n", .status = 403, .code = "forbidden" });
	expect(s, "POST", "/v1/images/pull",
	       &(struct want){ .token = "admin", .extra = "Content-Type: text/plain\r\nContent-Length: 5\r\n", .status = 415, .code = "invalid_request" });
}

static void wrong_calls_are_told_apart(void **state)
{
	expect(*state, "GET", "/nothing", &(struct want){ .status = 401, .code = "unauthorized" });
	expect(*state, "GET", "/nothing", &(struct want){ .token = "viewer", .status = 404, .code = "not_found" });
	expect(*state, "PUT", "/v1/sandboxes", &(struct want){ .token = "viewer", .status = 405, .code = "invalid_request" });
	expect(*state, "GET", "/v1/sandboxes?wait=1", &(struct want){ .token = "viewer", .status = 400, .code = "invalid_request" });
	expect(*state, "GET", "/v1/%00", &(struct want){ .token = "viewer", .status = 400, .code = "invalid_request" });
	expect(*state, "GET", "/v1/mux", &(struct want){ .token = "admin", .status = 400, .code = "invalid_request" });
	expect(*state, "POST", "/v1/images/pull", &(struct want){ .token = "admin", .status = 400, .code = "invalid_request" });
}

static void listening_beyond_loopback_is_refused(void **state)
{
	(void)state;
	static const char *const bad[] = { "", "0.0.0.0:80", "10.0.0.1:80", "[::]:80", "example.org:80", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536",
					   "128.0.0.1:80", ":80" };
	struct daemon_config config = { .policy_profile = (char[]){ "strict" } };
	struct api *a = api_new(&(struct api_options){ .config = &config });
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct error err = ERROR_INIT;
		if (api_listen_tcp(a, bad[i], NULL, &err) == 0)
			fail_msg("'%s' was taken", bad[i]);
		assert_int_equal(err.code, ERR_INVALID);
	}
	assert_true(api_stop(a, 1000));
	api_free(a);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(targets_are_taken_apart),
		cmocka_unit_test(bad_targets_are_refused),
		cmocka_unit_test(routes_are_found),
		cmocka_unit_test(parameters_are_taken),
		cmocka_unit_test(unknown_queries_are_refused),
		cmocka_unit_test(tenants_of_users_do_not_meet),
		cmocka_unit_test(admin_token_is_made_once),
		cmocka_unit_test(documents_follow_the_encoders),
		cmocka_unit_test(table_is_sound),
		cmocka_unit_test(openapi_is_whole),
		cmocka_unit_test_setup_teardown(every_row_wants_a_token, server_setup, server_teardown),
		cmocka_unit_test_setup_teardown(every_row_wants_its_role, server_setup, server_teardown),
		cmocka_unit_test_setup_teardown(every_row_bounds_its_body, server_setup, server_teardown),
		cmocka_unit_test_setup_teardown(chunked_bodies_are_bounded, server_setup, server_teardown),
		cmocka_unit_test_setup_teardown(tcp_is_careful, server_setup, server_teardown),
		cmocka_unit_test_setup_teardown(wrong_calls_are_told_apart, server_setup, server_teardown),
		cmocka_unit_test(listening_beyond_loopback_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
