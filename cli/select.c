/* Choosing sandboxes: see select.h. */
#include "cli/select.h"

#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/mem.h"
#include "shared/http/unix_client.h"
#include "shared/json/json.h"

#include <string.h>
#include <unistd.h>

enum { PAGE = 500 };

static void add_query(struct buf *target, const char *key, const char *value)
{
	auto_free char *enc = url_encode(value);
	buf_addf(target, "%c%s=%s", strchr(buf_str(target), '?') ? '&' : '?', key, enc);
}

static char *first_target(const struct cli *cli, const struct strv *labels, bool ended)
{
	struct buf target = BUF_INIT;
	buf_addf(&target, "/v1/sandboxes?limit=%d", PAGE);
	if (cli->tenant)
		add_query(&target, "tenant", cli->tenant);
	if (ended)
		add_query(&target, "all", "true");
	for (size_t i = 0; i < labels->len; i++)
		add_query(&target, "label", labels->items[i]);
	return buf_steal(&target);
}

/* Moves one page's elements to the end of `all`; *ret_next is the cursor of the following one (NULL: none). */
static int get_page(struct cli *cli, const char *target, cJSON *all, char **ret_next, struct error *err)
{
	auto_json *page = NULL;
	struct call c = { .method = "GET", .target = target };
	if (session_call(cli, &c, &page, err) != 0)
		return -1;
	cJSON *list = cJSON_GetObjectItemCaseSensitive(page, "sandboxes");
	if (!cJSON_IsArray(list))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no list of sandboxes");
	const char *next = json_text(page, "next");
	*ret_next = *next && list->child ? xstrdup(next) : NULL;
	/* One by one cJSON keeps the last element at hand, so this is linear. */
	while (list->child)
		cJSON_AddItemToArray(all, cJSON_DetachItemViaPointer(list, list->child));
	return 0;
}

int select_sandboxes(struct cli *cli, const struct strv *labels, bool ended, cJSON *list, struct error *err)
{
	auto_free char *first = first_target(cli, labels, ended);
	auto_free char *target = xstrdup(first);
	for (;;) {
		char *next = NULL;
		if (get_page(cli, target, list, &next, err) != 0)
			return -1;
		if (!next)
			return 0;
		auto_free char *enc = url_encode(next);
		free(next);
		free(target);
		target = xasprintf("%s&after=%s", first, enc);
	}
}

int confirm(struct cli *cli, const char *question, struct error *err)
{
	char answer[16] = "";
	if (!cli->err_tty || isatty(STDIN_FILENO) != 1)
		return error_set(err, ERR_INVALID, "there is no terminal to ask on: give --yes");
	fprintf(stderr, "%s [y/N] ", question);
	if (!fgets(answer, sizeof(answer), stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
		return error_set(err, ERR_INVALID, "nothing was done");
	return 0;
}
