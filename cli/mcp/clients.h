/* Programs that start MCP servers, and how each is told about this one. */
#ifndef SANDBOX_CLI_MCP_CLIENTS_H
#define SANDBOX_CLI_MCP_CLIENTS_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdbool.h>

struct mcp_client {
	const char *name, *title;
	const char *program;   /* that registers by itself, or shows that the client is installed; NULL: none */
	/* Its own commands, words separated by blanks: %c the bridge, %e each variable as its own words after `env_flag`, %j all as JSON. add
	 * or remove NULL: the file is written. look NULL: the file is read. */
	const char *add, *look, *remove;
	const char *env_flag;
	const char *file;      /* below HOME, or below XDG_CONFIG_HOME when it starts with "config:"; NULL: none */
	const char *member;    /* of the file's root object; NULL with a file: goose's YAML */
	/* Appends the entry's text: command is the bridge's path, env its variables. */
	void (*entry)(const char *command, const struct map *env, struct buf *out);
};

/* A NULL name ends it. */
extern const struct mcp_client mcp_clients[];
const struct mcp_client *mcp_client_find(const char *name);

/* The whole of a configuration that holds only this server. */
void mcp_client_config(const struct mcp_client *c, const char *command, const struct map *env, struct buf *out);

/* Text of a JSON file with one member added to the object `member` of its root (both made when missing); nothing else changes. An empty
 * text counts as {}. *ret_there: it is there already, nothing was written to out. ERR_INVALID when it is not plain JSON. */
int mcp_merge_json(const char *text, size_t n, const char *member, const char *entry, struct buf *out, bool *ret_there, struct error *err);
/* The same for goose's config.yaml: entry is the block below `extensions:`. */
int mcp_merge_yaml(const char *text, const char *entry, struct buf *out, bool *ret_there, struct error *err);

/* The text without the member "sandbox" of the object `member` (NULL: without the block of goose's YAML). *ret_there false: there is none,
 * nothing was written to out. ERR_INVALID as above. */
int mcp_unmerge(const char *text, size_t n, const char *member, struct buf *out, bool *ret_there, struct error *err);

enum install_state { INSTALL_ADDED, INSTALL_THERE, INSTALL_ABSENT, INSTALL_WOULD, INSTALL_REMOVED, INSTALL_WOULD_REMOVE };

struct install {
	const char *command;
	const struct map *env;
	bool dry_run;
	bool forced; /* also when the client does not look installed */
};

/* Registers with one client. *ret_detail says what was or would be done; the caller frees it. */
int mcp_install(const struct mcp_client *c, const struct install *o, enum install_state *ret, char **ret_detail, struct error *err);
/* Takes the entry named sandbox out again, whoever put it there; INSTALL_ABSENT when there is none. */
int mcp_uninstall(const struct mcp_client *c, const struct install *o, enum install_state *ret, char **ret_detail, struct error *err);

#endif
