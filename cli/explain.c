/* Decisions as text: see explain.h. */
#include "cli/explain.h"

#include "cli/output.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>

/* A member's text with control bytes escaped. Caller frees. */
static char *safe_text(const cJSON *j, const char *key)
{
	const char *text = json_text(j, key);
	size_t n = strlen(text), room = n * 4 + 1;
	char *out = xmalloc(room);
	return text_escape(text, n, out, room);
}

static void print_score(const cJSON *d, FILE *out)
{
	const cJSON *item;
	fprintf(out, "risk score   %.0f of 100", json_number(d, "score", 0));
	const char *sep = ": ";
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(d, "signals"))
	{
		auto_free char *name = safe_text(item, "name");
		fprintf(out, "%s%s %.0f", sep, name, json_number(item, "points", 0));
		sep = ", ";
	}
	fputc('\n', out);
}

static void print_node(const cJSON *node, FILE *out)
{
	auto_free char *name = safe_text(node, "name");
	auto_free char *reason = safe_text(node, "reason");
	if (json_flag(node, "fits"))
		fprintf(out, "node         %s fits, rank %.0f%s%s\n", name, json_number(node, "rank", 0), *reason ? ": " : "", reason);
	else
		fprintf(out, "node         %s does not fit: %s\n", name, reason);
}

void explain_print(const cJSON *decision, bool verdict, FILE *out)
{
	if (!cJSON_IsObject(decision))
		return;
	auto_free char *tier = safe_text(decision, "required_tier");
	auto_free char *reason = safe_text(decision, "tier_reason");
	auto_free char *profile = safe_text(decision, "profile");
	auto_free char *refusal = safe_text(decision, "refusal");
	auto_free char *placed = safe_text(decision, "node");
	print_score(decision, out);
	fprintf(out, "tier         %s%s%s\n", tier, *reason ? ": " : "", reason);
	fprintf(out, "policy       profile %s, microVM from a score of %.0f\n", profile, json_number(decision, "threshold", 0));
	const cJSON *node;
	cJSON_ArrayForEach(node, cJSON_GetObjectItemCaseSensitive(decision, "nodes")) print_node(node, out);
	if (!verdict)
		return;
	if (json_flag(decision, "placed"))
		fprintf(out, "placed on    %s\n", placed);
	else
		fprintf(out, "not placed   %s\n", *refusal ? refusal : "no node fits");
}
