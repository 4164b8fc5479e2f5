/* stdin of a command: what the worker sent and the command has not read yet. Progress is reported only as bytes are written. */
#ifndef SANDBOX_INIT_INPUT_H
#define SANDBOX_INIT_INPUT_H

#include "daemon/init/loop.h"
#include "shared/base/buf.h"
#include "shared/mux/mux.h"

enum { INPUT_WINDOW = 256 * 1024 };

struct input {
	struct loop *loop;
	struct watch w;
	struct mux *mux;
	uint32_t stream;
	struct buf q;
	size_t head;    /* bytes of q already written */
	uint64_t got;   /* received */
	uint64_t taken; /* written to the command, or dropped because it reads no more */
	bool eof;
	bool terminal;  /* end of input is a control character, not a closed descriptor */
	bool mid_line;
	bool roomy;
};

void input_init(struct input *i, struct loop *l);
/* Takes fd, or -1: nothing reads, so what comes is dropped. */
void input_open(struct input *i, int take_fd, bool terminal);
void input_attach(struct input *i, struct mux *m, uint32_t stream);
/* The connection ended: what was not written is forgotten, since the sender keeps it and sends it again. */
void input_detach(struct input *i);
void input_data(struct input *i, const void *p, size_t n);
void input_eof(struct input *i);
/* The command reads no more: the rest is dropped, without an error to the sender. */
void input_close(struct input *i);

#endif
