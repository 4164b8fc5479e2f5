/* The chunked coding, read strictly: no extensions, no bare line feeds, bounded sizes and trailers. */
#include "daemon/edge/http.h"

#include <string.h>
#include <strings.h>

enum { SIZE_DIGITS_MAX = 15, TRAILERS_MAX = 8 * 1024 };

enum state { SIZE, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER, TRAILER_LF, DONE, BAD };

bool chunked_done(const struct chunked *c)
{
	return c->state == DONE;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int size_byte(struct chunked *c, char b)
{
	int v = hex(b);
	if (b == '\r' && c->digits > 0)
		return SIZE_LF;
	if (v < 0 || c->digits == SIZE_DIGITS_MAX)
		return BAD;
	c->left = c->left * 16 + (uint64_t)v;
	c->digits++;
	return SIZE;
}

/* Fields that say how a message is read or where it goes have no place behind it. */
static bool name_allowed(const struct chunked *c)
{
	static const char *const refused[] = { "transfer-encoding", "content-length", "host", "connection", "upgrade", "authorization", "cookie", "set-cookie" };
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (strcasecmp(c->name, refused[i]) == 0)
			return false;
	return true;
}

static int trailer_byte(struct chunked *c, char b)
{
	unsigned char u = (unsigned char)b;
	if (++c->trailer > TRAILERS_MAX)
		return BAD;
	if (b == '\r')
		return c->line == 0 || c->digits ? TRAILER_LF : BAD;
	if ((u < 0x20 && u != '\t') || u == 0x7f || (c->line == 0 && (b == ' ' || b == '\t' || b == ':')))
		return BAD;
	if (!c->digits && b == ':') { /* digits: the colon was seen */
		c->digits = 1;
		c->name[c->line < sizeof(c->name) ? c->line : sizeof(c->name) - 1] = '\0';
		if (!name_allowed(c))
			return BAD;
	} else if (!c->digits && (b == ' ' || b == '\t')) {
		return BAD;
	} else if (!c->digits && c->line < sizeof(c->name) - 1) {
		c->name[c->line] = b;
	}
	c->line++;
	return TRAILER;
}

static int trailer_end(struct chunked *c)
{
	bool last = c->line == 0;
	c->line = 0;
	c->digits = 0;
	return last ? DONE : TRAILER;
}

static int one_byte(struct chunked *c, char b)
{
	switch ((enum state)c->state) {
	case SIZE:
		return size_byte(c, b);
	case SIZE_LF:
		c->digits = 0;
		return b != '\n' ? BAD : c->left ? DATA : TRAILER;
	case DATA_CR:
		return b == '\r' ? DATA_LF : BAD;
	case DATA_LF:
		return b == '\n' ? SIZE : BAD;
	case TRAILER:
		return trailer_byte(c, b);
	case TRAILER_LF:
		return b == '\n' ? trailer_end(c) : BAD;
	case DATA:
	case DONE:
	case BAD:
		break;
	}
	return BAD;
}

ssize_t chunked_feed(struct chunked *c, const char *p, size_t n, chunk_fn data, void *ctx)
{
	size_t i = 0;
	while (i < n && c->state != DONE && c->state != BAD) {
		if (c->state != DATA) {
			c->state = one_byte(c, p[i++]);
			continue;
		}
		size_t run = n - i < c->left ? n - i : (size_t)c->left;
		if (data)
			data(ctx, p + i, run);
		c->left -= run;
		i += run;
		if (c->left == 0)
			c->state = DATA_CR;
	}
	return c->state == BAD ? -1 : (ssize_t)i;
}
