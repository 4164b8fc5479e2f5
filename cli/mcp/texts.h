/* What the bridge tells models: instructions, resources, prompts. */
#ifndef SANDBOX_CLI_MCP_TEXTS_H
#define SANDBOX_CLI_MCP_TEXTS_H

#include "shared/base/buf.h"

extern const char mcp_instructions[];

/* Names and descriptions hold nothing that JSON would escape. A NULL uri or name ends a table. */
struct mcp_resource {
	const char *uri, *name, *title, *description, *mime;
	void (*write)(struct buf *out);
};

struct mcp_argument {
	const char *name, *description;
	const char *fallback; /* NULL: required */
};

struct mcp_prompt {
	const char *name, *title, *description;
	const struct mcp_argument *arguments;
	const char *text; /* %NAME% stands for an argument */
};

extern const struct mcp_resource mcp_resources[];
extern const struct mcp_prompt mcp_prompts[];

#endif
