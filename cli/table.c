/* Aligned columns, spans and sizes: see output.h. */
#include "cli/output.h"

#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct table {
	unsigned columns;
	struct strv cells;
};

struct table *table_new(unsigned columns)
{
	struct table *t = xcalloc(1, sizeof(*t));
	t->columns = columns;
	return t;
}

void table_free(struct table *t)
{
	if (!t)
		return;
	strv_done(&t->cells);
	free(t);
}

void table_freep(struct table **t)
{
	table_free(*t);
}

void table_cell(struct table *t, const char *text)
{
	size_t n = strlen(text), room = n * 4 + 1;
	char *safe = xmalloc(room);
	text_escape(text, n, safe, room);
	strv_take(&t->cells, safe);
}

void table_cellf(struct table *t, const char *fmt, ...)
{
	va_list ap;
	char text[1024];
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	table_cell(t, text);
}

/* Characters, not bytes: good enough for names and images, which is what columns hold. */
static size_t width(const char *s)
{
	size_t n = 0;
	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

void table_print(const struct table *t)
{
	auto_free size_t *widths = xcalloc(t->columns, sizeof(*widths));
	for (size_t i = 0; i < t->cells.len; i++) {
		size_t w = width(t->cells.items[i]);
		if (w > widths[i % t->columns])
			widths[i % t->columns] = w;
	}
	for (size_t i = 0; i < t->cells.len; i++) {
		const char *cell = t->cells.items[i];
		bool last = i % t->columns == t->columns - 1;
		fputs(cell, stdout);
		if (last)
			fputc('\n', stdout);
		else
			printf("%*s", (int)(widths[i % t->columns] - width(cell) + 2), "");
	}
}

char *span_text(int64_t ms, char out[static 16])
{
	int64_t s = ms < 0 ? 0 : ms / 1000;
	if (s < 60)
		snprintf(out, 16, "%llds", (long long)s);
	else if (s < 3600 && s % 60 && s < 600)
		snprintf(out, 16, "%lldm%llds", (long long)(s / 60), (long long)(s % 60));
	else if (s < 3600)
		snprintf(out, 16, "%lldm", (long long)(s / 60));
	else if (s < 48 * 3600 && s % 3600 >= 60)
		snprintf(out, 16, "%lldh%lldm", (long long)(s / 3600), (long long)(s % 3600 / 60));
	else if (s < 48 * 3600)
		snprintf(out, 16, "%lldh", (long long)(s / 3600));
	else
		snprintf(out, 16, "%lldd", (long long)(s / 86400));
	return out;
}

char *size_text(double bytes, char out[static 24])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	size_t u = 0;
	while (bytes >= 1024 && u + 1 < ARRAY_LEN(units)) {
		bytes /= 1024;
		u++;
	}
	snprintf(out, 24, u == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[u]);
	return out;
}
