/*
 * sandboxd init: writes a first configuration, a TLS key with a self-signed certificate and a database password where they are asked for
 * (all 0600 but the certificate), checks it as the daemon would, and prints the next step. It replaces nothing unless told to.
 */
#include "daemon/first.h"

#include "daemon/certificate.h"
#include "daemon/daemon.h"
#include "shared/base/id.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <getopt.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CONTROLLER_USER "sandboxd"

enum { EXIT_USAGE = 2, PASSWORD_BYTES = 32, CERTIFICATE_DAYS = 825 };

struct first {
	char *config, *dir; /* dir: where config lies */
	const char *listen, *database, *profile, *role;
	struct strv names;
	bool tls, force, given; /* given: to the controller's user */
	struct strv written;
};

static const char help[] =
	"usage: sandboxd init [OPTIONS]\n"
	"\n"
	"Writes a first configuration and says what to do next.\n"
	"\n"
	"  --config FILE          where (/etc/sandbox/sandboxd.conf for root,\n"
	"                         ~/.config/sandbox/sandboxd.conf otherwise)\n"
	"  --role ROLE            all (default), or controller: without a runtime, for\n"
	"                         sandboxd-controller.service and its user sandboxd; FILE is\n"
	"                         then /etc/sandbox-controller/sandboxd.conf for root\n"
	"  --listen ADDRESS:PORT  serve TCP too, with tokens; beyond loopback only with --tls\n"
	"  --name NAME            a name or address clients use for this server; repeatable\n"
	"  --tls                  HTTPS with a new key and a self-signed certificate for the names\n"
	"  --database URL         PostgreSQL, postgresql://USER@HOST/NAME; makes a password for USER\n"
	"  --profile PROFILE      strict (default) or trusted-workstation\n"
	"  --force                replace what is there\n"
	"  --help                 print this and end\n";

static bool is_controller(const struct first *f)
{
	return f->role && strcmp(f->role, "controller") == 0;
}

static char *absolute(const char *path)
{
	auto_free char *here = *path == '/' ? NULL : getcwd(NULL, 0);
	return here ? xasprintf("%s/%s", here, path) : xstrdup(path);
}

static int take_option(int c, struct first *f)
{
	switch (c) {
	case 'c':
		free(f->config);
		f->config = absolute(optarg);
		return 0;
	case 'l':
		f->listen = optarg;
		return 0;
	case 'n':
		strv_add(&f->names, optarg);
		return 0;
	case 't':
		f->tls = true;
		return 0;
	case 'd':
		f->database = optarg;
		return 0;
	case 'p':
		f->profile = optarg;
		return 0;
	case 'r':
		f->role = optarg;
		return 0;
	case 'f':
		f->force = true;
		return 0;
	default:
		return -1;
	}
}

static int parse(int argc, char **argv, struct first *f, bool *ret_help)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' }, { "listen", required_argument, NULL, 'l' }, { "name", required_argument, NULL, 'n' },
		{ "tls", no_argument, NULL, 't' }, { "database", required_argument, NULL, 'd' }, { "profile", required_argument, NULL, 'p' },
		{ "role", required_argument, NULL, 'r' }, { "force", no_argument, NULL, 'f' }, { "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	int c;
	while ((c = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
		*ret_help = c == 'h';
		if (*ret_help)
			return 0;
		if (take_option(c, f) != 0)
			return -1;
	}
	if (optind == argc)
		return 0;
	fprintf(stderr, "sandboxd: init: unexpected argument %s\n", argv[optind]);
	return -1;
}

/* --- what is written ------------------------------------------------------------------------------------------------ */

static int write_new(struct first *f, const char *path, const void *p, size_t n, mode_t mode, struct error *err)
{
	if (!f->force && access(path, F_OK) == 0)
		return error_set(err, ERR_CONFLICT, "%s is there already; --force replaces it", path);
	if (io_write_file_atomic(path, p, n, mode, true, err) != 0)
		return -1;
	strv_add(&f->written, path);
	return 0;
}

static int write_tls(struct first *f, struct buf *conf, struct error *err)
{
	auto_buf key = BUF_INIT, cert = BUF_INIT;
	auto_free char *key_path = xasprintf("%s/tls.key", f->dir), *cert_path = xasprintf("%s/tls.crt", f->dir);
	if (!f->names.len)
		return error_set(err, ERR_INVALID, "--tls needs at least one --name: what clients call this server");
	if (certificate_make(&f->names, CERTIFICATE_DAYS, &key, &cert, err) != 0)
		return -1;
	int rc = write_new(f, key_path, key.data, key.len, 0600, err);
	explicit_bzero(key.data, key.len);
	if (rc != 0 || write_new(f, cert_path, cert.data, cert.len, 0644, err) != 0)
		return -1;
	buf_addf(conf, "tls_cert = %s\ntls_key = %s\n", cert_path, key_path);
	return 0;
}

/* It would be in process lists and in the shell's history by now. */
static bool has_password(const char *url)
{
	const char *host = strstr(url, "://"), *at = host ? strchr(host + 3, '@') : NULL, *colon = host ? strchr(host + 3, ':') : NULL;
	return (at && colon && colon < at) || strstr(url, "password=");
}

static int write_password(struct first *f, struct buf *conf, struct error *err)
{
	if (has_password(f->database))
		return error_set(err, ERR_INVALID, "--database: leave the password out; a new one is made, or put yours into db-password afterwards");
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	unsigned char raw[PASSWORD_BYTES];
	char text[PASSWORD_BYTES + 1];
	auto_free char *path = xasprintf("%s/db-password", f->dir);
	random_bytes(raw, sizeof(raw));
	for (size_t i = 0; i < sizeof(raw); i++)
		text[i] = digits[raw[i] % 64];
	text[PASSWORD_BYTES] = '\n';
	int rc = write_new(f, path, text, sizeof(text), 0600, err);
	explicit_bzero(text, sizeof(text));
	explicit_bzero(raw, sizeof(raw));
	if (rc == 0)
		buf_addf(conf, "\n[store]\ndriver = postgresql\nurl = %s\npassword_file = %s\n", f->database, path);
	return rc;
}

static void daemon_section(const struct first *f, struct buf *conf)
{
	buf_adds(conf, "# Written by sandboxd init. Every key with its default: sandboxd --print-config, sandboxd.conf(5).\n"
		       "# A changed file is checked by sandboxd --check-config and read again on SIGHUP.\n\n[daemon]\n");
	if (is_controller(f))
		buf_adds(conf, "role = controller\n");
	if (f->listen)
		buf_addf(conf, "listen = %s\n", f->listen);
	for (size_t i = 0; i < f->names.len; i++)
		buf_addf(conf, "%s%s", i ? ", " : "hosts = ", f->names.items[i]);
	if (f->names.len)
		buf_addc(conf, '\n');
	/* A proxy on this machine, which a name without TLS means, says who its clients are. */
	if (f->names.len && f->listen && !f->tls)
		buf_adds(conf, "trusted_proxies = 127.0.0.1, ::1\n");
}

/* As the daemon will read it. */
static int check(const char *path, struct error *err)
{
	auto_free char *copy = xstrdup(path);
	struct daemon_setup s = { .config_path = copy, .ready_fd = -1 };
	struct daemon_config c = { .role = NULL };
	int rc = daemon_setup_config(&s, &c, err);
	daemon_config_done(&c);
	return rc;
}

static int check_text(const struct first *f, const struct buf *conf, struct error *err)
{
	auto_free char *trial = xasprintf("%s/.sandboxd.conf.trial", f->dir);
	int rc = io_write_file_atomic(trial, conf->data, conf->len, 0600, false, err);
	if (rc == 0)
		rc = check(trial, err);
	unlink(trial);
	return rc;
}

/* What the controller's unit reads is its user's, who may not exist yet. */
static int give_to_user(struct first *f, struct error *err)
{
	struct passwd entry, *user = NULL;
	char text[4096];
	if (getpwnam_r(CONTROLLER_USER, &entry, text, sizeof(text), &user) != 0 || !user)
		return 0;
	f->given = true;
	for (size_t i = 0; i < f->written.len; i++)
		if (chown(f->written.items[i], user->pw_uid, user->pw_gid) != 0)
			return error_errno(err, "giving %s to " CONTROLLER_USER, f->written.items[i]);
	return chown(f->dir, user->pw_uid, user->pw_gid) == 0 ? 0 : error_errno(err, "giving %s to " CONTROLLER_USER, f->dir);
}

static int write_all(struct first *f, struct error *err)
{
	auto_buf conf = BUF_INIT;
	if (!f->force && access(f->config, F_OK) == 0)
		return error_set(err, ERR_CONFLICT, "%s is there already; --force replaces it", f->config);
	if (f->role && !is_controller(f) && strcmp(f->role, "all") != 0)
		return error_set(err, ERR_INVALID, "--role %.32s: want all or controller; a worker's file is an example of the server's", f->role);
	if (f->tls && !f->listen)
		return error_set(err, ERR_INVALID, "--tls is about --listen, which is missing");
	daemon_section(f, &conf);
	if ((f->tls && write_tls(f, &conf, err) != 0) || (f->database && write_password(f, &conf, err) != 0))
		return -1;
	if (f->profile)
		buf_addf(&conf, "\n[policy]\nprofile = %s\n", f->profile);
	if (check_text(f, &conf, err) != 0 || write_new(f, f->config, conf.data, conf.len, 0600, err) != 0)
		return -1;
	return is_controller(f) && geteuid() == 0 ? give_to_user(f, err) : 0;
}

/* --- what comes next ------------------------------------------------------------------------------------------------ */

static void say_database(const struct first *f)
{
	printf("On the database's machine, with the password in %s/db-password:\n"
	       "  createuser --pwprompt USER && createdb --owner=USER --encoding=UTF8 NAME\n", f->dir);
}

static void say_clients(const struct first *f)
{
	const char *port = strrchr(f->listen, ':'), *name = f->names.len ? f->names.items[0] : NULL;
	printf("A token for somebody (shown once):\n  sandbox token create --role operator NAME\n");
	if (f->tls)
		printf("On a workstation, with a copy of %s/tls.crt:\n"
		       "  export SANDBOX_CA_FILE=.../tls.crt\n  sandbox context create work --url https://%s%s --use && sandbox login\n",
		       f->dir, name, port ? port : "");
	else
		printf("Put an HTTPS proxy in front of %s (Caddyfile among the server's examples); on a workstation then:\n"
		       "  sandbox context create work --url https://%s --use && sandbox login\n", f->listen, name ? name : "NAME");
}

static void say_next(const struct first *f)
{
	for (size_t i = 0; i < f->written.len; i++)
		printf("wrote %s\n", f->written.items[i]);
	printf("\nNext:\n");
	if (f->database)
		say_database(f);
	bool systemd = geteuid() == 0 && access("/run/systemd/system", F_OK) == 0;
	if (systemd && is_controller(f) && !f->given)
		printf("  adduser --system --group --no-create-home " CONTROLLER_USER " && chown -R " CONTROLLER_USER ": %s\n", f->dir);
	if (systemd)
		printf("  systemctl enable --now sandboxd%s\n", is_controller(f) ? "-controller" : "");
	else
		printf("  sandboxd --config %s\n", f->config);
	printf("  sandbox doctor\n");
	if (is_controller(f))
		printf("A worker on another machine: sandbox node add root@HOST --controller https://NAME:PORT\n");
	if (f->listen)
		say_clients(f);
}

static int run(struct first *f, struct error *err)
{
	if (!f->config && is_controller(f) && geteuid() == 0)
		f->config = xstrdup("/etc/sandbox-controller/sandboxd.conf");
	if (!f->config)
		f->config = daemon_default_config_path();
	if (!f->config)
		return error_set(err, ERR_INVALID, "HOME is not set: say --config FILE");
	f->dir = xstrndup(f->config, (size_t)(strrchr(f->config, '/') - f->config));
	if (io_mkdirs(f->dir, 0700, err) != 0 || write_all(f, err) != 0) {
		/* Half of it would be in the way of the next try. */
		for (size_t i = 0; i < f->written.len && !f->force; i++)
			unlink(f->written.items[i]);
		return -1;
	}
	say_next(f);
	return fflush(stdout) == 0 ? 0 : error_errno(err, "writing");
}

int first_main(int argc, char **argv)
{
	struct first f = { .config = NULL };
	struct error err = ERROR_INIT;
	bool want_help = false;
	int status = EXIT_USAGE;
	if (parse(argc, argv, &f, &want_help) == 0) {
		if (want_help)
			status = fputs(help, stdout) < 0;
		else if (run(&f, &err) == 0)
			status = EXIT_SUCCESS;
		else
			fprintf(stderr, "sandboxd: %s\n", err.message), status = err.code == ERR_INVALID ? EXIT_USAGE : EXIT_FAILURE;
	}
	free(f.config);
	free(f.dir);
	strv_done(&f.names);
	strv_done(&f.written);
	return status;
}
