/* Subverbs of sandbox image that have files of their own. */
#ifndef SANDBOX_CLI_IMAGE_H
#define SANDBOX_CLI_IMAGE_H

struct verb;
extern const struct verb verb_image_push, verb_image_login, verb_image_logout, verb_image_logins;

/* A call that answers in lines: progress, then the image, which is printed. The exit status, -1 on failure. */
struct cli;
struct line_call;
struct error;
int image_transfer(struct cli *cli, const struct line_call *request, struct error *err);

#endif
