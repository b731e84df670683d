/* engine/serve/local_socket.h - a UNIX socket in place of an address, as in llama-server. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True if server.host names a socket: a path that ends with ".sock". */
bool weir_local_socket_is_named(const char *host);
/* The file of a socket that was made. */
typedef struct weir_local_socket {
    char path[128]; /* "": none was */
    dev_t device;
    ino_t inode;
} weir_local_socket;

/* Listens there; the caller closes *out, and before it removes *made, also on failure if they were
 * set. A socket without a listener is replaced, by one of the processes that try at once.
 * `is_private`: only the user of the process may connect.
 * errors : EIO: it is in use, or another file; ECONFIG: the path is too long */
WEIR_MUST_CHECK weir_status weir_local_socket_open(
    int *out, weir_local_socket *made, const char *path, bool is_private, weir_error *error
);
/* Not one that has taken its place. While the socket is open no other file has its inode. */
void weir_local_socket_remove(const weir_local_socket *made);

#ifdef __cplusplus
}
#endif
