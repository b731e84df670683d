/* engine/cli/notify.h - tells the service manager what a server does: systemd's Type=notify.
 *
 * A state is a datagram ("READY=1") to the UNIX socket that NOTIFY_SOCKET names. The socket is
 * connected at open, since a server's sandbox forbids connections; sending never blocks. */
#pragma once
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* name: "/run/systemd/notify", "@NAME" of an abstract socket, or NULL.
 * returns: *out is a descriptor, -1 if name is NULL or "" (no service manager)
 * errors : EUNSUPPORTED (another kind of socket), EIO (no listener); *out is -1 */
WEIR_MUST_CHECK weir_status weir_notify_open(int *out, const char *name, weir_error *error);
/* Sends one or several lines, "READY=1\nSTATUS=...". Does nothing without a descriptor.
 * errors : EIO */
WEIR_MUST_CHECK weir_status weir_notify_send(int fd, const char *state, weir_error *error);
/* Takes -1. */
void weir_notify_close(int fd);

#ifdef __cplusplus
}
#endif
