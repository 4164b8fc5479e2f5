/*
 * fuzz-archives: init
 * What sandbox-init takes from others: the fields of a command's OPEN, user specifications against passwd and group files that
 * the sandbox wrote, and the records of file streams. The first byte picks one; the rest is the input.
 */
#include "daemon/init/request.h"
#include "daemon/init/users.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/mux/records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
	if (!good)
		abort();
}

static void command(const uint8_t *p, size_t n)
{
	struct tlv t = TLV_INIT;
	auto_request r = { .cwd = NULL };
	struct error err = ERROR_INIT;
	if (tlv_parse(&t, p, n, &err) < 0)
		return;
	if (request_parse(&r, &t, &err) < 0) {
		check(err.message[0] != '\0' && (err.code == ERR_INVALID || err.code == ERR_TOO_LARGE));
		return;
	}
	check(r.args.len > 0 && r.args.len <= LIMIT_ARGS_MAX && r.args.items[r.args.len] == NULL);
	check(r.cwd[0] == '/' && r.operation[0] && r.window <= LIMIT_MUX_WINDOW && r.rows <= UINT16_MAX);
	for (size_t i = 0; i < r.env.len; i++) {
		auto_free char *name = xstrndup(r.env.items[i], strcspn(r.env.items[i], "="));
		check(request_getenv(&r, name) == r.env.items[i] + strlen(name) + 1); /* each name once */
	}
	request_setenv(&r, "HOME", "/");
	check(request_getenv(&r, "HOME") != NULL);
}

/* The specification up to a NUL, then the passwd file up to a NUL, then the group file. */
static void user(const uint8_t *p, size_t n)
{
	const uint8_t *first = memchr(p, 0, n);
	if (!first)
		return;
	const uint8_t *second = memchr(first + 1, 0, n - (size_t)(first + 1 - p));
	size_t passwd_len = second ? (size_t)(second - first - 1) : n - (size_t)(first + 1 - p);
	auto_free char *passwd = xmemdup(first + 1, passwd_len); /* exactly as long as said: an over-read shows */
	size_t group_len = second ? n - (size_t)(second + 1 - p) : 0;
	auto_free char *group = second ? xmemdup(second + 1, group_len) : NULL;
	struct user_files files = { passwd, passwd_len, group, group_len };
	struct identity id;
	struct error err = ERROR_INIT;
	char name[160];
	users_name(&files, 1000, name, sizeof(name));
	if (users_find(&files, (const char *)p, &id, &err) < 0) {
		check(err.message[0] != '\0');
		return;
	}
	check(id.uid != (uid_t)-1 && id.gid != (gid_t)-1 && id.group_count <= IDENTITY_GROUPS_MAX && id.home[0] == '/');
}

static int on_record(void *ctx, const struct record *r, struct error *err)
{
	(void)ctx;
	(void)err;
	check(r->path && r->text && record_path_valid(r->entry.path, strlen(r->entry.path)));
	check(strstr(r->entry.path, "//") == NULL && r->entry.path[0] != '/');
	check((r->entry.kind == RECORD_SYMLINK || r->entry.kind == RECORD_HARDLINK) == (r->entry.target[0] != '\0'));
	return 0;
}

static void records(const uint8_t *p, size_t n)
{
	struct record_reader reader;
	struct error err = ERROR_INIT;
	size_t piece = n ? 1 + p[0] : 1;
	record_reader_init(&reader, on_record, NULL);
	for (size_t at = 1; at < n; at += piece) {
		size_t k = n - at < piece ? n - at : piece;
		auto_free void *exact = xmemdup(p + at, k);
		if (record_feed(&reader, exact, k, &err) < 0) {
			check(err.code == ERR_PROTOCOL);
			break;
		}
	}
	record_reader_done(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	auto_free uint8_t *exact = xmemdup(data + 1, size - 1);
	if (data[0] % 3 == 0)
		command(exact, size - 1);
	else if (data[0] % 3 == 1)
		user(exact, size - 1);
	else
		records(exact, size - 1);
	return 0;
}
