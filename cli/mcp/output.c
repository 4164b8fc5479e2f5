/* Output made to fit a model's context: the first and last bytes, never cut inside a character, with what is missing said. */
#include "cli/mcp/mcp.h"

#include "cli/output.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <inttypes.h>
#include <string.h>

void mcp_add_lossy(cJSON *object, const char *key, const char *p, size_t n)
{
	auto_json *holder = cJSON_CreateObject();
	json_add_bytes(holder, key, p, n);
	cJSON_AddItemToObject(object, key, cJSON_DetachItemFromObjectCaseSensitive(holder, key));
}

/* The first byte at or behind `at` that does not continue a character. */
static size_t character_start(const char *p, size_t n, size_t at)
{
	for (int i = 0; i < 3 && at < n && (p[at] & 0xc0) == 0x80; i++)
		at++;
	return at;
}

size_t mcp_head_tail(const char *p, size_t n, size_t gap_at, uint64_t missing, size_t max, struct buf *out)
{
	if (gap_at > n)
		gap_at = n;
	size_t head = n, tail = n;
	if (n > max) {
		head = utf8_cut(p, max / 2);
		tail = character_start(p, n, n - max / 2);
	}
	if (missing > 0) {
		head = head < gap_at ? head : utf8_cut(p, gap_at);
		tail = n > max && tail > gap_at ? tail : character_start(p, n, gap_at);
	}
	buf_add(out, p, head);
	uint64_t cut = missing + (tail - head);
	if (cut > 0)
		buf_addf(out, "%s[... %" PRIu64 " bytes left out ...]\n", head && p[head - 1] != '\n' ? "\n" : "", cut);
	buf_add(out, p + tail, n - tail);
	return head;
}

struct stream_names {
	const char *text, *base64, *gap, *total;
};

/* Replaces one stream's members. Returns the offset at which the reader should go on, or -1 when all is there. */
static int64_t trim(cJSON *output, const struct stream_names *names, size_t max)
{
	const char *text = json_text(output, names->text);
	const cJSON *gap = cJSON_GetObjectItemCaseSensitive(output, names->gap);
	const cJSON *encoded = cJSON_GetObjectItemCaseSensitive(output, names->base64);
	uint64_t total = (uint64_t)json_number(output, names->total, 0);
	auto_buf raw = BUF_INIT, shown = BUF_INIT;
	if (cJSON_IsString(encoded))
		base64_decode(encoded->valuestring, &raw, NULL);
	else
		buf_adds(&raw, text);
	uint64_t missing = gap && total > raw.len ? total - raw.len : 0;
	size_t head = mcp_head_tail(buf_str(&raw), raw.len, gap ? (size_t)gap->valuedouble : 0, missing, max, &shown);
	bool whole = missing == 0 && head == raw.len, binary = encoded != NULL;
	cJSON_DeleteItemFromObjectCaseSensitive(output, names->text);
	cJSON_DeleteItemFromObjectCaseSensitive(output, names->base64);
	cJSON_DeleteItemFromObjectCaseSensitive(output, names->gap);
	mcp_add_lossy(output, names->text, buf_str(&shown), shown.len);
	if (binary)
		json_add_bool(output, names->text[3] == 'o' ? "stdout_binary" : "stderr_binary", true);
	return whole ? -1 : (int64_t)head;
}

void mcp_trim_output(cJSON *operation, size_t max)
{
	static const struct stream_names out = { "stdout", "stdout_base64", "stdout_gap_at", "stdout_bytes" };
	static const struct stream_names err = { "stderr", "stderr_base64", "stderr_gap_at", "stderr_bytes" };
	cJSON *output = cJSON_GetObjectItemCaseSensitive(operation, "output");
	if (!cJSON_IsObject(output))
		return;
	int64_t from_out = trim(output, &out, max), from_err = trim(output, &err, max);
	bool cut = from_out >= 0 || from_err >= 0;
	cJSON_DeleteItemFromObjectCaseSensitive(output, "truncated");
	json_add_bool(output, "truncated", cut);
	if (!cut)
		return;
	char cursor[64];
	snprintf(cursor, sizeof(cursor), "%" PRId64 ".%" PRId64, from_out >= 0 ? from_out : (int64_t)json_number(output, "stdout_bytes", 0),
		 from_err >= 0 ? from_err : (int64_t)json_number(output, "stderr_bytes", 0));
	json_add_str(output, "next_cursor", cursor);
}
