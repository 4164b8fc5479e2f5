/*
 * Structured log lines on stderr (or a file): `time level component message key=value…`.
 * Values are escaped, so nothing from outside can forge a line. Used by daemons only; the CLI reports.
 */
#ifndef SANDBOX_BASE_LOG_H
#define SANDBOX_BASE_LOG_H

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

void log_set_level(enum log_level level);
/* "debug" | "info" | "warn" | "error"; -1 otherwise. */
int log_level_parse(const char *text, enum log_level *ret);
void log_line(enum log_level level, const char *component, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#define log_debug(component, ...) log_line(LOG_LEVEL_DEBUG, component, __VA_ARGS__)
#define log_info(component, ...) log_line(LOG_LEVEL_INFO, component, __VA_ARGS__)
#define log_warn(component, ...) log_line(LOG_LEVEL_WARN, component, __VA_ARGS__)
#define log_error(component, ...) log_line(LOG_LEVEL_ERROR, component, __VA_ARGS__)

#endif
