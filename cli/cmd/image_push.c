/* sandbox image push: an image that one worker has, to others. */
#include "cli/command.h"

#include "cli/image.h"
#include "cli/session.h"
#include "shared/json/json.h"

struct push_options {
	const char *image, *from;
	struct strv nodes;
	bool all;
};

static const struct option_row push_options[] = {
	OPT_FLAG('a', "all", struct push_options, all, "to every node that is connected"),
	OPT_TEXT(0, "from", struct push_options, from, "NODE", "the node that has it (the first found)"),
	OPT_END,
};

static const struct positional push_positionals[] = {
	POS(POS_ONE, WHAT_IMAGE, "IMAGE", struct push_options, image, "name and tag of an image that a worker has"),
	POS(POS_ANY, WHAT_NODE, "NODE", struct push_options, nodes, "where to"),
	POS_END,
};

static int run_push(struct cli *cli, void *opaque, struct error *err)
{
	const struct push_options *o = opaque;
	auto_json *body = cJSON_CreateObject();
	if (o->all == (o->nodes.len > 0))
		return error_set(err, ERR_INVALID, o->all ? "--all is every node: name none beside it" : "where to? Name nodes, or give --all");
	json_add_str(body, "image", o->image);
	if (o->from)
		json_add_str(body, "from", o->from);
	if (!o->all)
		json_add_strv(body, "to", &o->nodes);
	struct line_call c = { .method = "POST", .target = "/v1/images/push", .body = body, .body_fd = -1 };
	return image_transfer(cli, &c, err);
}

const struct verb verb_image_push = {
	.name = "push",
	.summary = "bring an image that a worker has to others",
	.options = push_options,
	.positionals = push_positionals,
	.size = sizeof(struct push_options),
	.run = run_push,
};
