/* The opening handshake's keys and header lists: see ws.h. */
#include "shared/http/ws.h"

#include "shared/base/id.h"

#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

enum { KEY_BYTES = 16, SHA1_BYTES = 20 };

void ws_key(char out[static WS_KEY_LEN + 1])
{
	uint8_t raw[KEY_BYTES];
	random_bytes(raw, sizeof(raw));
	EVP_EncodeBlock((unsigned char *)out, raw, sizeof(raw));
}

bool ws_key_valid(const char *key)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	return key && strlen(key) == WS_KEY_LEN && strspn(key, digits) == WS_KEY_LEN - 2 && strcmp(key + WS_KEY_LEN - 2, "==") == 0;
}

void ws_accept(const char *key, char out[static WS_ACCEPT_LEN + 1])
{
	static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
	char text[WS_KEY_LEN + sizeof(guid)];
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned n = 0;
	int len = snprintf(text, sizeof(text), "%s%s", key, guid);
	if (EVP_Digest(text, (size_t)len, digest, &n, EVP_sha1(), NULL) != 1 || n != SHA1_BYTES)
		abort();
	EVP_EncodeBlock((unsigned char *)out, digest, SHA1_BYTES);
}

bool ws_header_has(const char *value, const char *word)
{
	size_t want = strlen(word);
	for (const char *p = value; p && *p;) {
		p += strspn(p, ", \t");
		size_t n = strcspn(p, ",");
		size_t len = n;
		while (len > 0 && (p[len - 1] == ' ' || p[len - 1] == '\t'))
			len--;
		if (len == want && strncasecmp(p, word, want) == 0)
			return true;
		p += n;
	}
	return false;
}
