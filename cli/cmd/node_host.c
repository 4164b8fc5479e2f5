/* sandbox node add, upgrade and rotate: a worker's machine over SSH. The work is in cli/enroll. */
#include "cli/enroll/enroll.h"
#include "cli/enroll/verbs.h"

#include "cli/output.h"

enum { WAIT_MS = 60 * 1000 };

static const struct enroll_options defaults = { .runtime = "docker", .wait_ms = WAIT_MS };

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_TEXT, "HOST", struct enroll_options, host.where, "[USER@]HOST[:PORT]"),
	POS_END,
};

/* --- add ---------------------------------------------------------------------------------------------------------------- */

static const struct option_row add_options[] = {
	OPT_TEXT('n', "name", struct enroll_options, name, "NAME", "the node's name (the host's own)"),
	OPT_WORD(0, "runtime", struct enroll_options, runtime, "KIND", "docker|gvisor|qemu", "docker (default), gvisor or qemu"),
	OPT_LIST('l', "label", struct enroll_options, labels, "KEY=VALUE", "label of the node, repeatable"),
	OPT_TEXT(0, "controller", struct enroll_options, controller, "URL", "where the worker reaches it (this server's)"),
	OPT_FLAG(0, "install-docker", struct enroll_options, install_docker, "install Docker Engine where there is none"),
	HOST_ROWS(struct enroll_options, host),
	OPT_REST,
	OPT_TEXT(0, "archive", struct enroll_options, archive, "FILE", "a release's server archive (other architectures)"),
	OPT_TEXT(0, "canary-image", struct enroll_options, image, "IMAGE", "what the first sandbox there is made of"),
	OPT_FLAG(0, "no-canary", struct enroll_options, no_canary, "run no sandbox there at the end"),
	OPT_DURATION(0, "wait", struct enroll_options, wait_ms, "TIME", 1000, 3600 * 1000LL, "wait for the node at most this long (default 60s)"),
	OPT_END,
};

static int run_add(struct cli *cli, void *options, struct error *err)
{
	return enroll_add(cli, options, err);
}

static const struct example add_examples[] = {
	{ "sandbox node add root@10.0.0.7", "a worker named as the host is" },
	{ "sandbox node add ops@10.0.0.8 -J ops@gate --dry-run", "what would be run there" },
	{ NULL, NULL },
};

const struct verb node_add = {
	.name = "add",
	.group = GROUP_SERVER,
	.summary = "make a machine a worker, over SSH",
	.manual = "The host key must be in known_hosts, be given by --host-key, or be accepted on the terminal. Keys of the agent and of ~/.ssh are tried "
		  "(Ed25519 and ECDSA), then a password. Root is the login or sudo.\n"
		  "\n"
		  "The machine is looked at before anything changes: architecture, C library, service manager, Docker, KVM, disk, clock, sudo. Then sandboxd goes to "
		  "/opt/sandbox/VERSION, checked by sum and by running, a configuration to /etc/sandbox/worker.conf, and a join token over standard input; a systemd "
		  "unit (or a loop that supervises, where there is no systemd) starts it. The verb waits until the node is up and runs a sandbox there. A step that "
		  "fails undoes those before it, or says what remains. Run again, it does what is missing.\n"
		  "\n"
		  "With --dry-run the scripts that would change something are printed instead. Installed on Debian and its kin where they are missing: the libraries "
		  "of sandboxd, and with --install-docker docker.io; the package manager's lock is waited for.",
	.options = add_options,
	.positionals = positionals,
	.size = sizeof(struct enroll_options),
	.defaults = &defaults,
	.examples = add_examples,
	.run = run_add,
};

/* --- upgrade ------------------------------------------------------------------------------------------------------------ */

static const struct option_row upgrade_options[] = {
	OPT_TEXT(0, "archive", struct enroll_options, archive, "FILE", "a release's server archive (other architectures)"),
	HOST_ROWS(struct enroll_options, host),
	OPT_DURATION(0, "wait", struct enroll_options, wait_ms, "TIME", 1000, 3600 * 1000LL, "wait for the node at most this long (default 60s)"),
	OPT_END,
};

static int run_upgrade(struct cli *cli, void *options, struct error *err)
{
	return enroll_upgrade(cli, options, err);
}

const struct verb node_upgrade = {
	.name = "upgrade",
	.group = GROUP_SERVER,
	.summary = "bring a worker to this version, over SSH",
	.manual = "Sandboxes and commands go on over the restart. When the new version does not come up, the one before is started again.",
	.options = upgrade_options,
	.positionals = positionals,
	.size = sizeof(struct enroll_options),
	.defaults = &defaults,
	.run = run_upgrade,
};

/* --- rotate ------------------------------------------------------------------------------------------------------------- */

static const struct option_row rotate_options[] = {
	HOST_ROWS(struct enroll_options, host),
	OPT_DURATION(0, "wait", struct enroll_options, wait_ms, "TIME", 1000, 3600 * 1000LL, "wait for the node at most this long (default 60s)"),
	OPT_END,
};

static int run_rotate(struct cli *cli, void *options, struct error *err)
{
	return enroll_rotate(cli, options, err);
}

const struct verb node_rotate = {
	.name = "rotate",
	.group = GROUP_SERVER,
	.summary = "give a worker a new credential, over SSH",
	.manual = "For a credential that somebody may have read: the worker joins anew with a fresh token, and the old credential is refused from then on. "
		  "Workers replace theirs from time to time without this.",
	.options = rotate_options,
	.positionals = positionals,
	.size = sizeof(struct enroll_options),
	.defaults = &defaults,
	.run = run_rotate,
};
