/* The process list as text, made by a helper: reading another process's command line may wait for that process. */
#include "daemon/init/pipe.h"
#include "daemon/init/users.h"

#include "shared/base/buf.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COMMAND_MAX = 4096, PS_FILE_MAX = 1024 * 1024 };

/* The command line, arguments separated by blanks; the name in brackets when it has none. Everything else is escaped. */
static void command_of(pid_t pid, const struct process_stat *st, char *out, size_t n)
{
	char path[32], raw[COMMAND_MAX];
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? 0 : io_read_full(fd, raw, sizeof(raw));
	if (got <= 0) {
		char name[sizeof(st->comm) + 2];
		snprintf(name, sizeof(name), "[%s]", st->comm);
		text_escape(name, strlen(name), out, n);
		return;
	}
	if (raw[got - 1] == '\0')
		got--;
	for (ssize_t i = 0; i < got; i++)
		if (raw[i] == '\0')
			raw[i] = ' ';
	text_escape(raw, (size_t)got, out, n);
}

/* False with errno when it is there and cannot be read: a list that leaves it out would be taken for the whole. */
static bool add_process(struct buf *b, const struct user_files *users, pid_t pid)
{
	struct process_stat st;
	struct stat owner;
	char path[32], user[160], command[COMMAND_MAX * 4];
	long page_kib = sysconf(_SC_PAGESIZE) / 1024, ticks = sysconf(_SC_CLK_TCK);
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (process_stat(pid, &st) < 0 || stat(path, &owner) < 0)
		return errno == ENOENT || errno == ESRCH || errno == EACCES;
	command_of(pid, &st, command, sizeof(command));
	users_name(users, owner.st_uid, user, sizeof(user));
	buf_addf(b, "%d\t%d\t%s\t%c\t%ld\t%llu\t%s\n", (int)pid, (int)st.ppid, user, st.state, st.rss_pages * page_kib,
		 (st.utime + st.stime) * 1000 / (unsigned long long)(ticks > 0 ? ticks : 100), command);
	return true;
}

/* Returns 0 or an errno. */
static int ps_main(int fd, void *arg)
{
	struct user_files users = { .passwd = NULL };
	auto_free char *passwd = users_read("/etc/passwd", PS_FILE_MAX, &users.passwd_len);
	auto_buf text = BUF_INIT;
	DIR *d = opendir("/proc");
	struct dirent *e;
	(void)arg;
	users.passwd = passwd;
	while (d && (errno = 0, e = readdir(d))) {
		char *end;
		long pid = strtol(e->d_name, &end, 10);
		if (*end || pid <= 0 || pid == getpid())
			continue;
		if (!add_process(&text, &users, (pid_t)pid))
			return errno;
		if (text.len > 64 * 1024) {
			if (io_write_full(fd, text.data, text.len) < 0)
				return errno;
			buf_reset(&text);
		}
	}
	if (!d || errno)
		return errno;
	return io_write_full(fd, buf_str(&text), text.len) < 0 ? errno : 0;
}

void ps_open(struct init *in, uint32_t stream, const struct tlv *t)
{
	pid_t helper;
	(void)t;
	int fd = helper_start(in, "sandbox-ps", ps_main, NULL, &helper);
	if (fd < 0) {
		link_refuse(in, stream, MUX_ERR_RESOURCES, "cannot start a process: %s", strerror(errno));
		return;
	}
	struct pipe *p = pipe_new(in, stream);
	p->collect = true;
	pipe_start(p, fd, helper);
}
