/*
 * Settings and project files, server addresses, console lines: nothing crashes, and what was read is printed back the same.
 * fuzz-archives: cli
 */
#include "cli/console/console.h"
#include "shared/base/mem.h"
#include "shared/config/ini_doc.h"
#include "shared/config/server_url.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void ini(const char *text, size_t n)
{
	auto_ini *d = NULL, *again = NULL;
	auto_buf first = BUF_INIT, second = BUF_INIT;
	struct ini_item item;
	if (ini_doc_parse("f", text, n, &d, NULL) != 0)
		return;
	ini_doc_print(d, &first);
	if (ini_doc_parse("f", buf_str(&first), first.len, &again, NULL) != 0)
		abort();
	ini_doc_print(again, &second);
	if (strcmp(buf_str(&first), buf_str(&second)) != 0)
		abort();
	for (size_t at = 0; ini_doc_next(d, &at, &item);)
		if (item.key && !ini_doc_get(d, item.section, item.key))
			abort();
	if (ini_doc_set(d, "s", "k", "v", NULL) != 0 || strcmp(ini_doc_get(d, "s", "k"), "v") != 0)
		abort();
}

static void url(const char *text)
{
	auto_server_url u = { .url = NULL }, again = { .url = NULL };
	if (server_url_parse(text, &u, NULL) != 0)
		return;
	if (server_url_parse(u.url, &again, NULL) != 0 || strcmp(u.url, again.url) != 0 || strcmp(u.origin, again.origin) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	auto_free char *text = xstrndup((const char *)data, n);
	auto_strv words = STRV_INIT;
	ini((const char *)data, n);
	url(text);
	console_split(text, &words, NULL);
	return 0;
}
