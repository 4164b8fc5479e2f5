/* sandbox __complete: the words a shell may complete, one a line. Starts nothing, says nothing, waits a moment at most. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"

#include <string.h>

enum { ANSWER_TIMEOUT_MS = 1000 };

struct options {
	const char *what;
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_TEXT, "WHAT", struct options, what, "sandbox, operation or image"),
	POS_END,
};

struct source {
	const char *what, *target, *list, *keys[2];
};

/* A word that a shell or a terminal would read as something else is left out. */
static void print_word(const char *word)
{
	for (const char *p = word; *p; p++)
		if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 127 || strchr("'\"\\$`()<>|&;*?!", *p))
			return;
	if (*word)
		out_line("%s", word);
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	static const struct source sources[] = {
		{ "sandbox", "/v1/sandboxes?limit=500", "sandboxes", { "name", "id" } },
		{ "operation", "/v1/operations?limit=50", "operations", { "id", "" } },
		{ "image", "/v1/images", "images", { "name", "" } },
	};
	const struct options *o = opaque;
	(void)err;
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		const struct source *s = &sources[i];
		auto_json *answer = NULL;
		const cJSON *item;
		struct call c = { .method = "GET", .target = s->target, .timeout_ms = ANSWER_TIMEOUT_MS, .no_start = true };
		if (strcmp(s->what, o->what) != 0 || session_call(cli, &c, &answer, NULL) != 0)
			continue;
		cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(answer, s->list))
		{
			print_word(json_text(item, s->keys[0]));
			print_word(json_text(item, s->keys[1]));
		}
	}
	return 0;
}

const struct verb verb_complete = {
	.name = "__complete",
	.group = GROUP_SYSTEM,
	.flags = VERB_HIDDEN,
	.summary = "list words for shell completion",
	.positionals = positionals,
	.size = sizeof(struct options),
	.run = run,
};
