/* Percent-encoding for paths and queries: see unix_client.h. */
#include "shared/http/unix_client.h"

#include <string.h>

static bool unreserved(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("-._~", c));
}

char *url_encode(const char *text)
{
	static const char hex[] = "0123456789ABCDEF";
	struct buf out = BUF_INIT;
	for (const char *p = text; *p; p++) {
		unsigned char c = (unsigned char)*p;
		if (unreserved(c)) {
			buf_addc(&out, (char)c);
		} else {
			char enc[3] = { '%', hex[c >> 4], hex[c & 15] };
			buf_add(&out, enc, 3);
		}
	}
	return buf_steal(&out);
}
