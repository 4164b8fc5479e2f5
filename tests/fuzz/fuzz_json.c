/* Any bytes as JSON, and as every document we decode. What is accepted must print as JSON that is accepted again. */
#include "shared/base/mem.h"
#include "shared/json/model_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
	if (!good)
		abort();
}

static cJSON *reparse(const cJSON *j)
{
	cJSON *again = NULL;
	auto_free char *text = json_print(j);
	struct error err = ERROR_INIT;
	if (json_parse(text, strlen(text), &again, &err) != 0)
		fprintf(stderr, "%s\n%s\n", err.message, text);
	check(again != NULL);
	return again;
}

/* What decodes must encode to something that decodes to the same. */
static void try_spec(const cJSON *j, bool strict)
{
	struct error err = ERROR_INIT;
	auto_spec s;
	auto_spec t;
	spec_init(&s);
	spec_init(&t);
	if (spec_from_json(j, "spec", strict, &s, &err) != 0) {
		check(err.code == ERR_INVALID && err.message[0]);
		return;
	}
	spec_validate(&s, NULL);
	auto_json *first = spec_to_json(&s);
	auto_json *again = reparse(first);
	check(spec_from_json(again, "spec", true, &t, &err) == 0);
	auto_json *second = spec_to_json(&t);
	check(cJSON_Compare(first, second, true));
}

static void try_rest(const cJSON *j)
{
	struct error err = ERROR_INIT;
	auto_command c;
	auto_sandbox s;
	auto_operation o;
	command_init(&c);
	sandbox_init(&s);
	operation_init(&o);
	if (command_from_json(j, "command", &c, &err) == 0) {
		command_validate(&c, NULL);
		cJSON_Delete(command_to_json(&c));
	}
	if (sandbox_from_json(j, "", &s, &err) == 0) {
		auto_json *first = sandbox_to_json(&s);
		cJSON_Delete(reparse(first));
	}
	if (operation_from_json(j, "operation", &o, &err) == 0) {
		auto_json *first = operation_to_json(&o);
		cJSON_Delete(reparse(first));
	}
	error_from_json(j, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error err = ERROR_INIT;
	/* Exactly as long as the input, so that the sanitizer sees a read past its end. */
	auto_free char *text = xmemdup(data, size);
	auto_json *j = NULL;
	if (json_parse(text, size, &j, &err) != 0) {
		check(err.message[0] != '\0');
		return 0;
	}
	auto_json *again = reparse(j);
	check(cJSON_Compare(j, again, true) || !cJSON_IsObject(j));
	try_spec(j, true);
	try_spec(j, false);
	try_rest(j);
	return 0;
}
