/* The table of verbs, expanded from commands.def. */
#include "cli/command.h"

#include <string.h>

const struct verb *const verbs[] = {
#define VERB(name) &verb_##name,
#include "cli/commands.def"
#undef VERB
	NULL
};

const struct verb *verb_find(const struct verb *const *table, const char *name)
{
	for (; *table; table++)
		if (strcmp((*table)->name, name) == 0 || ((*table)->alias && strcmp((*table)->alias, name) == 0))
			return *table;
	return NULL;
}

const char *verb_group_title(enum verb_group g)
{
	switch (g) {
	case GROUP_RUN:
		return "Run code";
	case GROUP_SANDBOX:
		return "Sandboxes";
	case GROUP_INSIDE:
		return "Inside a sandbox";
	case GROUP_SYSTEM:
		return "This machine";
	case GROUP_COUNT:
		break;
	}
	return "";
}
