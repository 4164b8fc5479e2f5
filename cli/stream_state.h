/* The state of a running stream, shared by stream.c, stream_output.c and stream_resume.c alone. */
#ifndef SANDBOX_CLI_STREAM_STATE_H
#define SANDBOX_CLI_STREAM_STATE_H

#include "cli/feed.h"
#include "cli/localio.h"
#include "cli/stream.h"
#include "cli/terminal.h"

enum stream_phase {
	PHASE_OPENED,   /* OPEN sent, not accepted yet */
	PHASE_LIVE,
	PHASE_RESUMING, /* RESUME or ATTACH sent on a new connection */
	PHASE_ENDED,    /* closed; local output may still drain */
};

struct stream {
	struct muxconn conn; /* first: the mux's ctx is this struct */
	const struct stream_request *rq;
	struct stream_result *ret;
	uint32_t id;
	enum stream_phase phase;
	bool done;
	bool drain;               /* nothing more is wanted: done once local output is out */
	bool conn_ended;
	struct feed feed;
	struct outlet out[2];     /* stdout, stderr */
	bool holding;             /* what was there is held for its last lines */
	struct buf held[2];
	int64_t time_us[2];       /* when the bytes that come now arrived there; 0: not known */
	bool mid_line[2];
	uint64_t received[2];     /* offset in the command's output behind the last byte that came */
	uint64_t got[2];          /* the same by the connection's own count */
	uint64_t skew[2];         /* what to add to that count: gaps met on this connection */
	uint64_t now[2];          /* attach: totals of the command when it was accepted */
	char last_byte;           /* of what was shown */
	int size_fd;              /* whose size the remote terminal has */
	bool was_raw;
	bool background;
	uint64_t held_signals;    /* came before the command was accepted */
	int64_t signalled_ms;     /* last request to end, 0: none */
	int64_t end_by_ms;        /* the command must have ended by then, 0: none */
	int end_signal;
	bool cancelled;           /* after a SIGPIPE that did not help */
	int64_t leave_by_ms;      /* this side ends by then, 0: none */
	int64_t lost_ms;          /* when the connection broke, 0: it stands */
	int64_t resume_by_ms;
	bool told;                /* the user knows that the connection is broken */
	bool retry;               /* the server could not resume yet */
};

extern const struct mux_handler stream_handler;

void stream_say(const struct stream *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* This side wants to end: the remote is told, and has a moment to confirm. */
void stream_leave(struct stream *s, enum stream_left why, int detail);
void stream_signals(struct stream *s);
/* Accepted or resumed: what waited for that is sent. */
void stream_go_live(struct stream *s);

/* stream_output.c */
void stream_on_data(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *p, size_t n);
/* A CONTROL that tells when the next bytes arrived. */
void stream_take_time(struct stream *s, const struct tlv *control);
/* Its reader takes bytes again. */
void stream_flush_outlet(struct stream *s, unsigned i);

/* The new stream's counters start where the old one's ended. */
void stream_rebase(struct stream *s);
/* Where an attach really begins, and how much there is. */
void stream_take_start(struct stream *s, const struct tlv *accept);
/* Bytes in the middle are gone: the next one stands at the offset told. */
void stream_take_gap(struct stream *s, const struct tlv *control);
/* When an attach has what was there at its beginning: shows the lines held for --tail, ends one that wants no more. */
void stream_caught_up(struct stream *s);
void stream_release_tail(struct stream *s);
/* The connection ended without a CLOSE: a new one with the stream resumed, or the end. */
void stream_resume(struct stream *s);
void stream_resumed(struct stream *s, const struct tlv *accept);
/* The CLOSE that answered a resume: true when it was a refusal, which is tried again a little later or ends with the outcome lost. */
bool stream_resume_refused(struct stream *s, const struct tlv *close);
/* Ends with the outcome unknown. */
void stream_lost(struct stream *s, const char *why);

#endif
