/* sandbox ssh and ssh-config: ssh, scp, rsync and editors reach a sandbox whose image runs an sshd, through a byte pipe to its port. */
#include "cli/command.h"

#include "cli/dial.h"
#include "cli/output.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#define SUFFIX ".sandbox"

struct options {
	const char *ref;
	bool stdio;
	int64_t port;
	const char *user;
	struct words args;
};

static const struct options defaults = { .port = 22, .user = "root" };

static const struct option_row options[] = {
	OPT_FLAG(0, "stdio", struct options, stdio, "carry the port's bytes on standard input and output"),
	OPT_INT('p', "port", struct options, port, "PORT", 1, 65535, "port inside (default 22)"),
	OPT_TEXT('u', "user", struct options, user, "USER", "user to log in as (default root)"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct options, ref, "id, name, or a unique start or end of the id"),
	POS(POS_COMMAND_OPTIONAL, WHAT_COMMAND, "COMMAND", struct options, args, "for ssh"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox ssh web -- uname -a", "by the ssh of this machine" },
	{ "sandbox ssh-config >>~/.ssh/config; rsync -a src/ web.sandbox:/workspace/", "for every other tool" },
	{ NULL, NULL },
};

/* The name without the suffix that ssh-config's pattern gave it. */
static char *sandbox_of(const char *host)
{
	size_t n = strlen(host), s = strlen(SUFFIX);
	return n > s && strcmp(host + n - s, SUFFIX) == 0 ? xstrndup(host, n - s) : xstrdup(host);
}

static int own_path(char **ret, struct error *err)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	if (n <= 0)
		return error_errno(err, "finding this program");
	path[n] = '\0';
	if (strpbrk(path, "\"\\%"))
		return error_set(err, ERR_INVALID, "this program's path holds characters that ssh's settings cannot: %s", path);
	*ret = xstrdup(path);
	return 0;
}

/* Options that stand where ssh would read it anew: the server must be the same one. */
static void proxy_command(const struct cli *cli, const char *self, const struct options *o, struct buf *out)
{
	buf_addf(out, "\"%s\"", self);
	if (cli->context)
		buf_addf(out, " --context %s", cli->context);
	if (cli->server && *cli->server && !cli->context_url && !strpbrk(cli->server, "\"\\% '"))
		buf_addf(out, " --server %s", cli->server);
	buf_addf(out, " ssh --stdio --port %d %%n", (int)o->port);
}

static int run_ssh(struct cli *cli, const struct options *o, struct error *err)
{
	auto_free char *self = NULL;
	auto_buf proxy = BUF_INIT;
	auto_strv argv = STRV_INIT;
	if (o->ref[0] == '-')
		return error_set(err, ERR_INVALID, "'%.80s' is not a sandbox's name", o->ref);
	if (own_path(&self, err) != 0)
		return -1;
	proxy_command(cli, self, o, &proxy);
	strv_add(&argv, "ssh");
	strv_add(&argv, "-o");
	strv_take(&argv, xasprintf("ProxyCommand=%s", buf_str(&proxy)));
	for (const char *const *opt = (const char *const[]){ "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", NULL };
	     *opt; opt++) {
		strv_add(&argv, "-o");
		strv_add(&argv, *opt);
	}
	strv_add(&argv, "-l");
	strv_add(&argv, o->user);
	strv_take(&argv, xasprintf("%s", o->ref));
	for (size_t i = 0; i < o->args.len; i++)
		strv_add(&argv, o->args.items[i]);
	execvp("ssh", argv.items);
	return error_errno(err, "running ssh");
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	if (!o->stdio)
		return run_ssh(cli, o, err);
	if (o->args.len)
		return error_set(err, ERR_INVALID, "--stdio takes no COMMAND");
	auto_free char *sandbox = sandbox_of(o->ref);
	if (dial_pipe(cli, sandbox, (uint16_t)o->port, STDIN_FILENO, STDOUT_FILENO, err) == 0)
		return 0;
	if (err->code == ERR_UNREACHABLE && strstr(err->message, "nothing listens"))
		cli_hint(cli, "the image must run an sshd; without one `sandbox shell`, `sandbox exec` and `sandbox cp` do the same work");
	return -1;
}

const struct verb verb_ssh = {
	.name = "ssh",
	.group = GROUP_INSIDE,
	.summary = "reach an sshd inside a sandbox",
	.details = "For images that run an sshd; without one use shell, exec and cp.",
	.manual = "With --stdio the bytes of a port inside are carried on standard input and output, which is what ssh's ProxyCommand wants; the end "
		  "of either direction is passed on. The port is dialled on the sandbox's own loopback, so the sandbox needs no network.\n"
		  "\n"
		  "Without it the ssh of this machine is run with that as its ProxyCommand. Host keys are not checked: a sandbox makes new ones each time, "
		  "and the way to it is the server's, which was authenticated already. The status is ssh's.\n"
		  "\n"
		  "An image without an sshd: start one from the image's package (dropbear -R -E -p 22, or sshd -D) as the start command, and put the public "
		  "key to /root/.ssh/authorized_keys with sandbox cp.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};

/* --- ssh-config ------------------------------------------------------------------------------------------------- */

static int run_config(struct cli *cli, void *opaque, struct error *err)
{
	auto_free char *self = NULL;
	auto_buf proxy = BUF_INIT;
	struct options o = defaults;
	(void)opaque;
	if (own_path(&self, err) != 0)
		return -1;
	proxy_command(cli, self, &o, &proxy);
	out_line("# Sandboxes as NAME" SUFFIX ", for images that run an sshd. Written by `sandbox ssh-config`.\n"
		 "Host *" SUFFIX "\n"
		 "\tProxyCommand %s\n"
		 "\tUser root\n"
		 "\t# A sandbox makes new host keys each time; the way to it is the server's, which is authenticated already.\n"
		 "\tStrictHostKeyChecking no\n"
		 "\tUserKnownHostsFile /dev/null\n"
		 "\tLogLevel ERROR", buf_str(&proxy));
	return 0;
}

static const struct example config_examples[] = {
	{ "sandbox ssh-config >>~/.ssh/config", "then `ssh web.sandbox`, scp, rsync, editors" },
	{ NULL, NULL },
};

const struct verb verb_ssh_config = {
	.name = "ssh-config",
	.group = GROUP_INSIDE,
	.summary = "print settings that let ssh reach sandboxes",
	.manual = "One block for all sandboxes, by the pattern *.sandbox; nothing is written anywhere. With --context or --server the block keeps to that "
		  "server.",
	.examples = config_examples,
	.run = run_config,
};
