/* What the drivers share: the words of dialect.def. See db.h. */
#include "daemon/store/db.h"

#include "shared/base/buf.h"
#include "shared/base/mem.h"

static const struct {
	const char *word;
	const char *text[DB_DIALECTS];
} dialect_rows[] = {
#define DIALECT(word, sqlite, postgres) { word, { [DB_SQLITE] = sqlite, [DB_POSTGRES] = postgres } },
#include "daemon/store/dialect.def"
#undef DIALECT
};

char *db_dialect_sql(enum db_dialect dialect, const char *sql)
{
	struct buf out = BUF_INIT;
	while (*sql) {
		size_t i, n = 0;
		for (i = 0; i < ARRAY_LEN(dialect_rows); i++) {
			n = strlen(dialect_rows[i].word);
			if (strncmp(sql, dialect_rows[i].word, n) == 0)
				break;
		}
		if (i < ARRAY_LEN(dialect_rows)) {
			buf_adds(&out, dialect_rows[i].text[dialect]);
			sql += n;
		} else {
			buf_addc(&out, *sql++);
		}
	}
	return buf_steal(&out);
}
