/*
 * Lines for the MCP bridge, through its real loop: whatever comes in, each line of output is one JSON-RPC message, every request that
 * stands alone on its line is answered once, and the loop ends. The address leads nowhere, so tools fail without a server. The same
 * bytes are tried as a client's configuration to be extended.
 * fuzz-archives: cli
 */
#include "cli/mcp/clients.h"
#include "cli/mcp/mcp.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static int file_of(const void *p, size_t n)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	check(fd >= 0 && io_write_full(fd, p, n) == 0 && lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

static void read_all(int fd, struct buf *ret)
{
	char p[65536];
	check(lseek(fd, 0, SEEK_SET) == 0);
	for (ssize_t n; (n = read(fd, p, sizeof(p))) > 0;)
		buf_add(ret, p, (size_t)n);
}

/* How often an id is answered by a message alone on its line. */
static size_t answers(const struct buf *out, const char *id)
{
	auto_free char *wanted = xasprintf("{\"jsonrpc\":\"2.0\",\"id\":%s,", id);
	size_t count = 0;
	for (const char *p = buf_str(out); *p;) {
		const char *end = strchr(p, '\n');
		check(end != NULL);
		auto_json *j = NULL;
		check(json_parse(p, (size_t)(end - p), &j, NULL) == 0 && (cJSON_IsObject(j) || cJSON_IsArray(j)));
		count += strncmp(p, wanted, strlen(wanted)) == 0;
		p = end + 1;
	}
	return count;
}

/* Every request asked once is answered once, unless it may have been cancelled. */
static void check_answers(const char *text, size_t n, const struct buf *out)
{
	bool cancels = memmem(text, n, "cancel", 6) != NULL || memmem(text, n, "\\u", 2) != NULL;
	answers(out, "0");
	for (size_t at = 0; at < n && !cancels;) {
		const char *nl = memchr(text + at, '\n', n - at);
		size_t len = nl ? (size_t)(nl - text) - at : n - at;
		auto_json *j = NULL;
		struct rpc_message m = { .id = NULL };
		struct rpc_failure f;
		if (json_parse(text + at, len, &j, NULL) == 0 && rpc_read(j, text + at, len, &m, &f) && m.kind == RPC_REQUEST)
			check(answers(out, m.id) >= 1);
		rpc_message_done(&m);
		at += len + 1;
	}
}

static void try_merge(const char *text, size_t n)
{
	static const char entry[] = "{\"command\":\"x\"}";
	auto_buf json = BUF_INIT, again = BUF_INIT, yaml = BUF_INIT;
	struct error err = ERROR_INIT;
	bool there = false;
	if (strlen(text) != n)
		return;
	if (mcp_merge_json(text, n, "mcpServers", entry, &json, &there, &err) == 0 && !there) {
		check(mcp_merge_json(buf_str(&json), json.len, "mcpServers", entry, &again, &there, &err) == 0 && there);
		check(json.len >= n);
	}
	if (mcp_merge_yaml(text, "  sandbox:\n    cmd: x\n", &yaml, &there, &err) == 0 && !there)
		check(yaml.len >= n && strstr(buf_str(&yaml), "  sandbox:\n"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct cli settings = { .server = "unix:///nowhere/sandbox.sock", .quiet = true };
	auto_buf out = BUF_INIT;
	auto_free char *text = xstrndup((const char *)data, size);
	if (size > 64 * 1024)
		return 0;
	auto_close int in_fd = file_of(data, size);
	auto_close int out_fd = file_of("", 0);
	struct serve how = { .settings = &settings, .wait_ms = 1000, .in = in_fd, .out = out_fd };
	check(mcp_serve(&how) == 0);
	read_all(out_fd, &out);
	check_answers((const char *)data, size, &out);
	try_merge(text, size);
	return 0;
}
