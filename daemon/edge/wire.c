/* Lines between a daemon and its edge: see wire.h. */
#include "daemon/edge/wire.h"

#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <stdio.h>
#include <string.h>

enum { WORDS = 8 };

static const char *const auths[] = { [EDGE_AUTH_NONE] = "none", [EDGE_AUTH_TOKEN] = "token", [EDGE_AUTH_PASSWORD] = "password" };

void edge_wire_add_route(struct buf *out, const struct edge_route *r)
{
	buf_addf(out, "route %s %s %s %u %s %s %s\n", r->tunnel.text, r->label, r->target.text, r->port, auths[r->auth],
		 r->keep_host ? "keep" : "rewrite", r->hash[0] ? r->hash : "-");
}

static size_t split(char *line, char *ret[static WORDS + 1])
{
	size_t n = 0;
	char *rest = NULL;
	for (char *w = strtok_r(line, " ", &rest); w && n <= WORDS; w = strtok_r(NULL, " ", &rest))
		ret[n++] = w;
	return n;
}

static int auth_of(const char *word, enum edge_auth *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(auths); i++)
		if (strcmp(word, auths[i]) == 0) {
			*ret = (enum edge_auth)i;
			return 0;
		}
	return -1;
}

int edge_wire_route(const char *line, struct edge_route *ret)
{
	auto_free char *copy = xstrdup(line);
	char *w[WORDS + 1];
	struct edge_route r = { .port = 0 };
	int64_t port;
	if (split(copy, w) != WORDS || strcmp(w[0], "route") != 0 || id_parse(w[1], &r.tunnel) != 0 || strlen(w[2]) > EDGE_LABEL_MAX ||
	    id_parse(w[3], &r.target) != 0 || parse_i64("port", w[4], 1, UINT16_MAX, &port, NULL) != 0 || auth_of(w[5], &r.auth) != 0 ||
	    (strcmp(w[6], "keep") != 0 && strcmp(w[6], "rewrite") != 0))
		return -1;
	bool secret = strcmp(w[7], "-") != 0;
	if (secret ? strlen(w[7]) != EDGE_HASH_LEN : r.auth != EDGE_AUTH_NONE)
		return -1;
	snprintf(r.label, sizeof(r.label), "%s", w[2]);
	snprintf(r.hash, sizeof(r.hash), "%s", secret ? w[7] : "");
	r.port = (uint16_t)port;
	r.keep_host = w[6][0] == 'k';
	*ret = r;
	return 0;
}

int edge_wire_number(const char *line, const char *word, uint64_t *ret)
{
	size_t n = strlen(word);
	int64_t v;
	if (strncmp(line, word, n) != 0 || line[n] != ' ' || parse_i64(word, line + n + 1, 1, INT64_MAX, &v, NULL) != 0)
		return -1;
	*ret = (uint64_t)v;
	return 0;
}

void edge_wire_add_about(struct buf *out, const struct edge_about *a)
{
	const struct edge_stats *s = &a->stats;
	buf_addf(out, "about %s %llu %llu %llu %llu %llu %zu\n", a->version, (unsigned long long)s->requests, (unsigned long long)s->refused,
		 (unsigned long long)s->failed, (unsigned long long)s->certified, (unsigned long long)s->uncertified, s->connections);
}

int edge_wire_about(const char *line, struct edge_about *ret)
{
	auto_free char *copy = xstrdup(line);
	char *w[WORDS + 1];
	int64_t v[WORDS];
	if (split(copy, w) != WORDS || strcmp(w[0], "about") != 0 || strlen(w[1]) >= sizeof(ret->version))
		return -1;
	for (size_t i = 2; i < WORDS; i++)
		if (parse_i64("about", w[i], 0, INT64_MAX, &v[i], NULL) != 0)
			return -1;
	*ret = (struct edge_about){ .stats = { .requests = (uint64_t)v[2], .refused = (uint64_t)v[3], .failed = (uint64_t)v[4], .certified = (uint64_t)v[5],
					       .uncertified = (uint64_t)v[6], .connections = (size_t)v[7] } };
	snprintf(ret->version, sizeof(ret->version), "%s", w[1]);
	return 0;
}

char *edge_wire_line(struct buf *in)
{
	char *end = in->len ? memchr(in->data, '\n', in->len) : NULL;
	if (!end)
		return NULL;
	size_t n = (size_t)(end - in->data);
	char *line = xstrndup(in->data, n);
	buf_consume(in, n + 1);
	return line;
}
