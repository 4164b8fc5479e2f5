/*
 * Image references: "[registry/]path[:tag][@sha256:…]" or an image id. Pure functions; the grammar is the registries'
 * (no registry means docker.io, no slash means docker.io/library, no tag means latest).
 */
#ifndef SANDBOX_MODEL_IMAGE_REF_H
#define SANDBOX_MODEL_IMAGE_REF_H

#include "shared/base/error.h"

#include <stdbool.h>

struct image_ref {
	bool is_id;           /* "sha256:…" or hex digits only: names a local image, no registry */
	char registry[256];   /* "docker.io", "localhost:5000" */
	char repository[256]; /* "library/alpine" */
	char tag[129];        /* "" with a digest and no tag */
	char digest[72];      /* "sha256:…" or "" */
	char familiar[768];   /* shortest form people write: "alpine:3", "ghcr.io/a/b@sha256:…", or the id */
};

/* ERR_INVALID saying what is wrong. */
int image_ref_parse(const char *text, struct image_ref *ret, struct error *err);

/* Does the comma separated list allow it? Entries: "*", "local" (any image already present), "host[:port]",
 * "host/path" (a prefix that ends at a slash), "*.domain". An id is allowed by "*" and "local" alone.
 * present: the image is on this machine, nothing would be fetched. */
bool image_ref_allowed(const struct image_ref *ref, const char *list, bool present);

#endif
