/*
 * The model: spec (what was asked), command, sandbox, operation. Plain data with owned strings;
 * each type has _init (defaults), _done (frees, leaves it empty), _copy (replaces an initialised dst). No I/O, no JSON here.
 */
#ifndef SANDBOX_MODEL_MODEL_H
#define SANDBOX_MODEL_MODEL_H

#include "shared/base/buf.h"
#include "shared/base/error.h"
#include "shared/base/id.h"
#include "shared/model/enums.h"

#include <stdbool.h>
#include <stdint.h>

enum { NAME_MAX_LEN = 63, TENANT_MAX_LEN = 63 };

struct resources {
	uint32_t cpu_millis; /* 1000 = one core */
	uint32_t memory_mib;
	uint32_t disk_mib;   /* size of /workspace */
	uint32_t pids;
};

struct signals {
	bool untrusted_repository;
	bool executes_generated_code;
	bool needs_secrets;
	bool host_mounts;
	bool privileged;
};

struct exposure {
	uint16_t container_port;
	enum protocol protocol;
	bool authenticated;
	char *subdomain; /* NULL: the server chooses */
};

/* A secret of the tenant that commands of the sandbox are given: as a variable or as a file. Its value is never part of a spec. */
struct secret_use {
	char *name;
	char *env;  /* variable; NULL: a file */
	char *file; /* name of the file in /run/secrets; NULL: a variable */
};

struct placement {
	struct map required_labels;
	char *preferred_region; /* NULL: none */
	struct strv anti_affinity_keys;
};

struct spec {
	char *tenant;
	char *image;          /* as asked; the digest it resolved to stands in struct sandbox */
	char *name;           /* NULL: none */
	struct strv command;  /* start command, empty: none (init alone keeps the sandbox) */
	struct map env;
	struct resources resources;
	enum network network;
	enum isolation isolation;
	enum tier min_tier;   /* ours: a stronger tier asked for by name; TIER_CONTAINER: no wish */
	enum sensitivity sensitivity;
	struct signals signals;
	int64_t ttl_ms;
	struct map labels;
	struct placement placement;
	struct exposure *exposures; /* n_exposures, owned */
	size_t n_exposures;
	struct secret_use *secrets; /* n_secrets, owned */
	size_t n_secrets;
	struct strv egress;   /* rules of restricted egress (shared/model/egress.h), in order; empty: the server's default */
	char *agent;          /* NULL: none */
	bool writable_root;
};

void spec_init(struct spec *s); /* the defaults of the API */
void spec_done(struct spec *s);
void spec_copy(struct spec *dst, const struct spec *src);
/* The rules that need no policy: ranges, names, counts. ERR_INVALID naming the field ("spec.resources.pids: …"). */
int spec_validate(const struct spec *s, struct error *err);

#define auto_spec __attribute__((cleanup(spec_done))) struct spec

/* One command. argv, env and paths are bytes without NUL, not text. */
struct command {
	struct strv argv;
	struct strv env;    /* "KEY=value", unique keys, later wins */
	char *cwd;          /* NULL: the image's, absolute otherwise */
	char *user;         /* NULL: the image's USER; name, uid, name:group, uid:gid */
	int64_t timeout_ms; /* 0: none but the sandbox's deadline */
	bool stdin_open;    /* a reader feeds stdin; false: /dev/null */
	bool tty;
	uint16_t rows, cols; /* with tty; 0: 24x80 */
};

void command_init(struct command *c);
void command_done(struct command *c);
void command_copy(struct command *dst, const struct command *src);
/* Ranges and grammar; ERR_INVALID naming the field, ERR_TOO_LARGE for an argument list that no kernel would take. */
int command_validate(const struct command *c, struct error *err);
/* Adds "KEY=value"; an entry with the same key is replaced. */
void command_set_env(struct command *c, const char *assignment);

#define auto_command __attribute__((cleanup(command_done))) struct command

/* What is kept of one output channel: the first and the last bytes of `total`. */
struct capture {
	struct buf head;
	struct buf tail;  /* follows head directly when head.len + tail.len == total */
	uint64_t total;
};

struct result {
	enum outcome outcome;
	int exit_code;    /* EXITED; NOT_STARTED: 126 and 127 say that it was the program's fault */
	int signal;       /* SIGNALED; TIMEOUT: the one that ended it */
	bool oom_killed;
	struct capture out;
	struct capture err;
	bool truncated;   /* either capture lacks bytes */
};

void result_init(struct result *r);
void result_done(struct result *r);
void result_copy(struct result *dst, const struct result *src);
/* The status of the shell convention: the code, 128+signal, 124 time-out, 126 a program that cannot be run, 127 none of that
 * name, 125 for outcomes that say nothing about the command. */
int result_exit_status(const struct result *r);

#define auto_result __attribute__((cleanup(result_done))) struct result

struct operation {
	struct id id;
	struct id sandbox_id;
	enum op_kind kind;
	enum op_state state;
	char tenant[TENANT_MAX_LEN + 1];
	bool has_result;      /* exec operations that ended */
	struct result result;
	bool detached;        /* exec only: no client holds it */
	struct command command; /* exec only; its env is never stored or shown, only the keys */
	enum error_code error_code;
	char *error;          /* NULL: none; text for people */
	char *progress;       /* NULL: none; what a running create is doing, for people; never stored */
	bool unreachable;     /* not ended, and the node that has to do it is away; never stored */
	uint32_t attempt;
	int64_t created_us, updated_us;
};

void operation_init(struct operation *o);
void operation_done(struct operation *o);
void operation_copy(struct operation *dst, const struct operation *src);

#define auto_operation __attribute__((cleanup(operation_done))) struct operation

/* The only table of operation transitions: false means the move is a bug or a stale message. */
bool op_may_move(enum op_state from, enum op_state to);
bool sandbox_may_move(enum sandbox_state from, enum sandbox_state to);
static inline bool op_ended(enum op_state s)
{
	return s == OP_SUCCEEDED || s == OP_FAILED;
}

enum { TUNNEL_LABEL_MAX = 63, TUNNEL_HOST_MAX = 319, TUNNEL_URL_MAX = 351 };

/* A public route to a port of a sandbox. */
struct tunnel {
	struct id id, sandbox;
	char tenant[TENANT_MAX_LEN + 1];
	char label[TUNNEL_LABEL_MAX + 1]; /* the first part of its host name */
	char hostname[TUNNEL_HOST_MAX + 1], url[TUNNEL_URL_MAX + 1];
	uint16_t port;
	enum protocol protocol;
	enum tunnel_auth auth;        /* what visitors must show */
	bool keep_host;               /* the server is given the public name, else localhost:PORT */
	enum tunnel_state state;
	char failure[256];            /* "": none */
	int64_t created_us, expires_us; /* expires 0: with the sandbox */
};

struct sandbox {
	struct id id;
	struct spec spec;
	enum sandbox_state state;
	struct id node_id;
	char node_name[NAME_MAX_LEN + 1];
	enum tier tier;
	uint16_t risk_score;
	char *decision;       /* JSON text of the explained decision, NULL for none */
	char *image_digest;   /* "sha256:…" once resolved, NULL before */
	char *failure;        /* NULL: none */
	bool unreachable;     /* its node has not been seen */
	int64_t created_us, updated_us, expires_us;
	int64_t ended_us;     /* 0 while live */
	enum outcome end_reason; /* EXPIRED or DELETED once it ended so */
	struct tunnel *tunnels; /* n_tunnels, owned */
	size_t n_tunnels;
};

void sandbox_init(struct sandbox *s);
void sandbox_done(struct sandbox *s);
void sandbox_copy(struct sandbox *dst, const struct sandbox *src);

#define auto_sandbox __attribute__((cleanup(sandbox_done))) struct sandbox

static inline bool sandbox_live(enum sandbox_state s)
{
	return s != SANDBOX_STOPPED && s != SANDBOX_FAILED;
}

/* The isolation word the original's clients know for a tier: gVisor shows as container. */
enum isolation tier_isolation(enum tier t);

#endif
