/*
 * Images as read-only disks, one per digest. The engine exports a container that never runs; its tar is unpacked by unpack.c and made a
 * file system by mke2fs, which reads files and no foreign file system. A disk is complete when it has its name.
 */
#include "daemon/runtime/drivers/qemu/qemu.h"

#include "daemon/runtime/drivers/qemu/unpack.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/http/engine_client.h"
#include "shared/json/model_json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DIGEST_LEN = 64, VOLUMES_MAX = 16, STALL_MS = 60 * 1000, SPARE_BYTES = 32 * MIB, INODE_BYTES = 256, NOTE_MAX = 64 * 1024 };

void image_done(struct image *i)
{
	free(i->path);
	free(i->user);
	strv_done(&i->volumes);
	*i = (struct image){ .path = NULL };
}

/* --- files to a disk --- */

static int run_mke2fs(const char *tree, const char *disk, const struct unpack_size *size, struct error *err)
{
	auto_free char *inodes = xasprintf("%lld", (long long)size->entries + size->entries / 8 + 64);
	auto_free char *kib = xasprintf("%lldk", (long long)(size->bytes + size->bytes / 16 + size->entries * INODE_BYTES * 2 + SPARE_BYTES) / 1024);
	const char *argv[] = { "mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-I", "256", "-N", inodes, "-O", "^has_journal,^resize_inode",
		               "-E", "lazy_itable_init=0", "-d", tree, disk, kib, NULL };
	char *const envp[] = { (char[]){ "PATH=/usr/sbin:/sbin:/usr/bin:/bin" }, NULL };
	posix_spawn_file_actions_t actions;
	int status = 0, rc;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	rc = posix_spawn(&pid, access("/usr/sbin/mke2fs", X_OK) == 0 ? "/usr/sbin/mke2fs" : "/sbin/mke2fs", &actions, NULL,
	                 (char *const *)(uintptr_t)argv, envp);
	posix_spawn_file_actions_destroy(&actions);
	if (rc != 0)
		return error_set(err, ERR_UNAVAILABLE, "mke2fs cannot be run (package e2fsprogs): %s", strerror(rc));
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return error_set(err, ERR_UNAVAILABLE, "mke2fs could not make the image's disk (status %d): is the host's disk full?",
		                 WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	return 0;
}

static int add_places(int tree, const struct strv *volumes, struct error *err)
{
	static const char *const dirs[] = { "proc", "sys", "dev", "tmp", "run", "workspace", ".sandbox", "etc" }, *const files[] = { "etc/hosts", "etc/hostname" };

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (unpack_place(tree, dirs[i], true, err) != 0)
			return -1;
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (unpack_place(tree, files[i], false, err) != 0)
			return -1;
	for (size_t i = 0; i < volumes->len; i++)
		if (unpack_place(tree, volumes->items[i], true, err) != 0)
			return -1;
	return 0;
}

/* Under its name only when it is whole and on the disk. */
static int finish_disk(const char *made, const char *path, struct error *err)
{
	auto_close int fd = open(made, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fchmod(fd, 0444) != 0 || fsync(fd) != 0 || rename(made, path) != 0)
		return error_errno(err, "finishing %s", path);
	return 0;
}

/* fill NULL: an image of places alone. tree and disk are working names, removed by the caller. */
static int build_disk(const char *tree, const char *made, const struct image *i, int (*fill)(void *ctx, struct unpack *u, struct error *err), void *ctx,
                      int64_t bytes_max, struct error *err)
{
	struct unpack_size size = { .bytes = 0 };
	auto_close int dirfd = -1;
	int rc = 0;

	if (mkdir(tree, 0755) != 0 || chmod(tree, 0755) != 0 || (dirfd = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		return error_errno(err, "making %s", tree);
	if (fill) {
		struct unpack *u = unpack_new(dirfd, bytes_max);
		struct error ended = ERROR_INIT;

		rc = fill(ctx, u, err);
		/* What is wrong with the tar says more than that its stream was stopped. */
		if (unpack_end(u, &size, &ended) != 0 && (rc == 0 || ended.code != ERR_PROTOCOL))
			rc = error_set(err, ended.code, "%s", ended.message);
	}
	if (rc != 0 || add_places(dirfd, &i->volumes, err) != 0)
		return -1;
	size.entries += 16 + (int64_t)i->volumes.len;
	if (run_mke2fs(tree, made, &size, err) != 0)
		return -1;
	return finish_disk(made, i->path, err);
}

/* --- from the engine --- */

struct export {
	struct engine *engine;
	const char *digest, *container;
	struct unpack *unpack;
	struct error failed;
};

static int refused(const struct engine_answer *a, const char *doing, struct error *err)
{
	return error_set(err, a->status == 404 ? ERR_NOT_FOUND : ERR_UNAVAILABLE, "%s: the Docker Engine says %d %.200s", doing, a->status, buf_str(&a->body));
}

static int get_config(struct engine *engine, const char *digest, struct image *ret, struct error *err)
{
	auto_free char *path = xasprintf("/images/%s/json", digest);
	auto_engine_answer a = { .status = 0 };
	auto_json *j = NULL;
	const cJSON *config, *volume, *user;

	if (engine_call(engine, &(struct engine_request){ .method = "GET", .path = path }, &a, err) != 0)
		return -1;
	if (a.status != 200)
		return refused(&a, "looking at the image", err);
	if (json_parse(buf_str(&a.body), a.body.len, &j, err) != 0)
		return -1;
	config = cJSON_GetObjectItemCaseSensitive(j, "Config");
	user = cJSON_GetObjectItemCaseSensitive(config, "User");
	ret->user = xstrdup(cJSON_IsString(user) ? user->valuestring : "");
	cJSON_ArrayForEach(volume, cJSON_GetObjectItemCaseSensitive(config, "Volumes"))
		if (strcmp(volume->string, "/workspace") != 0)
			strv_add(&ret->volumes, volume->string);
	if (ret->volumes.len > VOLUMES_MAX)
		return error_set(err, ERR_INVALID, "the image declares more than %d volumes", VOLUMES_MAX);
	return 0;
}

static void remove_container(const struct export *x)
{
	auto_free char *path = xasprintf("/containers/%s?force=1&v=1", x->container);
	auto_engine_answer a = { .status = 0 };

	engine_call(x->engine, &(struct engine_request){ .method = "DELETE", .path = path }, &a, NULL);
}

/* The name is always the same for an image and a state directory: what a killed call left is found and replaced. */
static int create_container(const struct export *x, struct error *err)
{
	auto_free char *path = xasprintf("/containers/create?name=%s", x->container);
	auto_free char *body = xasprintf("{\"Image\":\"%s\",\"Cmd\":[\"/none\"],\"NetworkDisabled\":true,\"Labels\":{\"io.sandbox.export\":\"1\"},"
	                                 "\"HostConfig\":{\"NetworkMode\":\"none\"}}", x->digest);

	for (int attempt = 0;; attempt++) {
		auto_engine_answer a = { .status = 0 };

		if (engine_call(x->engine, &(struct engine_request){ .method = "POST", .path = path, .json = body }, &a, err) != 0)
			return -1;
		if (a.status == 201)
			return 0;
		if (a.status != 409 || attempt > 0)
			return refused(&a, "preparing the image's export", err);
		remove_container(x);
	}
}

static bool on_data(void *ctx, const char *p, size_t n)
{
	struct export *x = ctx;

	return n == 0 || unpack_feed(x->unpack, p, n, &x->failed) == 0;
}

static int export_tar(void *ctx, struct unpack *u, struct error *err)
{
	struct export *x = ctx;
	auto_free char *path = xasprintf("/containers/%s/export", x->container);
	auto_engine_answer a = { .status = 0 };
	struct engine_request r = { .method = "GET", .path = path, .timeout_ms = -1, .stall_ms = STALL_MS, .on_data = on_data, .ctx = x };
	int rc;

	x->unpack = u;
	if (create_container(x, err) != 0)
		return -1;
	rc = engine_call(x->engine, &r, &a, err);
	if (rc == 0 && a.status != 200)
		rc = refused(&a, "exporting the image", err);
	remove_container(x);
	return rc;
}

/* --- kept ones --- */

static int write_note(const char *path, const struct image *i, struct error *err)
{
	auto_json *j = cJSON_CreateObject();
	auto_free char *text = NULL;

	json_add_str(j, "user", i->user);
	json_add_strv(j, "volumes", &i->volumes);
	text = json_print(j);
	return io_write_file_atomic(path, text, strlen(text), 0600, false, err);
}

static int read_note(const char *path, struct image *ret, struct error *err)
{
	auto_buf text = BUF_INIT;
	auto_json *j = NULL;
	struct json_reader r;

	if (io_read_file(path, NOTE_MAX, &text, err) != 0 || json_parse(buf_str(&text), text.len, &j, err) != 0)
		return -1;
	json_reader_init(&r, j, "", err);
	json_get_str(&r, "user", JSON_REQUIRED, 256, &ret->user);
	json_get_strv(&r, "volumes", JSON_REQUIRED, VOLUMES_MAX, 4096, &ret->volumes);
	return json_end(&r);
}

/* Least recently used first, until the rest fits. One that a machine uses stays open in it. */
static void prune(const struct qemu_config *c, const char *images, const char *keep)
{
	for (int i = 0; i < 1024; i++) {
		auto_dir DIR *dir = opendir(images);
		auto_free char *oldest = NULL;
		int64_t total = 0, oldest_at = INT64_MAX;
		struct stat st;

		for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
			if (!strstr(e->d_name, ".ext4") || fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
				continue;
			total += (int64_t)st.st_blocks * 512;
			if (st.st_mtime >= oldest_at || strcmp(e->d_name, strrchr(keep, '/') + 1) == 0)
				continue;
			oldest_at = st.st_mtime;
			free(oldest);
			oldest = xstrdup(e->d_name);
		}
		if (!oldest || total <= c->images_kept || unlinkat(dirfd(dir), oldest, 0) != 0)
			return;
		memcpy(strstr(oldest, ".ext4"), ".json", 5);
		unlinkat(dirfd(dir), oldest, 0);
	}
}

static int make_image(const struct qemu_config *c, const char *images, const char *digest, const char *note, struct image *i, struct error *err)
{
	const char *hex = digest + strlen("sha256:");
	auto_free char *tree = xasprintf("%s/%s.tree", images, hex);
	auto_free char *made = xasprintf("%s/%s.new", images, hex);
	unsigned hash = 5381;
	struct export x = { .digest = digest };
	int rc;

	for (const char *p = c->state_dir; *p; p++)
		hash = hash * 33 + (unsigned char)*p;
	auto_free char *name = xasprintf("sandbox-export-%.16s-%08x", hex, hash);
	x.container = name;
	if (io_remove_tree(tree, err) != 0 || engine_new(c->docker_socket, &x.engine, err) != 0)
		return -1;
	rc = get_config(x.engine, digest, i, err);
	if (rc == 0)
		rc = write_note(note, i, err);
	if (rc == 0)
		rc = build_disk(tree, made, i, export_tar, &x, c->image_max, err);
	engine_free(x.engine);
	unlink(made);
	io_remove_tree(tree, NULL);
	if (rc == 0)
		prune(c, images, i->path);
	return rc;
}

static bool digest_valid(const char *digest)
{
	return strncmp(digest, "sha256:", 7) == 0 && strlen(digest) == 7 + DIGEST_LEN && strspn(digest + 7, "0123456789abcdef") == DIGEST_LEN;
}

int image_get(const struct qemu_config *c, const char *digest, struct image *ret, struct error *err)
{
	auto_free char *images = xasprintf("%s/images", c->state_dir);
	struct image i = { .path = NULL };
	auto_close int lock = -1;
	int rc;

	if (!digest_valid(digest))
		return error_set(err, ERR_INVALID, "image_digest is no sha256 digest");
	auto_free char *note = xasprintf("%s/%s.json", images, digest + 7);
	i.path = xasprintf("%s/%s.ext4", images, digest + 7);
	if (access(i.path, F_OK) != 0) {
		lock = state_lock(c, "images", err);
		rc = lock < 0 ? -1 : io_mkdirs(images, 0700, err);
		if (rc == 0 && access(i.path, F_OK) != 0)
			rc = make_image(c, images, digest, note, &i, err);
		else if (rc == 0)
			rc = read_note(note, &i, err);
	} else {
		utimensat(AT_FDCWD, i.path, NULL, 0);
		rc = read_note(note, &i, err);
	}
	if (rc == 0)
		*ret = i;
	else
		image_done(&i);
	return rc;
}

int image_empty(const struct qemu_config *c, struct image *ret, struct error *err)
{
	auto_free char *tree = xasprintf("%s/empty.tree", c->state_dir);
	auto_free char *made = xasprintf("%s/empty.new", c->state_dir);
	struct image i = { .path = xasprintf("%s/empty.ext4", c->state_dir), .user = xstrdup("") };
	auto_close int lock = state_lock(c, "images", err);
	int rc = lock < 0 ? -1 : 0;

	if (rc == 0 && access(i.path, F_OK) != 0) {
		rc = io_remove_tree(tree, err);
		if (rc == 0)
			rc = build_disk(tree, made, &i, NULL, NULL, 0, err);
		unlink(made);
		io_remove_tree(tree, NULL);
	}
	if (rc == 0)
		*ret = i;
	else
		image_done(&i);
	return rc;
}
