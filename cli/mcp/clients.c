/* The table of clients and the text each wants; the server's name is always "sandbox". A token is never part of it. */
#include "cli/mcp/clients.h"

#include "cli/mcp/rpc.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <stddef.h>
#include <string.h>

static void json_env(const char *key, const struct map *env, struct buf *out)
{
	if (!env->len)
		return;
	buf_addf(out, ",\n      \"%s\": {", key);
	for (size_t i = 0; i < env->len; i++) {
		buf_adds(out, i ? ", " : " ");
		rpc_add_string(out, env->items[i].key);
		buf_adds(out, ": ");
		rpc_add_string(out, env->items[i].value);
	}
	buf_adds(out, " }");
}

static void common_entry(const char *command, const struct map *env, struct buf *out)
{
	buf_adds(out, "{\n      \"command\": ");
	rpc_add_string(out, command);
	buf_adds(out, ",\n      \"args\": []");
	json_env("env", env, out);
	buf_adds(out, "\n    }");
}

static void vscode_entry(const char *command, const struct map *env, struct buf *out)
{
	buf_adds(out, "{\n      \"type\": \"stdio\",\n      \"command\": ");
	rpc_add_string(out, command);
	buf_adds(out, ",\n      \"args\": []");
	json_env("env", env, out);
	buf_adds(out, "\n    }");
}

static void opencode_entry(const char *command, const struct map *env, struct buf *out)
{
	buf_adds(out, "{\n      \"type\": \"local\",\n      \"command\": [");
	rpc_add_string(out, command);
	buf_adds(out, "],\n      \"enabled\": true");
	json_env("environment", env, out);
	buf_adds(out, "\n    }");
}

static void codex_entry(const char *command, const struct map *env, struct buf *out)
{
	buf_adds(out, "[mcp_servers.sandbox]\ncommand = ");
	rpc_add_string(out, command);
	buf_adds(out, "\nenv_vars = [\"SANDBOX_URL\", \"SANDBOX_TOKEN\", \"XDG_RUNTIME_DIR\"]\ntool_timeout_sec = 120\n");
	if (!env->len)
		return;
	buf_adds(out, "\n[mcp_servers.sandbox.env]\n");
	for (size_t i = 0; i < env->len; i++) {
		buf_addf(out, "%s = ", env->items[i].key);
		rpc_add_string(out, env->items[i].value);
		buf_addc(out, '\n');
	}
}

static void goose_entry(const char *command, const struct map *env, struct buf *out)
{
	buf_adds(out, "  sandbox:\n    name: Sandbox\n    type: stdio\n    cmd: ");
	rpc_add_string(out, command);
	buf_adds(out, "\n    args: []\n    enabled: true\n    timeout: 120\n    envs:");
	buf_adds(out, env->len ? "\n" : " {}\n");
	for (size_t i = 0; i < env->len; i++) {
		buf_addf(out, "      %s: ", env->items[i].key);
		rpc_add_string(out, env->items[i].value);
		buf_addc(out, '\n');
	}
}

const struct mcp_client mcp_clients[] = {
	{ "claude", "Claude Code", "claude", "claude mcp add --scope user --transport stdio sandbox %e -- %c", "claude mcp get sandbox",
	  "claude mcp remove --scope user sandbox", "--env", NULL,
	  "mcpServers", common_entry },
	{ "codex", "Codex", "codex", "codex mcp add sandbox %e -- %c", "codex mcp get sandbox", "codex mcp remove sandbox",
	  "--env", NULL, NULL, codex_entry },
	{ "gemini", "Gemini CLI", "gemini", "gemini mcp add --scope user %e sandbox %c", NULL, NULL, "-e", ".gemini/settings.json", "mcpServers", common_entry },
	{ "opencode", "OpenCode", "opencode", NULL, NULL, NULL, NULL, "config:opencode/opencode.json", "mcp", opencode_entry },
	{ "vscode", "VS Code", "code", "code --add-mcp %j", NULL, NULL, NULL, "config:Code/User/mcp.json", "servers", vscode_entry },
	{ "cursor", "Cursor", "cursor", NULL, NULL, NULL, NULL, ".cursor/mcp.json", "mcpServers", common_entry },
	{ "goose", "Goose", "goose", NULL, NULL, NULL, NULL, "config:goose/config.yaml", NULL, goose_entry },
	{ .name = NULL },
};

const struct mcp_client *mcp_client_find(const char *name)
{
	for (const struct mcp_client *c = mcp_clients; c->name; c++)
		if (strcmp(c->name, name) == 0)
			return c;
	return NULL;
}

void mcp_client_config(const struct mcp_client *c, const char *command, const struct map *env, struct buf *out)
{
	if (!c->member) {
		if (c->entry == goose_entry)
			buf_adds(out, "extensions:\n");
		c->entry(command, env, out);
		return;
	}
	buf_addf(out, "{\n  \"%s\": {\n    \"sandbox\": ", c->member);
	c->entry(command, env, out);
	buf_adds(out, "\n  }\n}\n");
}

/* --- merging ---------------------------------------------------------------------------------------------------------- */

static bool empty_object(const char *p, size_t n)
{
	size_t i = 1;
	while (i < n && strchr(" \t\r\n", p[i]))
		i++;
	return i < n && p[i] == '}';
}

/* text with `insert` right behind the brace that opens the object at `object`. */
static void insert(const char *text, size_t n, const char *object, size_t object_n, const struct buf *piece, struct buf *out)
{
	size_t at = (size_t)(object - text) + 1;
	buf_add(out, text, at);
	buf_add(out, piece->data, piece->len);
	if (!empty_object(object, object_n))
		buf_addc(out, ',');
	else
		buf_addc(out, '\n');
	buf_add(out, text + at, n - at);
}

static int check_json(const char *text, size_t n, struct error *err)
{
	cJSON *j = NULL;
	struct error e = ERROR_INIT;
	int rc = json_parse(text, n, &j, &e);
	if (rc != 0)
		error_set(err, ERR_INVALID, "it is not plain JSON (%s), perhaps for its comments", e.message);
	else if (!cJSON_IsObject(j))
		rc = error_set(err, ERR_INVALID, "its outermost value is no object");
	cJSON_Delete(j);
	return rc;
}

int mcp_merge_json(const char *text, size_t n, const char *member, const char *entry, struct buf *out, bool *ret_there, struct error *err)
{
	static const char nothing[] = "{}\n";
	auto_buf piece = BUF_INIT;
	size_t object_n, dummy;
	if (strspn(text, " \t\r\n") == n) {
		text = nothing;
		n = strlen(nothing);
	}
	if (check_json(text, n, err) != 0)
		return -1;
	const char *root = text + strspn(text, " \t\r\n"), *object = rpc_raw_member(text, n, member, &object_n);
	*ret_there = false;
	if (object && *object != '{')
		return error_set(err, ERR_INVALID, "its member \"%s\" is no object", member);
	if (object && rpc_raw_member(object, object_n, "sandbox", &dummy)) {
		*ret_there = true;
		return 0;
	}
	if (object)
		buf_addf(&piece, "\n    \"sandbox\": %s", entry);
	else
		buf_addf(&piece, "\n  \"%s\": {\n    \"sandbox\": %s\n  }", member, entry);
	if (object)
		insert(text, n, object, object_n, &piece, out);
	else
		insert(text, n, root, n - (size_t)(root - text), &piece, out);
	return check_json(out->data, out->len, err);
}

/* A line's start that begins with `key` and a colon; NULL when there is none. */
static const char *yaml_key(const char *text, const char *key)
{
	size_t n = strlen(key);
	for (const char *p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
		if (strncmp(p, key, n) == 0 && p[n] == ':')
			return p;
	return NULL;
}

int mcp_merge_yaml(const char *text, const char *entry, struct buf *out, bool *ret_there, struct error *err)
{
	const char *at = yaml_key(text, "extensions");
	*ret_there = at && yaml_key(at, "  sandbox");
	if (*ret_there)
		return 0;
	if (!at) {
		size_t n = strlen(text);
		buf_adds(out, text);
		buf_addf(out, "%sextensions:\n%s", n && text[n - 1] != '\n' ? "\n" : "", entry);
		return 0;
	}
	const char *value = at + strlen("extensions:"), *end = strchr(value, '\n');
	end = end ? end : value + strlen(value);
	size_t blank = strspn(value, " \t");
	bool nothing = value + blank == end || strncmp(value + blank, "{}", 2) == 0;
	if (!nothing)
		return error_set(err, ERR_INVALID, "its extensions are not written one a line");
	buf_add(out, text, (size_t)(value - text));
	buf_addf(out, "\n%s", entry);
	buf_adds(out, *end ? end + 1 : "");
	return 0;
}

/* --- taking out ------------------------------------------------------------------------------------------------------- */

static const char *back_over_blanks(const char *p, const char *from)
{
	while (p > from && strchr(" \t\r\n", p[-1]))
		p--;
	return p;
}

/* From the end of what stands before the member to the end of its value and its comma; an object left empty loses its blanks too. */
static int unmerge_json(const char *text, size_t n, const char *member, struct buf *out, bool *ret_there, struct error *err)
{
	static const char key[] = "\"sandbox\"";
	size_t object_n, value_n;
	const char *object = rpc_raw_member(text, n, member, &object_n), *end = text + n;
	const char *value = object && *object == '{' ? rpc_raw_member(object, object_n, "sandbox", &value_n) : NULL;
	*ret_there = value != NULL;
	if (!value)
		return 0;
	const char *colon = back_over_blanks(value, object) - 1, *start = back_over_blanks(colon, object) - strlen(key);
	if (start <= object || memcmp(start, key, strlen(key)) != 0)
		return error_set(err, ERR_INVALID, "its entry is written in an unusual way");
	start = back_over_blanks(start, object);
	const char *rest = value + value_n, *next = rest + strspn(rest, " \t\r\n");
	if (next < end && *next == ',')
		rest = next + 1;
	else if (start[-1] == ',')
		start--;
	else
		rest = next;
	buf_add(out, text, (size_t)(start - text));
	buf_add(out, rest, (size_t)(end - rest));
	return check_json(out->data, out->len, err);
}

static const char *next_line(const char *p)
{
	const char *end = strchr(p, '\n');
	return end ? end + 1 : p + strlen(p);
}

static void unmerge_yaml(const char *text, struct buf *out, bool *ret_there)
{
	const char *at = yaml_key(text, "extensions"), *start = at ? yaml_key(at, "  sandbox") : NULL, *rest = start;
	*ret_there = start != NULL;
	if (!start)
		return;
	do
		rest = next_line(rest);
	while (strncmp(rest, "   ", 3) == 0);
	buf_add(out, text, (size_t)(start - text));
	buf_adds(out, rest);
}

int mcp_unmerge(const char *text, size_t n, const char *member, struct buf *out, bool *ret_there, struct error *err)
{
	*ret_there = false;
	if (strspn(text, " \t\r\n") == n)
		return 0;
	if (!member) {
		unmerge_yaml(text, out, ret_there);
		return 0;
	}
	return check_json(text, n, err) == 0 ? unmerge_json(text, n, member, out, ret_there, err) : -1;
}
