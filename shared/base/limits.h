/*
 * Every bound on what comes from outside, with its reason. A limit passed is an error that names it.
 * Rows: LIMIT(NAME, value, unit, reason); docs/limits.md is generated from them.
 */
#ifndef SANDBOX_BASE_LIMITS_H
#define SANDBOX_BASE_LIMITS_H

#define LIMITS(LIMIT) \
	LIMIT(MUX_FRAME_MAX, 256 * 1024, "bytes", "payload of one mux frame: large enough to amortise a system call, small enough to interleave streams") \
	LIMIT(MUX_FIELDS_MAX, 2 * 1024 * 1024, "bytes", "TLV fields of one OPEN, ACCEPT, CONTROL or CLOSE over all its frames: the kernel's own argv and environment limit") \
	LIMIT(MUX_WINDOW, 1024 * 1024, "bytes", "unacknowledged bytes per stream and channel: memory a stalled reader can pin") \
	LIMIT(MUX_STREAMS_MAX, 1024, "streams", "open streams per mux connection") \
	LIMIT(MUX_QUEUE_MAX, 4 * 1024 * 1024, "bytes", "queued output of one mux connection before it counts as stalled") \
	LIMIT(ARG_ONE_MAX, 128 * 1024 - 1, "bytes", "one argument or environment string: the kernel's MAX_ARG_STRLEN") \
	LIMIT(ARGS_MAX, 4096, "strings", "arguments of one command") \
	LIMIT(ENV_MAX, 1024, "strings", "environment entries of one command") \
	LIMIT(PATH_BYTES_MAX, 4095, "bytes", "a path: the kernel's PATH_MAX less the NUL") \
	LIMIT(FILES_LINKS_MAX, 64 * 1024, "files", "files of one copy whose further names are kept as hard links; those beyond arrive once per name") \
	LIMIT(SNAPSHOT_FILES, 500000, "files", "files of one tree that `sandbox diff` compares") \
	LIMIT(JSON_BYTES_MAX, 4 * 1024 * 1024, "bytes", "one JSON document of the API") \
	LIMIT(JSON_DEPTH_MAX, 64, "levels", "nesting of a JSON document: parse, print and free recurse") \
	LIMIT(JSON_VALUES_MAX, 256 * 1024, "values", "values of a JSON document: a tree takes some 64 bytes for each, however short its text") \
	LIMIT(HTTP_HEAD_MAX, 16 * 1024, "bytes", "request line and headers") \
	LIMIT(HTTP_CONNECTIONS_MAX, 4096, "connections", "open API connections of one daemon") \
	LIMIT(HTTP_CONNECTIONS_PER_ADDRESS, 1024, "connections", "open connections of one client address to a listener beyond loopback") \
	LIMIT(TLS_HANDSHAKES_MAX, 512, "handshakes", "unfinished TLS handshakes at a time") \
	LIMIT(HTTP_JOBS_MAX, 32, "requests", "slow API requests (pulls, doctor) on threads of their own at a time") \
	LIMIT(IMAGE_IMPORT_MIB, 16 * 1024, "MiB", "one imported root file system archive") \
	LIMIT(OUTPUT_HEAD_MAX, 64 * 1024, "bytes", "first bytes of a command's stdout or stderr kept in the operation record") \
	LIMIT(OUTPUT_TAIL_MAX, 64 * 1024, "bytes", "last bytes of a command's stdout or stderr kept in the operation record") \
	LIMIT(SPOOL_RING, 1024 * 1024, "bytes", "ring per exec and channel from which readers are served; at least MUX_WINDOW") \
	LIMIT(EXECS_PER_SANDBOX, 512, "commands", "running commands of one sandbox") \
	LIMIT(CPU_MILLIS_MIN, 10, "thousandths of a core", "smallest CPU share: the kernel's shortest quota is 1 ms in 100 ms") \
	LIMIT(CPU_MILLIS_MAX, 1024 * 1000, "thousandths of a core", "largest CPU share: 1024 cores") \
	LIMIT(MEMORY_MIB_MIN, 64, "MiB", "smallest memory") \
	LIMIT(MEMORY_MIB_MAX, 16 * 1024 * 1024, "MiB", "largest memory: 16 TiB") \
	LIMIT(DISK_MIB_MIN, 64, "MiB", "smallest /workspace") \
	LIMIT(DISK_MIB_MAX, 16 * 1024 * 1024, "MiB", "largest /workspace: 16 TiB") \
	LIMIT(PIDS_MIN, 8, "processes", "smallest process limit: process 1, a command and its supervisor must fit") \
	LIMIT(PIDS_MAX, 4 * 1024 * 1024, "processes", "largest process limit: the kernel's own") \
	LIMIT(LABELS_MAX, 64, "labels", "labels of one sandbox") \
	LIMIT(EXPOSURES_MAX, 32, "ports", "ports one sandbox may expose") \
	LIMIT(TTL_MIN_SECONDS, 1, "seconds", "shortest lifetime") \
	LIMIT(TTL_MAX_SECONDS, 7 * 24 * 3600, "seconds", "longest lifetime") \
	LIMIT(TTL_DEFAULT_SECONDS, 3600, "seconds", "lifetime when none was asked") \
	LIMIT(EXEC_TIMEOUT_MAX_SECONDS, 24 * 3600, "seconds", "longest time-out of a command over REST") \
	LIMIT(EXEC_TIMEOUT_DEFAULT_SECONDS, 300, "seconds", "time-out of a REST command that names none") \
	LIMIT(LIST_PAGE_MAX, 1000, "rows", "rows of one page of a list") \
	LIMIT(WAIT_MAX_SECONDS, 60, "seconds", "one long poll") \
	LIMIT(CAPACITY_WAITERS, 1024, "requests", "creates that wait for capacity at a time") \
	LIMIT(CAPACITY_WAIT_MAX_SECONDS, 24 * 3600, "seconds", "longest wait for capacity; a client asks again for each long poll of it") \
	LIMIT(POOLS_MAX, 64, "pools", "warm pools of one daemon's configuration") \
	LIMIT(RESUME_GRACE_MS, 10 * 1000, "milliseconds", "time a foreground command outlives its client, so that the client may resume") \
	LIMIT(DRAIN_MS, 200, "milliseconds", "time to read output that background children of a finished command still hold open") \
	LIMIT(RECORD_ARGV_MAX, 16 * 1024, "bytes", "arguments kept in a command's record; the command itself may be longer") \
	LIMIT(OPERATIONS_KEPT_MAX, 200000, "rows", "ended operations kept within their retention; older ones go first") \
	LIMIT(EVENTS_KEPT_MAX, 100000, "rows", "events kept within their retention; older ones go first") \
	LIMIT(AUDIT_KEPT_MAX, 1000000, "rows", "entries of the audit log; older ones go first") \
	LIMIT(AUDIT_DAYS, 90, "days", "how long entries of the audit log are kept") \
	LIMIT(AUDIT_REFUSALS_PER_SECOND, 20, "entries", "refusals of callers nobody knows that the audit log takes, so that they cannot fill it") \
	LIMIT(TOKENS_MAX, 10000, "tokens", "tokens that are not revoked") \
	LIMIT(IDEMPOTENCY_KEY_MAX, 128, "bytes", "an Idempotency-Key") \
	LIMIT(NODE_STALE_MS, 30 * 1000, "milliseconds", "silence after which nothing is placed on a node and its sandboxes show as unreachable") \
	LIMIT(NODE_AWAY_MS, 5 * 1000, "milliseconds", "time after the end of its link from which a node counts the same") \
	LIMIT(LINK_WAIT_MS, 10 * 1000, "milliseconds", "time a command waits for sandbox-init to dial again before it counts as lost, and a copy, forward or process list before it is refused") \
	LIMIT(RECOVER_WAIT_MS, 30 * 1000, "milliseconds", "the same after a restart of the daemon, which first asks the runtime what runs") \
	LIMIT(CANCEL_WAIT_MS, 15 * 1000, "milliseconds", "time sandbox-init has to end a command it was told to end, TERM and KILL included") \
	LIMIT(RESCUE_WAIT_MS, 4 * 1000, "milliseconds", "time after which the worker itself ends the processes of such a command, where it sees them, if sandbox-init has not; init then gets the time above anew to report it") \
	LIMIT(SPOOL_DISK_MAX, 1024 * 1024 * 1024, "bytes", "disk that the output of ended commands may take; the oldest goes first") \
	LIMIT(EVENT_STREAMS_MAX, 256, "streams", "open streams of events of one daemon") \
	LIMIT(FORWARDS_MAX, 64, "ports", "ports of one `sandbox forward`") \
	LIMIT(EDGE_HEAD_MAX, 32 * 1024, "bytes", "request line and headers of a tunnel's visitor, and those of a server's answer") \
	LIMIT(EDGE_CONNECTIONS, 8192, "connections", "open connections of visitors; beyond it those that have sent no request yet make room") \
	LIMIT(EDGE_QUEUED_MIB, 256, "MiB", "bytes of answers that wait for slow visitors, all together; who would add to it is cut off") \
	LIMIT(TUNNEL_NAME_DAYS, 30, "days", "how long a chosen name of a tunnel stays with its tenant after its last use") \
	LIMIT(LINK_BODY_MAX, 64 * 1024 * 1024, "bytes", "request or answer of one call between controller and worker") \
	LIMIT(LINK_CALLS_MAX, 64, "calls", "calls over links that one daemon answers at a time; others wait") \
	LIMIT(LINK_SILENCE_MS, 30 * 1000, "milliseconds", "silence after which a link between controller and worker counts as broken") \
	LIMIT(NODE_LABELS_MAX, 64, "labels", "labels of one node") \
	LIMIT(SECRET_BYTES_MAX, 64 * 1024, "bytes", "one secret: it has to fit an environment string") \
	LIMIT(SECRETS_PER_TENANT, 1000, "secrets", "secrets of one tenant") \
	LIMIT(SECRETS_PER_SANDBOX, 32, "secrets", "secrets one sandbox may use") \
	LIMIT(PUSH_NODES_MAX, 1024, "nodes", "nodes that one push of an image names") \
	LIMIT(REGISTRIES_PER_TENANT, 64, "registries", "image registries one tenant has a login for") \
	LIMIT(PRIVATE_REPOSITORIES, 4096, "repositories", "repositories of images that one worker remembers as private") \
	LIMIT(REGISTRY_PASSWORD_MAX, 16 * 1024, "bytes", "the password or token of a login to an image registry: it travels in a header") \
	LIMIT(EGRESS_CONNECTIONS, 256, "connections", "connections that leave one sandbox at a time") \
	LIMIT(EGRESS_CONNECTIONS_TOTAL, 4096, "connections", "the same of all sandboxes of a worker: each takes a descriptor") \
	LIMIT(EGRESS_IDLE_MS, 3600 * 1000, "milliseconds", "time after which a connection that nothing moves on is closed") \
	LIMIT(EGRESS_RULES_MAX, 256, "rules", "one list of egress rules") \
	LIMIT(IMAGE_NAME_MAX, 512, "bytes", "an image reference")

enum limits {
#define LIMIT(name, value, unit, reason) LIMIT_##name = (value),
	LIMITS(LIMIT)
#undef LIMIT
};

#endif
