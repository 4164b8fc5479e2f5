/* Environment from options and files: see create.h. Values are bytes: nothing in them is interpreted. */
#include "cli/create.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>

enum { ENV_FILE_MAX = 4 * 1024 * 1024 };

/* Replaces an entry of the same key, else appends. */
static void put(struct strv *out, char *take_entry, size_t key_n)
{
	for (size_t i = 0; i < out->len; i++) {
		if (strncmp(out->items[i], take_entry, key_n + 1) == 0) {
			free(out->items[i]);
			out->items[i] = take_entry;
			return;
		}
	}
	strv_take(out, take_entry);
}

/* "KEY=value" or "KEY". */
static int add_entry(const char *text, struct strv *out, struct error *err)
{
	size_t n = strcspn(text, "=");
	auto_free char *key = xstrndup(text, n);
	if (!env_key_valid(key))
		return error_set(err, ERR_INVALID, "'%.80s' is not a variable: KEY=value or KEY, a letter or _ first, then letters, digits and _",
				 text);
	if (text[n] == '=') {
		put(out, xstrdup(text), n);
		return 0;
	}
	const char *own = getenv(key);
	if (own)
		put(out, xasprintf("%s=%s", key, own), n);
	return 0;
}

static int add_file(const char *path, struct strv *out, struct error *err)
{
	auto_buf text = BUF_INIT;
	if (io_read_file(path, ENV_FILE_MAX, &text, err) != 0)
		return error_wrap(err, "--env-file");
	if (strlen(buf_str(&text)) != text.len)
		return error_set(err, ERR_INVALID, "--env-file: %s holds a NUL byte", path);
	unsigned number = 0;
	for (char *line = text.data; line && *line;) {
		char *nl = strchr(line, '\n');
		if (nl)
			*nl = '\0';
		number++;
		size_t n = strlen(line);
		if (n && line[n - 1] == '\r')
			line[n - 1] = '\0';
		if (line[0] && line[0] != '#' && add_entry(line, out, err) != 0)
			return error_wrap(err, "%s:%u", path, number);
		line = nl ? nl + 1 : NULL;
	}
	return 0;
}

int env_collect(const struct strv *files, const struct strv *given, struct strv *out, struct error *err)
{
	for (size_t i = 0; files && i < files->len; i++)
		if (add_file(files->items[i], out, err) != 0)
			return -1;
	for (size_t i = 0; given && i < given->len; i++)
		if (add_entry(given->items[i], out, err) != 0)
			return error_wrap(err, "--env");
	return 0;
}
