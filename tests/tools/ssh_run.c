/* Runs one command through sandbox-ssh.so, for tests: ssh_run MODULE [USER@]HOST PORT TIMEOUT_MS COMMAND [JUMP_USER JUMP_HOST JUMP_PORT].
 * Standard input is the command's; output, errors and status are passed on. SSH_PASSWORD answers every question, SSH_IDENTITY and
 * SSH_FINGERPRINT are what they say. A failure of the connection is one line and status 255. */
#include "cli/ssh/ssh.h"
#include "shared/base/mem.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int password(void *ctx, const char *prompt, struct secret *ret, struct error *err)
{
	const char *text = getenv("SSH_PASSWORD");
	(void)ctx;
	(void)prompt;
	if (!text)
		return error_set(err, ERR_INVALID, "nobody to ask");
	secret_set(ret, text, strlen(text));
	return 0;
}

static int confirm(void *ctx, const char *question)
{
	(void)ctx;
	if (!getenv("SSH_CONFIRM"))
		return -1;
	fprintf(stderr, "asked: %s\n", question);
	return strcmp(getenv("SSH_CONFIRM"), "yes") == 0;
}

static const struct ssh_module *load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = library ? dlsym(library, SSH_ENTRY) : NULL;
	ssh_entry entry;
	if (!symbol) {
		fprintf(stderr, "ssh_run: %s\n", dlerror());
		return NULL;
	}
	memcpy(&entry, &symbol, sizeof(entry));
	return entry();
}

int main(int argc, char **argv)
{
	struct error err = ERROR_INIT;
	struct ssh *s = NULL;
	struct ssh_result r = { .status = 255 };
	const struct ssh_module *m = argc == 6 || argc == 9 ? load(argv[1]) : NULL;
	if (!m)
		return 255;
	char *at = strchr(argv[2], '@');
	struct ssh_target t = { .user = at ? argv[2] : NULL, .host = at ? at + 1 : argv[2], .port = (uint16_t)strtol(argv[3], NULL, 10) }, jump;
	if (at)
		*at = '\0';
	if (argc == 9)
		jump = (struct ssh_target){ .user = argv[6], .host = argv[7], .port = (uint16_t)strtol(argv[8], NULL, 10) };
	struct ssh_options o = { .target = &t, .jumps = argc == 9 ? &jump : NULL, .n_jumps = argc == 9, .identity = getenv("SSH_IDENTITY"),
				 .fingerprint = getenv("SSH_FINGERPRINT"), .ask = { .secret = password, .confirm = confirm }, .interrupt_fd = -1,
				 .timeout_ms = 20000 };
	struct ssh_command c = { .line = argv[5], .in_fd = STDIN_FILENO, .timeout_ms = strtol(argv[4], NULL, 10), .out_max = 1UL << 30 };
	if (m->open(&o, &s, &err) != 0 || m->run(s, &c, &r, &err) != 0) {
		fprintf(stderr, "ssh_run: %s: %s\n", error_wire(err.code), err.message);
		r.status = 255;
	}
	fwrite(buf_str(&r.out), 1, r.out.len, stdout);
	fwrite(buf_str(&r.err), 1, r.err.len, stderr);
	buf_done(&r.out);
	buf_done(&r.err);
	m->free(s);
	return r.status;
}
