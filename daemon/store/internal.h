/* Inside daemon/store: the query numbers and small helpers of the typed queries. */
#ifndef SANDBOX_DAEMON_STORE_INTERNAL_H
#define SANDBOX_DAEMON_STORE_INTERNAL_H

#include "daemon/store/store.h"

/* "SBXD", in the head of an SQLite file: tells our files from other programs'. */
enum { STORE_APPLICATION_ID = 0x53425844 };

enum query {
#define Q(name, sql) Q_##name,
#include "daemon/store/queries.def"
#undef Q
	QUERY_COUNT
};

extern const char *const store_queries[QUERY_COUNT];

/* Brings the schema up to date under the writer's lock; *ret_version is what it is now. */
int store_migrate(struct db *db, int64_t now, int64_t *ret_version, struct error *err);

/* Takes the state directory (made with mode 0700) for this process; given back when *ret_fd is closed. ERR_CONFLICT names the holder. */
int store_lock_dir(const char *dir, int *ret_fd, struct error *err);

/* News between daemons on one PostgreSQL: see store_bus.c. */
struct bus;
struct bus *bus_new(struct db *db);
void bus_free(struct bus *b);
int bus_start(struct bus *b, store_news_fn fn, void *ctx, struct error *err);
void bus_stop(struct bus *b);
void bus_tell(struct bus *b, enum store_news what, const struct id *id);
bool bus_leads(const struct bus *b);

/* The id backwards: an id's last digits are then a range of an index. */
void store_reverse(const char *text, char *out, size_t out_size);

static inline void copy_text(char *out, size_t n, const char *text)
{
	snprintf(out, n, "%s", text ? text : "");
}

static inline void copy_id(struct id *ret, const char *text)
{
	copy_text(ret->text, sizeof(ret->text), text);
}

/* Words of the model's enums; a word this version does not know is damage, not a default. */
#define READ_ENUM(type, s, column, ret, err) \
	(type##_parse(db_text((s), (column)), (ret)) == 0 \
		 ? 0 \
		 : error_set((err), ERR_INTERNAL, "the store holds an unknown " #type ": '%s'", \
			     db_text((s), (column)) ? db_text((s), (column)) : ""))

/* Strings without NUL as bytes, each ended by NUL; nothing for an empty list. */
void store_pack(const struct strv *v, struct buf *out);
void store_unpack(const void *p, size_t n, struct strv *out);

#endif
