/*
 * Sockets inside a sandbox's network namespace, made by this process: a connection to a sandbox's loopback then needs nobody inside to
 * carry its bytes. Needs CAP_SYS_ADMIN and CAP_SYS_PTRACE; who lacks them asks sandbox-init to connect.
 */
#ifndef SANDBOX_DAEMON_WORKER_NETNS_H
#define SANDBOX_DAEMON_WORKER_NETNS_H

#include <sys/types.h>

/* The namespace of a process, -1 with errno. alive: a socket whose other end that process holds; the answer is only given when it still
 * does afterwards, so that a number which another process has got since names no other namespace. */
int netns_open(pid_t pid, int alive);
/* A non-blocking socket (SOCK_STREAM, SOCK_DGRAM) in it, -1 with errno. This thread is in its own namespace again when it returns. */
int netns_socket(int netns, int family, int type);

#endif
