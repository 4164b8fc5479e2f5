/*
 * Runs a command on a terminal and plays a script against it, for tests of terminal sessions.
 *
 *   pty ROWSxCOLS COMMAND ARG… < script
 *
 * Script lines: `send TEXT` (escapes \r \n \t \\ \xNN), `expect TEXT` (in what came since the last match, within 15 s), `size RxC`,
 * `signal NUMBER` (to the command), `pause MS`, `raw` and `cooked` (waits until the settings are so; cooked: exactly as at the start),
 * `alive MS` (the command must still run after that), `hangup` (closes the terminal), `end` (waits for the command's end; `end SECONDS`).
 * Prints what the command wrote, then `status N` (128 + n for signals) and `settings same` or `settings changed`. Exits 1 when a step fails.
 */
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include <utmp.h>

enum { STEP_MS = 15000, OUT_MAX = 4 << 20 };

static struct {
	int fd;
	pid_t pid;
	bool ended;
	int status;
	struct termios first;
	char *out;
	size_t len, seen;
} pty;

static int64_t now_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void check_ended(void)
{
	int st;
	if (pty.ended || waitpid(pty.pid, &st, WNOHANG) != pty.pid)
		return;
	pty.ended = true;
	pty.status = WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
}

/* Takes what is there within ms. */
static void pump(int ms)
{
	struct pollfd p = { .fd = pty.fd, .events = POLLIN };
	if (pty.fd < 0) {
		poll(NULL, 0, ms);
	} else if (poll(&p, 1, ms) == 1) {
		ssize_t n = read(pty.fd, pty.out + pty.len, OUT_MAX - pty.len - 1);
		if (n > 0)
			pty.len += (size_t)n;
		else
			poll(NULL, 0, ms < 20 ? ms : 20);
	}
	pty.out[pty.len] = '\0';
	check_ended();
}

static bool same_settings(void)
{
	struct termios t;
	if (pty.fd < 0 || tcgetattr(pty.fd, &t) != 0)
		return true;
	return memcmp(&t.c_cc, &pty.first.c_cc, sizeof(t.c_cc)) == 0 && t.c_iflag == pty.first.c_iflag && t.c_oflag == pty.first.c_oflag &&
	       t.c_cflag == pty.first.c_cflag && t.c_lflag == pty.first.c_lflag;
}

static bool is_raw(void)
{
	struct termios t;
	return pty.fd >= 0 && tcgetattr(pty.fd, &t) == 0 && !(t.c_lflag & ICANON) && !(t.c_lflag & ECHO);
}

static size_t unescape(const char *in, char *out)
{
	size_t n = 0;
	for (; *in; in++) {
		if (*in != '\\' || !in[1]) {
			out[n++] = *in;
			continue;
		}
		in++;
		if (*in == 'x' && in[1] && in[2]) {
			char hex[3] = { in[1], in[2], '\0' };
			out[n++] = (char)strtol(hex, NULL, 16);
			in += 2;
		} else {
			out[n++] = *in == 'r' ? '\r' : *in == 'n' ? '\n' : *in == 't' ? '\t' : *in;
		}
	}
	out[n] = '\0';
	return n;
}

static bool expect(const char *text)
{
	int64_t until = now_ms() + STEP_MS;
	for (;;) {
		char *at = memmem(pty.out + pty.seen, pty.len - pty.seen, text, strlen(text));
		if (at) {
			pty.seen = (size_t)(at - pty.out) + strlen(text);
			return true;
		}
		if (now_ms() >= until || (pty.ended && pty.fd < 0))
			return false;
		pump(50);
	}
}

static bool await(bool (*test)(void), int64_t ms)
{
	int64_t until = now_ms() + ms;
	while (!test()) {
		if (now_ms() >= until)
			return false;
		pump(20);
	}
	return true;
}

static bool has_ended(void)
{
	return pty.ended;
}

static bool set_size(const char *text)
{
	struct winsize w = { 0 };
	char *end;
	w.ws_row = (unsigned short)strtoul(text, &end, 10);
	if (*end != 'x')
		return false;
	w.ws_col = (unsigned short)strtoul(end + 1, &end, 10);
	return ioctl(pty.fd, TIOCSWINSZ, &w) == 0;
}

static bool alive(int ms)
{
	int64_t until = now_ms() + ms;
	while (now_ms() < until && !pty.ended)
		pump(20);
	return !pty.ended;
}

static bool step(char *line)
{
	char text[8192];
	char *arg = strchr(line, ' ');
	if (arg)
		*arg++ = '\0';
	size_t n = unescape(arg ? arg : "", text);
	long number = strtol(arg ? arg : "0", NULL, 10);
	if (strcmp(line, "send") == 0)
		return write(pty.fd, text, n) == (ssize_t)n;
	if (strcmp(line, "expect") == 0)
		return expect(text);
	if (strcmp(line, "size") == 0)
		return set_size(text);
	if (strcmp(line, "signal") == 0)
		return kill(pty.pid, (int)number) == 0;
	if (strcmp(line, "pause") == 0)
		return alive((int)number) || true;
	if (strcmp(line, "raw") == 0)
		return await(is_raw, STEP_MS);
	if (strcmp(line, "cooked") == 0)
		return await(same_settings, STEP_MS);
	if (strcmp(line, "alive") == 0)
		return alive((int)number);
	if (strcmp(line, "hangup") == 0)
		return close(pty.fd) == 0 && (pty.fd = -1) < 0;
	return strcmp(line, "end") == 0 && await(has_ended, number > 0 ? number * 1000 : STEP_MS);
}

static void start(const char *size, char **argv)
{
	struct winsize w = { 0 };
	int far = -1;
	sscanf(size, "%hux%hu", &w.ws_row, &w.ws_col);
	pty.out = malloc(OUT_MAX);
	/* The settings are read before the command can change them. */
	if (!pty.out || openpty(&pty.fd, &far, NULL, NULL, &w) != 0 || tcgetattr(far, &pty.first) != 0 || (pty.pid = fork()) < 0) {
		perror("pty");
		exit(2);
	}
	if (pty.pid == 0) {
		close(pty.fd);
		if (login_tty(far) == 0)
			execvp(argv[0], argv);
		_exit(127);
	}
	close(far);
}

static int play(void)
{
	char line[8192], shown[8192];
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		snprintf(shown, sizeof(shown), "%s", line);
		if (line[0] && !step(line)) {
			printf("step failed: %s\n", shown);
			return 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: pty ROWSxCOLS COMMAND ARG...\n");
		return 2;
	}
	start(argv[1], argv + 2);
	int rc = play();
	for (int i = 0; i < 10; i++)
		pump(10);
	fwrite(pty.out, 1, pty.len, stdout);
	if (!pty.ended)
		kill(pty.pid, SIGKILL);
	printf("\nstatus %d\nsettings %s\n", pty.ended ? pty.status : -1, same_settings() ? "same" : "changed");
	return rc;
}
