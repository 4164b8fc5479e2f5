/* The memory limit's kill counter, as far as the sandbox may see its own control group. */
#include "daemon/init/init.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <fcntl.h>
#include <unistd.h>

uint64_t oom_count(void)
{
	static const char *const files[] = { "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control" };
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		char text[1024];
		auto_close int fd = open(files[i], O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? -1 : io_read_full(fd, text, sizeof(text) - 1);
		if (n <= 0)
			continue;
		text[n] = '\0';
		const char *at = strstr(text, "oom_kill ");
		return at ? strtoull(at + 9, NULL, 10) : 0;
	}
	return 0;
}
