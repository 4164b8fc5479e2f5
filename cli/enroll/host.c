/* A machine reached over SSH: see host.h. */
#include "cli/enroll/host.h"

#include "cli/interrupt.h"
#include "cli/module.h"
#include "cli/output.h"
#include "cli/ssh/ssh.h"
#include "cli/token.h"
#include "shared/base/id.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CONNECT_MS = 60 * 1000, SCRIPT_MS = 60 * 1000, OUT_MAX = 1024 * 1024, JUMPS_MAX = 4, SECRET_FILE_MAX = 4096 };

#define SUDO_PROMPT "sandbox-asks-for-sudo"

struct host {
	struct cli *cli;
	const struct ssh_module *module;
	struct ssh *ssh;
	char *shown;
	const char *password_file;
	struct secret password; /* of sudo, once known */
	enum host_root root;
};

void shell_quote(const char *text, struct buf *out)
{
	buf_addc(out, '\'');
	for (; *text; text++) {
		if (*text == '\'')
			buf_adds(out, "'\\''");
		else
			buf_addc(out, *text);
	}
	buf_addc(out, '\'');
}

/* --- addresses ---------------------------------------------------------------------------------------------------------- */

static void target_done(struct ssh_target *t)
{
	free(t->user);
	free(t->host);
}

/* [USER@]HOST[:PORT], with an IPv6 address in brackets when there is a port. */
static int parse_target(const char *text, struct ssh_target *ret, struct error *err)
{
	const char *at = strrchr(text, '@'), *host = at ? at + 1 : text, *end = NULL, *port = NULL;
	int64_t n = 0;
	if (strncmp(text, "ssh://", 6) == 0)
		return parse_target(text + 6, ret, err);
	if (*host == '[' && (end = strchr(host, ']'))) {
		host++;
		port = end[1] == ':' ? end + 2 : NULL;
	} else {
		const char *colon = strchr(host, ':');
		if (colon && !strchr(colon + 1, ':')) {
			end = colon;
			port = colon + 1;
		}
	}
	size_t len = end ? (size_t)(end - host) : strlen(host);
	if (port && parse_i64("the port", port, 1, 65535, &n, err) != 0)
		return -1;
	if (len == 0 || *host == '-' || at == text || strpbrk(text, " \t\n'\""))
		return error_set(err, ERR_INVALID, "'%.100s' is not of the form [USER@]HOST[:PORT]", text);
	*ret = (struct ssh_target){ .user = at ? xstrndup(text, (size_t)(at - text)) : NULL, .host = xstrndup(host, len), .port = (uint16_t)n };
	return 0;
}

static int parse_jumps(const char *text, struct ssh_target jumps[static JUMPS_MAX], size_t *ret_n, struct error *err)
{
	*ret_n = 0;
	while (text && *text) {
		size_t n = strcspn(text, ",");
		auto_free char *one = xstrndup(text, n);
		if (*ret_n == JUMPS_MAX)
			return error_set(err, ERR_INVALID, "more than %d hosts to go through", JUMPS_MAX);
		if (parse_target(one, &jumps[*ret_n], err) != 0)
			return -1;
		(*ret_n)++;
		text += n + (text[n] == ',');
	}
	return 0;
}

/* --- people ------------------------------------------------------------------------------------------------------------- */

static int read_password(const char *path, struct secret *ret, struct error *err)
{
	auto_buf text = BUF_INIT;
	if (io_read_file(path, SECRET_FILE_MAX, &text, err) != 0)
		return -1;
	secret_set(ret, text.data, strcspn(buf_str(&text), "\r\n"));
	if (text.data)
		explicit_bzero(text.data, text.len);
	return 0;
}

static int ask_secret(void *ctx, const char *prompt, struct secret *ret, struct error *err)
{
	struct host *h = ctx;
	return h->password_file ? read_password(h->password_file, ret, err) : token_ask(prompt, ret, err);
}

static int confirm(void *ctx, const char *question)
{
	struct host *h = ctx;
	char answer[16];
	if (!isatty(STDIN_FILENO) || !h->cli->err_tty)
		return -1;
	fprintf(stderr, "%s [y/N] ", question);
	return fgets(answer, sizeof(answer), stdin) && (*answer == 'y' || *answer == 'Y');
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static int connect_to(struct host *h, const struct host_options *o, struct error *err)
{
	struct ssh_target target = { .port = 0 }, jumps[JUMPS_MAX] = { { .port = 0 } };
	struct ssh_options how = { .target = &target, .jumps = jumps, .identity = o->identity, .fingerprint = o->fingerprint,
				   .ask = { .ctx = h, .secret = ask_secret, .confirm = confirm }, .interrupt_fd = interrupt_fd(), .timeout_ms = CONNECT_MS };
	int rc = parse_target(o->where, &target, err);
	if (rc == 0)
		rc = parse_jumps(o->jump, jumps, &how.n_jumps, err);
	if (rc == 0)
		rc = h->module->open(&how, &h->ssh, err);
	target_done(&target);
	for (size_t i = 0; i < JUMPS_MAX; i++)
		target_done(&jumps[i]);
	return rc;
}

int host_open(struct cli *cli, const struct host_options *o, struct host **ret, struct error *err)
{
	void *symbol;
	ssh_entry entry;
	if (module_load("sandbox-ssh", "the part for SSH", SSH_ENTRY, &symbol, err) != 0)
		return -1;
	memcpy(&entry, &symbol, sizeof(entry));
	const struct ssh_module *m = entry();
	if (strcmp(m->version, SANDBOX_VERSION) != 0)
		return error_set(err, ERR_INTERNAL, "the part for SSH is of version %s, this is " SANDBOX_VERSION, m->version);
	interrupt_watch();
	struct host *h = xcalloc(1, sizeof(*h));
	*h = (struct host){ .cli = cli, .module = m, .shown = xstrdup(o->where), .password_file = o->password_file };
	if (connect_to(h, o, err) != 0) {
		cli_hint(cli, "the same by hand: ssh %s", o->where);
		host_free(h);
		return -1;
	}
	*ret = h;
	return 0;
}

void host_free(struct host *h)
{
	if (!h)
		return;
	if (h->ssh)
		h->module->free(h->ssh);
	secret_done(&h->password);
	free(h->shown);
	free(h);
}

const char *host_shown(const struct host *h)
{
	return h->shown;
}

/* --- scripts ------------------------------------------------------------------------------------------------------------ */

/* One compound command: a shell that reads its input in blocks has it whole before anything runs, so what follows is the script's. It ends
 * the shell itself: input that the script left would be taken for commands. */
static void wrap(const struct script *s, const char *mark, struct buf *out)
{
	buf_addf(out, "{ LC_ALL=C; export LC_ALL; PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export PATH; umask 022\n"
		      "printf '\\n%%s\\n' '%s-begin'\n", mark);
	buf_addf(out, "( set -e\n%s\n)%s\n", s->body, s->in_fd < 0 ? " </dev/null" : "");
	buf_addf(out, "printf '\\n%%s %%d\\n' '%s-end' $?; exit 0; }\n", mark);
}

/* What the script printed, and its status: between the sentinels, wherever those stand. */
static int unwrap(struct host *h, const struct script *s, const struct ssh_result *r, const char *mark, struct buf *ret, struct error *err)
{
	auto_free char *begin = xasprintf("\n%s-begin\n", mark), *end = xasprintf("\n%s-end ", mark);
	const char *from = r->out.len ? strstr(buf_str(&r->out), begin) : NULL;
	if (!from)
		return error_set(err, ERR_SYSTEM, "%s: the login shell at %s does not start /bin/sh, or sudo refused%s%s", s->what, h->shown,
				 r->err.len ? ": " : "", r->err.len ? buf_str(&r->err) : "");
	from += strlen(begin);
	const char *to = strstr(from, end);
	if (!to)
		return error_set(err, ERR_UNAVAILABLE, "%s: the script at %s did not come to its end", s->what, h->shown);
	long status = strtol(to + strlen(end), NULL, 10);
	buf_add(ret, from, (size_t)(to - from));
	if (status == 0)
		return 0;
	size_t n = r->err.len;
	const char *said = buf_str(&r->err);
	while (n && said[n - 1] == '\n')
		n--;
	size_t line = n;
	while (line && said[line - 1] != '\n')
		line--;
	char shown[400];
	return error_set(err, ERR_SYSTEM, "%s at %s failed: %s", s->what, h->shown,
			 n > line ? text_escape(said + line, n - line, shown, sizeof(shown)) : "without a word");
}

static const char *shell_line(const struct host *h, bool root)
{
	if (!root || h->root == ROOT_LOGIN)
		return "/bin/sh";
	return h->root == ROOT_SUDO ? "sudo -n /bin/sh" : "sudo -k -S -p " SUDO_PROMPT " /bin/sh";
}

static void show(const struct host *h, const struct script *s)
{
	auto_buf text = BUF_INIT;
	size_t n = strlen(s->body);
	buf_addf(&text, "# %s\n%s <<'END'%s%s\n%s%sEND", s->what, shell_line(h, s->root), s->shown ? "   # reads: " : "", s->shown ? s->shown : "", s->body,
		 n && s->body[n - 1] == '\n' ? "" : "\n");
	out_line("%s", buf_str(&text));
}

int host_run(struct host *h, const struct script *s, struct buf *ret, struct error *err)
{
	unsigned char raw[12];
	auto_buf script = BUF_INIT;
	struct ssh_result r = { .status = -1 };
	char mark[40] = "sandbox-";
	if (h->cli->dry_run && !s->reads) {
		show(h, s);
		return 0;
	}
	random_bytes(raw, sizeof(raw));
	for (size_t i = 0; i < sizeof(raw); i++)
		snprintf(mark + 8 + 2 * i, 3, "%02x", raw[i]);
	if (s->root && h->root == ROOT_SUDO_PASSWORD)
		buf_addf(&script, "%s\n", (const char *)h->password.bytes);
	wrap(s, mark, &script);
	auto_free char *go = xasprintf("%s-begin", mark);
	struct ssh_command c = { .line = shell_line(h, s->root), .in = script.data, .in_n = script.len, .in_fd = s->in_fd, .go = go,
				 .timeout_ms = s->timeout_ms ? s->timeout_ms : SCRIPT_MS, .out_max = OUT_MAX };
	int rc = h->module->run(h->ssh, &c, &r, err);
	explicit_bzero(script.data, script.len);
	if (rc != 0)
		error_wrap(err, "%s at %s", s->what, h->shown);
	else
		rc = unwrap(h, s, &r, mark, ret, err);
	buf_done(&r.out);
	buf_done(&r.err);
	return rc;
}

/* --- root --------------------------------------------------------------------------------------------------------------- */

static int no_root(struct host *h, const char *why, struct error *err)
{
	const char *user = h->module->user(h->ssh);
	return error_set(err, ERR_FORBIDDEN, "%s at %s cannot become root: %s; log in as root, or have this line in /etc/sudoers.d/sandbox there: %s ALL=(root) NOPASSWD: /bin/sh",
			 user, h->shown, why, user);
}

/* The password alone first: in front of a script a wrong one would let sudo take the script's lines for further tries. */
static int try_password(struct host *h, struct error *err)
{
	auto_free char *prompt = xasprintf("Password of %s at %s for sudo: ", h->module->user(h->ssh), h->shown);
	struct ssh_result r = { .status = -1 };
	struct error e = ERROR_INIT;
	auto_buf line = BUF_INIT;
	if (ask_secret(h, prompt, &h->password, &e) != 0)
		return no_root(h, "sudo wants a password, and there is no terminal to ask on and no --password-file", err);
	buf_addf(&line, "%s\n", (const char *)h->password.bytes);
	struct ssh_command c = { .line = "sudo -k -S -p " SUDO_PROMPT " true", .in = line.data, .in_n = line.len, .in_fd = -1, .timeout_ms = SCRIPT_MS,
				 .out_max = OUT_MAX };
	int rc = h->module->run(h->ssh, &c, &r, err);
	explicit_bzero(line.data, line.len);
	bool tty = r.err.len && strstr(buf_str(&r.err), "tty");
	buf_done(&r.out);
	buf_done(&r.err);
	if (rc != 0)
		return -1;
	if (r.status != 0)
		return no_root(h, tty ? "sudo wants a terminal (requiretty)" : "sudo did not take the password, or does not allow it", err);
	h->root = ROOT_SUDO_PASSWORD;
	return 0;
}

int host_find_root(struct host *h, struct error *err)
{
	static const char body[] = "if [ \"$(id -u)\" -eq 0 ]; then echo login; exit 0; fi\n"
				   "command -v sudo >/dev/null 2>&1 || { echo none; exit 0; }\n"
				   "said=$(sudo -n /bin/sh -c 'echo uid-is-$(id -u)' 2>&1) || :\n"
				   "case $said in *uid-is-0*) echo sudo ;; *tty*) echo tty ;; *password*) echo password ;; *) echo denied ;; esac\n";
	auto_buf out = BUF_INIT;
	if (host_run(h, &(struct script){ .what = "looking for root", .body = body, .reads = true, .in_fd = -1 }, &out, err) != 0)
		return -1;
	const char *said = buf_str(&out);
	if (strstr(said, "login"))
		h->root = ROOT_LOGIN;
	else if (strstr(said, "none"))
		return no_root(h, "there is no sudo", err);
	else if (strstr(said, "sudo"))
		h->root = ROOT_SUDO;
	else if (strstr(said, "tty"))
		return no_root(h, "sudo wants a terminal (requiretty)", err);
	else
		return try_password(h, err);
	return 0;
}
