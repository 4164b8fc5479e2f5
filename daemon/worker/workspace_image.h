/* The ext4 image file behind a workspace: made from a template of its size, with every block reserved on the host. */
#ifndef SANDBOX_DAEMON_WORKSPACE_IMAGE_H
#define SANDBOX_DAEMON_WORKSPACE_IMAGE_H

#include "shared/base/error.h"

#include <stdint.h>

/* templates: a directory of ours. Makes the template with mkfs.ext4 when there is none of this size (any thread).
 * ret_path names it. */
int workspace_template(const char *templates, uint32_t mib, char **ret_path, struct error *err);
/* Copies the template's data and reserves the rest. ERR_NO_CAPACITY when the host lacks the room, ERR_UNAVAILABLE when
 * its file system cannot reserve. ret_fd is open for reading and writing. On failure nothing is left. */
int workspace_image(const char *template_path, const char *path, int *ret_fd, struct error *err);

#endif
