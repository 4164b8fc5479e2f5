/*
 * The life of a command: started → exited → drained → ended → delivered → confirmed. The connection may come and go at
 * any point of it; only an answer to the PING behind its CLOSE ends init's care.
 */
#include "daemon/init/exec.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

static void output_changed(struct output *o);
static void supervisor_ready(struct watch *w, uint32_t events);
static void timed_out(struct timer *t);
static void drained(struct timer *t);
static void gave_up(struct timer *t);

struct exec *exec_new(struct init *in, const char *operation, uint32_t window)
{
	struct exec *x = xcalloc(1, sizeof(*x));
	x->ep.ops = &exec_ops;
	x->in = in;
	memcpy(x->operation, operation, strlen(operation) + 1);
	output_init(&x->out[0], &in->loop, MUX_STDOUT, window, output_changed);
	output_init(&x->out[1], &in->loop, MUX_STDERR, window, output_changed);
	input_init(&x->input, &in->loop);
	x->slave = -1;
	x->sup = (struct watch){ .fd = -1, .ready = supervisor_ready };
	x->timeout.fired = timed_out;
	x->drain.fired = drained;
	x->give_up.fired = gave_up;
	x->next = in->execs;
	in->execs = x;
	in->running++;
	return x;
}

struct exec *exec_find(struct init *in, const char *operation)
{
	struct exec *x = in->execs;
	while (x && strcmp(x->operation, operation) != 0)
		x = x->next;
	return x;
}

void exec_free(struct exec *x)
{
	struct exec **at = &x->in->execs;
	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	if (!x->ended)
		x->in->running--;
	if (x->ep.stream)
		link_set_endpoint(x->in, x->ep.stream, NULL);
	timer_stop(&x->timeout);
	timer_stop(&x->drain);
	timer_stop(&x->give_up);
	watch_close(&x->in->loop, &x->sup);
	output_done(&x->out[0]);
	output_done(&x->out[1]);
	input_detach(&x->input);
	input_close(&x->input);
	close_fdp(&x->slave);
	free(x->message);
	loop_free_later(&x->in->loop, x);
}

void exec_attach(struct exec *x, uint32_t stream, uint64_t out, uint64_t err)
{
	struct mux *m = x->in->link.mux;
	x->ep.stream = stream;
	x->accepted = x->close_sent = false;
	link_set_endpoint(x->in, stream, &x->ep);
	output_attach(&x->out[0], m, stream, out);
	output_attach(&x->out[1], m, stream, err);
	input_attach(&x->input, m, stream);
}

/* --- delivering --- */

int exec_master(const struct exec *x)
{
	return x->terminal ? x->out[0].w.fd : -1;
}

static void accept_stream(struct exec *x)
{
	auto_tlv t = TLV_INIT;
	if (x->accepted || !x->ep.stream)
		return;
	x->accepted = true;
	tlv_add_u64(&t, MUX_F_PID, (uint64_t)x->main);
	if (x->in->subreaper) /* else what it starts may be anybody's */
		tlv_add_u64(&t, MUX_F_SUPERVISOR, (uint64_t)x->supervisor);
	tlv_add_u64(&t, MUX_F_OFFSET_IN, x->input.taken);
	tlv_add_u64(&t, MUX_F_OFFSET_OUT, x->out[0].sent);
	tlv_add_u64(&t, MUX_F_OFFSET_ERR, x->out[1].sent);
	mux_accept(x->in->link.mux, x->ep.stream, &t, INPUT_WINDOW);
}

static void add_result(const struct exec *x, struct tlv *t)
{
	enum mux_outcome outcome = x->why;
	if (outcome == MUX_OUTCOME_NONE)
		outcome = WIFSIGNALED(x->status) ? MUX_OUTCOME_SIGNALED : MUX_OUTCOME_EXITED;
	if (x->in->through.len > 0 && x->known && WIFSIGNALED(x->status) && WTERMSIG(x->status) == THROUGH_LOST)
		outcome = MUX_OUTCOME_LOST;
	tlv_add_u64(t, MUX_F_OUTCOME, outcome);
	if (!x->started)
		tlv_add_u64(t, MUX_F_ERROR, x->error);
	else if (x->known && WIFSIGNALED(x->status))
		tlv_add_u64(t, MUX_F_SIGNAL, (uint64_t)WTERMSIG(x->status));
	else if (x->known)
		tlv_add_u64(t, MUX_F_EXIT_CODE, (uint64_t)WEXITSTATUS(x->status));
	if (x->oom)
		tlv_add_u64(t, MUX_F_OOM, 1);
	tlv_add_u64(t, MUX_F_OFFSET_OUT, x->out[0].end);
	tlv_add_u64(t, MUX_F_OFFSET_ERR, x->out[1].end);
	tlv_add_str(t, MUX_F_MESSAGE, x->message);
}

static void send_close(struct exec *x)
{
	auto_tlv t = TLV_INIT;
	struct link *l = &x->in->link;
	add_result(x, &t);
	uint32_t stream = x->ep.stream;
	link_set_endpoint(x->in, stream, NULL);
	x->ep.stream = 0;
	output_detach(&x->out[0]);
	output_detach(&x->out[1]);
	input_detach(&x->input);
	mux_close(l->mux, stream, &t);
	mux_ping(l->mux);
	x->close_sent = true;
	x->confirm = ++l->pings;
}

void exec_deliver(struct exec *x)
{
	if (!x->ep.stream)
		return;
	if (x->ended && !x->started) {
		send_close(x);
		return;
	}
	if (!x->started)
		return;
	mux_cork(x->in->link.mux);
	accept_stream(x);
	output_pump(&x->out[0]);
	output_pump(&x->out[1]);
	if (x->ended && output_delivered(&x->out[0]) && output_delivered(&x->out[1]))
		send_close(x);
	mux_uncork(x->in->link.mux);
}

void exec_confirmed(struct init *in)
{
	for (struct exec *x = in->execs, *next; x; x = next) {
		next = x->next;
		if (x->close_sent && x->confirm <= in->link.pongs)
			exec_free(x);
	}
}

/* The oldest result that waits, of those sent and not confirmed or of the others. */
static struct exec *oldest(struct init *in, bool sent, unsigned *ret_count)
{
	struct exec *old = NULL;
	*ret_count = 0;
	for (struct exec *x = in->execs; x; x = x->next) {
		if (!x->ended || x->ep.stream || x->close_sent != sent)
			continue;
		++*ret_count;
		if (!old || x->age < old->age)
			old = x;
	}
	return old;
}

/* Results are kept up to a number; the oldest go first. */
static void bound_results(struct init *in)
{
	unsigned n;
	struct exec *x;
	while ((x = oldest(in, false, &n)) && n > RETAINED_MAX)
		exec_free(x);
	while ((x = oldest(in, true, &n)) && n > UNCONFIRMED_MAX)
		exec_free(x);
}

void exec_link_lost(struct init *in)
{
	for (struct exec *x = in->execs; x; x = x->next)
		x->close_sent = false;
	bound_results(in);
}

/* --- ending --- */

static void end(struct exec *x)
{
	x->ended = true;
	x->in->running--;
	x->age = ++x->in->finished;
	timer_stop(&x->timeout);
	timer_stop(&x->drain);
	timer_stop(&x->give_up);
	input_close(&x->input);
	if (x->forget) {
		exec_free(x);
		return;
	}
	exec_deliver(x);
	bound_results(x->in);
}

void exec_not_started(struct exec *x, enum mux_error error, const char *text)
{
	x->why = MUX_OUTCOME_NOT_STARTED;
	x->error = error;
	x->message = xstrdup(text);
	close_fdp(&x->slave);
	watch_close(&x->in->loop, &x->sup);
	for (int i = 0; i < 2; i++)
		output_stop(&x->out[i], false);
	end(x);
}

static void stop_outputs(struct exec *x)
{
	for (int i = 0; i < 2; i++)
		output_stop(&x->out[i], !x->terminal && !x->why);
}

void exec_maybe_end(struct exec *x)
{
	bool gone = x->exited && (!x->why || x->sup.fd < 0 || x->cut);
	if (x->ended || !gone)
		return;
	if (x->out[0].ended && x->out[1].ended)
		end(x);
	else if (!timer_armed(&x->drain))
		timer_arm(&x->in->loop, &x->drain, LIMIT_DRAIN_MS);
}

static void output_changed(struct output *o)
{
	struct exec *x = container_of(o - (o->channel == MUX_STDERR), struct exec, out[0]);
	if (timer_armed(&x->drain) && clock_mono_ms() < x->drain_until_ms)
		timer_arm(&x->in->loop, &x->drain, LIMIT_DRAIN_MS); /* silence starts anew */
	exec_maybe_end(x);
}

static void drained(struct timer *t)
{
	struct exec *x = container_of(t, struct exec, drain);
	if (output_blocked(&x->out[0]) || output_blocked(&x->out[1])) {
		/* A reader that has stopped is no silence: what the command wrote is still in the pipe. */
		x->drain_until_ms = clock_mono_ms() + DRAIN_CAP_MS;
		timer_arm(&x->in->loop, &x->drain, LIMIT_DRAIN_MS);
		return;
	}
	stop_outputs(x);
	exec_maybe_end(x);
}

static void exited(struct exec *x, int status)
{
	if (x->exited)
		return;
	x->exited = x->known = true;
	x->status = status;
	x->drain_until_ms = clock_mono_ms() + DRAIN_CAP_MS;
	timer_stop(&x->timeout);
	close_fdp(&x->slave);
	bool killed = (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) || (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
	x->oom = killed && oom_count() > x->oom_before;
	/* What it wrote is in the pipes already: read now, and in the usual case that is also their end. */
	for (int i = 0; i < 2; i++)
		if (!x->ended && x->out[i].w.fd >= 0)
			output_read(&x->out[i]);
}

/* --- the supervisor --- */

static void take_message(struct exec *x, const struct sup_message *m)
{
	switch ((enum sup_type)m->type) {
	case SUP_STARTED:
		x->started = true;
		x->main = m->pid;
		if (x->timeout_ms)
			timer_arm(&x->in->loop, &x->timeout, x->timeout_ms);
		exec_deliver(x);
		return;
	case SUP_FAILED:
		exec_not_started(x, (enum mux_error)m->error, m->text);
		return;
	case SUP_EXITED:
		if (m->more)
			pids_add(&x->in->leaving, x->supervisor);
		if (!x->in->subreaper && !x->why)
			reap_leave_group(x->in, x->main);
		else if (!x->in->subreaper)
			reap_kill_group(x->in, x->main); /* what was lost since the first time */
		exited(x, m->status);
		exec_maybe_end(x);
		return;
	case SUP_SIGNAL:
	case SUP_KILL:
		return;
	}
}

/* The socket closed: the supervisor has ended, as it should behind its last message, or because something killed it. */
static void supervisor_gone(struct exec *x)
{
	watch_close(&x->in->loop, &x->sup);
	if (!x->started && !x->ended) {
		exec_not_started(x, MUX_ERR_RESOURCES, "the command's supervisor was killed before the command started");
		return;
	}
	if (!x->exited) {
		/* Its processes are init's now; the status of the first one will come from the reaper. */
		reap_hunt(x->in);
		if (!timer_armed(&x->give_up))
			timer_arm(&x->in->loop, &x->give_up, GIVE_UP_MS);
	}
	exec_maybe_end(x);
}

static void read_supervisor(struct exec *x)
{
	struct sup_message m;
	int r = 0;
	while (x->sup.fd >= 0 && (r = sup_receive(x->sup.fd, &m)) > 0)
		take_message(x, &m);
	if (x->sup.fd >= 0 && r < 0)
		supervisor_gone(x);
}

static void supervisor_ready(struct watch *w, uint32_t events)
{
	(void)events;
	read_supervisor(container_of(w, struct exec, sup));
}

void exec_watch_supervisor(struct exec *x, int take_sock)
{
	if (watch_open(&x->in->loop, &x->sup, take_sock, EPOLLIN) < 0)
		exec_not_started(x, MUX_ERR_RESOURCES, "out of memory for events inside the sandbox");
}

bool exec_awaits_reaper(const struct init *in)
{
	for (const struct exec *x = in->execs; x; x = x->next)
		if (x->started && !x->exited && x->sup.fd < 0)
			return true;
	return false;
}

bool exec_reaped(struct init *in, pid_t pid, int status)
{
	for (struct exec *x = in->execs; x; x = x->next) {
		if (x->supervisor == pid) {
			x->supervisor = 0;
			read_supervisor(x); /* its last words come before its end */
			return true;
		}
		if (x->main == pid && x->sup.fd < 0 && !x->exited) {
			exited(x, status);
			exec_maybe_end(x);
			return true;
		}
	}
	return false;
}

/* --- ending it from outside --- */

void exec_kill(struct exec *x, enum mux_outcome why)
{
	int64_t grace = why == MUX_OUTCOME_TIMEOUT ? TIMEOUT_GRACE_MS : CANCEL_GRACE_MS;
	struct sup_message m = { .type = SUP_KILL, .status = (int32_t)grace, .more = x->terminal };
	if (x->ended || x->exited || x->why)
		return;
	x->why = why;
	timer_stop(&x->timeout);
	if (x->sup.fd >= 0)
		sup_send(x->sup.fd, &m);
	timer_arm(&x->in->loop, &x->give_up, grace + GIVE_UP_MS);
	if (!x->in->subreaper && x->main)
		reap_kill_group(x->in, x->main);
}

static void timed_out(struct timer *t)
{
	exec_kill(container_of(t, struct exec, timeout), MUX_OUTCOME_TIMEOUT);
}

static void gave_up(struct timer *t)
{
	struct exec *x = container_of(t, struct exec, give_up);
	x->cut = true;
	free(x->message);
	x->message = xstrdup("some of its processes could not be ended; they go when the sandbox does");
	if (!x->exited) {
		x->exited = true;
		x->why = x->why ? x->why : MUX_OUTCOME_LOST;
	}
	stop_outputs(x);
	exec_maybe_end(x);
}
