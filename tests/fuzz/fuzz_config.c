/*
 * Any bytes as sandboxd.conf: accepted or refused with a line number, and what was accepted prints as keys that can be set.
 * fuzz-archives: daemon
 */
#include "daemon/config.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
	if (!good)
		abort();
}

static void print_and_set(const struct daemon_config *c)
{
	struct daemon_config again;
	struct error err = ERROR_INIT;
	auto_buf out = BUF_INIT;
	check(daemon_config_defaults(&again, &err) == 0);
	daemon_config_print(c, &out);
	for (char *line = out.data, *next; *line; line = next) {
		char *hash = strstr(line, "  # "), *equals = strstr(line, " = ");
		next = strchr(line, '\n') + 1;
		check(hash && equals);
		*hash = '\0';
		auto_free char *assignment = xasprintf("%.*s=%s", (int)(equals - line), line, equals + 3);
		if (daemon_config_set(&again, assignment, &err) != 0) {
			fprintf(stderr, "%s: %s\n", assignment, err.message);
			check(false);
		}
	}
	daemon_config_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct daemon_config c;
	struct error err = ERROR_INIT;
	char path[64];
	if (fd < 0)
		fd = memfd_create("sandboxd.conf", MFD_CLOEXEC);
	check(fd >= 0 && ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 && io_write_full(fd, data, size) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	check(daemon_config_defaults(&c, &err) == 0);
	if (daemon_config_load(&c, path, &err) == 0) {
		daemon_config_check(&c, &err);
		print_and_set(&c);
	} else {
		check(strncmp(err.message, path, strlen(path)) == 0);
	}
	daemon_config_done(&c);
	return 0;
}
