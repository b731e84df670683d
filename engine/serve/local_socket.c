#include "engine/serve/local_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

bool weir_local_socket_is_named(const char *host)
{
    static const char ending[] = ".sock";
    const size_t n = strlen(host), n_ending = sizeof ending - 1;
    return n > n_ending && strcmp(host + n - n_ending, ending) == 0;
}

static weir_status fail(weir_error *error, const char *path, const char *what)
{
    return weir_error_set(error, WEIR_EIO, "%s: %s: %s", path, what, strerror(errno));
}

/* Locks the folder of the socket, until the result is closed: of servers that start at once, one
 * looks for an old socket and listens in its place before the next one looks. -1: the folder cannot
 * be read, its file system has no locks, or another program holds one for 5 s, as any user of a
 * shared folder may. */
static int lock_folder(const char *path)
{
    enum { TRIES = 500, PAUSE_NS = 10000000 };
    char folder[sizeof((struct sockaddr_un *)NULL)->sun_path + 1] = ".";
    const char *const name = strrchr(path, '/');
    if (name != NULL) {
        memcpy(folder, path, (size_t)(name - path) + 1); /* with the slash: it may be the root */
        folder[name - path + 1] = '\0';
    }
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
        if (errno != EWOULDBLOCK && errno != EINTR) break;
        (void)nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    }
    if (fd >= 0) (void)close(fd);
    return -1;
}

/* Removes the socket of a server that has ended; one that answers, and any other file, stays. */
static weir_status remove_old(const struct sockaddr_un *address, weir_error *error)
{
    struct stat info;
    const char *const path = address->sun_path;
    if (lstat(path, &info) != 0) return errno == ENOENT ? WEIR_OK : fail(error, path, "no access");
    if (!S_ISSOCK(info.st_mode))
        return weir_error_set(error, WEIR_EIO, "%s is there, and is no socket", path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return fail(error, path, "cannot make a socket");
    const bool refused = connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
                         errno == ECONNREFUSED;
    (void)close(fd);
    if (!refused) return weir_error_set(error, WEIR_EIO, "%s is in use by another program", path);
    return unlink(path) == 0 ? WEIR_OK : fail(error, path, "cannot remove the old socket");
}

static weir_status listen_at(
    int *out, weir_local_socket *made, const struct sockaddr_un *address, bool is_private,
    weir_error *error
)
{
    const char *const path = address->sun_path;
    struct stat info;
    WEIR_TRY(remove_old(address, error));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return fail(error, path, "cannot make a socket");
    *out = fd; /* closed with the server */
    if (bind(fd, (const struct sockaddr *)address, sizeof *address) != 0)
        return fail(error, path, "cannot make the socket");
    if (lstat(path, &info) != 0) return fail(error, path, "no access");
    *made = (weir_local_socket){ .device = info.st_dev, .inode = info.st_ino };
    memcpy(made->path, path, sizeof address->sun_path);
    /* No client can connect before listen. */
    if (is_private && chmod(path, S_IRUSR | S_IWUSR) != 0)
        return fail(error, path, "cannot make it private");
    return listen(fd, 1024) == 0 ? WEIR_OK : fail(error, path, "cannot listen");
}

weir_status weir_local_socket_open(
    int *out, weir_local_socket *made, const char *path, bool is_private, weir_error *error
)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof address.sun_path)
        return weir_error_set(
            error, WEIR_ECONFIG, "server.host: the path of a socket has at most %zu bytes",
            sizeof address.sun_path - 1
        );
    memcpy(address.sun_path, path, strlen(path) + 1);
    const int lock = lock_folder(path);
    const weir_status status = listen_at(out, made, &address, is_private, error);
    if (lock >= 0) (void)close(lock);
    return status;
}

void weir_local_socket_remove(const weir_local_socket *made)
{
    struct stat info;
    if (made->path[0] != '\0' && lstat(made->path, &info) == 0 && info.st_dev == made->device &&
        info.st_ino == made->inode)
        (void)unlink(made->path);
}
