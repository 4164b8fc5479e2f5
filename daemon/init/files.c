/* Streams of files: the request, and the helper that serves it. */
#include "daemon/init/files.h"

#include "daemon/init/pipe.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_openat2
#define SYS_openat2 437
#endif

static void request_free(struct files_request *r)
{
	free(r->path);
	free(r->name);
}

static int parse(struct files_request *r, const struct tlv *t, bool put, struct error *err)
{
	static const enum mux_field allowed[] = { MUX_F_KIND, MUX_F_WINDOW, MUX_F_OPERATION, MUX_F_PATH, MUX_F_CWD,
						  MUX_F_ACTION, MUX_F_USER, MUX_F_NAME };
	auto_free char *path = NULL, *cwd = NULL, *user = NULL;
	uint64_t action = tlv_u64(t, MUX_F_ACTION, FILES_ALL);
	if (tlv_only(t, allowed, ARRAY_LEN(allowed), err) < 0 || tlv_str(t, MUX_F_PATH, LIMIT_PATH_BYTES_MAX, &path, err) < 0 ||
	    tlv_str(t, MUX_F_CWD, LIMIT_PATH_BYTES_MAX, &cwd, err) < 0 || tlv_str(t, MUX_F_USER, 256, &user, err) < 0 ||
	    tlv_str(t, MUX_F_NAME, 255, &r->name, err) < 0)
		return -1;
	if (!path || !*path)
		return error_set(err, ERR_INVALID, "the path is empty");
	if (action > FILES_TOP_ONLY || (put && action))
		return error_set(err, ERR_INVALID, "an action this version of sandbox-init does not know");
	if (r->name && (!record_path_valid(r->name, strlen(r->name)) || !*r->name || strchr(r->name, '/')))
		return error_set(err, ERR_INVALID, "the source's name is not a file name");
	if (cwd && cwd[0] != '/')
		return error_set(err, ERR_INVALID, "the directory that a relative path starts from must be absolute");
	r->entries_only = action != FILES_ALL;
	r->top_only = action == FILES_TOP_ONLY;
	r->path = path[0] == '/' ? steal(&path) : xasprintf("%s/%s", cwd ? cwd : "", path);
	return put ? users_resolve(user, &r->owner, err) : 0;
}

void files_open(struct init *in, uint32_t stream, const struct tlv *t)
{
	struct files_request r = { .path = NULL };
	struct error err = ERROR_INIT;
	bool put = tlv_u64(t, MUX_F_KIND, 0) == MUX_KIND_FILES_PUT;
	pid_t helper;
	if (parse(&r, t, put, &err) < 0) {
		link_refuse(in, stream, err.code == ERR_NOT_FOUND ? MUX_ERR_BAD_USER : MUX_ERR_REFUSED, "%s", err.message);
		request_free(&r);
		return;
	}
	int fd = helper_start(in, "sandbox-files", put ? files_put : files_get, &r, &helper);
	request_free(&r);
	if (fd < 0) {
		link_refuse(in, stream, MUX_ERR_RESOURCES, "cannot start a process: %s", strerror(errno));
		return;
	}
	struct pipe *p = pipe_new(in, stream);
	p->tidies_up = put;
	pipe_start(p, fd, helper);
}

/* --- for both directions, in the helper --- */

int files_open_path(const char *path, int flags)
{
	struct open_how how = { .flags = (unsigned)(flags | O_CLOEXEC), .resolve = RESOLVE_NO_MAGICLINKS };
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
	if (fd < 0 && (errno == ENOSYS || errno == EPERM)) /* an old kernel, or a filter that does not know the call */
		fd = open(path, flags | O_CLOEXEC);
	return fd;
}

unsigned files_code(int sys)
{
	switch (sys) {
	case ENOENT:
	case ENOTDIR:
		return MUX_ERR_NOT_FOUND;
	case EACCES:
	case EPERM:
	case EROFS:
		return MUX_ERR_FORBIDDEN;
	case ENAMETOOLONG:
		return MUX_ERR_TOO_LARGE;
	default:
		return MUX_ERR_IO;
	}
}

unsigned files_error_code(const struct error *err)
{
	if (err->code == ERR_NOT_FOUND)
		return MUX_ERR_NOT_FOUND;
	return err->sys ? files_code(err->sys) : MUX_ERR_REFUSED;
}
