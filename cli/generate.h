/* Generated text: manual pages, shell completions, docs/cli.md. One source, the command table; `make check` compares. */
#ifndef SANDBOX_CLI_GENERATE_H
#define SANDBOX_CLI_GENERATE_H

#include "cli/command.h"
#include "shared/base/buf.h"
#include "shared/base/error.h"

int generate_man(const char *dir, struct error *err);
int generate_bash(const char *dir, struct error *err);
int generate_zsh(const char *dir, struct error *err);
int generate_fish(const char *dir, struct error *err);
int generate_md(const char *dir, struct error *err);

/* Replaces dir/name. */
int generate_write(const char *dir, const char *name, const struct buf *text, struct error *err);
/* The date of the pages: that of the last change worth a reader's notice, so that generating is repeatable. */
#define MANUAL_DATE "2026-11-29"

/* The pages that are not verbs': sandboxd.8, sandboxd.conf.5, sandbox-init.8. */
int generate_man_daemon(const char *dir, struct error *err);
int generate_man_config(const char *dir, struct error *err);
/* Text for roff: backslashes, leading dots and quotes, dashes. */
void roff_text(const char *text, struct buf *out);
/* Paragraphs separated by blank lines. */
void roff_paragraphs(const char *text, struct buf *out);

#endif
