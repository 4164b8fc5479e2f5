/* Parts of the program that are loaded when they are used: NAME.so beside it in a build tree, ../libexec/sandbox/NAME-VERSION.so when installed. */
#ifndef SANDBOX_CLI_MODULE_H
#define SANDBOX_CLI_MODULE_H

#include "shared/base/error.h"

/* The module's entry. It stays loaded: its thread-specific cleanups may run at the program's end. `shown` names it in errors. */
int module_load(const char *name, const char *shown, const char *symbol, void **ret_symbol, struct error *err);
/* The file `leaf` beside the program, else `installed` below ../libexec/sandbox/; the caller frees. */
char *module_path(const char *leaf, const char *installed);

#endif
