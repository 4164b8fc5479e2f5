/* Rights by credentials: see peer.h. */
#include "daemon/api/peer.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NSS_BUFFER = 16 * 1024, GROUPS_MAX = 65536, TOKEN_BYTES = 32, TOKEN_FILE_MAX = 256 };

int peer_group_id(const char *name, gid_t *ret)
{
	auto_free char *text = xmalloc(NSS_BUFFER);
	struct group g, *found = NULL;
	if (!*name || getgrnam_r(name, &g, text, NSS_BUFFER, &found) != 0 || !found)
		return -1;
	*ret = g.gr_gid;
	return 0;
}

/* The kernel keeps the groups the peer had when it connected: no race with its /proc entry, and no user database. */
static bool peer_in_group(int fd, const struct peer *p, gid_t gid)
{
	if (p->gid == gid)
		return true;
	socklen_t n = 0;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &n) == 0 || errno != ERANGE || n > GROUPS_MAX * sizeof(gid_t))
		return false;
	auto_free gid_t *groups = xmalloc(n);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &n) != 0)
		return false;
	for (size_t i = 0; i < n / sizeof(gid_t); i++)
		if (groups[i] == gid)
			return true;
	return false;
}

/* Folding case or replacing bytes could give two users one tenant, so a name that does not fit is not bent. */
void peer_tenant(const char *user, uid_t uid, char ret[static TENANT_MAX_LEN + 1])
{
	bool reserved = user && (strcmp(user, "default") == 0 || strncmp(user, "uid-", 4) == 0);
	if (user && !reserved && tenant_valid(user))
		snprintf(ret, TENANT_MAX_LEN + 1, "%s", user);
	else
		snprintf(ret, TENANT_MAX_LEN + 1, "uid-%u", (unsigned)uid);
}

static void user_tenant(uid_t uid, char ret[static TENANT_MAX_LEN + 1])
{
	auto_free char *text = xmalloc(NSS_BUFFER);
	struct passwd p, *found = NULL;
	if (getpwuid_r(uid, &p, text, NSS_BUFFER, &found) != 0)
		found = NULL;
	peer_tenant(found ? p.pw_name : NULL, uid, ret);
}

/* Creating the group is part of the way out: nothing else makes it, and it is harmless when it is there. */
static int refuse_peer(uid_t uid, const char *group, struct error *err)
{
	if (!*group)
		return error_set(err, ERR_FORBIDDEN, "uid %u may not use this daemon: it is neither root nor the daemon's user", (unsigned)uid);
	return error_set(err, ERR_FORBIDDEN,
			 "uid %u may not use this daemon: it is neither root, the daemon's user, nor in group '%s' "
			 "(root lets it in: groupadd -rf %s && usermod -aG %s USER, then log in again)",
			 (unsigned)uid, group, group, group);
}

int peer_caller(int fd, const char *group, struct caller *ret, struct error *err)
{
	struct peer p;
	if (io_peer(fd, &p, err) != 0)
		return -1;
	gid_t gid;
	bool admin = p.uid == 0 || p.uid == geteuid();
	if (!admin && (peer_group_id(group, &gid) != 0 || !peer_in_group(fd, &p, gid)))
		return refuse_peer(p.uid, group, err);
	ret->role = admin ? ROLE_ADMIN : ROLE_OPERATOR;
	ret->all_tenants = admin;
	snprintf(ret->who, sizeof(ret->who), "uid %u", (unsigned)p.uid);
	if (admin)
		snprintf(ret->tenant, sizeof(ret->tenant), "default");
	else
		user_tenant(p.uid, ret->tenant);
	return 0;
}

struct admin_token {
	size_t len;
	char text[TOKEN_FILE_MAX];
};

static int token_make(const char *path, struct admin_token *t, struct error *err)
{
	uint8_t raw[TOKEN_BYTES];
	random_bytes(raw, sizeof(raw));
	t->len = (size_t)snprintf(t->text, sizeof(t->text), "sbx_");
	for (size_t i = 0; i < sizeof(raw); i++)
		t->len += (size_t)snprintf(t->text + t->len, sizeof(t->text) - t->len, "%02x", raw[i]);
	explicit_bzero(raw, sizeof(raw));
	return io_write_file_atomic(path, t->text, t->len, 0600, true, err);
}

int admin_token_load(const char *state_dir, struct admin_token **ret, struct error *err)
{
	auto_free char *path = xasprintf("%s/api-token", state_dir);
	auto_buf text = BUF_INIT_MAX(TOKEN_FILE_MAX);
	struct error e = ERROR_INIT;
	struct admin_token *t = xcalloc(1, sizeof(*t));
	int rc = io_read_file(path, TOKEN_FILE_MAX - 1, &text, &e);
	if (rc == 0) {
		t->len = strcspn(buf_str(&text), "\r\n");
		memcpy(t->text, buf_str(&text), t->len);
		explicit_bzero(text.data, text.len);
		if (t->len < 32)
			rc = error_set(&e, ERR_INVALID, "%s holds no token of at least 32 characters; remove it to get a new one", path);
	} else if (e.code == ERR_NOT_FOUND) {
		rc = token_make(path, t, &e);
	}
	if (rc == 0) {
		*ret = t;
		return 0;
	}
	admin_token_free(t);
	if (err)
		*err = e;
	return -1;
}

void admin_token_free(struct admin_token *t)
{
	if (t)
		explicit_bzero(t, sizeof(*t));
	free(t);
}

/* The time taken depends on the lengths alone. */
static bool equal_secret(const char *a, size_t an, const char *b, size_t bn)
{
	unsigned char diff = an != bn;
	for (size_t i = 0; i < an; i++)
		diff |= (unsigned char)(a[i] ^ b[bn ? i % bn : 0]);
	return diff == 0;
}

int admin_token_caller(const struct admin_token *t, const char *token, struct caller *ret, struct error *err)
{
	if (!equal_secret(t->text, t->len, token, strlen(token)))
		return error_set(err, ERR_UNAUTHORIZED, "the token is not valid here");
	ret->role = ROLE_ADMIN;
	ret->all_tenants = true;
	snprintf(ret->tenant, sizeof(ret->tenant), "default");
	snprintf(ret->who, sizeof(ret->who), "token admin");
	return 0;
}
