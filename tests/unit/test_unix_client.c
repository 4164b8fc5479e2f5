/* The HTTP client against a server that says exactly what each test wants, in pieces, late, or not at all. */
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/http/answer.h"
#include "shared/http/unix_client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* --- a scripted server ------------------------------------------------------------------------------------------- */

enum act_kind { ACT_END, ACT_HEAD, ACT_READ, ACT_SEND, ACT_DRIP, ACT_SLEEP, ACT_CLOSE, ACT_UNTIL_EOF };

/* HEAD: read a request's head; READ: n body bytes; SEND: text; DRIP: text byte by byte; SLEEP: n ms; CLOSE: end the connection (the next
 * act accepts a new one). */
struct act {
	enum act_kind kind;
	const char *text;
	size_t n;
};

struct server {
	char dir[64];
	char *path;
	int listener, fd;
	const struct act *acts;
	struct buf seen; /* every request head and body byte */
	unsigned accepted;
	pthread_t thread;
	bool joined;
};

static void server_read_head(struct server *s)
{
	size_t from = s->seen.len;
	char b;
	while (read(s->fd, &b, 1) == 1) {
		buf_addc(&s->seen, b);
		if (s->seen.len - from >= 4 && memcmp(s->seen.data + s->seen.len - 4, "\r\n\r\n", 4) == 0)
			return;
	}
}

static void server_read(struct server *s, size_t n)
{
	char *to = buf_reserve(&s->seen, n);
	ssize_t got = io_read_full(s->fd, to, n);
	buf_commit(&s->seen, got > 0 ? (size_t)got : 0);
}

static void server_until_eof(struct server *s)
{
	char piece[4096];
	for (ssize_t n; (n = read(s->fd, piece, sizeof(piece))) > 0;)
		buf_add(&s->seen, piece, (size_t)n);
}

static void server_act(struct server *s, const struct act *a)
{
	size_t n = a->text ? (a->n ? a->n : strlen(a->text)) : 0;
	switch (a->kind) {
	case ACT_HEAD:
		server_read_head(s);
		break;
	case ACT_READ:
		server_read(s, a->n);
		break;
	case ACT_SEND:
		send(s->fd, a->text, n, MSG_NOSIGNAL);
		break;
	case ACT_DRIP:
		for (size_t i = 0; i < n; i++)
			send(s->fd, a->text + i, 1, MSG_NOSIGNAL);
		break;
	case ACT_SLEEP:
		poll(NULL, 0, (int)a->n);
		break;
	case ACT_CLOSE:
		close_fdp(&s->fd);
		break;
	case ACT_UNTIL_EOF:
		server_until_eof(s);
		break;
	case ACT_END:
		break;
	}
}

static void *server_main(void *arg)
{
	struct server *s = arg;
	for (const struct act *a = s->acts; a->kind != ACT_END; a++) {
		if (s->fd < 0) {
			s->fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
			s->accepted++;
		}
		server_act(s, a);
	}
	close_fdp(&s->fd);
	return NULL;
}

static void server_start(struct server *s, const struct act *acts)
{
	*s = (struct server){ .fd = -1, .acts = acts };
	snprintf(s->dir, sizeof(s->dir), "/tmp/unix-client.XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	s->path = xasprintf("%s/s", s->dir);
	struct error err = ERROR_INIT;
	s->listener = io_listen_unix(s->path, 0600, 8, &err);
	assert_true(s->listener >= 0);
	assert_int_equal(pthread_create(&s->thread, NULL, server_main, s), 0);
}

/* After this `seen` and `accepted` are settled. */
static void server_join(struct server *s)
{
	if (s->joined)
		return;
	pthread_join(s->thread, NULL);
	s->joined = true;
}

static void server_stop(struct server *s)
{
	server_join(s);
	close(s->listener);
	unlink(s->path);
	rmdir(s->dir);
	free(s->path);
	buf_done(&s->seen);
}

static struct unix_client *dial(const struct server *s)
{
	struct unix_client *c = NULL;
	struct error err = ERROR_INIT;
	assert_int_equal(unix_client_connect(s->path, &c, &err), 0);
	return c;
}

/* One GET against a server that follows acts. Returns the call's result. */
static int get_once(const struct act *acts, int64_t timeout_ms, struct http_answer *a, struct error *err)
{
	struct server s;
	server_start(&s, acts);
	struct unix_client *c = dial(&s);
	int rc = unix_client_request(c, "GET", "/x", NULL, NULL, 0, timeout_ms, a, err);
	unix_client_free(c);
	server_stop(&s);
	return rc;
}

#define OK "HTTP/1.1 200 OK\r\n"

/* --- answers that are right --------------------------------------------------------------------------------------- */

static void test_good_answers(void **state)
{
	(void)state;
	static const struct {
		const char *wire;
		int status;
		const char *body;
	} rows[] = {
		{ OK "Content-Length: 5\r\n\r\nhello", 200, "hello" },
		{ OK "content-length:5\r\n\r\nhello", 200, "hello" },
		{ OK "Content-Length: 0\r\n\r\n", 200, "" },
		{ OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200, "hello" },
		{ OK "Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: a\r\n\r\n", 200, "hello" },
		{ OK "Transfer-Encoding: CHUNKED\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n", 200, "0123456789" },
		{ OK "Connection: close\r\n\r\nuntil the end", 200, "until the end" },
		{ "HTTP/1.1 204 No Content\r\n\r\n", 204, "" },
		{ "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", 404, "{}" },
		{ "HTTP/1.1 100 Continue\r\n\r\n" OK "Content-Length: 1\r\n\r\nx", 200, "x" },
		{ "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 102 P\r\n\r\n" OK "Content-Length: 1\r\n\r\nx", 200, "x" },
		{ "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", 200, "x" },
		{ "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, "x" },
	};
	for (size_t i = 0; i < 2 * ARRAY_LEN(rows); i++) {
		const size_t r = i / 2;
		struct http_answer a = { .status = 0 };
		struct error err = ERROR_INIT;
		const struct act acts[] = { { .kind = ACT_HEAD }, { .kind = i % 2 ? ACT_DRIP : ACT_SEND, .text = rows[r].wire }, { .kind = ACT_CLOSE },
					    { .kind = ACT_END } };
		if (get_once(acts, 5000, &a, &err) != 0)
			fail_msg("row %zu: %s", r, err.message);
		assert_int_equal(a.status, rows[r].status);
		assert_string_equal(buf_str(&a.body), rows[r].body);
		http_answer_done(&a);
	}
}

static void test_body_may_hold_any_byte(void **state)
{
	(void)state;
	static const char wire[] = OK "Content-Length: 4\r\n\r\na\0\xff\n";
	const struct act acts[] = { { .kind = ACT_HEAD }, { .kind = ACT_SEND, .text = wire, .n = sizeof(wire) - 1 }, { .kind = ACT_END } };
	struct http_answer a = { .status = 0 };
	struct error err = ERROR_INIT;
	assert_int_equal(get_once(acts, 5000, &a, &err), 0);
	assert_int_equal(a.body.len, 4);
	assert_memory_equal(a.body.data, "a\0\xff\n", 4);
	http_answer_done(&a);
}

static void test_headers_are_found_in_lower_case(void **state)
{
	(void)state;
	const struct act acts[] = { { .kind = ACT_HEAD },
				    { .kind = ACT_SEND, .text = OK "X-Request-ID:  abc \r\nX-A: 1\r\nX-a: 2\r\nContent-Length: 0\r\n\r\n" },
				    { .kind = ACT_END } };
	struct http_answer a = { .status = 0 };
	struct error err = ERROR_INIT;
	assert_int_equal(get_once(acts, 5000, &a, &err), 0);
	assert_string_equal(map_get(&a.headers, "x-request-id"), "abc");
	assert_string_equal(map_get(&a.headers, "x-a"), "1, 2");
	assert_string_equal(a.reason, "OK");
	http_answer_done(&a);
}

/* --- answers that are not ------------------------------------------------------------------------------------------ */

static void test_bad_answers_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *wire;
		enum error_code code;
	} rows[] = {
		{ "", ERR_UNREACHABLE },
		{ "garbage\r\n\r\n", ERR_PROTOCOL },
		{ "SSH-2.0-OpenSSH\r\n", ERR_PROTOCOL },
		{ "HTTP/2 200 OK\r\n\r\n", ERR_PROTOCOL },
		{ "HTTP/1.1 20 OK\r\n\r\n", ERR_PROTOCOL },
		{ "HTTP/1.1 abc OK\r\n\r\n", ERR_PROTOCOL },
		{ "HTTP/1.1 099 OK\r\n\r\n", ERR_PROTOCOL },
		{ "HTTP/1.1 2000 OK\r\n\r\n", ERR_PROTOCOL },
		{ "HTTP/1.1 200 OK\r\nContent-Le", ERR_PROTOCOL },
		{ "HTTP/1.1 200 OK\nContent-Length: 0\n\n", ERR_PROTOCOL },
		{ OK "no colon\r\n\r\n", ERR_PROTOCOL },
		{ OK ": empty\r\n\r\n", ERR_PROTOCOL },
		{ OK "A b: c\r\n\r\n", ERR_PROTOCOL },
		{ OK "A: b\r\n folded: c\r\n\r\n", ERR_PROTOCOL },
		{ OK "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", ERR_PROTOCOL },
		{ OK "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ERR_PROTOCOL },
		{ OK "Content-Length: +5\r\n\r\nhello", ERR_PROTOCOL },
		{ OK "Content-Length: -1\r\n\r\n", ERR_PROTOCOL },
		{ OK "Content-Length: 0x5\r\n\r\nhello", ERR_PROTOCOL },
		{ OK "Content-Length: \r\n\r\n", ERR_PROTOCOL },
		{ OK "Content-Length: 99999999999999999999\r\n\r\n", ERR_PROTOCOL },
		{ OK "Content-Length: 10\r\n\r\nshort", ERR_PROTOCOL },
		{ OK "Transfer-Encoding: gzip\r\n\r\n", ERR_PROTOCOL },
		{ OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhel", ERR_PROTOCOL },
		{ OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello", ERR_PROTOCOL },
		{ OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n", ERR_PROTOCOL },
		{ OK "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF1\r\n", ERR_PROTOCOL },
		{ OK "Transfer-Encoding: chunked\r\n\r\n-1\r\n", ERR_PROTOCOL },
		{ OK "Transfer-Encoding: chunked\r\n\r\n\r\n", ERR_PROTOCOL },
		{ OK "Transfer-Encoding: chunked\r\n\r\n0\r\n", ERR_PROTOCOL },
		{ "HTTP/1.1 101 Switching Protocols\r\n\r\n", ERR_PROTOCOL },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct http_answer a = { .status = 0 };
		struct error err = ERROR_INIT;
		const struct act acts[] = { { .kind = ACT_HEAD }, { .kind = ACT_SEND, .text = rows[i].wire }, { .kind = ACT_END } };
		if (get_once(acts, 5000, &a, &err) != -1)
			fail_msg("row %zu was accepted: %s", i, rows[i].wire);
		if (err.code != rows[i].code)
			fail_msg("row %zu: code %s, %s", i, error_wire(err.code), err.message);
		assert_null(a.body.data);
	}
}

static void test_limits(void **state)
{
	(void)state;
	auto_buf head = BUF_INIT, body = BUF_INIT;
	buf_adds(&head, OK "X: ");
	while (head.len < LIMIT_HTTP_HEAD_MAX + 10)
		buf_addc(&head, 'a');
	buf_adds(&body, OK "Connection: close\r\n\r\n");
	char *to = buf_reserve(&body, LIMIT_JSON_BYTES_MAX + 1);
	memset(to, 'x', LIMIT_JSON_BYTES_MAX + 1);
	buf_commit(&body, LIMIT_JSON_BYTES_MAX + 1);
	const struct buf *wires[] = { &head, &body };
	for (size_t i = 0; i < 2; i++) {
		struct http_answer a = { .status = 0 };
		struct error err = ERROR_INIT;
		const struct act acts[] = { { .kind = ACT_HEAD }, { .kind = ACT_SEND, .text = wires[i]->data, .n = wires[i]->len }, { .kind = ACT_END } };
		assert_int_equal(get_once(acts, 5000, &a, &err), -1);
		assert_int_equal(err.code, ERR_TOO_LARGE);
		assert_non_null(strstr(err.message, "limit"));
	}
}

static void test_silence_ends_at_the_deadline(void **state)
{
	(void)state;
	const struct act silent[] = { { .kind = ACT_HEAD }, { .kind = ACT_UNTIL_EOF }, { .kind = ACT_END } };
	const struct act stalled[] = { { .kind = ACT_HEAD }, { .kind = ACT_SEND, .text = OK "Content-Length: 5\r\n\r\nhe" },
				       { .kind = ACT_UNTIL_EOF }, { .kind = ACT_END } };
	const struct act *both[] = { silent, stalled };
	for (size_t i = 0; i < 2; i++) {
		struct http_answer a = { .status = 0 };
		struct error err = ERROR_INIT;
		int64_t start = clock_mono_ms();
		assert_int_equal(get_once(both[i], 200, &a, &err), -1);
		assert_int_equal(err.code, ERR_TIMEOUT);
		assert_int_equal(err.sys, 0);
		assert_in_range(clock_mono_ms() - start, 190, 3000);
	}
}

static void test_an_interrupt_ends_a_wait(void **state)
{
	(void)state;
	const struct act acts[] = { { .kind = ACT_HEAD }, { .kind = ACT_UNTIL_EOF }, { .kind = ACT_END } };
	struct server s;
	int fds[2];
	assert_int_equal(pipe(fds), 0);
	server_start(&s, acts);
	struct unix_client *c = dial(&s);
	struct http_answer a = { .status = 0 };
	struct error err = ERROR_INIT;
	unix_client_set_interrupt(c, fds[0]);
	assert_int_equal(write(fds[1], "", 1), 1);
	assert_int_equal(unix_client_request(c, "GET", "/x", NULL, NULL, 0, 10000, &a, &err), -1);
	assert_int_equal(err.code, ERR_TIMEOUT);
	assert_int_equal(err.sys, EINTR);
	unix_client_free(c);
	server_stop(&s);
	close(fds[0]);
	close(fds[1]);
}

/* --- connections --------------------------------------------------------------------------------------------------- */

static void test_a_missing_socket_is_unreachable(void **state)
{
	(void)state;
	struct unix_client *c = NULL;
	struct error err = ERROR_INIT;
	assert_int_equal(unix_client_connect("/nonexistent/sock", &c, &err), -1);
	assert_int_equal(err.code, ERR_UNREACHABLE);
	assert_int_equal(err.sys, ENOENT);
	assert_null(c);
}

static void test_a_connection_is_kept(void **state)
{
	(void)state;
	const struct act acts[] = { { .kind = ACT_HEAD }, { .kind = ACT_SEND, .text = OK "Content-Length: 1\r\n\r\na" }, { .kind = ACT_HEAD },
				    { .kind = ACT_READ, .n = 3 }, { .kind = ACT_SEND, .text = OK "Content-Length: 1\r\n\r\nb" }, { .kind = ACT_END } };
	struct server s;
	server_start(&s, acts);
	struct unix_client *c = dial(&s);
	struct http_answer a = { .status = 0 }, b = { .status = 0 };
	struct error err = ERROR_INIT;
	assert_int_equal(unix_client_request(c, "GET", "/1", NULL, NULL, 0, 5000, &a, &err), 0);
	assert_int_equal(unix_client_request(c, "POST", "/2", NULL, "abc", 3, 5000, &b, &err), 0);
	assert_string_equal(buf_str(&b.body), "b");
	http_answer_done(&a);
	http_answer_done(&b);
	unix_client_free(c);
	server_join(&s);
	assert_int_equal(s.accepted, 1);
	assert_non_null(strstr(buf_str(&s.seen), "POST /2 HTTP/1.1\r\n"));
	assert_non_null(strstr(buf_str(&s.seen), "Content-Length: 3\r\n"));
	server_stop(&s);
}

/* A kept connection that the server closed: noticed before sending, so any method may go on a new one. */
static void test_a_closed_connection_is_dialled_again(void **state)
{
	(void)state;
	static const char *const methods[] = { "GET", "POST" };
	for (size_t i = 0; i < 2; i++) {
		const struct act acts[] = { { .kind = ACT_HEAD }, { .kind = ACT_SEND, .text = OK "Content-Length: 1\r\n\r\na" }, { .kind = ACT_CLOSE },
					    { .kind = ACT_HEAD }, { .kind = ACT_SEND, .text = OK "Content-Length: 1\r\n\r\nb" }, { .kind = ACT_END } };
		struct server s;
		server_start(&s, acts);
		struct unix_client *c = dial(&s);
		struct http_answer a = { .status = 0 }, b = { .status = 0 };
		struct error err = ERROR_INIT;
		assert_int_equal(unix_client_request(c, "GET", "/1", NULL, NULL, 0, 5000, &a, &err), 0);
		struct pollfd p = { .fd = unix_client_fd(c), .events = POLLIN };
		assert_int_equal(poll(&p, 1, 5000), 1);
		assert_int_equal(unix_client_request(c, methods[i], "/2", NULL, NULL, 0, 5000, &b, &err), 0);
		assert_string_equal(buf_str(&b.body), "b");
		http_answer_done(&a);
		http_answer_done(&b);
		unix_client_free(c);
		server_stop(&s);
	}
}

/* Once a POST was sent, nobody but the caller knows whether it may be sent again. */
static void test_an_unanswered_post_is_not_repeated(void **state)
{
	(void)state;
	const struct act acts[] = { { .kind = ACT_HEAD }, { .kind = ACT_SEND, .text = OK "Content-Length: 1\r\n\r\na" }, { .kind = ACT_HEAD },
				    { .kind = ACT_END } };
	struct server s;
	server_start(&s, acts);
	struct unix_client *c = dial(&s);
	struct http_answer a = { .status = 0 }, b = { .status = 0 };
	struct error err = ERROR_INIT;
	assert_int_equal(unix_client_request(c, "GET", "/1", NULL, NULL, 0, 5000, &a, &err), 0);
	assert_int_equal(unix_client_request(c, "POST", "/2", NULL, NULL, 0, 5000, &b, &err), -1);
	assert_int_equal(err.code, ERR_UNREACHABLE);
	assert_non_null(strstr(err.message, "unknown"));
	http_answer_done(&a);
	unix_client_free(c);
	server_stop(&s);
}

static void test_an_early_refusal_of_a_large_body_is_read(void **state)
{
	(void)state;
	const struct act acts[] = { { .kind = ACT_HEAD },
				    { .kind = ACT_SEND, .text = "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig" },
				    { .kind = ACT_SLEEP, .n = 50 }, { .kind = ACT_END } };
	struct server s;
	server_start(&s, acts);
	struct unix_client *c = dial(&s);
	struct http_answer a = { .status = 0 };
	struct error err = ERROR_INIT;
	size_t n = 32 * 1024 * 1024;
	auto_free char *body = xcalloc(n, 1);
	assert_int_equal(unix_client_request(c, "POST", "/x", NULL, body, n, 10000, &a, &err), 0);
	assert_int_equal(a.status, 413);
	assert_string_equal(buf_str(&a.body), "big");
	http_answer_done(&a);
	unix_client_free(c);
	server_stop(&s);
}

static void test_headers_cannot_be_split(void **state)
{
	(void)state;
	const struct act acts[] = { { .kind = ACT_UNTIL_EOF }, { .kind = ACT_END } };
	struct server s;
	server_start(&s, acts);
	struct unix_client *c = dial(&s);
	struct http_answer a = { .status = 0 };
	struct error err = ERROR_INIT;
	auto_map headers = MAP_INIT;
	map_set(&headers, "Idempotency-Key", "a\r\nX: y");
	assert_int_equal(unix_client_request(c, "GET", "/x", &headers, NULL, 0, 1000, &a, &err), -1);
	assert_int_equal(err.code, ERR_INVALID);
	assert_int_equal(unix_client_request(c, "GET", "/a b", NULL, NULL, 0, 1000, &a, &err), -1);
	assert_int_equal(err.code, ERR_INVALID);
	unix_client_free(c);
	server_join(&s);
	assert_int_equal(s.seen.len, 0);
	server_stop(&s);
}

/* --- streams and upgrades ------------------------------------------------------------------------------------------ */

static int collect(void *ctx, const char *p, size_t n, struct error *err)
{
	(void)err;
	buf_add(ctx, p, n);
	return 0;
}

static int refuse(void *ctx, const char *p, size_t n, struct error *err)
{
	(void)ctx;
	(void)p;
	(void)n;
	return error_set(err, ERR_CONFLICT, "enough");
}

static void test_a_body_comes_as_it_is_sent_and_may_be_refused(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		const struct act acts[] = { { .kind = ACT_HEAD },
					    { .kind = ACT_SEND, .text = OK "Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n" },
					    { .kind = ACT_SLEEP, .n = 30 },
					    { .kind = ACT_SEND, .text = "3\r\ntwo\r\n0\r\n\r\n" },
					    { .kind = ACT_END } };
		struct server s;
		server_start(&s, acts);
		struct unix_client *c = dial(&s);
		auto_buf got = BUF_INIT;
		struct http_answer a = { .status = 0 };
		struct error err = ERROR_INIT;
		struct http_request q = { .method = "GET", .target = "/x", .timeout_ms = 5000, .on_body = i ? refuse : collect, .ctx = &got };
		int rc = unix_client_send(c, &q, &a, &err);
		assert_int_equal(rc, i ? -1 : 0);
		if (i)
			assert_int_equal(err.code, ERR_CONFLICT);
		else
			assert_string_equal(buf_str(&got), "onetwo");
		http_answer_done(&a);
		unix_client_free(c);
		server_stop(&s);
	}
}

static void test_a_body_from_a_descriptor_is_sent_in_chunks(void **state)
{
	(void)state;
	const struct act acts[] = { { .kind = ACT_HEAD }, { .kind = ACT_READ, .n = 5 + 5 + 5 }, { .kind = ACT_SEND, .text = OK "Content-Length: 0\r\n\r\n" },
				    { .kind = ACT_END } };
	struct server s;
	int fds[2];
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], "hello", 5), 5);
	close(fds[1]);
	server_start(&s, acts);
	struct unix_client *c = dial(&s);
	struct http_answer a = { .status = 0 };
	struct error err = ERROR_INIT;
	struct http_request q = { .method = "POST", .target = "/x", .timeout_ms = 5000, .from_fd = true, .body_fd = fds[0] };
	assert_int_equal(unix_client_send(c, &q, &a, &err), 0);
	unix_client_free(c);
	server_join(&s);
	assert_non_null(strstr(buf_str(&s.seen), "Transfer-Encoding: chunked\r\n"));
	assert_null(strstr(buf_str(&s.seen), "Content-Length"));
	assert_non_null(strstr(buf_str(&s.seen), "5\r\nhello\r\n0\r\n\r\n"));
	http_answer_done(&a);
	close(fds[0]);
	server_stop(&s);
}

static void test_an_upgrade_hands_over_every_byte(void **state)
{
	(void)state;
	const struct act acts[] = { { .kind = ACT_HEAD }, { .kind = ACT_READ, .n = 5 },
				    { .kind = ACT_SEND, .text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: sandbox-mux\r\nConnection: Upgrade\r\n\r\nrest" },
				    { .kind = ACT_READ, .n = 2 }, { .kind = ACT_SEND, .text = "more" }, { .kind = ACT_END } };
	struct server s;
	server_start(&s, acts);
	auto_buf rest = BUF_INIT;
	struct error err = ERROR_INIT;
	int fd = -1;
	assert_int_equal(unix_client_upgrade(dial(&s), "/v1/mux", "early", 5, &fd, &rest, &err), 0);
	assert_string_equal(buf_str(&rest), "rest");
	assert_int_equal(write(fd, "hi", 2), 2);
	char got[4];
	assert_int_equal(io_read_full(fd, got, 4), 4);
	assert_memory_equal(got, "more", 4);
	close(fd);
	server_join(&s);
	assert_non_null(strstr(buf_str(&s.seen), "Upgrade: sandbox-mux\r\n"));
	assert_non_null(strstr(buf_str(&s.seen), "\r\n\r\nearlyhi"));
	server_stop(&s);
}

static void test_a_refused_upgrade_gives_the_servers_error(void **state)
{
	(void)state;
	static const struct {
		const char *wire;
		enum error_code code;
		const char *part;
	} rows[] = {
		{ "HTTP/1.1 403 Forbidden\r\nContent-Length: 40\r\n\r\n{\"code\":\"forbidden\",\"message\":\"not you\"}", ERR_FORBIDDEN, "not you" },
		{ "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>", ERR_PROTOCOL, "502 Bad Gateway" },
		{ OK "Content-Length: 2\r\n\r\n{}", ERR_PROTOCOL, "200" },
		{ "", ERR_UNREACHABLE, "without an answer" },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct act acts[] = { { .kind = ACT_HEAD }, { .kind = ACT_SEND, .text = rows[i].wire }, { .kind = ACT_END } };
		struct server s;
		server_start(&s, acts);
		auto_buf rest = BUF_INIT;
		struct error err = ERROR_INIT;
		int fd = -1;
		assert_int_equal(unix_client_upgrade(dial(&s), "/v1/mux", NULL, 0, &fd, &rest, &err), -1);
		assert_int_equal(err.code, rows[i].code);
		assert_non_null(strstr(err.message, rows[i].part));
		assert_int_equal(fd, -1);
		server_stop(&s);
	}
}

static void test_url_encoding(void **state)
{
	(void)state;
	auto_free char *a = url_encode("a/b c?&%\xc3\xa9~._-Z9");
	assert_string_equal(a, "a%2Fb%20c%3F%26%25%C3%A9~._-Z9");
	auto_free char *b = url_encode("");
	assert_string_equal(b, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_answers),
		cmocka_unit_test(test_body_may_hold_any_byte),
		cmocka_unit_test(test_headers_are_found_in_lower_case),
		cmocka_unit_test(test_bad_answers_are_refused),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_silence_ends_at_the_deadline),
		cmocka_unit_test(test_an_interrupt_ends_a_wait),
		cmocka_unit_test(test_a_missing_socket_is_unreachable),
		cmocka_unit_test(test_a_connection_is_kept),
		cmocka_unit_test(test_a_closed_connection_is_dialled_again),
		cmocka_unit_test(test_an_unanswered_post_is_not_repeated),
		cmocka_unit_test(test_an_early_refusal_of_a_large_body_is_read),
		cmocka_unit_test(test_headers_cannot_be_split),
		cmocka_unit_test(test_a_body_comes_as_it_is_sent_and_may_be_refused),
		cmocka_unit_test(test_a_body_from_a_descriptor_is_sent_in_chunks),
		cmocka_unit_test(test_an_upgrade_hands_over_every_byte),
		cmocka_unit_test(test_a_refused_upgrade_gives_the_servers_error),
		cmocka_unit_test(test_url_encoding),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
