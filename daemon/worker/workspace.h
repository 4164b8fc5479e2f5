/*
 * /workspace of each sandbox: a directory whose size is enforced (ENOSPC inside, never a full host), kept below
 * STATE/sandboxes/<id>/. Three ways, chosen once by what this machine can do:
 *   loop    an ext4 image file with its space reserved, loop-mounted here and bound into the sandbox
 *   engine  the same image, mounted by the engine (where it does not see our mounts)
 *   memory  a bounded tmpfs in the sandbox, counted against its memory (where the worker is not root)
 *   none    the test runtime mounts nothing
 * The directory belongs to the image's USER when that is numeric, else to root, and everybody inside may write.
 */
#ifndef SANDBOX_DAEMON_WORKSPACE_H
#define SANDBOX_DAEMON_WORKSPACE_H

#include "daemon/runtime/runtime.h"

struct workspaces;

enum workspace_mode { WORKSPACE_MODE_NONE, WORKSPACE_MODE_LOOP, WORKSPACE_MODE_ENGINE, WORKSPACE_MODE_MEMORY };

struct workspaces *workspaces_new(const char *state_dir);
void workspaces_free(struct workspaces *w);

/* Makes a small workspace for the runtime's probe to look for. -1: this machine cannot (the message says why). */
int workspaces_probe_make(struct workspaces *w, struct workspace_mount *ret, struct error *err);
void workspaces_probe_drop(struct workspaces *w);
void workspaces_set_mode(struct workspaces *w, enum workspace_mode mode, const char *why);
/* ret_why (may be NULL) gets the reason. */
enum workspace_mode workspaces_mode(struct workspaces *w, char *ret_why, size_t n);
/* "none", "loop", "engine", "memory". */
const char *workspace_mode_text(enum workspace_mode m);

struct workspace_request {
	struct id sandbox;
	uint32_t disk_mib, memory_mib;
	const char *image_user; /* USER of the image */
};
/* ret_hold: keep it open until the container runs (the engine's mount then keeps the device), -1: nothing to hold.
 * ERR_NO_CAPACITY when the host has not that much room. On failure nothing is left. */
int workspace_make(struct workspaces *w, const struct workspace_request *r, struct workspace_mount *ret, int *ret_hold, struct error *err);
/* Unmounts and deletes; success when there is none. */
int workspace_drop(struct workspaces *w, const struct id *sandbox, struct error *err);

/* STATE/sandboxes/<id> */
char *workspaces_dir(const struct workspaces *w, const struct id *sandbox);
/* Ids that have a directory there. */
int workspaces_list(struct workspaces *w, struct strv *ret, struct error *err);
/* Bytes free to this worker below STATE, and bytes its workspaces hold already. */
int workspaces_space(struct workspaces *w, int64_t *ret_free, int64_t *ret_held, struct error *err);

#endif
