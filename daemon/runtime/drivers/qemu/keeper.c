/*
 * One keeper stays with each machine: it is the parent whose end ends QEMU, carries the port, keeps the last words of the console, and
 * ends the machine when its time is over and no worker is there to do it. It has the rights of its QEMU's user, none more.
 */
#include "daemon/runtime/drivers/qemu/qemu.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TAIL = 4096, TEXT = 700, STEP_MS = 30 * 1000, SLACK_MS = 5000, KEPT_FDS = 3 };

struct watchman {
	const struct keeper *k;
	struct vm vm;
	struct bridge *bridge;
	int deadline_fd, ended_fd, ready_fd; /* ready -1: told */
	char tail[TAIL];                     /* the console's last bytes */
	size_t tail_len;
};

static void read_console(struct watchman *w)
{
	char chunk[1024];
	ssize_t n = recv(w->vm.console, chunk, sizeof(chunk), MSG_DONTWAIT);

	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			close_fdp(&w->vm.console);
		return;
	}
	if (w->tail_len + (size_t)n > TAIL) {
		size_t drop = w->tail_len + (size_t)n - TAIL;

		memmove(w->tail, w->tail + drop, w->tail_len - drop);
		w->tail_len -= drop;
	}
	memcpy(w->tail + w->tail_len, chunk, (size_t)n);
	w->tail_len += (size_t)n;
}

/* The last thing it said for people: the kernel's own last words come after that of sandbox-boot or QEMU. */
static char *last_words(const struct watchman *w)
{
	char shown[TEXT];
	auto_free char *text = xstrndup(w->tail, w->tail_len);
	const char *at = strstr(text, "sandbox-boot: "), *qemu = strstr(text, "qemu-system"), *own = strstr(text, "sandbox-driver-qemu: ");

	at = own ? own : qemu ? qemu : at ? at : text;
	size_t n = strcspn(at, "\r\n");
	return xstrdup(text_escape(at, n, shown, sizeof(shown)));
}

static void tell(struct watchman *w, const char *word, const char *text)
{
	if (w->ready_fd >= 0)
		dprintf(w->ready_fd, "%s%s%s\n", word, *text ? " " : "", text);
	close_fdp(&w->ready_fd);
}

/* --- time --- */

static int64_t deadline_us(const struct watchman *w)
{
	char text[32] = "";
	ssize_t n = pread(w->deadline_fd, text, sizeof(text) - 1, 0);

	return n > 0 ? strtoll(text, NULL, 10) : 0;
}

/* A worker that is there ends its sandboxes itself, and the guest does when it can; this is for a guest that will not. */
static int64_t time_left_ms(const struct watchman *w)
{
	int64_t until = deadline_us(w);

	return until == 0 ? STEP_MS : (until - clock_wall_us()) / 1000 + w->k->grace_ms + SLACK_MS;
}

static int wait_ms(struct watchman *w, int bridge_ms)
{
	int64_t left = time_left_ms(w);

	if (left <= 0 && !bridge_attached(w->bridge))
		kill(w->vm.pid, SIGKILL);
	left = left <= 0 ? 1000 : left > STEP_MS ? STEP_MS : left;
	return bridge_ms >= 0 && bridge_ms < left ? bridge_ms : (int)left;
}

/* --- the loop --- */

static void note_end(struct watchman *w, int status)
{
	auto_free char *said = last_words(w);

	tell(w, "failed", *said ? said : "the virtual machine ended at once");
	dprintf(w->ended_fd, "%d %d\n%s\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0, said);
}

static void turn(struct watchman *w, int pidfd)
{
	struct pollfd fds[BRIDGE_FDS + 2];
	struct error err = ERROR_INIT;
	int bridge_ms = bridge_want(w->bridge, fds);

	fds[BRIDGE_FDS] = (struct pollfd){ .fd = w->vm.console, .events = POLLIN };
	fds[BRIDGE_FDS + 1] = (struct pollfd){ .fd = pidfd, .events = POLLIN };
	if (poll(fds, BRIDGE_FDS + 2, wait_ms(w, bridge_ms)) < 0)
		return;
	if (w->vm.console >= 0 && fds[BRIDGE_FDS].revents)
		read_console(w);
	if (bridge_turn(w->bridge, fds, &err) != 0) {
		w->tail_len = (size_t)snprintf(w->tail, TAIL, "sandbox-driver-qemu: %s\n", err.message);
		kill(w->vm.pid, SIGKILL);
	}
	if (bridge_attached(w->bridge))
		tell(w, "ready", "");
}

static void watch_over(struct watchman *w)
{
	auto_close int pidfd = (int)syscall(SYS_pidfd_open, w->vm.pid, 0);
	int status = 0;

	while (waitpid(w->vm.pid, &status, WNOHANG) == 0)
		turn(w, pidfd);
	while (w->vm.console >= 0) {
		read_console(w);
		if (errno == EAGAIN)
			break;
	}
	note_end(w, status);
}

/* Everything that needs root, in this order; then root is given up. */
static int settle(struct watchman *w, struct error *err)
{
	const struct machine *m = &w->k->machine;
	auto_free char *deadline = box_path(m->box, "deadline");
	auto_free char *ended = box_path(m->box, "ended");

	w->deadline_fd = open(deadline, O_RDONLY | O_CLOEXEC);
	w->ended_fd = open(ended, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (w->deadline_fd < 0 || w->ended_fd < 0)
		return error_errno(err, "opening the machine's files");
	if (chdir(w->k->socket_dir) != 0)
		return error_errno(err, "entering %s", w->k->socket_dir);
	if (vm_start(m, &w->vm, err) != 0)
		return -1;
	w->bridge = bridge_new(steal_fd(&w->vm.port));
	return become_user(m->uid, err);
}

static _Noreturn void keeper_main(const struct keeper *k, int gate, int ready)
{
	struct watchman w = { .k = k, .vm = VM_INIT, .deadline_fd = -1, .ended_fd = -1, .ready_fd = ready };
	struct error err = ERROR_INIT;
	char go;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	for (int fd = 0; fd < KEPT_FDS; fd++)
		dup2(null, fd);
	signal(SIGPIPE, SIG_IGN);
	if (read(gate, &go, 1) != 1)
		_exit(1);
	close(gate);
	if (settle(&w, &err) != 0) {
		tell(&w, "failed", err.message);
		if (w.vm.pid > 0)
			kill(w.vm.pid, SIGKILL);
		_exit(1);
	}
	watch_over(&w);
	bridge_free(w.bridge);
	_exit(0);
}

int keeper_start(const struct keeper *k, int *ret_ready, struct error *err)
{
	auto_close int gate = -1, their_gate = -1, ready = -1, their_ready = -1;
	int fd[2];
	struct process p;
	pid_t pid;

	if (pipe2(fd, O_CLOEXEC) != 0)
		return error_errno(err, "making a pipe");
	their_gate = fd[0];
	gate = fd[1];
	if (pipe2(fd, O_CLOEXEC) != 0)
		return error_errno(err, "making a pipe");
	ready = fd[0];
	their_ready = fd[1];
	pid = fork();
	if (pid < 0)
		return error_errno(err, "starting a keeper");
	if (pid == 0) {
		close(gate);
		close(ready);
		keeper_main(k, their_gate, their_ready);
	}
	p = process_of(pid);
	if (box_note_process(k->machine.box, "keeper", &p, err) != 0) {
		kill(pid, SIGKILL);
		return -1;
	}
	if (write(gate, "x", 1) != 1)
		return error_errno(err, "starting a keeper");
	*ret_ready = steal_fd(&ready);
	return 0;
}
