/*
 * The mux over a serial port, for sandboxes that are machines of their own: a port has no connections, so chunks say
 * where one begins. Byte level: docs/runtime-driver.md. Both ends, sandbox-init and a driver's host side, use this.
 */
#ifndef SANDBOX_MUX_SERIAL_H
#define SANDBOX_MUX_SERIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SERIAL_NONCE_LEN = 16, SERIAL_HEAD_LEN = 4, SERIAL_CONTROL_MAX = SERIAL_HEAD_LEN + SERIAL_NONCE_LEN, SERIAL_DATA_MAX = 64 * 1024 };

enum serial_control {
	SERIAL_READY = 1,  /* guest: process 1 has opened the port */
	SERIAL_ATTACH = 2, /* host, with a nonce: a worker is there. Guest, with that nonce: what follows is that connection's */
	SERIAL_DETACH = 3, /* host: the worker has gone. Guest: the worker broke the protocol, hang up */
};

/* Takes chunks apart. Zeroed: at the start of a port. */
struct serial_reader {
	uint8_t head[SERIAL_CONTROL_MAX];
	size_t have; /* of head */
	size_t left; /* of the data chunk in hand */
};

struct serial_event {
	enum serial_control control; /* 0: data */
	const uint8_t *p;            /* data: borrowed from what was given; control ATTACH: the nonce, valid until the next call */
	size_t n;
};

/* Consumes a part of p[0..n), at least a byte: returns how many, 0 when these bytes are no chunk. *ret_some: ret holds an event. */
size_t serial_read(struct serial_reader *r, const void *p, size_t n, struct serial_event *ret, bool *ret_some);
/* The head of a data chunk of n bytes (1..SERIAL_DATA_MAX). */
void serial_data_head(uint8_t out[static SERIAL_HEAD_LEN], size_t n);
/* Writes a control chunk, returns its length. nonce: for ATTACH. */
size_t serial_control_chunk(uint8_t out[static SERIAL_CONTROL_MAX], enum serial_control c, const uint8_t *nonce);

#endif
