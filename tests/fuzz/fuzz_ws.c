/* WebSocket frames of a hostile peer, in any pieces. First byte: which end we are and how large the pieces. */
#include "shared/base/mem.h"
#include "shared/http/ws.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	struct ws *w = ws_new(data[0] & 1);
	auto_buf payload = BUF_INIT, wire = BUF_INIT;
	size_t step = (size_t)(data[0] >> 1) + 1;
	for (size_t at = 1; at < size; at += step) {
		size_t n = size - at < step ? size - at : step;
		struct error err = ERROR_INIT;
		if (ws_feed(w, data + at, n, &payload, &wire, &err) != 0 && (err.code != ERR_PROTOCOL || !ws_ended(w)))
			abort();
	}
	/* Nothing is invented: payload and answers are bounded by what came. */
	if (payload.len > size || wire.len > 8 * size + 16)
		abort();
	ws_free(w);
	return 0;
}
