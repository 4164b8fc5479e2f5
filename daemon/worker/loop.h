/* Loop devices: attaching an image file so that the device goes when nobody uses it any more. Root only. */
#ifndef SANDBOX_DAEMON_LOOP_H
#define SANDBOX_DAEMON_LOOP_H

#include "shared/base/error.h"

#include <stddef.h>

/* Attaches the open image file to a free loop device. ret_fd keeps the device alive (it clears itself with the last
 * user: a mount counts); ret_path is its node ("/dev/loop7"), made when /dev lacks it. */
int loop_attach(int image_fd, const char *image_path, int *ret_fd, char *ret_path, size_t n, struct error *err);

#endif
