/* The programs of a worker, and how they get there: into a folder of their version, checked by sum and by running, before anything points at it. */
#include "cli/enroll/enroll.h"

#include "cli/module.h"
#include "cli/output.h"
#include "cli/sha256.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { UPLOAD_MS = 20 * 60 * 1000, INSTALL_MS = 20 * 60 * 1000, PIECE = 64 * 1024 };

/* What sandboxd links beyond libc, as Debian names it: installed where it is missing and apt is there. */
#define LIBRARIES "libcjson1 libcurl4 libevent-core-2.1-7 libevent-pthreads-2.1-7 libinih1 libmicrohttpd12 libpq5 libsodium23 libsqlite3-0 libssl3 libwslay1 e2fsprogs"

static const char *own_arch(void)
{
	struct utsname u;
	if (uname(&u) != 0)
		return "";
	return strcmp(u.machine, "x86_64") == 0 ? "amd64" : strcmp(u.machine, "aarch64") == 0 ? "arm64" : "";
}

/* Beside this program. */
static char *own_daemon(void)
{
	auto_free char *path = module_path("sandboxd", "../../bin/sandboxd");
	return access(path, X_OK) == 0 ? steal(&path) : NULL;
}

static char *own_init(void)
{
	auto_free char *path = module_path("sandbox-init", "sandbox-init-" SANDBOX_VERSION);
	return access(path, X_OK) == 0 ? steal(&path) : NULL;
}

int payload_find(const struct probe *p, const char *archive, struct payload *ret, struct error *err)
{
	*ret = (struct payload){ .archive = NULL };
	if (archive) {
		if (access(archive, R_OK) != 0)
			return error_errno(err, "reading %s", archive);
		ret->archive = xstrdup(archive);
		return 0;
	}
	if (strcmp(own_arch(), p->arch) != 0)
		return error_set(err, ERR_INVALID, "that machine is %s, this one is not: give the release's server archive for it, --archive sandbox-server-" SANDBOX_VERSION
				 "-linux-%s.tar.gz", p->arch, p->arch);
	ret->daemon = own_daemon();
	ret->init = own_init();
	if (ret->daemon && ret->init)
		return 0;
	payload_done(ret);
	return error_set(err, ERR_NOT_FOUND, "sandboxd is not installed here: give the release's server archive, --archive sandbox-server-" SANDBOX_VERSION
			 "-linux-%s.tar.gz", p->arch);
}

void payload_done(struct payload *p)
{
	free(p->archive);
	free(p->daemon);
	free(p->init);
	buf_done(&p->program);
}

int payload_program(struct host *h, struct payload *pay, struct error *err)
{
	static const char body[] = "base64 " WORKER_ROOT "/current/libexec/sandbox/sandbox-init-* | tr -d '\\n'\n";
	auto_buf out = BUF_INIT;
	if (!pay->archive || pay->program.len)
		return 0;
	if (host_run(h, &(struct script){ .what = "reading sandbox-init back", .body = body, .root = true, .reads = true, .in_fd = -1 }, &out, err) != 0)
		return -1;
	auto_free char *text = xstrndup(buf_str(&out), strcspn(buf_str(&out), "\n"));
	return base64_decode(text, &pay->program, err);
}

static int sum_of(int fd, char out[static SHA256_HEX], struct error *err)
{
	struct sha256 s;
	char piece[PIECE];
	ssize_t n;
	if (sha256_load(err) != 0)
		return -1;
	sha256_init(&s);
	while ((n = read(fd, piece, sizeof(piece))) > 0)
		sha256_add(&s, piece, (size_t)n);
	if (n < 0 || lseek(fd, 0, SEEK_SET) != 0)
		return error_errno(err, "reading what is to be sent");
	sha256_hex(&s, out);
	return 0;
}

/* A file to `to` there, unless it is there with that sum. */
static int bring(struct host *h, const char *path, const char *to, unsigned mode, struct error *err)
{
	char sum[SHA256_HEX];
	auto_buf body = BUF_INIT, out = BUF_INIT;
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, "reading %s", path);
	if (sum_of(fd, sum, err) != 0)
		return -1;
	/* All of the input is taken in any case: it is on its way already. */
	buf_addf(&body, "mkdir -p \"$(dirname '%s')\"\ncat >'%s.part'\n"
			"[ \"$(sha256sum <'%s.part' | cut -d ' ' -f 1)\" = %s ] || { rm -f '%s.part'; echo 'what arrived is not what was sent' >&2; exit 1; }\n"
			"chmod %o '%s.part'\nmv -Tf '%s.part' '%s'\n", to, to, to, sum, to, mode, to, to, to);
	auto_free char *what = xasprintf("sending %s", strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
	struct script s = { .what = what, .body = buf_str(&body), .root = true, .in_fd = fd, .shown = path, .timeout_ms = UPLOAD_MS };
	return host_run(h, &s, &out, err);
}

#define STAGE WORKER_ROOT "/incoming"

static int bring_all(struct host *h, const struct payload *pay, struct error *err)
{
	auto_buf out = BUF_INIT;
	static const char unpack[] = "mkdir -p " STAGE "/tree\ntar -C " STAGE "/tree --strip-components=1 -xzf " STAGE "/archive.tar.gz\nrm -f " STAGE "/archive.tar.gz\n";
	if (!pay->archive)
		return bring(h, pay->daemon, STAGE "/tree/bin/sandboxd", 0755, err) == 0 &&
				       bring(h, pay->init, STAGE "/tree/libexec/sandbox/sandbox-init-" SANDBOX_VERSION, 0755, err) == 0 ? 0 : -1;
	if (bring(h, pay->archive, STAGE "/archive.tar.gz", 0600, err) != 0)
		return -1;
	return host_run(h, &(struct script){ .what = "unpacking the archive", .body = unpack, .root = true, .in_fd = -1 }, &out, err);
}

/* The package manager's lock is waited for, never broken, and nothing is asked. */
#define APT_INSTALL "DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q -y --no-install-recommends install "

static const char script_libraries[] =
	"p=" STAGE "/tree/bin/sandboxd\n"
	"if $p --version >/dev/null 2>&1; then exit 0; fi\n"
	"command -v apt-get >/dev/null 2>&1 || { $p --version; exit 1; }\n"
	"log=$(mktemp)\n"
	"if ! " APT_INSTALL LIBRARIES " >\"$log\" 2>&1; then\n"
	"\tapt-get -o DPkg::Lock::Timeout=300 -q update >\"$log\" 2>&1 || { tail -n 1 \"$log\" >&2; rm -f \"$log\"; exit 1; }\n"
	"\t" APT_INSTALL LIBRARIES " >\"$log\" 2>&1 || { tail -n 1 \"$log\" >&2; rm -f \"$log\"; exit 1; }\n"
	"fi\n"
	"rm -f \"$log\"\n"
	"$p --version >/dev/null\n";

/* The folder of the version becomes whole at once, and only then the link leads to it. */
static const char script_place[] =
	"v=$(" STAGE "/tree/bin/sandboxd --version | cut -d ' ' -f 2)\n"
	"[ -n \"$v\" ]\n"
	"rm -rf " WORKER_ROOT "/$v.old\n"
	"[ ! -d " WORKER_ROOT "/$v ] || mv " WORKER_ROOT "/$v " WORKER_ROOT "/$v.old\n"
	"mv " STAGE "/tree " WORKER_ROOT "/$v\n"
	"rm -rf " STAGE " " WORKER_ROOT "/$v.old\n"
	"[ ! -L " WORKER_ROOT "/current ] || [ \"$(readlink " WORKER_ROOT "/current)\" = $v ] || ln -sfn \"$(readlink " WORKER_ROOT "/current)\" " WORKER_ROOT "/previous\n"
	"ln -sfn $v " WORKER_ROOT "/current.new\n"
	"mv -Tf " WORKER_ROOT "/current.new " WORKER_ROOT "/current\n";

int payload_install(struct host *h, const struct probe *p, const struct payload *pay, struct error *err)
{
	auto_buf out = BUF_INIT;
	(void)p;
	if (bring_all(h, pay, err) != 0)
		return -1;
	if (host_run(h, &(struct script){ .what = "trying the programs (and installing the libraries they miss)", .body = script_libraries, .root = true, .in_fd = -1,
					  .timeout_ms = INSTALL_MS }, &out, err) != 0)
		return -1;
	return host_run(h, &(struct script){ .what = "putting the programs in place", .body = script_place, .root = true, .in_fd = -1 }, &out, err);
}
