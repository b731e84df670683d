#include "engine/cli/notify.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

weir_status weir_notify_open(int *out, const char *name, weir_error *error)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    *out = -1;
    if (name == NULL || name[0] == '\0') return WEIR_OK;
    const size_t n = strlen(name);
    if ((name[0] != '/' && name[0] != '@') || n < 2)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "NOTIFY_SOCKET is %.60s: it must be a path, or @ and a name",
            name
        );
    if (n >= sizeof address.sun_path)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "NOTIFY_SOCKET has %zu bytes: a socket has at most %zu", n,
            sizeof address.sun_path - 1
        );
    memcpy(address.sun_path, name, n);
    if (name[0] == '@') address.sun_path[0] = '\0';
    /* The length says where an abstract name ends. */
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, size) == 0) {
        *out = fd;
        return WEIR_OK;
    }
    const int why = errno;
    if (fd >= 0) (void)close(fd);
    return weir_error_set(
        error, WEIR_EIO, "NOTIFY_SOCKET %s cannot be reached: %s", name, strerror(why)
    );
}

weir_status weir_notify_send(int fd, const char *state, weir_error *error)
{
    if (fd < 0) return WEIR_OK;
    ssize_t n;
    do {
        n = send(fd, state, strlen(state), MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n >= 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EIO, "NOTIFY_SOCKET: \"%.40s\" was not sent: %s", state, strerror(errno)
    );
}

void weir_notify_close(int fd)
{
    if (fd >= 0) (void)close(fd);
}
