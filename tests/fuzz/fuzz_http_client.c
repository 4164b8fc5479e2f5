/* The bytes of a hostile server: whatever they are, the client answers or fails within its bounds. First byte: how to ask. */
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/http/unix_client.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int take(void *ctx, const char *p, size_t n, struct error *err)
{
	(void)p;
	(void)err;
	*(size_t *)ctx += n;
	return 0;
}

static void ask(struct unix_client *c, unsigned how)
{
	size_t total = 0;
	struct error err = ERROR_INIT;
	struct http_answer a = { .status = 0 };
	struct http_request q = { .method = how & 1 ? "POST" : "GET", .target = "/v1/x", .timeout_ms = 1000 };
	if (how & 2) {
		q.on_body = take;
		q.ctx = &total;
	}
	/* Twice: what is left of the first answer must not be taken for the second. */
	for (int i = 0; i < 2; i++) {
		if (unix_client_send(c, &q, &a, &err) == 0 && (a.status < 200 || a.body.len > LIMIT_JSON_BYTES_MAX))
			abort();
		http_answer_done(&a);
	}
	unix_client_free(c);
}

static void upgrade(struct unix_client *c)
{
	struct error err = ERROR_INIT;
	auto_buf rest = BUF_INIT;
	int fd = -1;
	if (unix_client_upgrade(c, "/v1/mux", "early", 5, &fd, &rest, &err) == 0)
		close(fd);
	else if (fd != -1 || err.code == ERR_NONE)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fds[2];
	if (size < 1 || size > 64 * 1024 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
		return 0;
	if (send(fds[1], data + 1, size - 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && size > 1) {
		close(fds[0]);
		close(fds[1]);
		return 0;
	}
	shutdown(fds[1], SHUT_WR);
	struct unix_client *c = unix_client_from_fd(fds[0]);
	if (data[0] & 4)
		upgrade(c);
	else
		ask(c, data[0]);
	close(fds[1]);
	return 0;
}
