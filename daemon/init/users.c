/* Names and numbers of users: see users.h. The files are the sandbox's own, so anything may be in them. */
#include "daemon/init/users.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { USER_FILE_MAX = 1024 * 1024, FIELDS_MAX = 7 };

struct span {
	const char *p;
	size_t n;
};

/* Splits the line at *at into fields and moves behind it. False at the end. Missing fields are empty. */
static bool next_line(const char *text, size_t len, size_t *at, struct span field[static FIELDS_MAX])
{
	if (!text || *at >= len)
		return false;
	const char *p = text + *at, *end = memchr(p, '\n', len - *at);
	if (!end)
		end = text + len;
	*at = (size_t)(end - text) + 1;
	for (int i = 0; i < FIELDS_MAX; i++) {
		const char *colon = p < end && i < FIELDS_MAX - 1 ? memchr(p, ':', (size_t)(end - p)) : NULL;
		const char *stop = colon ? colon : end;
		field[i] = (struct span){ p, (size_t)(stop - p) };
		p = colon ? colon + 1 : end;
	}
	return true;
}

static bool is(struct span s, const char *text)
{
	return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

/* A decimal id; (uid_t)-1 means "no change" to the kernel and is none. */
static bool to_id(struct span s, unsigned *ret)
{
	unsigned long long v = 0;
	if (s.n == 0 || s.n > 10)
		return false;
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		v = v * 10 + (unsigned)(s.p[i] - '0');
	}
	if (v >= 0xffffffffULL)
		return false;
	*ret = (unsigned)v;
	return true;
}

struct person {
	char name[128];
	unsigned uid, gid;
	struct span home;
};

static bool find_person(const struct user_files *f, const char *name, const unsigned *uid, struct person *ret)
{
	struct span s[FIELDS_MAX];
	size_t at = 0;
	while (next_line(f->passwd, f->passwd_len, &at, s)) {
		unsigned u, g;
		if (s[0].n == 0 || s[0].n >= sizeof(ret->name) || !to_id(s[2], &u) || !to_id(s[3], &g))
			continue;
		if (name ? !is(s[0], name) : u != *uid)
			continue;
		*ret = (struct person){ .uid = u, .gid = g, .home = s[5] };
		memcpy(ret->name, s[0].p, s[0].n);
		return true;
	}
	return false;
}

static bool find_group(const struct user_files *f, const char *name, unsigned *ret)
{
	struct span s[FIELDS_MAX];
	size_t at = 0;
	while (next_line(f->group, f->group_len, &at, s))
		if (is(s[0], name) && to_id(s[2], ret))
			return true;
	return false;
}

static bool lists(struct span members, const char *name)
{
	while (members.n) {
		const char *comma = memchr(members.p, ',', members.n);
		size_t n = comma ? (size_t)(comma - members.p) : members.n;
		if (is((struct span){ members.p, n }, name))
			return true;
		n += comma != NULL;
		members = (struct span){ members.p + n, members.n - n };
	}
	return false;
}

static void find_memberships(const struct user_files *f, const char *name, struct identity *id)
{
	struct span s[FIELDS_MAX];
	size_t at = 0;
	unsigned gid;
	while (id->group_count < IDENTITY_GROUPS_MAX && next_line(f->group, f->group_len, &at, s))
		if (to_id(s[2], &gid) && gid != id->gid && lists(s[3], name))
			id->groups[id->group_count++] = gid;
}

static void set_home(struct identity *id, struct span home)
{
	if (home.n == 0 || home.n >= sizeof(id->home) || home.p[0] != '/')
		return;
	memcpy(id->home, home.p, home.n);
	id->home[home.n] = '\0';
}

static int set_user(const struct user_files *f, const char *user, struct identity *id, struct person *who, struct error *err)
{
	char shown[256];
	unsigned uid;
	bool number = to_id((struct span){ user, strlen(user) }, &uid);
	bool known = find_person(f, user, NULL, who) || (number && find_person(f, NULL, &uid, who));
	if (!known && !number)
		return error_set(err, ERR_NOT_FOUND, "no user '%s' in the sandbox's /etc/passwd%s",
				 text_escape(user, strlen(user), shown, sizeof(shown)),
				 f->passwd ? "" : " (there is no such file: give a number)");
	id->uid = known ? who->uid : uid;
	id->gid = known ? who->gid : 0;
	if (known)
		set_home(id, who->home);
	return 0;
}

static int set_group(const struct user_files *f, const char *group, struct identity *id, struct error *err)
{
	char shown[256];
	unsigned gid;
	if (!find_group(f, group, &gid) && !to_id((struct span){ group, strlen(group) }, &gid))
		return error_set(err, ERR_NOT_FOUND, "no group '%s' in the sandbox's /etc/group%s",
				 text_escape(group, strlen(group), shown, sizeof(shown)),
				 f->group ? "" : " (there is no such file: give a number)");
	id->gid = gid;
	return 0;
}

int users_find(const struct user_files *files, const char *spec, struct identity *ret, struct error *err)
{
	struct identity id = { .home = "/" };
	struct person who = { .name = "" };
	char own[16];
	if (!spec || !*spec) {
		snprintf(own, sizeof(own), "%u", (unsigned)getuid());
		spec = own;
	}
	const char *colon = strchr(spec, ':');
	auto_free char *user = colon ? xstrndup(spec, (size_t)(colon - spec)) : xstrdup(spec);
	if (!*user || (colon && !colon[1]))
		return error_set(err, ERR_INVALID, "the user must be given as USER or USER:GROUP");
	if (set_user(files, user, &id, &who, err) < 0)
		return -1;
	if (colon && set_group(files, colon + 1, &id, err) < 0)
		return -1;
	if (!colon && who.name[0])
		find_memberships(files, who.name, &id);
	*ret = id;
	return 0;
}

char *users_read(const char *path, size_t max, size_t *ret_len)
{
	/* O_NONBLOCK and the check of the type: the sandbox may have put a FIFO or a device here. */
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return NULL;
	size_t room = st.st_size < 0 || (size_t)st.st_size > max ? max : (size_t)st.st_size;
	char *text = xmalloc(room + 1);
	ssize_t n = io_read_full(fd, text, room);
	*ret_len = n > 0 ? (size_t)n : 0;
	text[*ret_len] = '\0';
	return text;
}

int users_resolve(const char *spec, struct identity *ret, struct error *err)
{
	struct user_files f = { .passwd = NULL };
	auto_free char *passwd = users_read("/etc/passwd", USER_FILE_MAX, &f.passwd_len);
	auto_free char *group = users_read("/etc/group", USER_FILE_MAX, &f.group_len);
	f.passwd = passwd;
	f.group = group;
	return users_find(&f, spec, ret, err);
}

char *users_name(const struct user_files *files, uid_t uid, char *out, size_t n)
{
	struct person who;
	unsigned u = uid;
	if (find_person(files, NULL, &u, &who))
		text_escape(who.name, strlen(who.name), out, n);
	else
		snprintf(out, n, "%u", u);
	return out;
}
