/*
 * Any bytes as a Docker Engine's answers: every question that the runtime asks is answered or fails with a line to show, within its
 * bounds. First byte: which question; second: raw HTTP, or a status around a body. Questions that touch the processes an answer names
 * are not asked: they would be this machine's.
 * fuzz-archives: daemon
 */
#include "daemon/runtime/docker.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static const int statuses[] = { 200, 201, 204, 304, 400, 404, 409, 500 };

static char path[64];
static struct runtime *rt;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const uint8_t *now;
static size_t now_len;

/* One request's head and body. False: the client has gone. */
static bool take_request(int fd, char *head, size_t n)
{
	size_t len = 0;
	const char *end = NULL, *length;

	while (len + 1 < n && !end) {
		ssize_t r = recv(fd, head + len, n - len - 1, 0);
		if (r <= 0)
			return false;
		len += (size_t)r;
		head[len] = '\0';
		end = strstr(head, "\r\n\r\n");
	}
	length = end ? strcasestr(head, "\r\nContent-Length:") : NULL;
	for (size_t left = length && length < end ? strtoul(length + 17, NULL, 10) : 0, have = end ? len - (size_t)(end + 4 - head) : 0; have < left;) {
		char rest[4096];
		ssize_t r = recv(fd, rest, sizeof(rest), 0);
		if (r <= 0)
			return false;
		have += (size_t)r;
	}
	return end != NULL;
}

static void answer(int fd, int status, const void *body, size_t n)
{
	char head[128];
	int len = snprintf(head, sizeof(head), "HTTP/1.1 %d x\r\nContent-Length: %zu\r\n\r\n", status, n);

	(void)!send(fd, head, (size_t)len, MSG_NOSIGNAL);
	(void)!send(fd, body, n, MSG_NOSIGNAL);
}

static void serve_one(int fd)
{
	static const char version[] = "{\"Version\":\"20.10.24\",\"ApiVersion\":\"1.41\",\"MinAPIVersion\":\"1.12\"}";
	char head[8192];
	bool raw = false;

	while (!raw && take_request(fd, head, sizeof(head))) {
		if (strncmp(head, "GET /version ", 13) == 0) {
			answer(fd, 200, version, sizeof(version) - 1);
			continue;
		}
		pthread_mutex_lock(&lock);
		raw = now_len > 0 && now[0] & 0x80;
		if (raw)
			(void)!send(fd, now + 1, now_len - 1, MSG_NOSIGNAL);
		else if (now_len > 0)
			answer(fd, statuses[now[0] % ARRAY_LEN(statuses)], now + 1, now_len - 1);
		pthread_mutex_unlock(&lock);
	}
}

static void *serve(void *arg)
{
	int listening = *(int *)arg;

	for (;;) {
		int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		serve_one(fd);
		close(fd);
	}
	return NULL;
}

static void gone(void)
{
	(void)unlink(path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static int listening;
	struct docker_options o = { .socket = path, .node = id_new(), .allowed_registries = "*", .gvisor_runtime = "runsc" };
	pthread_t thread;

	(void)argc;
	(void)argv;
	snprintf(path, sizeof(path), "/tmp/sbx-fuzz-docker.%d", (int)getpid());
	listening = io_listen_unix(path, 0600, 16, NULL);
	if (listening < 0 || pthread_create(&thread, NULL, serve, &listening) != 0 || docker_runtime_new(&o, &rt, NULL) != 0)
		abort();
	atexit(gone);
	return 0;
}

static void ask_images(unsigned which, struct error *err)
{
	struct image_config config;
	struct image_list list;

	if (which == 0 && rt->ops->image_resolve(rt, "alpine:3", &config, err) == 0)
		image_config_done(&config);
	else if (which == 1 && rt->ops->image_list(rt, &list, err) == 0)
		image_list_done(&list);
	else if (which == 2)
		(void)rt->ops->image_remove(rt, "alpine:3", err);
}

static void ask_create(const struct id *sandbox, struct error *err)
{
	struct spec spec;
	struct runtime_create q = { .sandbox_id = *sandbox, .spec = &spec, .tier = TIER_CONTAINER, .image_digest = "sha256:00", .init_path = "/bin/true",
		                    .io_dir = "/tmp" };

	spec_init(&spec);
	spec.resources = (struct resources){ .cpu_millis = 100, .memory_mib = 64, .pids = 8, .disk_mib = 64 };
	(void)rt->ops->create(rt, &q, err);
	spec_done(&spec);
}

static void ask(unsigned which, struct error *err)
{
	struct id sandbox = id_new();
	struct runtime_status status = { .state = RUNTIME_ABSENT };
	struct owned_list owned;
	int64_t bytes;
	char text[256];

	switch (which % 8) {
	case 0:
		if (rt->ops->inspect(rt, &sandbox, &status, err) == 0 && status.state != RUNTIME_RUNNING && status.pid != 0)
			abort();
		break;
	case 1:
		if (rt->ops->list_owned(rt, &owned, err) == 0)
			owned_list_done(&owned);
		break;
	case 2:
	case 3:
	case 4:
		ask_images(which % 8 - 2, err);
		break;
	case 5:
		(void)rt->ops->root_bytes(rt, &sandbox, &bytes, err);
		break;
	case 6:
		ask_create(&sandbox, err);
		break;
	case 7:
		if (rt->ops->ping(rt, text, sizeof(text), err) == 0 && strlen(text) >= sizeof(text))
			abort();
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error err = ERROR_INIT;

	if (size < 2 || size > 64 * 1024)
		return 0;
	pthread_mutex_lock(&lock);
	now = data + 1;
	now_len = size - 1;
	pthread_mutex_unlock(&lock);
	ask(data[0], &err);
	pthread_mutex_lock(&lock);
	now_len = 0;
	pthread_mutex_unlock(&lock);
	for (const char *p = err.message; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			abort();
	return 0;
}
