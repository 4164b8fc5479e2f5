/* What the worker does to a command through its stream, and taking it over on another one. */
#include "daemon/init/exec.h"

#include "daemon/init/pty.h"
#include "shared/base/mem.h"

static struct exec *of(struct endpoint *e)
{
	return container_of(e, struct exec, ep);
}

static struct output *channel_of(struct exec *x, unsigned channel)
{
	return channel == MUX_STDIN ? NULL : &x->out[channel - 1];
}

static void on_data(struct endpoint *e, unsigned channel, const void *p, size_t n)
{
	if (channel == MUX_STDIN)
		input_data(&of(e)->input, p, n);
}

static void on_eof(struct endpoint *e, unsigned channel)
{
	if (channel == MUX_STDIN)
		input_eof(&of(e)->input);
}

static void on_window(struct endpoint *e, unsigned channel, uint64_t consumed)
{
	struct exec *x = of(e);
	struct output *o = channel_of(x, channel);
	if (!o)
		return;
	output_acked(o, consumed);
	exec_deliver(x);
}

static void on_writable(struct endpoint *e)
{
	exec_deliver(of(e));
}

static void send_signal(struct exec *x, uint64_t sig)
{
	struct sup_message m = { .type = SUP_SIGNAL, .status = (int32_t)sig };
	if (sig < 1 || sig > 64 || x->exited)
		return;
	if (exec_master(x) >= 0 && pty_signal(exec_master(x), (int)sig) == 0)
		return;
	if (x->sup.fd >= 0)
		sup_send(x->sup.fd, &m);
}

static void on_control(struct endpoint *e, const struct tlv *t)
{
	struct exec *x = of(e);
	switch ((enum mux_control_action)tlv_u64(t, MUX_F_ACTION, 0)) {
	case MUX_CONTROL_SIGNAL:
		send_signal(x, tlv_u64(t, MUX_F_SIGNAL, 0));
		return;
	case MUX_CONTROL_RESIZE:
		if (exec_master(x) >= 0)
			pty_resize(exec_master(x), request_size(t, MUX_F_ROWS), request_size(t, MUX_F_COLS));
		return;
	case MUX_CONTROL_CANCEL:
		exec_kill(x, MUX_OUTCOME_CANCELED);
		return;
	}
}

static void leave(struct exec *x)
{
	x->ep.stream = 0;
	x->accepted = false;
	output_detach(&x->out[0]);
	output_detach(&x->out[1]);
	input_detach(&x->input);
}

/* The worker gave it up: nobody could ever take the result. */
static void on_closed(struct endpoint *e)
{
	struct exec *x = of(e);
	leave(x);
	x->forget = true;
	if (x->ended) {
		exec_free(x);
		return;
	}
	/* Nobody reads any more, and a command that waits in its write would not even get its TERM. */
	for (int i = 0; i < 2; i++)
		output_stop(&x->out[i], !x->terminal);
	exec_kill(x, MUX_OUTCOME_CANCELED);
	exec_maybe_end(x);
}

static void on_lost(struct endpoint *e)
{
	leave(of(e));
}

const struct endpoint_ops exec_ops = {
	.data = on_data,
	.eof = on_eof,
	.window = on_window,
	.control = on_control,
	.closed = on_closed,
	.lost = on_lost,
	.writable = on_writable,
};

void exec_resume(struct init *in, uint32_t stream, const struct tlv *t)
{
	char operation[OPERATION_MAX + 1];
	struct error err = ERROR_INIT;
	uint64_t out = tlv_u64(t, MUX_F_OFFSET_OUT, 0), err_at = tlv_u64(t, MUX_F_OFFSET_ERR, 0);
	bool drop = tlv_u64(t, MUX_F_FLAGS, 0) & MUX_OPEN_FORGET;
	if (request_operation(t, operation, &err) < 0) {
		link_refuse(in, stream, MUX_ERR_REFUSED, "%s", err.message);
		return;
	}
	struct exec *x = exec_find(in, operation);
	if (!x || x->forget) {
		link_refuse(in, stream, MUX_ERR_NOT_FOUND, "this operation is not known here");
	} else if (x->ep.stream || x->close_sent) {
		link_refuse(in, stream, MUX_ERR_CONFLICT, "another stream has this operation");
	} else if (drop && !x->ended) {
		link_refuse(in, stream, MUX_ERR_CONFLICT, "the command still runs");
	} else if (drop) {
		exec_free(x);
		mux_close(in->link.mux, stream, NULL);
	} else if (out > x->out[0].end || err_at > x->out[1].end) {
		link_refuse(in, stream, MUX_ERR_REFUSED, "there is no output at these offsets (stdout ends at %llu, stderr at %llu)",
			    (unsigned long long)x->out[0].end, (unsigned long long)x->out[1].end);
	} else {
		/* A worker that lost what it had gets the rest; ACCEPT says where that begins. */
		exec_attach(x, stream, output_kept(&x->out[0], out), output_kept(&x->out[1], err_at));
		exec_deliver(x);
	}
}
