/* sandbox image: list, pull, import, remove. The others are in files of their own. */
#include "cli/command.h"

#include "cli/image.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/http/unix_client.h"
#include "shared/json/json.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COLUMNS = 4, DIGEST_SHOWN = 19 };

#define OPT_NODE(T) OPT_TEXT(0, "node", T, node, "NODE", "of this node; needed where there are several")

/* The target with ?node=, or &node= after a query of its own. */
static char *on_node(char *take_target, const char *node)
{
	auto_free char *target = take_target;
	auto_free char *part = node && *node ? session_path("node=%s", node) : xstrdup("");
	return xasprintf("%s%s%s", target, !*part ? "" : strchr(target, '?') ? "&" : "?", part);
}

/* --- list ------------------------------------------------------------------------------------------------------- */

struct list_options {
	const char *node;
};

static const struct option_row list_options[] = { OPT_NODE(struct list_options), OPT_END };

static void image_row(struct table *t, const cJSON *image)
{
	char size[24], span[16] = "-";
	int64_t us;
	if (time_parse_rfc3339(json_text(image, "created_at"), &us) == 0)
		span_text((clock_wall_us() - us) / 1000, span);
	table_cell(t, json_text(image, "name"));
	table_cellf(t, "%.*s", DIGEST_SHOWN, json_text(image, "digest"));
	table_cell(t, size_text(json_number(image, "size_bytes", 0), size));
	table_cell(t, span);
}

static int run_list(struct cli *cli, void *opaque, struct error *err)
{
	static const char *const head[COLUMNS] = { "NAME", "DIGEST", "SIZE", "AGE" };
	const struct list_options *o = opaque;
	auto_json *answer = NULL;
	auto_free char *target = on_node(xstrdup("/v1/images"), o->node);
	struct call c = { .method = "GET", .target = target };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *image, *list = cJSON_GetObjectItemCaseSensitive(answer, "images");
	if (!cJSON_IsArray(list))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no list of images");
	if (cli->json)
		return out_json(cli, list, err);
	auto_table *t = table_new(COLUMNS);
	for (size_t i = 0; i < COLUMNS; i++)
		table_cell(t, head[i]);
	cJSON_ArrayForEach(image, list)
	{
		if (cli->quiet)
			out_line("%s", json_text(image, "name"));
		else
			image_row(t, image);
	}
	if (!cli->quiet)
		table_print(t);
	return 0;
}

static const struct verb image_list = {
	.name = "list",
	.alias = "ls",
	.summary = "list images that are present",
	.options = list_options,
	.size = sizeof(struct list_options),
	.run = run_list,
};

/* --- pull and import: lines of progress, then the image ------------------------------------------------------------ */

struct transfer {
	struct cli *cli;
	struct progress progress;
	cJSON *image;
	bool done;
};

static int on_line(void *ctx, cJSON *j, struct error *err)
{
	struct transfer *t = ctx;
	const cJSON *error = cJSON_GetObjectItemCaseSensitive(j, "error");
	const cJSON *image = cJSON_GetObjectItemCaseSensitive(j, "image");
	if (cJSON_IsObject(error))
		return error_set(err, error_from_wire(json_text(error, "code")), "%s", json_text(error, "message"));
	if (cJSON_IsObject(image)) {
		cJSON_Delete(t->image);
		t->image = cJSON_Duplicate(image, true);
		t->done = true;
		return 0;
	}
	double percent = json_number(j, "percent", -1);
	if (percent >= 0)
		progress_update(&t->progress, "%s %.0f%%", json_text(j, "progress"), percent);
	else
		progress_update(&t->progress, "%s", json_text(j, "progress"));
	return 0;
}

static int interrupted(struct cli *cli, struct error *err)
{
	error_set(err, ERR_TIMEOUT, "interrupted; whether the image arrives is unknown");
	out_error(cli, err);
	return 128 + interrupt_signal();
}

int image_transfer(struct cli *cli, const struct line_call *request, struct error *err)
{
	struct transfer t = { .cli = cli };
	struct line_call c = *request;
	c.line = on_line;
	c.ctx = &t;
	interrupt_watch();
	progress_begin(&t.progress, cli);
	int rc = session_lines(cli, &c, err);
	progress_end(&t.progress);
	if (rc == 0 && !t.done)
		rc = error_set(err, ERR_PROTOCOL, "the server ended its answer without a result");
	if (rc == 0 && cli->json)
		rc = out_json(cli, t.image, err);
	else if (rc == 0)
		out_line("%s%s%s", json_text(t.image, "name"), cli->quiet ? "" : "  ", cli->quiet ? "" : json_text(t.image, "digest"));
	else if (err->sys == EINTR)
		rc = interrupted(cli, err);
	cJSON_Delete(t.image);
	return rc;
}

struct pull_options {
	const char *image, *node;
};

static const struct option_row pull_options[] = { OPT_NODE(struct pull_options), OPT_END };

static const struct positional pull_positionals[] = {
	POS(POS_ONE, WHAT_TEXT, "IMAGE", struct pull_options, image, "such as alpine:3.20 or ghcr.io/org/name@sha256:..."),
	POS_END,
};

static int run_pull(struct cli *cli, void *opaque, struct error *err)
{
	const struct pull_options *o = opaque;
	auto_json *body = cJSON_CreateObject();
	if (!*o->image)
		return error_set(err, ERR_INVALID, "IMAGE is empty");
	json_add_str(body, "image", o->image);
	auto_free char *target = on_node(xstrdup("/v1/images/pull"), o->node);
	struct line_call c = { .method = "POST", .target = target, .body = body, .body_fd = -1 };
	return image_transfer(cli, &c, err);
}

static const struct verb image_pull = {
	.name = "pull",
	.summary = "fetch an image from its registry",
	.options = pull_options,
	.positionals = pull_positionals,
	.size = sizeof(struct pull_options),
	.run = run_pull,
};

struct import_options {
	const char *file, *name, *node;
};

static const struct option_row import_options[] = { OPT_NODE(struct import_options), OPT_END };

static const struct positional import_positionals[] = {
	POS(POS_ONE, WHAT_FILE, "FILE", struct import_options, file, "a tar archive of a root file system; - is standard input"),
	POS(POS_ONE, WHAT_IMAGE, "NAME", struct import_options, name, "the image's name, such as mine:1"),
	POS_END,
};

static int open_archive(const char *file, struct error *err)
{
	struct stat st;
	if (strcmp(file, "-") == 0) {
		if (isatty(STDIN_FILENO) == 1)
			return error_set(err, ERR_INVALID, "standard input is a terminal; give a tar archive");
		return fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	}
	auto_close int fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0) {
		error_errno(err, "opening %s", file);
		if (errno == ENOENT && err)
			err->code = ERR_NOT_FOUND;
		return -1;
	}
	if (S_ISDIR(st.st_mode))
		return error_set(err, ERR_INVALID, "%s is a directory; give a tar archive (tar -C %s -cf - . | sandbox image import - NAME)", file,
				 file);
	return steal_fd(&fd);
}

static int run_import(struct cli *cli, void *opaque, struct error *err)
{
	const struct import_options *o = opaque;
	auto_close int fd = open_archive(o->file, err);
	if (fd < 0)
		return -1;
	auto_free char *target = on_node(session_path("/v1/images/import?name=%s", o->name), o->node);
	struct line_call c = { .method = "POST", .target = target, .body_fd = fd };
	return image_transfer(cli, &c, err);
}

static const struct verb image_import = {
	.name = "import",
	.summary = "make an image from a root file system",
	.options = import_options,
	.positionals = import_positionals,
	.size = sizeof(struct import_options),
	.run = run_import,
};

/* --- remove ----------------------------------------------------------------------------------------------------- */

struct remove_options {
	struct strv names;
	const char *node;
};

static const struct option_row remove_options[] = { OPT_NODE(struct remove_options), OPT_END };

static const struct positional remove_positionals[] = {
	POS(POS_MANY, WHAT_IMAGE, "IMAGE", struct remove_options, names, "name or digest"),
	POS_END,
};

static int run_remove(struct cli *cli, void *opaque, struct error *err)
{
	const struct remove_options *o = opaque;
	auto_json *names = cJSON_CreateArray();
	for (size_t i = 0; i < o->names.len; i++) {
		auto_free char *target = on_node(session_path("/v1/images/%s", o->names.items[i]), o->node);
		struct call c = { .method = "DELETE", .target = target };
		struct error e = ERROR_INIT;
		if (session_call(cli, &c, NULL, &e) != 0) {
			if (e.code == ERR_NONE && i + 1 < o->names.len)
				continue; /* a dry run shows them all */
			return error_set(err, e.code, "%s", e.message);
		}
		out_note(cli, "%s: removed", o->names.items[i]);
		cJSON_AddItemToArray(names, cJSON_CreateString(o->names.items[i]));
	}
	if (!cli->json)
		return 0;
	auto_json *answer = cJSON_CreateObject();
	cJSON_AddItemToObject(answer, "removed", steal(&names));
	return out_json(cli, answer, err);
}

static const struct verb image_remove = {
	.name = "remove",
	.alias = "rm",
	.summary = "remove images",
	.options = remove_options,
	.positionals = remove_positionals,
	.size = sizeof(struct remove_options),
	.run = run_remove,
};

static const struct verb *const subverbs[] = { &image_list, &image_pull, &image_import, &verb_image_push, &image_remove, &verb_image_login, &verb_image_logout,
						&verb_image_logins, NULL };

static const struct example examples[] = {
	{ "sandbox image pull alpine:3.20", "from a registry that policy allows" },
	{ "tar -C rootfs -cf - . | sandbox image import - mine:1", "from a directory, without a registry" },
	{ "sandbox image push mine:1 --all", "from the worker that has it to the others" },
	{ "sandbox image login ghcr.io -u me --password-stdin <token", "for private images; the server keeps it, sealed" },
	{ NULL, NULL },
};

const struct verb verb_image = {
	.name = "image",
	.group = GROUP_SYSTEM,
	.summary = "list, pull, import, push and remove images",
	.manual = "A sandbox whose image is not present pulls it when it is created, from the registries the server's policy allows. Importing, "
		  "pushing and removing need admin rights, since all tenants share image names.\n"
		  "\n"
		  "A login to a registry belongs to a tenant and is kept on the server, sealed as secrets are; workers get it for a pull alone. An image "
		  "that needed a login is private: also where a worker has it already, another tenant may use it only when its registry says so.",
	.examples = examples,
	.subverbs = subverbs,
};

/* What docker's users type. */
const struct verb verb_images = {
	.name = "images",
	.group = GROUP_SYSTEM,
	.flags = VERB_HIDDEN,
	.summary = "list images that are present: sandbox image list",
	.options = list_options,
	.size = sizeof(struct list_options),
	.run = run_list,
};
