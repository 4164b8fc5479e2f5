/* Linux calls that libc does not wrap, or wraps differently: capabilities, closing ranges, process attributes. */
#ifndef SANDBOX_INIT_SYS_H
#define SANDBOX_INIT_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of a capability set. */
#define CAP_BIT(n) ((uint64_t)1 << (n))
extern const uint64_t sys_init_caps; /* what init keeps for itself */
extern const uint64_t sys_file_caps; /* of its file helpers */
extern const uint64_t sys_root_caps; /* what a root command keeps when allowed */

/* Effective and permitted become the wanted ones that are permitted now; inheritable becomes empty. */
int sys_set_caps(uint64_t wanted);
uint64_t sys_permitted_caps(void);
/* Drops every other capability from the bounding set, where that is allowed. */
void sys_bound_caps(uint64_t keep);

/* For good, and for all that descends from this process: io_uring answers ENOSYS, sockets of families other than unix, inet, inet6, netlink
 * and packet EAFNOSUPPORT. Needs no-new-privileges. -1: the kernel takes no filter. */
int sys_deny_calls(void);

/* Closes everything but these descriptors. */
void sys_close_all_but(const int *keep, size_t n);
/* Closes everything from a number on, where the kernel can do that in one call; what is close-on-exec goes at exec anyway. */
void sys_close_from(unsigned from);
/* Makes this process a subreaper. False when the kernel takes the call and does nothing. */
bool sys_become_subreaper(void);
/* init and its supervisors run before all others of the sandbox (who starts it sees to that), or a command with many processes
 * could not be ended: they would share what the CPU limit leaves. What they start for a user gives that up here. */
void sys_ordinary_priority(void);

#endif
