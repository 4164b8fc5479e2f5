/* TLS ClientHello (RFC 8446, 4.1.2; RFC 6066, 3): see hello.h. */
#include "daemon/egress/hello.h"

#include "shared/base/mem.h"

#include <stdbool.h>
#include <string.h>

enum { RECORD_HEAD = 5, RECORD_MAX = 16 * 1024 + 256, RECORD_HANDSHAKE = 22, TLS_MAJOR = 3, CLIENT_HELLO = 1, HANDSHAKE_HEAD = 4, EXT_SERVER_NAME = 0 };

/* A run of bytes that is read from the front. Reading past the end makes it bad, for good. */
struct view {
	const uint8_t *p;
	size_t n;
	bool bad;
};

static uint32_t number(struct view *v, size_t bytes)
{
	uint32_t x = 0;
	if (v->n < bytes)
		v->bad = true;
	if (v->bad)
		return 0;
	for (size_t i = 0; i < bytes; i++)
		x = x << 8 | v->p[i];
	v->p += bytes;
	v->n -= bytes;
	return x;
}

static struct view part(struct view *v, size_t n)
{
	struct view x = { v->p, n, v->bad || v->n < n };
	if (x.bad) {
		v->bad = true;
		return (struct view){ NULL, 0, true };
	}
	v->p += n;
	v->n -= n;
	return x;
}

static struct view counted(struct view *v, size_t length_bytes)
{
	uint32_t n = number(v, length_bytes);
	return part(v, n);
}

/* One host_name, nothing else. */
static bool read_name(struct view v, char name[static HELLO_NAME_MAX + 1])
{
	struct view list = counted(&v, 2);
	uint32_t type = number(&list, 1);
	struct view host = counted(&list, 2);
	if (v.bad || v.n || list.bad || list.n || type != 0 || host.bad || host.n == 0 || host.n > HELLO_NAME_MAX || memchr(host.p, 0, host.n))
		return false;
	memcpy(name, host.p, host.n);
	name[host.n] = '\0';
	return true;
}

static bool read_extensions(struct view v, char name[static HELLO_NAME_MAX + 1])
{
	bool seen = false;
	name[0] = '\0';
	while (v.n > 0 && !v.bad) {
		uint32_t type = number(&v, 2);
		struct view body = counted(&v, 2);
		if (v.bad || body.bad)
			return false;
		if (type != EXT_SERVER_NAME)
			continue;
		if (seen || !read_name(body, name))
			return false;
		seen = true;
	}
	return !v.bad;
}

static bool read_body(struct view v, char name[static HELLO_NAME_MAX + 1])
{
	struct view extensions = { NULL, 0, false };
	number(&v, 2);
	part(&v, 32);
	counted(&v, 1);
	counted(&v, 2);
	counted(&v, 1);
	if (!v.bad && v.n > 0)
		extensions = counted(&v, 2);
	return !v.bad && v.n == 0 && read_extensions(extensions, name);
}

/* The handshake message goes over as many records as its sender likes: copied together. */
static enum hello gather(struct view in, uint8_t *out, size_t *ret_n)
{
	size_t n = 0, want = HANDSHAKE_HEAD;
	while (n < want) {
		if (in.n > 0 && in.p[0] != RECORD_HANDSHAKE)
			return HELLO_BAD;
		if (in.n < RECORD_HEAD)
			return HELLO_MORE;
		number(&in, 1);
		uint32_t version = number(&in, 2), len = number(&in, 2);
		if (version >> 8 != TLS_MAJOR || len == 0 || len > RECORD_MAX || n + len > HELLO_BYTES_MAX)
			return HELLO_BAD;
		size_t there = in.n < len ? in.n : len;
		memcpy(out + n, in.p, there);
		n += there;
		if (n > 0 && out[0] != CLIENT_HELLO)
			return HELLO_BAD;
		if (n >= HANDSHAKE_HEAD)
			want = HANDSHAKE_HEAD + ((size_t)out[1] << 16 | (size_t)out[2] << 8 | out[3]);
		if (want > HELLO_BYTES_MAX)
			return HELLO_BAD;
		if (there < len && n < want)
			return HELLO_MORE;
		part(&in, there);
	}
	*ret_n = want;
	return HELLO_READ;
}

enum hello hello_read(const uint8_t *p, size_t n, char name[static HELLO_NAME_MAX + 1])
{
	auto_free uint8_t *message = xmalloc(HELLO_BYTES_MAX);
	size_t len = 0;
	enum hello got = gather((struct view){ p, n, false }, message, &len);
	if (got != HELLO_READ)
		return got;
	struct view v = { message + HANDSHAKE_HEAD, len - HANDSHAKE_HEAD, false };
	return read_body(v, name) ? HELLO_READ : HELLO_BAD;
}
