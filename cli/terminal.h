/*
 * The local terminal of a session: raw mode that is always undone, its size, whether it is ours to read, and the escape keys.
 */
#ifndef SANDBOX_CLI_TERMINAL_H
#define SANDBOX_CLI_TERMINAL_H

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False only when fd is our controlling terminal and another process group owns it: touching it would stop us. */
bool terminal_foreground(int fd);
/* Enters raw mode and keeps the settings for terminal_restore; a crash restores them too. One terminal at a time; entering again
 * while raw does nothing. */
int terminal_raw(int fd, struct error *err);
/* Puts the settings back; harmless when there is nothing to do. Async-signal-safe. */
void terminal_restore(void);
bool terminal_is_raw(void);
/* 0 and 0 when unknown. */
void terminal_size(int fd, uint16_t *ret_rows, uint16_t *ret_cols);

/* Escape keys, as in other remote terminals: after a newline, CHAR then `.` leaves, `^Z` suspends, CHAR sends it, anything else is sent as typed. */
struct escape {
	int key;   /* -1: none */
	enum { ESCAPE_AT_START, ESCAPE_SEEN, ESCAPE_IN_LINE } state;
};

enum escape_event { ESCAPE_NONE, ESCAPE_LEAVE, ESCAPE_SUSPEND };

/* Passes in[0..n) to out (room for n + 1), up to an event. *ret_used: bytes of `in` done with; returns how many were written. */
size_t escape_filter(struct escape *e, const char *in, size_t n, char *out, size_t *ret_used, enum escape_event *ret_event);

#endif
