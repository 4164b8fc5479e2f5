/*
 * Pull and import: the engine answers 200 at once and then a stream of JSON lines, the last of which may be an error.
 * What a registry said is told apart by its words, for the engine gives no codes.
 */
#include "daemon/runtime/docker_internal.h"

#include "shared/model/image_ref.h"
#include "shared/base/parse.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LAYERS_MAX = 128, LINE_BYTES_MAX = 64 * 1024, PULL_STALL_MS = 120 * 1000, VERIFY_MS = 20 * 1000 };

struct layer {
	char id[16];
	int64_t current, total;
	bool done;
};

struct stream {
	struct buf line;
	char failure[ERROR_TEXT_MAX]; /* "": none */
	runtime_progress progress;
	void *ctx;
	char text[256];
	int percent;
	struct layer layers[LAYERS_MAX];
	size_t n_layers;
};

static const struct {
	const char *words;
	enum error_code code;
	const char *meaning;
} kinds[] = {
	{ "toomanyrequests", ERR_RATE_LIMITED, "the registry's rate limit is reached; try again later" },
	{ "rate limit", ERR_RATE_LIMITED, "the registry's rate limit is reached; try again later" },
	{ "too many requests", ERR_RATE_LIMITED, "the registry's rate limit is reached; try again later" },
	{ "repository does not exist or may require", ERR_NOT_FOUND, "the registry has no such image, or it needs a login" },
	{ "manifest unknown", ERR_NOT_FOUND, "the registry has no such tag or digest" },
	{ "manifest for", ERR_NOT_FOUND, "the registry has no such tag or digest" },
	{ "name unknown", ERR_NOT_FOUND, "the registry has no such image" },
	{ "no matching manifest", ERR_NOT_FOUND, "the image does not exist for this machine's architecture" },
	{ "unauthorized", ERR_FORBIDDEN, "the registry refuses without a login" },
	{ "authentication required", ERR_FORBIDDEN, "the registry refuses without a login" },
	{ "no basic auth credentials", ERR_FORBIDDEN, "the registry refuses without a login" },
	{ "access denied", ERR_FORBIDDEN, "the registry refuses access" },
	{ "denied:", ERR_FORBIDDEN, "the registry refuses access" },
	{ "no space left on device", ERR_NO_CAPACITY, "the engine's disk is full" },
	{ "no such host", ERR_UNREACHABLE, "no registry can be reached from this machine" },
	{ "server misbehaving", ERR_UNREACHABLE, "no registry can be reached from this machine" },
	{ "dial tcp", ERR_UNREACHABLE, "no registry can be reached from this machine" },
	{ "connection refused", ERR_UNREACHABLE, "no registry can be reached from this machine" },
	{ "network is unreachable", ERR_UNREACHABLE, "no registry can be reached from this machine" },
	{ "timeout", ERR_UNREACHABLE, "the registry did not answer in time" },
	{ "request canceled", ERR_UNREACHABLE, "the registry did not answer in time" },
	{ "deadline exceeded", ERR_UNREACHABLE, "the registry did not answer in time" },
	{ "x509", ERR_UNREACHABLE, "the registry's certificate is not trusted" },
	{ "not found", ERR_NOT_FOUND, "the registry has no such image" },
};

int docker_registry_error(const char *image, const char *text, struct error *err)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (strcasestr(text, kinds[i].words))
			return error_set(err, kinds[i].code, "image '%s': %s (%s)%s", image, kinds[i].meaning, text,
			                 kinds[i].code == ERR_UNREACHABLE ? "; `sandbox image import` brings an image in without one" : "");
	return error_set(err, ERR_UNAVAILABLE, "image '%s': %s", image, text);
}

static struct layer *layer_of(struct stream *s, const char *id)
{
	struct layer *l;

	for (size_t i = 0; i < s->n_layers; i++)
		if (strcmp(s->layers[i].id, id) == 0)
			return &s->layers[i];
	if (s->n_layers == LAYERS_MAX)
		return NULL;
	l = &s->layers[s->n_layers++];
	snprintf(l->id, sizeof(l->id), "%s", id);
	return l;
}

static void note_layer(struct stream *s, const cJSON *j, const char *status)
{
	struct layer *l = layer_of(s, docker_str(j, "id"));

	if (!l)
		return;
	if (strcmp(status, "Downloading") == 0 && docker_num(j, "progressDetail.total") > 0) {
		l->current = docker_num(j, "progressDetail.current");
		l->total = docker_num(j, "progressDetail.total");
	} else if (strcmp(status, "Download complete") == 0 || strcmp(status, "Pull complete") == 0 || strcmp(status, "Already exists") == 0) {
		l->done = true;
		l->current = l->total;
	}
}

/* Of the layers whose size is known; -1 before any is. */
static void sum_up(struct stream *s)
{
	int64_t current = 0, total = 0;
	size_t done = 0;

	for (size_t i = 0; i < s->n_layers; i++) {
		current += s->layers[i].current;
		total += s->layers[i].total;
		done += s->layers[i].done;
	}
	s->percent = total > 0 ? (int)(current * 100 / total) : -1;
	snprintf(s->text, sizeof(s->text), "layers %zu/%zu", done, s->n_layers);
}

static bool take_line(struct stream *s, const char *line, size_t n)
{
	auto_json *j = NULL;
	const char *status, *failure;

	if (n == 0 || json_parse(line, n, &j, NULL) != 0)
		return true;
	failure = docker_str(j, "error");
	if (*failure) {
		text_escape(failure, strlen(failure), s->failure, sizeof(s->failure));
		return true;
	}
	status = docker_str(j, "status");
	if (*docker_str(j, "id") && docker_at(j, "progressDetail")) {
		note_layer(s, j, status);
		sum_up(s);
	} else if (*status) {
		text_escape(status, strlen(status), s->text, sizeof(s->text));
	}
	return !s->progress || s->progress(s->ctx, s->text, s->percent);
}

static bool on_data(void *ctx, const char *p, size_t n)
{
	struct stream *s = ctx;

	if (n == 0)
		return !s->progress || s->progress(s->ctx, s->text, s->percent);
	while (n > 0) {
		const char *end = memchr(p, '\n', n);
		size_t part = end ? (size_t)(end - p) : n;

		buf_add(&s->line, p, part);
		if (end) {
			bool go_on = s->line.overflow || take_line(s, buf_str(&s->line), s->line.len);

			buf_done(&s->line);
			s->line.max = LINE_BYTES_MAX;
			if (!go_on)
				return false;
			part++;
		}
		p += part;
		n -= part;
	}
	return true;
}

static int refused_by_registry(const struct engine_answer *a, const char *image, struct error *err)
{
	struct error local = ERROR_INIT;
	auto_json *j = NULL;

	if (json_parse(buf_str(&a->body), a->body.len, &j, NULL) == 0 && *docker_str(j, "message"))
		return docker_registry_error(image, docker_str(j, "message"), err);
	docker_refused(a, "the image", &local);
	return error_set(err, local.code, "%s", local.message);
}

/* Runs the streaming call and turns refusals, error lines and transport failures into one error about the image. */
static int run_stream(struct docker *d, const struct engine_request *r, struct stream *s, const char *image, struct error *err)
{
	auto_engine_answer a = { .status = 0 };
	int rc;

	s->line = (struct buf)BUF_INIT_MAX(LINE_BYTES_MAX);
	s->percent = -1;
	rc = engine_call(d->engine, r, &a, err);
	if (rc == 0 && s->line.len > 0)
		take_line(s, buf_str(&s->line), s->line.len);
	buf_done(&s->line);
	if (rc != 0)
		return -1;
	if (a.status / 100 != 2)
		return refused_by_registry(&a, image, err);
	return s->failure[0] ? docker_registry_error(image, s->failure, err) : 0;
}

/* The header X-Registry-Auth: base64 with the letters of URLs. NULL without a login. */
static char *auth_header(const struct secret *login, const char *registry)
{
	if (!login || login->n == 0)
		return NULL;
	const char *user = (const char *)login->bytes;
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "username", user);
	json_add_str(j, "password", user + strlen(user) + 1);
	json_add_str(j, "serveraddress", strcmp(registry, "docker.io") == 0 ? "https://index.docker.io/v1/" : registry);
	char *text = json_print(j);
	char *held = cJSON_GetObjectItemCaseSensitive(j, "password")->valuestring;
	explicit_bzero(held, strlen(held));
	cJSON_Delete(j);
	char *coded = base64_encode(text, strlen(text));
	explicit_bzero(text, strlen(text));
	free(text);
	for (char *p = coded; *p; p++)
		*p = *p == '+' ? '-' : *p == '/' ? '_' : *p;
	return coded;
}

static void wipe_header(char **header)
{
	if (*header)
		explicit_bzero(*header, strlen(*header));
	free(*header);
}

int docker_image_verify(struct runtime *rt, const char *image, const struct secret *login, struct error *err)
{
	struct image_ref ref;
	auto_engine_answer a = { .status = 0 };
	if (image_ref_parse(image, &ref, err) != 0)
		return -1;
	__attribute__((cleanup(wipe_header))) char *auth = auth_header(login, ref.registry);
	auto_free char *path = xasprintf("/distribution/%s/%s%s%s/json", ref.registry, ref.repository, ref.digest[0] ? "@" : ":",
					 ref.digest[0] ? ref.digest : ref.tag);
	struct engine_request r = { .method = "GET", .path = path, .auth = auth, .timeout_ms = VERIFY_MS };
	if (engine_call(docker_of(rt)->engine, &r, &a, err) != 0)
		return -1;
	return a.status / 100 == 2 ? 0 : refused_by_registry(&a, ref.familiar, err);
}

int docker_image_pull(struct runtime *rt, const struct image_pull *p, struct error *err)
{
	const char *image = p->image;
	struct stream s = { .progress = p->progress, .ctx = p->ctx };
	struct engine_request r = { .method = "POST", .timeout_ms = -1, .stall_ms = PULL_STALL_MS, .on_data = on_data, .ctx = &s };
	struct image_ref ref;
	auto_free char *path = NULL;
	__attribute__((cleanup(wipe_header))) char *auth = NULL;

	if (image_ref_parse(image, &ref, err) != 0 || docker_image_allowed(rt, image, false, err) != 0)
		return -1;
	if (ref.is_id)
		return error_set(err, ERR_NOT_FOUND, "no image '%s' on this machine, and an image id cannot be pulled: use repository@sha256:…", ref.familiar);
	snprintf(s.text, sizeof(s.text), "asking %.200s", ref.registry);
	path = xasprintf("/images/create?fromImage=%s/%s&tag=%s", ref.registry, ref.repository, ref.digest[0] ? ref.digest : ref.tag);
	r.path = path;
	r.auth = auth = auth_header(p->login, ref.registry);
	return run_stream(docker_of(rt), &r, &s, ref.familiar, err);
}

/* A double-quoted word of the Dockerfile syntax that "changes" are written in. */
static void add_quoted(struct buf *b, const char *text)
{
	buf_addc(b, '"');
	for (; *text; text++) {
		if (strchr("\"\\$", *text))
			buf_addc(b, '\\');
		buf_addc(b, *text);
	}
	buf_addc(b, '"');
}

static void add_change(struct buf *path, const char *change)
{
	auto_free char *escaped = engine_escape(change);

	buf_addf(path, "&changes=%s", escaped);
}

static void add_list_change(struct buf *path, const char *word, const struct strv *v)
{
	auto_json *array = cJSON_CreateArray();
	auto_free char *text = NULL;
	auto_free char *change = NULL;

	if (v->len == 0)
		return;
	for (size_t i = 0; i < v->len; i++)
		cJSON_AddItemToArray(array, cJSON_CreateString(v->items[i]));
	text = json_print(array);
	change = xasprintf("%s %s", word, text);
	add_change(path, change);
}

static int add_config(struct buf *path, const struct image_config *c, struct error *err)
{
	for (size_t i = 0; i < c->env.len; i++) {
		const char *entry = c->env.items[i], *eq = strchr(entry, '=');
		auto_buf change = BUF_INIT;

		if (!eq || eq == entry || strchr(entry, '\n'))
			return error_set(err, ERR_INVALID, "env '%s' of an image is not KEY=value on one line", entry);
		buf_addf(&change, "ENV %.*s=", (int)(eq - entry), entry);
		add_quoted(&change, eq + 1);
		add_change(path, buf_str(&change));
	}
	if (c->user && *c->user) {
		auto_free char *change = xasprintf("USER %s", c->user);
		add_change(path, change);
	}
	if (c->workdir && *c->workdir) {
		auto_free char *change = xasprintf("WORKDIR %s", c->workdir);
		add_change(path, change);
	}
	add_list_change(path, "ENTRYPOINT", &c->entrypoint);
	add_list_change(path, "CMD", &c->cmd);
	return 0;
}

int docker_image_import(struct runtime *rt, int fd, const char *name, const struct image_config *config, struct error *err)
{
	struct stream s = { .progress = NULL };
	struct engine_request r = {
		.method = "POST", .body_fd = fd, .body_from_fd = true, .content_type = "application/x-tar",
		.timeout_ms = -1, .stall_ms = PULL_STALL_MS, .on_data = on_data, .ctx = &s,
	};
	struct image_ref ref;
	auto_buf path = BUF_INIT;
	struct error local = ERROR_INIT;

	if (image_ref_parse(name, &ref, err) != 0)
		return -1;
	if (ref.is_id || ref.digest[0])
		return error_set(err, ERR_INVALID, "image '%s': an imported image needs a name and may have a tag, no digest", name);
	buf_addf(&path, "/images/create?fromSrc=-&repo=%s/%s&tag=%s", ref.registry, ref.repository, ref.tag);
	if (config && add_config(&path, config, err) != 0)
		return -1;
	r.path = buf_str(&path);
	if (run_stream(docker_of(rt), &r, &s, ref.familiar, &local) == 0)
		return 0;
	if (strstr(local.message, "invalid tar header") || strstr(local.message, "unexpected EOF"))
		return error_set(err, ERR_INVALID, "image '%s': the data is not a complete tar archive of a root file system", ref.familiar);
	return error_set(err, local.code, "%s", local.message);
}
