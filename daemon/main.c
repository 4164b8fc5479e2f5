/* sandboxd: the command line. */
#include "daemon/api/routes.h"
#include "daemon/daemon.h"
#include "daemon/first.h"
#include "daemon/process.h"
#include "daemon/runtime/external.h"
#include "daemon/store/backup.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <event2/event.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_USAGE = 2 };
enum mode { MODE_RUN, MODE_BACKUP, MODE_RESTORE, MODE_CHECK, MODE_PRINT, MODE_API_DOC, MODE_VERSION, MODE_HELP };

struct command_line {
	enum mode mode;
	struct daemon_setup setup;
	const char *doc; /* of MODE_API_DOC */
	const char *file; /* of MODE_BACKUP and MODE_RESTORE */
};

static const char help[] =
	"usage: sandboxd [--config FILE] [--set SECTION.KEY=VALUE]... [--ready-fd N]\n"
	"       sandboxd init [OPTIONS]; see sandboxd init --help\n"
	"       sandboxd backup | restore [--config FILE] [--set ...] FILE\n"
	"       sandboxd driver-check [--image NAME] [--docker-socket PATH] [--deadline DURATION] PATH\n"
	"       sandboxd --check-config | --print-config | --version | --help\n"
	"\n"
	"The daemon of sandbox. Runs in the foreground and logs to standard error.\n"
	"\n"
	"  --config FILE            configuration (/etc/sandbox/sandboxd.conf for root,\n"
	"                           ~/.config/sandbox/sandboxd.conf otherwise)\n"
	"  --set SECTION.KEY=VALUE  one setting over the file's\n"
	"  --ready-fd N             write \"ready\" to this descriptor once requests are served\n"
	"  --check-config           check the configuration and end\n"
	"  --print-config           print every setting in force, with its help, and end\n"
	"  --version                print the version and end\n"
	"  --help                   print this and end\n"
	"\n"
	"init writes a first configuration. backup copies the records of an SQLite store, also\n"
	"of a running daemon, into a new file; restore puts such a file in the store's place.\n"
	"driver-check calls a runtime driver as a worker would and says what is wrong with it.\n"
	"\n"
	"Signals: TERM and INT stop it (sandboxes and their commands go on), HUP reads the\n"
	"configuration again.\n";

static int usage(const char *text, const char *what)
{
	fprintf(stderr, "sandboxd: %s%s; see sandboxd --help\n", text, what);
	return -1;
}

static int take_ready_fd(const char *text, int *ret)
{
	struct error err = ERROR_INIT;
	int64_t fd;
	if (parse_i64("--ready-fd", text, 0, INT32_MAX, &fd, &err) != 0)
		return usage(err.message, "");
	if (fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0)
		return usage("--ready-fd: no open descriptor ", text);
	*ret = (int)fd;
	return 0;
}

static int take_option(int c, struct command_line *l)
{
	switch (c) {
	case 'c':
		free(l->setup.config_path);
		l->setup.config_path = xstrdup(optarg);
		return 0;
	case 's':
		strv_add(&l->setup.sets, optarg);
		return 0;
	case 'r':
		return take_ready_fd(optarg, &l->setup.ready_fd);
	case 'k':
		l->mode = MODE_CHECK;
		return 0;
	case 'p':
		l->mode = MODE_PRINT;
		return 0;
	case 'd':
		l->mode = MODE_API_DOC;
		l->doc = optarg;
		return 0;
	case 'V':
		l->mode = MODE_VERSION;
		return 0;
	case 'h':
		l->mode = MODE_HELP;
		return 0;
	default: /* getopt has said what is wrong */
		return -1;
	}
}

static int parse(int argc, char **argv, struct command_line *l)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "set", required_argument, NULL, 's' },
		{ "ready-fd", required_argument, NULL, 'r' },
		{ "check-config", no_argument, NULL, 'k' },
		{ "print-config", no_argument, NULL, 'p' },
		{ "print-api-doc", required_argument, NULL, 'd' }, /* for `make generate` */
		{ "version", no_argument, NULL, 'V' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;
	while ((c = getopt_long(argc, argv, "c:Vh", options, NULL)) != -1)
		if (take_option(c, l) != 0)
			return -1;
	if (l->mode == MODE_BACKUP || l->mode == MODE_RESTORE) {
		if (optind + 1 != argc)
			return usage("want one file", "");
		l->file = argv[optind];
		return 0;
	}
	if (optind < argc)
		return usage("unexpected argument ", argv[optind]);
	return 0;
}

static int report(const struct error *err)
{
	fprintf(stderr, "sandboxd: %s\n", err->message);
	return err->code == ERR_INVALID ? EXIT_USAGE : EXIT_FAILURE;
}

static int config_mode(const struct command_line *l)
{
	struct error err = ERROR_INIT;
	struct daemon_config config = { .role = NULL };
	auto_buf text = BUF_INIT;
	int rc = daemon_setup_config(&l->setup, &config, &err);
	if (rc == 0 && l->mode == MODE_PRINT)
		daemon_config_print(&config, &text);
	else if (rc == 0)
		buf_adds(&text, "configuration ok\n");
	daemon_config_done(&config);
	if (rc != 0)
		return report(&err);
	fputs(buf_str(&text), stdout);
	return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int doc_mode(const char *form)
{
	auto_buf text = BUF_INIT;
	if (strcmp(form, "md") == 0)
		api_doc_markdown(&text);
	else if (strcmp(form, "openapi") == 0)
		api_doc_openapi(&text);
	else
		return usage("--print-api-doc: want md or openapi, not ", form), EXIT_USAGE;
	fputs(buf_str(&text), stdout);
	return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int copy_records(const struct command_line *l, const struct daemon_config *c, char **ret_kept, struct error *err)
{
	if (strcmp(c->store_driver, "sqlite") != 0)
		return error_set(err, ERR_INVALID, "the records are in PostgreSQL, whose own tools copy them: pg_dump and pg_restore (docs/operations.md)");
	auto_free char *path = *c->store_path ? xstrdup(c->store_path) : xasprintf("%s/store.db", c->state_dir);
	return l->mode == MODE_BACKUP ? store_backup(path, l->file, err) : store_restore(l->file, c->state_dir, path, ret_kept, err);
}

static int backup_mode(const struct command_line *l)
{
	struct error err = ERROR_INIT;
	struct daemon_config config = { .role = NULL };
	auto_free char *kept = NULL;
	int rc = daemon_setup_config(&l->setup, &config, &err);
	if (rc == 0)
		rc = copy_records(l, &config, &kept, &err);
	daemon_config_done(&config);
	if (rc != 0)
		return report(&err);
	fprintf(stderr, "sandboxd: %s %s\n", l->mode == MODE_BACKUP ? "the records are copied to" : "the records are those of", l->file);
	if (kept)
		fprintf(stderr, "sandboxd: those that were there are kept as %s\n", kept);
	return EXIT_SUCCESS;
}

static int run_mode(const struct command_line *l)
{
	struct error err = ERROR_INIT;
	switch (l->mode) {
	case MODE_RUN:
		return daemon_run(&l->setup, &err) == 0 ? EXIT_SUCCESS : report(&err);
	case MODE_BACKUP:
	case MODE_RESTORE:
		return backup_mode(l);
	case MODE_CHECK:
	case MODE_PRINT:
		return config_mode(l);
	case MODE_API_DOC:
		return doc_mode(l->doc);
	case MODE_VERSION:
		return puts("sandboxd " SANDBOX_VERSION) < 0;
	case MODE_HELP:
		return fputs(help, stdout) < 0;
	}
	return EXIT_FAILURE;
}

static void *grow(void *p, size_t n)
{
	return xrealloc(p, n, 1);
}

int main(int argc, char **argv)
{
	event_set_mem_functions(xmalloc, grow, free); /* an event that could not be made would be a wait without an end */
	struct command_line l = { .mode = MODE_RUN, .setup = { .ready_fd = -1 } };
	process_prepare();
	if (argc > 1 && strcmp(argv[1], "driver-check") == 0)
		return driver_check_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "driver-exec") == 0)
		return driver_exec_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "init") == 0)
		return first_main(argc - 1, argv + 1);
	if (argc > 1 && (strcmp(argv[1], "backup") == 0 || strcmp(argv[1], "restore") == 0)) {
		l.mode = argv[1][0] == 'b' ? MODE_BACKUP : MODE_RESTORE;
		argc--;
		argv++;
	}
	int status = parse(argc, argv, &l) == 0 ? run_mode(&l) : EXIT_USAGE;
	free(l.setup.config_path);
	strv_done(&l.setup.sets);
	return status;
}
