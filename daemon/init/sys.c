/* See sys.h. */
#include "daemon/init/sys.h"

#include <dirent.h>
#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define FILE_CAPS (CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_FOWNER))
#define ID_CAPS (CAP_BIT(CAP_SETUID) | CAP_BIT(CAP_SETGID))

const uint64_t sys_init_caps = FILE_CAPS | ID_CAPS | CAP_BIT(CAP_KILL);
const uint64_t sys_file_caps = FILE_CAPS;
const uint64_t sys_root_caps = FILE_CAPS | ID_CAPS;

uint64_t sys_permitted_caps(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };
	if (syscall(SYS_capget, &head, data) < 0)
		return 0;
	return (uint64_t)data[1].permitted << 32 | data[0].permitted;
}

int sys_set_caps(uint64_t wanted)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	uint64_t set = wanted & sys_permitted_caps();
	struct __user_cap_data_struct data[2] = {
		{ .effective = (uint32_t)set, .permitted = (uint32_t)set },
		{ .effective = (uint32_t)(set >> 32), .permitted = (uint32_t)(set >> 32) },
	};
	return (int)syscall(SYS_capset, &head, data);
}

void sys_bound_caps(uint64_t keep)
{
	for (int cap = 0; cap < 64; cap++)
		if (!(keep & CAP_BIT(cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno == EINVAL)
			return; /* past the last one this kernel knows */
}

static bool close_from_to(unsigned from, unsigned to)
{
	return from > to || syscall(SYS_close_range, from, to, 0) == 0;
}

static bool is_kept(const int *keep, size_t n, int fd)
{
	for (size_t i = 0; i < n; i++)
		if (keep[i] == fd)
			return true;
	return false;
}

/* For kernels without close_range: what /proc lists, else every number that is likely. */
static void close_one_by_one(const int *keep, size_t n)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	int listed[1024];
	size_t count = 0;
	while (d && (e = readdir(d)) && count < sizeof(listed) / sizeof(listed[0]))
		if (e->d_name[0] != '.')
			listed[count++] = (int)strtol(e->d_name, NULL, 10);
	bool all = d && count < sizeof(listed) / sizeof(listed[0]);
	if (d)
		closedir(d);
	for (int i = 0; i < (all ? (int)count : 65536); i++) {
		int fd = all ? listed[i] : i;
		if (!is_kept(keep, n, fd))
			close(fd);
	}
}

void sys_close_from(unsigned from)
{
	syscall(SYS_close_range, from, ~0U, 0);
}

void sys_close_all_but(const int *keep, size_t n)
{
	unsigned from = 0;
	for (;;) {
		int next = -1;
		for (size_t i = 0; i < n; i++)
			if (keep[i] >= (int)from && (next < 0 || keep[i] < next))
				next = keep[i];
		if (next < 0)
			break;
		if (next > (int)from && !close_from_to(from, (unsigned)next - 1)) {
			close_one_by_one(keep, n);
			return;
		}
		from = (unsigned)next + 1;
	}
	if (!close_from_to(from, ~0U))
		close_one_by_one(keep, n);
}

bool sys_become_subreaper(void)
{
	/* gVisor answers the setter with success and does nothing; only the getter tells. */
	int on = 0;
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		return false;
	return prctl(PR_GET_CHILD_SUBREAPER, &on, 0, 0, 0) == 0 && on == 1;
}

void sys_ordinary_priority(void)
{
	if (getpriority(PRIO_PROCESS, 0) < 0)
		setpriority(PRIO_PROCESS, 0, 0);
}
