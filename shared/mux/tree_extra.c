/* What few files have: further names, and extended attributes. See tree_priv.h. */
#include "shared/mux/tree_priv.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/mux/records.h"

#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

enum { FIRST_SLOTS = 64, LIST_MAX = 64 * 1024 };

void tree_links_done(struct tree_links *l)
{
	for (size_t i = 0; i < l->cap; i++)
		free(l->slots[i].path);
	free(l->slots);
	*l = (struct tree_links){ .slots = NULL };
}

static struct tree_link *slot_of(const struct tree_links *l, uint64_t dev, uint64_t ino)
{
	uint64_t h = (ino ^ dev << 32) * 0x9e3779b97f4a7c15u;
	for (size_t i = (size_t)(h >> 32);; i++) {
		struct tree_link *s = &l->slots[i & (l->cap - 1)];
		if (!s->path || (s->ino == ino && s->dev == dev))
			return s;
	}
}

/* Kept at most half full. */
static void grow(struct tree_links *l)
{
	struct tree_links bigger = { .cap = l->cap ? 2 * l->cap : FIRST_SLOTS, .len = l->len };
	bigger.slots = xcalloc(bigger.cap, sizeof(*bigger.slots));
	for (size_t i = 0; i < l->cap; i++)
		if (l->slots[i].path)
			*slot_of(&bigger, l->slots[i].dev, l->slots[i].ino) = l->slots[i];
	free(l->slots);
	*l = bigger;
}

void tree_links_add(struct tree_links *l, uint64_t dev, uint64_t ino, const char *path)
{
	if (l->len >= LIMIT_FILES_LINKS_MAX)
		return;
	if (2 * l->len >= l->cap)
		grow(l);
	struct tree_link *s = slot_of(l, dev, ino);
	if (s->path)
		return;
	*s = (struct tree_link){ .dev = dev, .ino = ino, .path = xstrdup(path) };
	l->len++;
}

const char *tree_links_find(const struct tree_links *l, uint64_t dev, uint64_t ino)
{
	return l->cap ? slot_of(l, dev, ino)->path : NULL;
}

int tree_xattrs_read(int fd, struct buf *out)
{
	static char names[LIST_MAX];
	char value[RECORD_XATTR_MAX];
	ssize_t n = flistxattr(fd, names, sizeof(names));
	int left_out = 0;
	if (n < 0)
		return errno == ERANGE ? 1 : -1;
	for (const char *p = names; p < names + n; p += strlen(p) + 1) {
		if (!record_xattr_valid(p, strlen(p)))
			continue; /* the system's own: owners and rights are not copied either */
		ssize_t len = fgetxattr(fd, p, value, sizeof(value));
		if (len < 0)
			left_out = 1;
		else
			record_add_xattr(out, p, value, (size_t)len);
	}
	return left_out;
}
