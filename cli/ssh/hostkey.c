/* Whether the other side is who it should be: known_hosts of the user and of the system, a fingerprint, or a person's word. */
#include "cli/ssh/internal.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX = 8 * 1024 * 1024 };

struct known {
	LIBSSH2_KNOWNHOSTS *hosts, *revoked;
};

static char *user_file(void)
{
	const char *home = getenv("HOME");
	return home && *home == '/' ? xasprintf("%s/.ssh/known_hosts", home) : NULL;
}

/* Lines of certificate authorities say nothing about a key. */
static void take_line(struct known *k, const char *line)
{
	static const char revoked[] = "@revoked ";
	const size_t skip = strlen(revoked);
	if (strncmp(line, revoked, skip) == 0)
		libssh2_knownhost_readline(k->revoked, line + skip, strlen(line + skip), LIBSSH2_KNOWNHOST_FILE_OPENSSH);
	else if (*line && *line != '@' && *line != '#')
		libssh2_knownhost_readline(k->hosts, line, strlen(line), LIBSSH2_KNOWNHOST_FILE_OPENSSH);
}

/* Line by line: libssh2 stops at the first one it cannot read. Copied, since it looks at the byte behind the end. */
static void read_known(struct known *k, const char *path)
{
	auto_buf text = BUF_INIT;
	if (!path || io_read_file(path, FILE_MAX, &text, NULL) != 0)
		return;
	for (const char *p = buf_str(&text); *p;) {
		size_t n = strcspn(p, "\n");
		auto_free char *line = xstrndup(p, n);
		take_line(k, line);
		p += n + (p[n] == '\n');
	}
}

static void known_open(const struct ssh *s, struct known *k)
{
	auto_free char *own = user_file();
	k->hosts = libssh2_knownhost_init(s->session);
	k->revoked = libssh2_knownhost_init(s->session);
	if (!k->hosts || !k->revoked)
		return;
	read_known(k, own);
	read_known(k, "/etc/ssh/ssh_known_hosts");
}

static void known_close(struct known *k)
{
	if (k->hosts)
		libssh2_knownhost_free(k->hosts);
	if (k->revoked)
		libssh2_knownhost_free(k->revoked);
}
#define auto_known __attribute__((cleanup(known_close))) struct known

static const struct {
	int known;            /* bits of libssh2_knownhost */
	int session;          /* of libssh2_session_hostkey */
	const char *name;
} types[] = {
	{ LIBSSH2_KNOWNHOST_KEY_ED25519, LIBSSH2_HOSTKEY_TYPE_ED25519, "ssh-ed25519" },
	{ LIBSSH2_KNOWNHOST_KEY_ECDSA_256, LIBSSH2_HOSTKEY_TYPE_ECDSA_256, "ecdsa-sha2-nistp256" },
	{ LIBSSH2_KNOWNHOST_KEY_ECDSA_384, LIBSSH2_HOSTKEY_TYPE_ECDSA_384, "ecdsa-sha2-nistp384" },
	{ LIBSSH2_KNOWNHOST_KEY_ECDSA_521, LIBSSH2_HOSTKEY_TYPE_ECDSA_521, "ecdsa-sha2-nistp521" },
	{ LIBSSH2_KNOWNHOST_KEY_SSHRSA, LIBSSH2_HOSTKEY_TYPE_RSA, "ssh-rsa" },
};

static int check(LIBSSH2_KNOWNHOSTS *h, const struct ssh *s, const char *key, size_t n, int type, struct libssh2_knownhost **ret)
{
	return libssh2_knownhost_checkp(h, s->host, s->port, key, n, LIBSSH2_KNOWNHOST_TYPE_PLAIN | LIBSSH2_KNOWNHOST_KEYENC_RAW | type, ret);
}

/* A host may have keys of several types, and only some of them are known here: those are asked for first, so that a known host is not
 * taken for a changed one. A key that cannot exist tells which types are known, also of hashed names. */
char *ssh_known_types(const struct ssh *s)
{
	struct ssh scratch = *s;
	auto_known k = { .hosts = NULL };
	auto_buf out = BUF_INIT, rest = BUF_INIT;
	scratch.session = libssh2_session_init_ex(NULL, NULL, NULL, NULL);
	if (!scratch.session)
		return NULL;
	known_open(&scratch, &k);
	for (size_t i = 0; k.hosts && i < ARRAY_LEN(types); i++) {
		struct libssh2_knownhost *node = NULL;
		bool known = check(k.hosts, s, "none", 4, types[i].known, &node) == LIBSSH2_KNOWNHOST_CHECK_MISMATCH && node &&
			     (node->typemask & LIBSSH2_KNOWNHOST_KEY_MASK) == types[i].known;
		buf_addf(known ? &out : &rest, "%s%s", (known ? out.len : rest.len) ? "," : "", types[i].name);
	}
	known_close(&k);
	k = (struct known){ .hosts = NULL };
	libssh2_session_free(scratch.session);
	if (out.len && rest.len)
		buf_addc(&out, ',');
	buf_adds(&out, buf_str(&rest));
	return buf_steal(&out);
}

static char *fingerprint_of(struct ssh *s)
{
	const char *raw = libssh2_hostkey_hash(s->session, LIBSSH2_HOSTKEY_HASH_SHA256);
	if (!raw)
		return xstrdup("SHA256:unknown");
	auto_free char *text = base64_encode(raw, 32);
	return xasprintf("SHA256:%.*s", (int)strcspn(text, "="), text);
}

static void host_name(const struct ssh *s, struct buf *out)
{
	if (s->port == 22)
		buf_adds(out, s->host);
	else
		buf_addf(out, "[%s]:%u", s->host, s->port);
}

/* One line at the end of the user's file. */
static int remember(const struct ssh *s, const char *key, size_t n, const char *type, struct error *err)
{
	auto_free char *path = user_file();
	auto_buf line = BUF_INIT;
	if (!path)
		return error_set(err, ERR_INVALID, "HOME is not set, so the host key cannot be kept");
	auto_free char *dir = xstrndup(path, (size_t)(strrchr(path, '/') - path));
	auto_free char *text = base64_encode(key, n);
	host_name(s, &line);
	buf_addf(&line, " %s %s\n", type, text);
	if (io_mkdirs(dir, 0700, err) != 0)
		return -1;
	auto_close int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || io_write_full(fd, line.data, line.len) != 0)
		return error_errno(err, "writing %s", path);
	return 0;
}

static int ask_person(struct ssh *s, const char *key, size_t n, size_t type, struct error *err)
{
	auto_free char *print = fingerprint_of(s);
	auto_buf name = BUF_INIT;
	host_name(s, &name);
	auto_free char *question = xasprintf("The host key of %s is not known. Its fingerprint is %s (%s). Is that the right host?", buf_str(&name), print,
					     types[type].name);
	int answer = s->o->ask.confirm ? s->o->ask.confirm(s->o->ask.ctx, question) : -1;
	if (answer > 0)
		return remember(s, key, n, types[type].name, err);
	if (answer == 0)
		return error_set(err, ERR_FORBIDDEN, "stopped: the host key of %s was not accepted", buf_str(&name));
	return error_set(err, ERR_FORBIDDEN, "the host key of %s is not in known_hosts; it has %s: compare it and give --host-key %s, or connect once with ssh",
			 buf_str(&name), print, print);
}

static int refuse_changed(struct ssh *s, struct error *err)
{
	auto_free char *print = fingerprint_of(s);
	return error_set(err, ERR_FORBIDDEN, "the host key of %s is not the one in known_hosts but %s: somebody may be in between; if the host was set up again, "
			 "`ssh-keygen -R` forgets the old one", s->host, print);
}

static int by_fingerprint(struct ssh *s, struct error *err)
{
	auto_free char *print = fingerprint_of(s);
	size_t n = strcspn(s->o->fingerprint, "=");
	if (strlen(print) == n && strncmp(print, s->o->fingerprint, n) == 0)
		return 0;
	return error_set(err, ERR_FORBIDDEN, "the host key of %s has the fingerprint %s, not the one given", s->host, print);
}

int ssh_check_host(struct ssh *s, struct error *err)
{
	size_t n = 0, i = 0;
	int kind = 0;
	auto_known k = { .hosts = NULL };
	struct libssh2_knownhost *node = NULL;
	const char *key = libssh2_session_hostkey(s->session, &n, &kind);
	while (i < ARRAY_LEN(types) && types[i].session != kind)
		i++;
	if (!key || i == ARRAY_LEN(types))
		return error_set(err, ERR_PROTOCOL, "%s has a host key of a kind this program does not know", s->host);
	known_open(s, &k);
	if (!k.hosts || !k.revoked)
		return error_set(err, ERR_INTERNAL, "libssh2 gives no list of known hosts");
	if (check(k.revoked, s, key, n, types[i].known, &node) == LIBSSH2_KNOWNHOST_CHECK_MATCH)
		return error_set(err, ERR_FORBIDDEN, "the host key of %s is marked as revoked in known_hosts", s->host);
	if (s->target && s->o->fingerprint)
		return by_fingerprint(s, err);
	switch (check(k.hosts, s, key, n, types[i].known, &node)) {
	case LIBSSH2_KNOWNHOST_CHECK_MATCH:
		return 0;
	case LIBSSH2_KNOWNHOST_CHECK_MISMATCH:
		return refuse_changed(s, err);
	default:
		return ask_person(s, key, n, i, err);
	}
}
