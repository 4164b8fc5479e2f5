/*
 * Any bytes as a tar stream: the records that come out are well formed, stay below the top, and end properly.
 * fuzz-archives: cli
 */
#include "cli/transfer_priv.h"
#include "shared/base/mem.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void copy_warn(const struct copy *c, const char *path, const char *text)
{
	(void)c;
	if (!path || !text)
		abort();
}

static int on_record(void *ctx, const struct record *r, struct error *err)
{
	bool *top = ctx;
	(void)err;
	if (r->type == RECORD_ENTRY && !*top)
		*top = true;
	if (!*top)
		abort();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct transfer_stats stats = { .entries = 0 };
	struct copy copy = { .stats = &stats };
	struct error err = ERROR_INIT;
	struct record_reader in;
	bool top = false;
	enum produce p;
	int wait_fd;
	if (fd < 0)
		fd = memfd_create("tar", MFD_CLOEXEC);
	if (ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size || lseek(fd, 0, SEEK_SET) != 0)
		return 0;
	struct tar_reader *t = tar_reader_new(&copy, fd);
	record_reader_init(&in, on_record, &top);
	do {
		auto_buf out = BUF_INIT;
		p = tar_produce(t, &out, &wait_fd, &err);
		if (p == PRODUCE_WAIT)
			abort();
		if (p != PRODUCE_FAILED && out.len > 0 && record_feed(&in, out.data, out.len, &err) != 0)
			abort();
		if (p == PRODUCE_FAILED && !err.message[0])
			abort();
	} while (p == PRODUCE_MORE);
	if (p == PRODUCE_ALL && !in.ended)
		abort();
	record_reader_done(&in);
	tar_reader_free(t);
	return 0;
}
