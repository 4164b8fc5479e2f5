/* This machine as a node: its id, and the runtime it drives. */
#include "daemon/config.h"
#include "daemon/runtime/docker.h"
#include "daemon/runtime/driver.h"
#include "daemon/runtime/external.h"
#include "daemon/runtime/fake.h"
#include "daemon/worker/worker.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <string.h>

int worker_node_id(const struct daemon_config *config, struct id *ret, struct error *err)
{
	auto_free char *path = xasprintf("%s/node-id", config->state_dir);
	auto_free char *line = NULL;
	auto_buf text = BUF_INIT;
	struct error local = ERROR_INIT;
	struct id id;

	if (io_read_file(path, 4096, &text, &local) == 0) {
		if (text.len > 0 && text.data[text.len - 1] == '\n')
			text.data[text.len - 1] = '\0';
		if (id_parse(buf_str(&text), ret) == 0)
			return 0;
		return error_set(err, ERR_INVALID, "%s does not hold a node id: restore it (containers of this node carry it), or delete it "
		                                   "together with everything labelled io.sandbox.managed", path);
	}
	if (local.code != ERR_NOT_FOUND)
		return error_set(err, local.code, "%s", local.message);
	id = id_new();
	line = xasprintf("%s\n", id.text);
	if (io_mkdirs(config->state_dir, 0700, err) != 0 || io_write_file_atomic(path, line, strlen(line), 0600, true, err) != 0)
		return -1;
	*ret = id;
	return 0;
}

static int new_paired(const struct daemon_config *config, const struct docker_options *o, struct runtime **ret, struct error *err)
{
	struct external_options x = { .driver = config->driver, .state_dir = config->state_dir, .node = o->node,
	                              .development = config->driver_development };
	struct runtime *engine, *driver;

	if (driver_check_file(config->driver, err) != 0)
		return error_wrap(err, "worker.driver");
	if (docker_runtime_new(o, &engine, err) != 0)
		return -1;
	if (external_runtime_new(&x, &driver, err) != 0) {
		engine->ops->free(engine);
		return -1;
	}
	*ret = paired_runtime_new(engine, driver);
	return 0;
}

int worker_runtime_new(const struct daemon_config *config, struct runtime **ret, struct error *err)
{
	const char *test = getenv("SANDBOX_TEST_RUNTIME");
	struct docker_options o = { .socket = config->docker_socket, .allowed_registries = config->allowed_registries,
	                            .gvisor_runtime = config->gvisor_runtime };

	if (worker_node_id(config, &o.node, err) != 0)
		return -1;
	if (!test || !*test)
		return *config->driver ? new_paired(config, &o, ret, err) : docker_runtime_new(&o, ret, err);
	if (strcmp(test, "fake") != 0)
		return error_set(err, ERR_INVALID, "SANDBOX_TEST_RUNTIME: '%s' is not 'fake'", test);
	log_error("worker", "SANDBOX_TEST_RUNTIME=fake: sandboxes are plain processes of this machine, WITHOUT any isolation");
	return fake_runtime_new(config->state_dir, ret, err);
}
