/* Why a program could not be run, as one line with the cause and the way out. Runs in the supervisor: it may read files. */
#include "daemon/init/launch.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHOWN_MAX = 300, HEAD_MAX = 4096 };

static bool is_builtin(const char *name)
{
	static const char *const builtins[] = { ".", ":", "alias", "bg", "cd", "eval", "exec", "exit", "export", "fg", "jobs", "local",
						"read", "return", "set", "shift", "source", "trap", "ulimit", "umask", "unset", "wait" };
	for (size_t i = 0; i < ARRAY_LEN(builtins); i++)
		if (strcmp(builtins[i], name) == 0)
			return true;
	return false;
}

static const char *hint(const char *name)
{
	if (is_builtin(name))
		return "; it is a shell built-in: run it as sh -c '...'";
	if (strpbrk(name, " \t\n|&;<>()$`\"'*?{}~"))
		return "; the program and its arguments are separate words here: for a shell line use sh -c '...'";
	return "";
}

static void no_program(const struct launch *l, struct sup_message *m)
{
	char shown[SHOWN_MAX];
	const char *name = l->request->args.items[0];
	m->error = MUX_ERR_NO_PROGRAM;
	snprintf(m->text, sizeof(m->text), "no program '%s'%s%s", text_escape(name, strlen(name), shown, sizeof(shown)),
		 strchr(name, '/') ? "" : " in PATH", hint(name));
}

/* The interpreter a script names, copied to out; false when the file is no script. */
static bool script_interpreter(const char *head, size_t n, char *out, size_t out_size)
{
	if (n < 3 || head[0] != '#' || head[1] != '!')
		return false;
	size_t at = 2;
	while (at < n && (head[at] == ' ' || head[at] == '\t'))
		at++;
	size_t end = at;
	while (end < n && head[end] != ' ' && head[end] != '\t' && head[end] != '\n' && head[end])
		end++;
	text_escape(head + at, end - at, out, out_size);
	return end > at;
}

/* The loader a 64-bit program names. */
static bool elf_loader(int fd, const char *head, size_t n, char *out, size_t out_size)
{
	Elf64_Ehdr e;
	char name[256];
	if (n < sizeof(e))
		return false;
	memcpy(&e, head, sizeof(e));
	if (memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 || e.e_ident[EI_CLASS] != ELFCLASS64)
		return false;
	for (unsigned i = 0; i < e.e_phnum && i < 64; i++) {
		Elf64_Phdr p;
		if (e.e_phoff > n || n - e.e_phoff < (i + 1) * sizeof(p))
			return false;
		memcpy(&p, head + e.e_phoff + i * sizeof(p), sizeof(p));
		if (p.p_type != PT_INTERP || p.p_filesz < 2 || p.p_filesz > sizeof(name))
			continue;
		ssize_t got = pread(fd, name, p.p_filesz, (off_t)p.p_offset);
		if (got < 2)
			return false;
		text_escape(name, (size_t)got - 1, out, out_size);
		return true;
	}
	return false;
}

/* The file is there, yet the kernel said "no such file": what it needs to run is not. */
static void no_interpreter(const char *tried, struct sup_message *m)
{
	char shown[SHOWN_MAX], needs[200] = "", head[HEAD_MAX];
	auto_close int fd = open(tried, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t n = fd < 0 ? 0 : pread(fd, head, sizeof(head), 0);
	n = n < 0 ? 0 : n;
	m->error = MUX_ERR_NO_PROGRAM;
	text_escape(tried, strlen(tried), shown, sizeof(shown));
	if (script_interpreter(head, (size_t)n, needs, sizeof(needs)))
		snprintf(m->text, sizeof(m->text), "'%s' needs the interpreter '%s' of its #! line, which does not exist%s", shown, needs,
			 strstr(needs, "\\x0d") ? " (the file has Windows line ends)" : "");
	else if (elf_loader(fd, head, (size_t)n, needs, sizeof(needs)))
		snprintf(m->text, sizeof(m->text), "'%s' needs the loader '%s', which does not exist: it was built for another C library",
			 shown, needs);
	else
		snprintf(m->text, sizeof(m->text), "'%s' exists, but what it needs to run does not", shown);
}

static void not_executable(const char *tried, int sys, struct sup_message *m)
{
	char shown[SHOWN_MAX];
	struct stat st;
	const char *why = strerror(sys);
	char mode[64];
	bool there = stat(tried, &st) == 0;
	m->error = MUX_ERR_NOT_EXECUTABLE;
	if (sys == ENOEXEC) {
		why = "no format this kernel runs (a script without a #! line, or another architecture)";
	} else if (there && S_ISDIR(st.st_mode)) {
		why = "it is a directory";
	} else if (there && !S_ISREG(st.st_mode)) {
		why = "it is not a regular file";
	} else if (there && sys == EACCES && !(st.st_mode & 0111)) {
		snprintf(mode, sizeof(mode), "its mode is %04o, without execute permission", (unsigned)st.st_mode & 07777);
		why = mode;
	}
	snprintf(m->text, sizeof(m->text), "cannot run '%s': %s", text_escape(tried, strlen(tried), shown, sizeof(shown)), why);
}

void explain_exec(const struct launch *l, const char *tried, int sys, struct sup_message *m)
{
	const char *name = l->request->args.items[0];
	struct stat st;
	switch (sys) {
	case ENOENT:
		/* stat, not lstat: a dangling link is a missing program. */
		if (*tried && stat(tried, &st) == 0)
			no_interpreter(tried, m);
		else
			no_program(l, m);
		return;
	case ENOTDIR:
	case ENAMETOOLONG:
		no_program(l, m);
		return;
	case E2BIG:
		m->error = MUX_ERR_TOO_LARGE;
		snprintf(m->text, sizeof(m->text), "the arguments and environment are together too long for the kernel: pass the data on stdin or in a file");
		return;
	case ENOMEM:
	case EAGAIN:
	case EMFILE:
	case ENFILE:
		m->error = MUX_ERR_RESOURCES;
		snprintf(m->text, sizeof(m->text), "cannot start the program: %s", strerror(sys));
		return;
	default:
		not_executable(*tried ? tried : name, sys, m);
	}
}
