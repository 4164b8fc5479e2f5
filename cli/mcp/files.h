/* A stream of file records for tools: one exchange on a connection of its own, cut short when the call is cancelled. */
#ifndef SANDBOX_CLI_MCP_FILES_H
#define SANDBOX_CLI_MCP_FILES_H

#include "cli/mcp/mcp.h"
#include "shared/mux/records.h"
#include "shared/mux/tlv.h"

struct files_exchange {
	const struct tlv *open;
	const struct buf *send; /* every record to send, DONE included; NULL: none */
	/* A record came: 1 to stop here, 0 to go on, -1 with err. FAIL is turned into an error before. */
	int (*on_record)(void *ctx, const struct record *r, struct error *err);
	void *ctx;
};

int files_exchange(struct tool_call *c, const struct files_exchange *x, struct error *err);

#endif
