/* Progress on stderr: one redrawn line on a terminal, a plain line every ten seconds elsewhere. See output.h. */
#include "cli/output.h"

#include "shared/base/clock.h"
#include "shared/base/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PLAIN_INTERVAL_MS = 10 * 1000, REDRAW_MS = 80, LINE_MAX_CHARS = 76 };

void progress_begin(struct progress *p, struct cli *cli)
{
	*p = (struct progress){ .cli = cli, .started_ms = clock_mono_ms() };
	p->drawn_ms = cli->progress ? p->started_ms - REDRAW_MS : p->started_ms;
}

void progress_update(struct progress *p, const char *fmt, ...)
{
	int64_t now = clock_mono_ms();
	bool redraw = p->cli->progress;
	if (p->cli->quiet || (!redraw && p->cli->json) || now - p->drawn_ms < (redraw ? REDRAW_MS : PLAIN_INTERVAL_MS))
		return;
	va_list ap;
	char text[512], safe[512], span[16];
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text_escape(text, utf8_cut(text, strnlen(text, LINE_MAX_CHARS)), safe, sizeof(safe));
	span_text(now - p->started_ms, span);
	if (redraw)
		fprintf(stderr, "\r\033[K%s (%s)", safe, span);
	else
		fprintf(stderr, "sandbox: %s (%s)\n", safe, span);
	fflush(stderr);
	p->open = redraw;
	p->drawn_ms = now;
}

void progress_end(struct progress *p)
{
	if (p->open)
		fputs("\r\033[K", stderr);
	p->open = false;
}
