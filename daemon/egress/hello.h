/* The server name of a TLS ClientHello. Pure, bounded; the bytes come from a sandbox. */
#ifndef SANDBOX_DAEMON_EGRESS_HELLO_H
#define SANDBOX_DAEMON_EGRESS_HELLO_H

#include <stddef.h>
#include <stdint.h>

enum { HELLO_NAME_MAX = 255, HELLO_BYTES_MAX = 64 * 1024 };

enum hello { HELLO_MORE, HELLO_READ, HELLO_BAD };

/* HELLO_READ: name is what it names, "" when it names nothing. HELLO_MORE: the hello is not complete. HELLO_BAD: this is no hello. */
enum hello hello_read(const uint8_t *p, size_t n, char name[static HELLO_NAME_MAX + 1]);

#endif
