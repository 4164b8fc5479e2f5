/* An image as the API shows it. */
#ifndef SANDBOX_DAEMON_API_IMAGE_JSON_H
#define SANDBOX_DAEMON_API_IMAGE_JSON_H

#include "daemon/runtime/runtime.h"
#include "shared/json/json.h"

cJSON *image_json(const struct image_info *i);

#endif
