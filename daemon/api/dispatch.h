/* From the HTTP library's callbacks to a handler and its answer. The context of each is the struct listener. */
#ifndef SANDBOX_DAEMON_API_DISPATCH_H
#define SANDBOX_DAEMON_API_DISPATCH_H

#include <microhttpd.h>

/* MHD_OPTION_URI_LOG_CALLBACK: the first sign of a request, with its raw target; makes its struct request. */
void *dispatch_begin(void *cls, const char *uri, struct MHD_Connection *conn);
enum MHD_Result dispatch_access(void *cls, struct MHD_Connection *conn, const char *url, const char *method, const char *version,
                                const char *data, size_t *n, void **ctx);
/* MHD_OPTION_NOTIFY_COMPLETED */
void dispatch_completed(void *cls, struct MHD_Connection *conn, void **ctx, enum MHD_RequestTerminationCode why);

#endif
