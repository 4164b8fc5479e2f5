/*
 * Any bytes as a driver's answer: what is taken over is within its bounds, what is refused has a line to show.
 * fuzz-archives: daemon
 */
#include "daemon/runtime/driver_answer.h"

#include "shared/base/mem.h"

#include <limits.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(const struct error *e)
{
	if (!e->message[0] || (e->code != ERR_PROTOCOL && e->code != ERR_UNAVAILABLE))
		abort();
	for (const char *p = e->message; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			abort();
}

static void check_result(const cJSON *result)
{
	struct driver_abilities can;
	struct runtime_status status;
	struct runtime_stats stats;
	struct error err = ERROR_INIT;

	if (driver_abilities(result, &can, &err) != 0)
		check_refusal(&err);
	else if (can.init && !can.inspect)
		abort();
	if (driver_state(result, &status, &err) != 0)
		check_refusal(&err);
	else if (status.exit_code < 0 || status.exit_code > 255 || status.pid < 0 || status.pid == 1)
		abort();
	driver_stats(result, &stats);
}

/* The first byte: how it ended; then a text of standard error, a NUL, and the answer. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf out = BUF_INIT;
	auto_buf text = BUF_INIT;
	auto_json *result = NULL;
	struct error err = ERROR_INIT;
	const uint8_t *nul;

	if (size < 2 || !(nul = memchr(data + 1, 0, size - 1)))
		return 0;
	buf_add(&text, data + 1, (size_t)(nul - data - 1));
	buf_add(&out, nul + 1, (size_t)(data + size - nul - 1));
	if (driver_answer(&(struct driver_said){ .action = "probe", .status = (data[0] & 1) << 8 | (data[0] & 2 ? 9 : 0), .out = &out, .err = &text }, &result,
			  &err) != 0) {
		check_refusal(&err);
		return 0;
	}
	if (!cJSON_IsObject(result))
		abort();
	check_result(result);
	return 0;
}
