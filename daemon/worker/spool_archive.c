/* From memory to disk: a finished spool is copied with its holes, then its first file goes. */
#include "daemon/worker/spool.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 64 * 1024 };

static int copy_range(int from, int to, off_t at, off_t end)
{
	auto_free char *piece = xmalloc(PIECE);

	while (at < end) {
		size_t want = end - at < PIECE ? (size_t)(end - at) : PIECE;
		ssize_t n = pread(from, piece, want, at);

		if (n <= 0 || pwrite(to, piece, (size_t)n, at) != n)
			return -1;
		at += n;
	}
	return 0;
}

static int copy_data(int from, int to, off_t size)
{
	off_t data = 0, hole;

	while ((data = lseek(from, data, SEEK_DATA)) >= 0) {
		hole = lseek(from, data, SEEK_HOLE);
		if (hole < 0 || copy_range(from, to, data, hole) != 0)
			return -1;
		data = hole;
	}
	return errno == ENXIO ? ftruncate(to, size) : -1;
}

int spool_archive(const char *from, const char *to, struct error *err)
{
	auto_close int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), out = -1;
	auto_free char *temp = xasprintf("%s.part", to);
	struct stat st;

	if (in < 0 || fstat(in, &st) != 0)
		return error_errno(err, "opening %s", from);
	out = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (out < 0)
		return error_errno(err, "creating %s", temp);
	if (copy_data(in, out, st.st_size) != 0 || rename(temp, to) != 0) {
		error_errno(err, "copying %s to %s", from, to);
		(void)unlink(temp);
		return -1;
	}
	(void)unlink(from);
	return 0;
}
