/* engine/serve/local_socket.h - a UNIX socket in place of an address, as in llama-server. */
#pragma once
#include <stdbool.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True if server.host names a socket: a path that ends with ".sock". */
bool weir_local_socket_is_named(const char *host);
/* Listens there; the caller closes *out, also on failure if it was set. A socket on which nobody
 * listens any more is replaced. `is_private`: only the user of the process may connect.
 * errors : EIO: it is in use, or another file; ECONFIG: the path is too long */
WEIR_MUST_CHECK weir_status
weir_local_socket_open(int *out, const char *path, bool is_private, weir_error *error);

#ifdef __cplusplus
}
#endif
