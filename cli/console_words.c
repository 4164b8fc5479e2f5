/* Lines of the console into words: see console/console.h. In the library, so that it can be tested without readline. */
#include "cli/console/console.h"

#include <string.h>

/* Inside "…" a backslash hides these alone. */
static bool hidden_in_quotes(char c)
{
	return c && strchr("\"\\$`", c);
}

/* One word from *p; *p is behind it afterwards. */
static int take_word(const char **p, struct buf *word, struct error *err)
{
	char quote = '\0';
	const char *c = *p;
	for (; *c && (quote || !strchr(" \t", *c)); c++) {
		if (quote == '\'' ? *c == '\'' : quote && *c == '"') {
			quote = '\0';
		} else if (!quote && (*c == '\'' || *c == '"')) {
			quote = *c;
		} else if (*c == '\\' && quote != '\'' && c[1] && (!quote || hidden_in_quotes(c[1]))) {
			buf_addc(word, *++c);
		} else {
			buf_addc(word, *c);
		}
	}
	*p = c;
	return quote ? error_set(err, ERR_INVALID, "a %c is not closed", quote) : 0;
}

int console_split(const char *line, struct strv *ret, struct error *err)
{
	for (const char *p = line;;) {
		auto_buf word = BUF_INIT;
		p += strspn(p, " \t");
		if (!*p || *p == '#')
			return 0;
		if (take_word(&p, &word, err) != 0)
			return -1;
		strv_add(ret, buf_str(&word));
	}
}
