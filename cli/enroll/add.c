/*
 * Making a machine a worker. Looked at first, changed afterwards, undone in reverse when a step fails; run again it does only what is
 * missing. What cannot be undone (packages) is said.
 */
#include "cli/enroll/enroll.h"

#include "cli/output.h"
#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/config/server_url.h"

#include <string.h>
#include <unistd.h>

enum { DOCKER_MS = 15 * 60 * 1000, START_MS = 4 * 60 * 1000 };

struct enrolment {
	struct cli *cli;
	const struct enroll_options *o;
	struct host *host;
	struct probe probe;
	struct payload payload;
	char *name, *controller, *linked; /* linked: before what was restarted; NULL: nothing was */
	int token_fd;
	bool again;         /* a worker of that name is there already */
	bool placed, configured, docker_installed, programs_new;
	int64_t started_ms;
};

static void step(const struct enrolment *e, const char *what)
{
	out_note(e->cli, "%s (%.1f s)", what, (double)(clock_mono_ms() - e->started_ms) / 1000);
}

static int run_step(struct enrolment *e, const char *what, const char *body, int64_t timeout_ms, struct error *err)
{
	auto_buf out = BUF_INIT;
	return host_run(e->host, &(struct script){ .what = what, .body = body, .root = true, .in_fd = -1, .timeout_ms = timeout_ms }, &out, err);
}

/* --- deciding ----------------------------------------------------------------------------------------------------------- */

/* The address a worker dials: what this session uses, when that is one. */
static int find_controller(struct enrolment *e, struct error *err)
{
	const char *text = e->o->controller ? e->o->controller : e->cli->server;
	auto_server_url u = { .url = NULL };
	if (!text || strncmp(text, "unix:", 5) == 0)
		return error_set(err, ERR_INVALID, "say which address the worker will reach this controller at: --controller https://HOST[:PORT]");
	if (server_url_parse(text, &u, err) != 0)
		return -1;
	if (u.path)
		return error_set(err, ERR_INVALID, "--controller: want https://HOST[:PORT], which the worker can reach");
	e->controller = xstrdup(u.url);
	return 0;
}

static int find_name(struct enrolment *e, struct error *err)
{
	const char *given = e->o->name ? e->o->name : *e->probe.config_name ? e->probe.config_name : e->probe.name;
	e->name = xstrdup(given);
	if (!e->o->name) {
		/* A host's name may have a domain and capitals; a node's has neither. */
		e->name[strcspn(e->name, ".")] = '\0';
		for (char *p = e->name; *p; p++)
			*p = (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
	}
	if (!tenant_valid(e->name))
		return error_set(err, ERR_INVALID, "'%.64s' is no name of a node: give --name, lower-case letters, digits and dashes", e->name);
	return 0;
}

static int check_present(struct enrolment *e, struct error *err)
{
	const struct probe *p = &e->probe;
	auto_free char *state = NULL;
	if (*p->config_name && (strcmp(p->config_name, e->name) != 0 || strcmp(p->config_controller, e->controller) != 0))
		return error_set(err, ERR_CONFLICT, "%s is the worker %s of %s already; `sandbox node remove %s --purge %s` first, or --name %s", host_shown(e->host),
				 p->config_name, p->config_controller, p->config_name, host_shown(e->host), p->config_name);
	if (enroll_state(e->cli, e->name, &state, err) != 0)
		return -1;
	if (state && !p->joined)
		return error_set(err, ERR_CONFLICT, "there is a node %s already, and it is not %s; give another --name, or remove that node", e->name,
				 host_shown(e->host));
	/* A credential of a node that was removed is worth nothing: it joins anew. */
	e->again = state && p->joined;
	return 0;
}

static int look(struct enrolment *e, struct error *err)
{
	if (find_controller(e, err) != 0 || host_open(e->cli, &e->o->host, &e->host, err) != 0)
		return -1;
	step(e, "connected");
	if (probe_host(e->host, &e->probe, err) != 0 || probe_check(&e->probe, e->o->runtime, e->o->install_docker, host_shown(e->host), err) != 0)
		return -1;
	step(e, "the machine can be a worker");
	if (find_name(e, err) != 0 || check_present(e, err) != 0)
		return -1;
	if (strcmp(e->o->runtime, "qemu") == 0 && !e->o->archive)
		return error_set(err, ERR_INVALID, "--runtime qemu needs the driver there too, which comes with a release's server archive: give --archive FILE");
	return payload_find(&e->probe, e->o->archive, &e->payload, err);
}

/* --- changing ----------------------------------------------------------------------------------------------------------- */

static const char script_docker[] =
	"if ! command -v dockerd >/dev/null 2>&1; then\n"
	"\tlog=$(mktemp)\n"
	"\tif ! DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q -y --no-install-recommends install docker.io >\"$log\" 2>&1; then\n"
	"\t\tapt-get -o DPkg::Lock::Timeout=300 -q update >\"$log\" 2>&1 &&\n"
	"\t\tDEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q -y --no-install-recommends install docker.io >\"$log\" 2>&1 ||\n"
	"\t\t{ tail -n 1 \"$log\" >&2; rm -f \"$log\"; exit 1; }\n"
	"\tfi\n"
	"\trm -f \"$log\"\n"
	"fi\n"
	"if [ -d /run/systemd/system ]; then systemctl enable --now docker.service; else setsid dockerd >>/var/log/dockerd.log 2>&1 </dev/null & fi\n"
	"i=0\n"
	"while [ ! -S /var/run/docker.sock ]; do i=$((i + 1)); [ $i -lt 300 ] || { echo 'dockerd does not start' >&2; exit 1; }; sleep 0.1; done\n";

static int install_docker(struct enrolment *e, struct error *err)
{
	if (e->probe.docker)
		return 0;
	step(e, "installing and starting Docker Engine");
	e->docker_installed = !e->probe.docker_program;
	return run_step(e, "installing Docker Engine", script_docker, DOCKER_MS, err);
}

static void config_text(const struct enrolment *e, struct buf *out)
{
	buf_addf(out, "# Written by sandbox node add.\n[daemon]\nrole = worker\nstate_dir = " WORKER_STATE "\nsocket = " WORKER_RUN "/sandboxd.sock\n\n[worker]\nname = %s\n"
		      "controller = %s\njoin_token_file = " WORKER_TOKEN "\nlabels = node=%s", e->name, e->controller, e->name);
	for (size_t i = 0; i < e->o->labels.len; i++)
		buf_addf(out, ", %s", e->o->labels.items[i]);
	buf_addf(out, "\ngvisor_runtime = %s\n", strcmp(e->o->runtime, "gvisor") == 0 ? "runsc" : "");
	if (strcmp(e->o->runtime, "qemu") == 0)
		buf_addf(out, "driver = " WORKER_ROOT "/current/libexec/sandbox/sandbox-driver-qemu\n");
}

static int configure(struct enrolment *e, struct error *err)
{
	auto_buf conf = BUF_INIT, body = BUF_INIT, out = BUF_INIT;
	config_text(e, &conf);
	buf_adds(&body, "umask 077\nmkdir -p /etc/sandbox\n");
	/* The token's line comes first, before anything else could take it for its own input. */
	if (!e->again)
		buf_adds(&body, "cat >" WORKER_TOKEN ".new\n[ -s " WORKER_TOKEN ".new ]\nmv -f " WORKER_TOKEN ".new " WORKER_TOKEN "\n"
				"rm -f " WORKER_STATE "/node-credential\n");
	buf_addf(&body, "cat >" WORKER_CONFIG ".new <<'CONF'\n%sCONF\n" WORKER_ROOT "/current/bin/sandboxd --config " WORKER_CONFIG ".new --check-config >/dev/null\n"
			"mv -f " WORKER_CONFIG ".new " WORKER_CONFIG "\n", buf_str(&conf));
	if (!e->again && !e->cli->dry_run && enroll_token(e->cli, e->name, &e->token_fd, err) != 0)
		return -1;
	return host_run(e->host, &(struct script){ .what = "writing the configuration", .body = buf_str(&body), .root = true, .in_fd = e->token_fd,
						   .shown = e->again ? NULL : "a join token" }, &out, err);
}

static int start(struct enrolment *e, struct error *err)
{
	auto_buf body = BUF_INIT;
	free(e->linked);
	e->linked = e->cli->dry_run ? NULL : enroll_linked(e->cli, e->name);
	buf_adds(&body, script_stop);
	script_start(e->probe.systemd, &body);
	return run_step(e, e->probe.systemd ? "installing and starting the unit" : "starting the supervised worker", buf_str(&body), START_MS, err);
}

static int change(struct enrolment *e, struct error *err)
{
	if (install_docker(e, err) != 0)
		return -1;
	step(e, "bringing the programs");
	e->placed = true;
	if (payload_install(e->host, &e->probe, &e->payload, err) != 0)
		return -1;
	e->configured = true;
	if (configure(e, err) != 0)
		return -1;
	step(e, "starting the worker");
	return start(e, err);
}

static int prove(struct enrolment *e, struct error *err)
{
	if (enroll_wait(e->cli, e->name, NULL, e->linked, e->o->wait_ms, err) != 0)
		return -1;
	step(e, "the node is up");
	if (e->o->no_canary)
		return 0;
	if (!e->o->image && payload_program(e->host, &e->payload, err) != 0)
		return -1;
	if (enroll_canary(e->cli, e->name, e->o->image, &e->payload, err) != 0)
		return -1;
	step(e, "a first sandbox ran there");
	return 0;
}

/* --- undoing ------------------------------------------------------------------------------------------------------------ */

/* What the worker says of itself, for whoever reads the error. */
static void tell_log(struct enrolment *e)
{
	static const char body[] = "if [ -f " WORKER_LOG " ]; then tail -n 3 " WORKER_LOG "; elif command -v journalctl >/dev/null 2>&1; then journalctl -q -n 3 -o cat -u sandboxd-worker; fi\n";
	auto_buf out = BUF_INIT;
	char shown[1200];
	if (host_run(e->host, &(struct script){ .what = "reading the log", .body = body, .root = true, .reads = true, .in_fd = -1 }, &out, NULL) != 0)
		return;
	const char *p = buf_str(&out);
	size_t n = strlen(p);
	if (n)
		out_warn(e->cli, "the worker's log ends with: %s", text_escape(p, n, shown, sizeof(shown)));
}

/* A worker that was there before is left alone: it may hold sandboxes. */
static void undo(struct enrolment *e)
{
	auto_buf body = BUF_INIT;
	struct error e2 = ERROR_INIT;
	if (!e->placed || e->cli->dry_run)
		return;
	if (e->configured)
		tell_log(e);
	if (e->again || *e->probe.installed) {
		out_warn(e->cli, "the worker that was on %s before is left as it is now; run this again once the cause is gone", host_shown(e->host));
		return;
	}
	buf_adds(&body, script_stop);
	buf_adds(&body, script_purge);
	if (run_step(e, "undoing", buf_str(&body), 0, &e2) != 0)
		out_warn(e->cli, "%s; what remains there: " WORKER_ROOT ", /etc/sandbox, " WORKER_STATE ", " WORKER_UNIT, e2.message);
	else
		out_warn(e->cli, "what was set up on %s is removed again%s", host_shown(e->host), e->docker_installed ? "; docker.io stays installed" : "");
	auto_free char *state = NULL;
	if (enroll_state(e->cli, e->name, &state, NULL) == 0 && state && enroll_forget(e->cli, e->name, NULL) != 0)
		out_warn(e->cli, "the controller still knows the node %s: `sandbox node remove %s`", e->name, e->name);
}

static void done(struct enrolment *e)
{
	if (e->token_fd >= 0)
		close(e->token_fd);
	probe_done(&e->probe);
	payload_done(&e->payload);
	host_free(e->host);
	free(e->name);
	free(e->controller);
	free(e->linked);
}

int enroll_add(struct cli *cli, const struct enroll_options *o, struct error *err)
{
	struct enrolment e = { .cli = cli, .o = o, .token_fd = -1, .started_ms = clock_mono_ms() };
	int rc = look(&e, err);
	if (rc == 0 && e.again && e.probe.active && strcmp(e.probe.installed, SANDBOX_VERSION) == 0 && !cli->dry_run)
		step(&e, "the worker is set up already");
	else if (rc == 0)
		rc = change(&e, err);
	if (rc == 0 && !cli->dry_run)
		rc = prove(&e, err);
	if (rc != 0)
		undo(&e);
	else if (!cli->dry_run)
		out_line("%s", e.name);
	done(&e);
	return rc;
}

/* --- what follows later ------------------------------------------------------------------------------------------------- */

/* Of a machine that is a worker already. */
static int open_worker(struct enrolment *e, struct error *err)
{
	if (host_open(e->cli, &e->o->host, &e->host, err) != 0 || probe_host(e->host, &e->probe, err) != 0)
		return -1;
	if (!*e->probe.config_name)
		return error_set(err, ERR_NOT_FOUND, "%s was not set up by `sandbox node add`", host_shown(e->host));
	e->name = xstrdup(e->probe.config_name);
	e->again = true;
	return 0;
}

static const char script_back[] =
	"[ -L " WORKER_ROOT "/previous ] || { echo 'there is no version before' >&2; exit 1; }\n"
	"ln -sfn \"$(readlink " WORKER_ROOT "/previous)\" " WORKER_ROOT "/current.new\n"
	"mv -Tf " WORKER_ROOT "/current.new " WORKER_ROOT "/current\n";

/* Sandboxes go on over the restart; when the new version does not come up the one before is started again. */
static int replace(struct enrolment *e, struct error *err)
{
	step(e, "bringing the programs");
	if (payload_install(e->host, &e->probe, &e->payload, err) != 0)
		return -1;
	step(e, "restarting the worker");
	int rc = start(e, err);
	if (rc == 0 && !e->cli->dry_run)
		rc = enroll_wait(e->cli, e->name, SANDBOX_VERSION, e->linked, e->o->wait_ms, err);
	if (rc == 0 || e->cli->dry_run || strcmp(e->probe.installed, SANDBOX_VERSION) == 0)
		return rc;
	tell_log(e);
	struct error e2 = ERROR_INIT;
	if (run_step(e, "going back", script_back, 0, &e2) == 0 && start(e, &e2) == 0)
		out_warn(e->cli, "version %s runs there again", e->probe.installed);
	else
		out_warn(e->cli, "%s", e2.message);
	return -1;
}

int enroll_upgrade(struct cli *cli, const struct enroll_options *o, struct error *err)
{
	struct enrolment e = { .cli = cli, .o = o, .token_fd = -1, .started_ms = clock_mono_ms() };
	int rc = open_worker(&e, err);
	if (rc == 0)
		rc = payload_find(&e.probe, o->archive, &e.payload, err);
	if (rc == 0)
		rc = replace(&e, err);
	if (rc == 0 && !cli->dry_run)
		step(&e, "the node is up with " SANDBOX_VERSION);
	done(&e);
	return rc;
}

/* The old credential ends with the new join: the worker that has only the old one is not let in any more. */
int enroll_rotate(struct cli *cli, const struct enroll_options *o, struct error *err)
{
	static const char body[] = "umask 077\ncat >" WORKER_TOKEN ".new\n[ -s " WORKER_TOKEN ".new ]\nmv -f " WORKER_TOKEN ".new " WORKER_TOKEN "\n"
				   "rm -f " WORKER_STATE "/node-credential\n";
	struct enrolment e = { .cli = cli, .o = o, .token_fd = -1, .started_ms = clock_mono_ms() };
	auto_buf out = BUF_INIT, again = BUF_INIT;
	int rc = open_worker(&e, err);
	if (rc == 0)
		rc = run_step(&e, "stopping the worker", script_stop, 0, err);
	if (rc == 0 && !cli->dry_run)
		rc = enroll_token(cli, e.name, &e.token_fd, err);
	if (rc == 0)
		rc = host_run(e.host, &(struct script){ .what = "handing over a join token", .body = body, .root = true, .in_fd = e.token_fd, .shown = "a join token" },
			      &out, err);
	/* Whatever failed: a stopped worker helps nobody. */
	if (e.name) {
		struct error e2 = ERROR_INIT;
		e.linked = cli->dry_run ? NULL : enroll_linked(cli, e.name);
		script_start(e.probe.systemd, &again);
		if (run_step(&e, "starting the worker", buf_str(&again), START_MS, rc == 0 ? err : &e2) != 0)
			rc = -1;
	}
	if (rc == 0 && !cli->dry_run)
		rc = enroll_wait(cli, e.name, NULL, e.linked, o->wait_ms, err);
	if (rc == 0 && !cli->dry_run)
		step(&e, "the node is up with a new credential");
	done(&e);
	return rc;
}

int enroll_purge(struct cli *cli, const struct host_options *o, const char *name, struct error *err)
{
	struct enroll_options all = { .host = *o };
	struct enrolment e = { .cli = cli, .o = &all, .token_fd = -1, .started_ms = clock_mono_ms() };
	auto_buf body = BUF_INIT;
	int rc = host_open(cli, o, &e.host, err);
	if (rc == 0)
		rc = host_find_root(e.host, err);
	if (name) {
		buf_adds(&body, "n=$(sed -n 's/^name = //p' " WORKER_CONFIG " 2>/dev/null) || :\nwant=");
		shell_quote(name, &body);
		buf_adds(&body, "\n[ -z \"$n\" ] || [ \"$n\" = \"$want\" ] || { echo \"this machine is the worker $n\" >&2; exit 1; }\n");
	}
	buf_adds(&body, script_stop);
	buf_adds(&body, script_purge);
	if (rc == 0)
		rc = run_step(&e, "removing the worker", buf_str(&body), 0, err);
	if (rc == 0 && !cli->dry_run)
		step(&e, "nothing of the worker is left there");
	done(&e);
	return rc;
}
