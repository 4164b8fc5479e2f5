/* Images as archives of the engine, which carry them from one worker to another. */
#include "daemon/runtime/docker_internal.h"

#include "shared/base/parse.h"
#include "shared/model/image_ref.h"

#include <string.h>

enum { ARCHIVE_STALL_MS = 120 * 1000, LINE_MAX_BYTES = 64 * 1024 };

struct saving {
	image_sink sink;
	void *ctx;
};

static bool on_piece(void *ctx, const char *p, size_t n)
{
	struct saving *s = ctx;

	return n == 0 || s->sink(s->ctx, p, n);
}

int docker_image_save(struct runtime *rt, const char *image, image_sink sink, void *ctx, struct error *err)
{
	struct saving s = { .sink = sink, .ctx = ctx };
	struct engine_request r = { .method = "GET", .timeout_ms = -1, .stall_ms = ARCHIVE_STALL_MS, .on_data = on_piece, .ctx = &s };
	auto_engine_answer a = { .status = 0 };
	struct image_ref ref;

	if (image_ref_parse(image, &ref, err) != 0)
		return -1;
	if (ref.is_id || ref.digest[0])
		return error_set(err, ERR_INVALID, "image '%s': what goes to other workers needs a name with a tag, or nothing could find it there", image);
	auto_free char *path = xasprintf("/images/%s/get", ref.familiar);
	r.path = path;
	if (engine_call(docker_of(rt)->engine, &r, &a, err) != 0)
		return -1;
	if (a.status == 404)
		return error_set(err, ERR_NOT_FOUND, "no image '%s' on this machine", ref.familiar);
	return a.status / 100 == 2 ? 0 : docker_refused(&a, "saving the image", err);
}

/* The engine answers 200 at once; a failure is in the lines that follow. */
static bool on_line(void *ctx, const char *p, size_t n)
{
	struct buf *said = ctx;

	buf_add(said, p, n);
	return true;
}

static int failure_in(const struct buf *said, struct error *err)
{
	const char *at = buf_str(said);
	char text[ERROR_TEXT_MAX];

	for (const char *end; *at; at = *end ? end + 1 : end) {
		auto_json *j = NULL;

		end = strchrnul(at, '\n');
		if (json_parse(at, (size_t)(end - at), &j, NULL) != 0 || !*docker_str(j, "error"))
			continue;
		text_escape(docker_str(j, "error"), strlen(docker_str(j, "error")), text, sizeof(text));
		if (strstr(text, "no space left on device"))
			return error_set(err, ERR_NO_CAPACITY, "the engine's disk is full (%s)", text);
		return error_set(err, ERR_INVALID, "the engine does not take the archive: %s", text);
	}
	return 0;
}

int docker_image_load(struct runtime *rt, int fd, struct error *err)
{
	auto_buf said = BUF_INIT_MAX(LINE_MAX_BYTES);
	struct engine_request r = { .method = "POST", .path = "/images/load?quiet=1", .body_fd = fd, .body_from_fd = true,
				    .content_type = "application/x-tar", .timeout_ms = -1, .stall_ms = ARCHIVE_STALL_MS, .on_data = on_line, .ctx = &said };
	auto_engine_answer a = { .status = 0 };

	if (engine_call(docker_of(rt)->engine, &r, &a, err) != 0)
		return -1;
	if (a.status / 100 != 2)
		return docker_refused(&a, "loading the image", err);
	return said.len > 0 ? failure_in(&said, err) : 0;
}
