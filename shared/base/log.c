/* Log lines: see log.h. One write(2) per line of at most PIPE_BUF bytes, so lines of several threads or processes never mix. */
#include "shared/base/log.h"

#include "shared/base/clock.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const level_words[] = { "debug", "info", "warn", "error" };

static _Atomic int threshold = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
	atomic_store(&threshold, (int)level);
}

int log_level_parse(const char *text, enum log_level *ret)
{
	for (int i = 0; text && i <= LOG_LEVEL_ERROR; i++) {
		if (strcmp(text, level_words[i]) == 0) {
			*ret = (enum log_level)i;
			return 0;
		}
	}
	return -1;
}

static void write_line(const char *line, size_t n)
{
	while (n > 0) {
		ssize_t done = write(STDERR_FILENO, line, n);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return; /* nowhere to say so */
		line += done;
		n -= (size_t)done;
	}
}

void log_line(enum log_level level, const char *component, const char *fmt, ...)
{
	if ((int)level < atomic_load(&threshold))
		return;
	int saved = errno;
	char message[2048], line[PIPE_BUF], when[RFC3339_MAX];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	if (n < 0)
		n = 0;
	size_t len = (size_t)n < sizeof(message) ? (size_t)n : utf8_cut(message, sizeof(message) - 1);
	int head = snprintf(line, sizeof(line), "%s %s %.32s ", time_rfc3339(clock_wall_us(), when), level_words[level], component);
	text_escape(message, len, line + head, sizeof(line) - (size_t)head - 1);
	size_t total = strlen(line);
	line[total++] = '\n';
	write_line(line, total);
	errno = saved;
}
