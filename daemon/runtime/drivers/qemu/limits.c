/* Limits of the host around a machine: the control group that the worker put this call into. */
#include "daemon/runtime/drivers/qemu/qemu.h"

#include "daemon/runtime/cgroup.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <string.h>
#include <unistd.h>

enum { TABLE_MAX = 64 * 1024, TASKS_MAX = 1024, OVERHEAD_MIB = 160 /* QEMU itself, emulating or not */ };

bool limits_group(const struct id *sandbox, struct id *ret_node)
{
	auto_buf text = BUF_INIT;
	auto_free char *tail = xasprintf("/%s", sandbox->text);
	const char *end;
	char node[ID_TEXT_LEN + 1];

	if (io_read_file("/proc/self/cgroup", TABLE_MAX, &text, NULL) != 0 || !(end = strstr(buf_str(&text), tail)))
		return false;
	if (end - buf_str(&text) < ID_TEXT_LEN)
		return false;
	memcpy(node, end - ID_TEXT_LEN, ID_TEXT_LEN);
	node[ID_TEXT_LEN] = '\0';
	return id_parse(node, ret_node) == 0;
}

/* QEMU's own memory comes on top of the guest's; page cache of the disk is given back when it is short. */
int limits_set(const struct id *sandbox, int64_t ram_mib, uint32_t cpu_millis, struct error *err)
{
	struct cgroup_limits l = { .memory_max = (ram_mib + OVERHEAD_MIB) * MIB, .pids_max = TASKS_MAX, .cpu_millis = cpu_millis };
	struct id node;

	if (!limits_group(sandbox, &node))
		return error_set(err, ERR_UNAVAILABLE, "this call is in no control group of its own: the worker must be root");
	return cgroup_make(&node, sandbox, &l, err);
}
