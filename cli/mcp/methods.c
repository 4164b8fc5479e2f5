/* The methods that need no server: the handshake, ping, and what the bridge offers. */
#include "cli/mcp/mcp.h"
#include "cli/mcp/texts.h"

#include "shared/base/mem.h"

#include <string.h>

static const struct rpc_version versions[] = {
	{ "2025-11-25", false },
	{ "2025-06-18", false },
	{ "2025-03-26", true },
	{ "2024-11-05", true },
};

/* An unknown version is answered with our newest: the client decides whether it goes on. */
static void initialize(const cJSON *params, struct rpc_version *version, struct buf *out)
{
	const cJSON *wanted = cJSON_GetObjectItemCaseSensitive(params, "protocolVersion");
	*version = versions[0];
	for (size_t i = 0; cJSON_IsString(wanted) && i < ARRAY_LEN(versions); i++)
		if (strcmp(wanted->valuestring, versions[i].text) == 0)
			*version = versions[i];
	buf_addf(out, "{\"protocolVersion\":\"%s\",\"capabilities\":{\"tools\":{\"listChanged\":false},\"resources\":{\"listChanged\":false,"
		      "\"subscribe\":false},\"prompts\":{\"listChanged\":false}},\"serverInfo\":{\"name\":\"sandbox\",\"title\":\"Sandbox\","
		      "\"version\":\"" SANDBOX_VERSION "\"},\"instructions\":",
		 version->text);
	rpc_add_string(out, mcp_instructions);
	buf_addc(out, '}');
}

/* Every list fits one page, so no cursor was ever given out. */
static bool one_page(const cJSON *params, struct rpc_failure *f)
{
	const cJSON *cursor = cJSON_GetObjectItemCaseSensitive(params, "cursor");
	if (!cursor || cJSON_IsNull(cursor))
		return true;
	rpc_fail(f, RPC_INVALID_PARAMS, "unknown cursor: this list has one page");
	return false;
}

static const char *text_of(const cJSON *params, const char *key)
{
	const cJSON *j = cJSON_GetObjectItemCaseSensitive(params, key);
	return cJSON_IsString(j) ? j->valuestring : NULL;
}

/* --- resources -------------------------------------------------------------------------------------------------------- */

static void resources_list(struct buf *out)
{
	buf_adds(out, "{\"resources\":[");
	for (const struct mcp_resource *r = mcp_resources; r->uri; r++) {
		buf_addf(out, "%s{\"uri\":\"%s\",\"name\":\"%s\",\"title\":\"%s\",\"description\":\"%s\",\"mimeType\":\"%s\"}",
			 r == mcp_resources ? "" : ",", r->uri, r->name, r->title, r->description, r->mime);
	}
	buf_adds(out, "]}");
}

static bool resources_read(const cJSON *params, struct buf *out, struct rpc_failure *f)
{
	const char *uri = text_of(params, "uri");
	if (!uri) {
		rpc_fail(f, RPC_INVALID_PARAMS, "resources/read needs a uri");
		return false;
	}
	for (const struct mcp_resource *r = mcp_resources; r->uri; r++) {
		if (strcmp(r->uri, uri) != 0)
			continue;
		auto_buf text = BUF_INIT;
		r->write(&text);
		buf_addf(out, "{\"contents\":[{\"uri\":\"%s\",\"mimeType\":\"%s\",\"text\":", r->uri, r->mime);
		rpc_add_string(out, buf_str(&text));
		buf_adds(out, "}]}");
		return true;
	}
	rpc_fail(f, RPC_NOT_FOUND, "no such resource: %.120s", uri);
	return false;
}

/* --- prompts ---------------------------------------------------------------------------------------------------------- */

static void prompts_list(struct buf *out)
{
	buf_adds(out, "{\"prompts\":[");
	for (const struct mcp_prompt *p = mcp_prompts; p->name; p++) {
		buf_addf(out, "%s{\"name\":\"%s\",\"title\":\"%s\",\"description\":\"%s\",\"arguments\":[", p == mcp_prompts ? "" : ",", p->name,
			 p->title, p->description);
		for (const struct mcp_argument *a = p->arguments; a->name; a++)
			buf_addf(out, "%s{\"name\":\"%s\",\"description\":\"%s\",\"required\":%s}", a == p->arguments ? "" : ",", a->name,
				 a->description, a->fallback ? "false" : "true");
		buf_adds(out, "]}");
	}
	buf_adds(out, "]}");
}

/* %NAME% stands for an argument, quoted as JSON so that nothing in it passes for part of the instructions. */
static void fill(const struct mcp_prompt *p, const cJSON *arguments, struct buf *out)
{
	for (const char *t = p->text; *t;) {
		const char *end = *t == '%' ? strchr(t + 1, '%') : NULL;
		if (!end) {
			buf_addc(out, *t++);
			continue;
		}
		for (const struct mcp_argument *a = p->arguments; a->name; a++) {
			if (strlen(a->name) != (size_t)(end - t - 1) || strncmp(a->name, t + 1, strlen(a->name)) != 0)
				continue;
			const char *value = text_of(arguments, a->name);
			rpc_add_string(out, value ? value : a->fallback);
		}
		t = end + 1;
	}
}

static bool check_arguments(const struct mcp_prompt *p, const cJSON *arguments, struct rpc_failure *f)
{
	for (const struct mcp_argument *a = p->arguments; a->name; a++) {
		const char *value = text_of(arguments, a->name);
		if ((!value || !*value) && !a->fallback) {
			rpc_fail(f, RPC_INVALID_PARAMS, "the prompt %s needs the argument %s", p->name, a->name);
			return false;
		}
	}
	for (const cJSON *j = arguments ? arguments->child : NULL; j; j = j->next) {
		const struct mcp_argument *a = p->arguments;
		while (a->name && strcmp(a->name, j->string) != 0)
			a++;
		if (!a->name || !cJSON_IsString(j)) {
			rpc_fail(f, RPC_INVALID_PARAMS, "the prompt %s takes no text argument %.80s", p->name, j->string);
			return false;
		}
	}
	return true;
}

static bool prompts_get(const cJSON *params, struct buf *out, struct rpc_failure *f)
{
	const char *name = text_of(params, "name");
	const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(params, "arguments");
	const struct mcp_prompt *p = mcp_prompts;
	while (p->name && (!name || strcmp(p->name, name) != 0))
		p++;
	if (!p->name) {
		rpc_fail(f, RPC_INVALID_PARAMS, "no such prompt: %.80s", name ? name : "(no name given)");
		return false;
	}
	if (!check_arguments(p, arguments, f))
		return false;
	auto_buf text = BUF_INIT;
	fill(p, arguments, &text);
	buf_adds(out, "{\"description\":");
	rpc_add_string(out, p->description);
	buf_adds(out, ",\"messages\":[{\"role\":\"user\",\"content\":{\"type\":\"text\",\"text\":");
	rpc_add_string(out, buf_str(&text));
	buf_adds(out, "}}]}");
	return true;
}

/* --- dispatch --------------------------------------------------------------------------------------------------------- */

static void no_templates(struct buf *out)
{
	buf_adds(out, "{\"resourceTemplates\":[]}");
}

bool mcp_method(const char *method, const cJSON *params, struct rpc_version *version, struct buf *out, struct rpc_failure *f)
{
	static const struct {
		const char *method;
		void (*list)(struct buf *out);
	} lists[] = {
		{ "tools/list", mcp_tools_list }, { "resources/list", resources_list }, { "resources/templates/list", no_templates },
		{ "prompts/list", prompts_list },
	};
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		if (strcmp(method, lists[i].method) != 0)
			continue;
		if (!one_page(params, f))
			return false;
		lists[i].list(out);
		return true;
	}
	if (strcmp(method, "initialize") == 0)
		initialize(params, version, out);
	else if (strcmp(method, "ping") == 0)
		buf_adds(out, "{}");
	else if (strcmp(method, "resources/read") == 0)
		return resources_read(params, out, f);
	else if (strcmp(method, "prompts/get") == 0)
		return prompts_get(params, out, f);
	else {
		rpc_fail(f, RPC_METHOD_NOT_FOUND, "no such method: %.80s", method);
		return false;
	}
	return true;
}
