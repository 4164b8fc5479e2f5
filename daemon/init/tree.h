/*
 * Process trees through /proc: what descends from a process, also when it left the group and the session.
 * Without /proc, or where the kernel keeps no children lists, a scan of all processes takes their place.
 */
#ifndef SANDBOX_INIT_TREE_H
#define SANDBOX_INIT_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct pids {
	pid_t *items;
	size_t len;
	size_t cap;
};

void pids_done(struct pids *p);
#define auto_pids __attribute__((cleanup(pids_done))) struct pids
void pids_add(struct pids *p, pid_t pid); /* at most 65536, then ignored */
bool pids_has(const struct pids *p, pid_t pid);
void pids_remove(struct pids *p, pid_t pid);

/* The direct children of a process. */
void tree_children(pid_t of, struct pids *ret);
/* Signals everything that descends from each root (roots included when asked). Returns how many were signalled. */
size_t tree_signal(const struct pids *roots, bool with_roots, int sig);
/* Ends them with SIGKILL. What forks faster than it can be found is stopped first, until a look finds nothing new: stopped
 * processes keep their places under the process limit, so there is an end to it. Returns how many were killed. */
size_t tree_kill(const struct pids *roots, bool with_roots);

struct process_stat {
	pid_t ppid, pgrp, session;
	char state;
	unsigned long long utime, stime; /* clock ticks */
	long rss_pages;
	char comm[64];
};
/* 0, or -1 with errno; ESRCH or ENOENT: there is no such process. */
int process_stat(pid_t pid, struct process_stat *ret);

#endif
