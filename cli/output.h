/*
 * Output rules: results on stdout, everything for people on stderr; with --json exactly one JSON value on stdout. Text that came from
 * outside is escaped before it reaches a terminal or a table. A failed write to stdout makes the program fail: main calls out_finish.
 */
#ifndef SANDBOX_CLI_OUTPUT_H
#define SANDBOX_CLI_OUTPUT_H

#include "cli/cli.h"
#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

/* Fills out_tty, err_tty, colour, progress from the descriptors and the environment. */
void out_setup(struct cli *cli);
/* Flushes stdout and checks that every byte was taken. ERR_SYSTEM with the reason. */
int out_finish(struct error *err);

/* A result line on stdout. */
void out_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* One JSON value and a newline on stdout, with the fields of --json=… selected: of an object those members, of an array of objects
 * those of each element; "a.b" reaches inside. ERR_INVALID when a field selected does not exist in it. */
int out_json(struct cli *cli, const cJSON *j, struct error *err);
/* A line for people on stderr, "sandbox: …"; nothing under -q. Ends a progress line first. */
void out_note(struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A warning: shown under -q too. */
void out_warn(struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reports an error the way main does: one line on stderr, a hint line when there is one, the error object on stdout with --json. */
void out_error(struct cli *cli, const struct error *err);
/* {"error":{code, message, request_id}}: the server's body when it sent one. Caller frees. */
cJSON *out_error_json(const struct cli *cli, const struct error *err);

/* Text of a member of an answer, never NULL ("" when absent or no text); borrowed. */
const char *json_text(const cJSON *object, const char *key);
/* Number of a member, or fallback. */
double json_number(const cJSON *object, const char *key, double fallback);
bool json_flag(const cJSON *object, const char *key);
/* The failure an ended operation carries, as err (code by error_code, "failed" text when it has none). Returns -1. */
int json_operation_error(const cJSON *operation, struct error *err);

/* Columns aligned by width, two spaces apart; the last is not padded. Cells are escaped. Header only on demand (`header` in print). */
struct table;
struct table *table_new(unsigned columns);
void table_free(struct table *t);
void table_freep(struct table **t);
#define auto_table __attribute__((cleanup(table_freep))) struct table
void table_cell(struct table *t, const char *text); /* copies; the next cell in reading order */
void table_cellf(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void table_print(const struct table *t);

/* One redrawn line on stderr on a terminal; plain lines at intervals otherwise; nothing under -q or --json without a terminal. */
struct progress {
	struct cli *cli;
	int64_t started_ms, drawn_ms;
	bool open; /* a line without its newline is on the terminal */
};
void progress_begin(struct progress *p, struct cli *cli);
void progress_update(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void progress_end(struct progress *p); /* erases the line */

/* "12s", "3m", "2h10m", "4d" of a positive span. Returns out. */
char *span_text(int64_t ms, char out[static 16]);
/* "1.5 GiB". Returns out. */
char *size_text(double bytes, char out[static 24]);

#endif
