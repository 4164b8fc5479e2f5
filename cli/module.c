/* Loading parts of the program: see module.h. */
#include "cli/module.h"

#include "shared/base/mem.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

char *module_path(const char *leaf, const char *installed)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return xasprintf("/usr/local/libexec/sandbox/%s", installed);
	self[n] = '\0';
	char *slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	auto_free char *beside = xasprintf("%s/%s", self, leaf);
	if (access(beside, R_OK) == 0)
		return steal(&beside);
	return xasprintf("%s/../libexec/sandbox/%s", self, installed);
}

int module_load(const char *name, const char *shown, const char *symbol, void **ret_symbol, struct error *err)
{
	auto_free char *leaf = xasprintf("%s.so", name), *installed = xasprintf("%s-" SANDBOX_VERSION ".so", name), *path = module_path(leaf, installed);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return error_set(err, ERR_INTERNAL, "%s cannot be loaded: %s", shown, dlerror());
	void *found = dlsym(library, symbol);
	if (!found)
		return error_set(err, ERR_INTERNAL, "%s is not %s", path, shown);
	*ret_symbol = found;
	return 0;
}
