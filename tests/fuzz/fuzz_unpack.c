/*
 * Any bytes as an image's tar: what is unpacked stays below its directory, whatever links and names say, and within its bound.
 * fuzz-archives: qemu daemon
 */
#include "daemon/runtime/drivers/qemu/unpack.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES_MAX = 256 * 1024 };

static char top[64], tree[80], guard[80];

static void set_up(void)
{
	snprintf(top, sizeof(top), "%s/sbx-fuzz-unpack-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(top))
		abort();
	snprintf(tree, sizeof(tree), "%s/tree", top);
	snprintf(guard, sizeof(guard), "%s/guard", top);
	if (io_write_file_atomic(guard, "here", 4, 0600, false, NULL) != 0)
		abort();
}

/* Nothing beside the tree: neither new, nor gone, nor changed. */
static void check_outside(void)
{
	struct stat st;
	auto_buf text = BUF_INIT;

	if (stat(top, &st) != 0 || st.st_nlink != 3 || stat(guard, &st) != 0 || st.st_nlink != 1 || (st.st_mode & 07777) != 0600)
		abort();
	if (io_read_file(guard, 100, &text, NULL) != 0 || strcmp(buf_str(&text), "here") != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct unpack_size made = { .bytes = 0 };
	struct error err = ERROR_INIT;
	int rc = 0;

	if (!top[0])
		set_up();
	if (size < 1 || mkdir(tree, 0755) != 0)
		return 0;
	{
		auto_close int fd = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		struct unpack *u = unpack_new(fd, BYTES_MAX);
		size_t piece = data[0] + 1U;

		for (size_t at = 1; rc == 0 && at < size; at += piece)
			rc = unpack_feed(u, data + at, size - at < piece ? size - at : piece, &err);
		if (unpack_end(u, &made, &err) == 0 && rc != 0)
			abort();
		if (rc == 0 && made.bytes > BYTES_MAX + 64LL * 1024 * 1024)
			abort();
		if (rc != 0 && !err.message[0])
			abort();
		unpack_place(fd, "/dev/shm", true, NULL);
		unpack_place(fd, "/etc/hosts", false, NULL);
	}
	check_outside();
	if (io_remove_tree(tree, NULL) != 0)
		abort();
	return 0;
}
