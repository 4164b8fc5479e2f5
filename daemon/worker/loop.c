/* Loop devices by LOOP_CTL_GET_FREE and LOOP_CONFIGURE (older kernels: SET_FD and SET_STATUS64). */
#include "daemon/worker/loop.h"

#include "shared/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { LOOP_MAJOR = 7, ATTEMPTS = 64, BLOCK = 4096 };

static int open_node(const char *path, int number)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	/* In a container /dev is a copy from before this device existed. */
	if (mknod(path, S_IFBLK | 0600, makedev(LOOP_MAJOR, (unsigned)number)) != 0 && errno != EEXIST)
		return -1;
	return open(path, O_RDWR | O_CLOEXEC);
}

static int set_old_way(int loop_fd, int image_fd, const struct loop_info64 *info)
{
	if (ioctl(loop_fd, LOOP_SET_FD, image_fd) != 0)
		return -1;
	if (ioctl(loop_fd, LOOP_SET_STATUS64, info) == 0)
		return 0;
	int saved = errno;
	ioctl(loop_fd, LOOP_CLR_FD, 0);
	errno = saved;
	return -1;
}

static int configure(int loop_fd, int image_fd, const char *image_path)
{
	struct loop_config config = { .fd = (unsigned)image_fd, .block_size = BLOCK, .info.lo_flags = LO_FLAGS_AUTOCLEAR };

	snprintf((char *)config.info.lo_file_name, sizeof(config.info.lo_file_name), "%s", image_path);
	if (ioctl(loop_fd, LOOP_CONFIGURE, &config) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOTTY)
		return -1;
	return set_old_way(loop_fd, image_fd, &config.info);
}

int loop_attach(int image_fd, const char *image_path, int *ret_fd, char *ret_path, size_t n, struct error *err)
{
	auto_close int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	if (control < 0)
		return error_errno(err, "opening /dev/loop-control");
	/* Between GET_FREE and CONFIGURE another process may take the device: EBUSY, the next one. */
	for (int i = 0; i < ATTEMPTS; i++) {
		int number = ioctl(control, LOOP_CTL_GET_FREE);
		auto_close int fd = -1;

		if (number < 0)
			return error_errno(err, "asking for a free loop device");
		snprintf(ret_path, n, "/dev/loop%d", number);
		fd = open_node(ret_path, number);
		if (fd < 0 && errno != ENXIO && errno != ENOENT)
			return error_errno(err, "opening %s", ret_path);
		if (fd >= 0 && configure(fd, image_fd, image_path) == 0) {
			*ret_fd = steal_fd(&fd);
			return 0;
		}
		if (fd >= 0 && errno != EBUSY)
			return error_errno(err, "attaching %s to %s", image_path, ret_path);
		usleep(1000);
	}
	return error_set(err, ERR_UNAVAILABLE, "no loop device could be had in %d attempts", ATTEMPTS);
}
