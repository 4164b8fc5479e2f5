/* Creating a sandbox, shared by create and run: options, the request, waiting for it. */
#ifndef SANDBOX_CLI_CREATE_H
#define SANDBOX_CLI_CREATE_H

#include "cli/cli.h"
#include "cli/options.h"
#include "shared/base/buf.h"
#include "shared/base/error.h"
#include "shared/base/limits.h"

#include <cjson/cJSON.h>

struct create_options {
	const char *image;     /* NULL: the default image */
	const char *name;
	int64_t cpu_millis, memory_mib, disk_mib, pids; /* 0: the server's default */
	int64_t ttl_ms;        /* 0: the server's default */
	const char *network, *isolation, *tier, *sensitivity;
	bool untrusted_repo, generated_code, needs_secrets, writable_root;
	struct strv env, env_file, labels, expose, secrets, allow;
	const char *idempotency_key;
	int64_t wait_timeout_ms;
	int64_t wait_capacity_ms; /* 0: a refusal for lack of capacity is final */
	bool no_wait;             /* the answer does not wait for the sandbox to run, however soon that is */
};

/* The defaults that are not zero. */
/* The API's default of 10 GiB is held on disk for every sandbox: more than most runs want, and than many disks have. */
#define CREATE_DEFAULTS .disk_mib = 1024, .wait_timeout_ms = 300 * 1000

/* Option rows for a struct T whose member m is a struct create_options: those people use, and (behind OPT_REST) the others. The rows of
 * --env are the verb's own: for create they are the sandbox's environment, for run the command's; so is the letter of --image, since
 * -i means interactive where a command runs. */
#define CREATE_ROW_IMAGE(T, m, l) OPT_TEXT(l, "image", T, m.image, "IMAGE", "image to start from (default sandbox-base:latest)")

#define CREATE_ROWS_MAIN(T, m) \
	OPT_TEXT('n', "name", T, m.name, "NAME", "a name to refer to it by"), \
	OPT_CALL('c', "cpus", T, m.cpu_millis, "N", create_parse_cpus, "CPU cores, such as 0.5 or 2"), \
	OPT_CALL('m', "memory", T, m.memory_mib, "SIZE", create_parse_memory, "memory, such as 512m or 4g"), \
	OPT_DURATION(0, "ttl", T, m.ttl_ms, "TIME", LIMIT_TTL_MIN_SECONDS * 1000LL, LIMIT_TTL_MAX_SECONDS * 1000LL, \
		     "lifetime, such as 30m (default 1h)"), \
	OPT_WORD(0, "network", T, m.network, "MODE", "deny|restricted|open", "deny, restricted or open (default deny)"), \
	OPT_FLAG(0, "untrusted-repo", T, m.untrusted_repo, "code comes from a repository nobody vouches for"), \
	OPT_FLAG(0, "generated-code", T, m.generated_code, "runs code that a model wrote")

#define CREATE_ROWS_REST(T, m) \
	OPT_CALL(0, "disk", T, m.disk_mib, "SIZE", create_parse_disk, "size of /workspace (default 1g)"), \
	OPT_INT(0, "pids", T, m.pids, "N", 1, 1 << 22, "processes and threads at most"), \
	OPT_LIST('l', "label", T, m.labels, "KEY=VALUE", "label, repeatable"), \
	OPT_WORD(0, "tier", T, m.tier, "TIER", "container|gvisor|microvm", "at least this isolation: container, gvisor or microvm"), \
	OPT_WORD(0, "isolation", T, m.isolation, "KIND", "auto|container|microvm", "auto, container or microvm"), \
	OPT_WORD(0, "sensitivity", T, m.sensitivity, "WORD", "public|internal|confidential|restricted", \
		 "of the data: public, internal, confidential, restricted"), \
	OPT_FLAG(0, "needs-secrets", T, m.needs_secrets, "secrets will be present inside"), \
	OPT_LIST(0, "allow", T, m.allow, "RULE", "what network restricted may reach, such as NAME:443"), \
	OPT_LIST(0, "secret", T, m.secrets, "NAME[=ENV]", "give commands a secret, as a variable or file"), \
	OPT_FLAG(0, "writable-root", T, m.writable_root, "let root change system files (package managers)"), \
	OPT_LIST(0, "expose", T, m.expose, "PORT[=NAME]", "port to publish, repeatable"), \
	OPT_TEXT(0, "idempotency-key", T, m.idempotency_key, "KEY", "the same key creates one sandbox, however often tried"), \
	OPT_DURATION(0, "wait-timeout", T, m.wait_timeout_ms, "TIME", 1000, 24 * 3600 * 1000LL, "wait at most this long (default 5m)"), \
	OPT_DURATION(0, "wait-capacity", T, m.wait_capacity_ms, "TIME", 1000, LIMIT_CAPACITY_WAIT_MAX_SECONDS * 1000LL, \
		     "queue this long while nothing fits (default 0)"), \
	/* Those of the original: one thing under two names needs no place in help. */ \
	{ .name = "cpu-millis", .kind = OPT_KIND_INT, .flags = OPT_HIDDEN, .offset = OPT_OFFSET(T, m.cpu_millis, int64_t), .arg = "N", .min = 1, \
	  .max = 10000000, .help = "CPU in thousandths of a core" }, \
	{ .name = "memory-mib", .kind = OPT_KIND_INT, .flags = OPT_HIDDEN, .offset = OPT_OFFSET(T, m.memory_mib, int64_t), .arg = "N", .min = 1, \
	  .max = 1 << 30, .help = "memory in MiB" }, \
	{ .name = "disk-mib", .kind = OPT_KIND_INT, .flags = OPT_HIDDEN, .offset = OPT_OFFSET(T, m.disk_mib, int64_t), .arg = "N", .min = 1, \
	  .max = 1 << 30, .help = "size of /workspace in MiB" }

#define CREATE_ROWS(T, m) CREATE_ROW_IMAGE(T, m, 'i'), CREATE_ROWS_MAIN(T, m), OPT_REST, CREATE_ROWS_REST(T, m)

int create_parse_cpus(const char *what, const char *text, void *field, struct error *err);
int create_parse_memory(const char *what, const char *text, void *field, struct error *err);
int create_parse_disk(const char *what, const char *text, void *field, struct error *err);

/* The spec of the API's JSON. start: the start command, may be empty. ERR_INVALID for a malformed label, exposure or variable. */
int create_spec(struct cli *cli, const struct create_options *o, const struct words *start, cJSON **ret, struct error *err);
/* Adds the use of a secret, "NAME", "NAME=ENV" or "NAME:/run/secrets/FILE", to a spec's list. ERR_INVALID. */
int create_add_secret(cJSON *list, const char *text, struct error *err);
/* POST /v1/sandboxes: {sandbox, operation} (caller frees). Queues for capacity as the options say. Interrupted before
 * the answer, it asks once more with the same key: 0 when that told what is being created, with interrupt_signal() still set; else the error
 * has sys EINTR, and code ERR_NO_CAPACITY when nothing was created, ERR_TIMEOUT when that is unknown. */
int create_send(struct cli *cli, const struct create_options *o, const cJSON *spec, cJSON **ret, struct error *err);
/* What the create of that answer came to: as operation_wait. ret_fresh (may be NULL): the answer had it, and its sandbox is of now. */
int create_await(struct cli *cli, const struct create_options *o, const cJSON *answer, bool *ret_fresh, cJSON **ret, struct error *err);

/* "KEY=value" or "KEY" (then the value of the own environment, skipped when unset) appended to out, later ones replacing.
 * Files: one KEY=value a line, literal (no quoting), blank lines and lines starting with # skipped. ERR_INVALID names the fault. */
int env_collect(const struct strv *files, const struct strv *given, struct strv *out, struct error *err);

/* Waits for an operation with long polls, showing progress with `doing` ("creating", "deleting"). *ret is the ended operation (caller frees).
 * ERR_TIMEOUT when timeout_ms passed (or, with err->sys == EINTR, on an interrupt): the operation goes on. timeout_ms < 0: no limit. */
int operation_wait(struct cli *cli, const char *id, const char *doing, int64_t timeout_ms, cJSON **ret, struct error *err);

/* The same, but ends also when the operation's node is away, since that may last (ERR_TIMEOUT). */
int operation_wait_near(struct cli *cli, const char *id, const char *doing, int64_t timeout_ms, cJSON **ret, struct error *err);

/* Splits "KEY=VALUE" at the first '='. ERR_INVALID naming `what` when there is none or KEY is empty. Caller frees *ret_key. */
int split_pair(const char *what, const char *text, char **ret_key, const char **ret_value, struct error *err);

#endif
