/* A pull and the login it is done with, as JSON: see codec.h. */
#include "daemon/link/codec.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <string.h>

enum { LOGIN_MAX = LIMIT_REGISTRY_PASSWORD_MAX + 512, LOGIN_BASE64_MAX = (LOGIN_MAX + 2) / 3 * 4 + 4 };

bool login_valid(const void *p, size_t n)
{
	const char *zero = memchr(p, 0, n);
	return n <= LOGIN_MAX && zero && zero != p && !memchr(zero + 1, 0, n - (size_t)(zero - (const char *)p) - 1);
}

cJSON *pull_to_json(const struct image_pull *p)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "name", p->image);
	if (!p->login || p->login->n == 0)
		return j;
	char *coded = base64_encode(p->login->bytes, p->login->n);
	json_add_str(j, "login", coded);
	explicit_bzero(coded, strlen(coded));
	free(coded);
	return j;
}

void pull_wipe(cJSON *j)
{
	cJSON *login = cJSON_GetObjectItemCaseSensitive(j, "login");
	if (cJSON_IsString(login))
		explicit_bzero(login->valuestring, strlen(login->valuestring));
}

static int read_login(const char *coded, struct secret *ret, struct error *err)
{
	auto_buf bytes = BUF_INIT_MAX(LOGIN_MAX);
	if (!coded)
		return 0;
	int rc = base64_decode(coded, &bytes, err);
	if (rc == 0 && !login_valid(buf_str(&bytes), bytes.len))
		rc = error_set(err, ERR_INVALID, "the login of a pull is none");
	if (rc == 0)
		secret_set(ret, bytes.data, bytes.len);
	if (bytes.data)
		explicit_bzero(bytes.data, bytes.len);
	return rc;
}

int pull_from_json(const cJSON *j, char **ret_image, struct secret *ret_login, struct error *err)
{
	struct json_reader r;
	auto_free char *image = NULL;
	char *coded = NULL;
	json_reader_init(&r, j, "", err);
	json_get_str(&r, "name", JSON_REQUIRED, LIMIT_IMAGE_NAME_MAX, &image);
	json_get_str(&r, "login", JSON_OPTIONAL, LOGIN_BASE64_MAX, &coded);
	int rc = json_ok(&r) ? read_login(coded, ret_login, err) : -1;
	if (coded)
		explicit_bzero(coded, strlen(coded));
	free(coded);
	if (rc == 0)
		*ret_image = steal(&image);
	return rc;
}
