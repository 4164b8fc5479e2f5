/* Subverbs of sandbox image that have files of their own. */
#ifndef SANDBOX_CLI_IMAGE_H
#define SANDBOX_CLI_IMAGE_H

struct verb;
extern const struct verb verb_image_login, verb_image_logout, verb_image_logins;

#endif
