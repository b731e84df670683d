/* engine/base/new_file.c - writes files atomically: under a temporary name, then renamed. The name
 * is random and new (O_EXCL), so writers never share one, not even in containers with equal ids. It
 * is locked while it is written: if it can be locked, its writer has ended. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/file.h"

static weir_status write_bytes(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t written = write(fd, bytes, n);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return WEIR_EIO;
        bytes += written;
        n -= (size_t)written;
    }
    return WEIR_OK;
}

/* Opens the folder of a path, to sync names in it. Sets *fd to -1 if this process may write to the
 * folder but not read it: then its names cannot be synced. */
static bool open_folder_of(int *fd, const char *path)
{
    char copy[PATH_MAX];
    (void)snprintf(copy, sizeof copy, "%s", path);
    *fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *fd >= 0 || errno == EACCES;
}

/* Closes the folder. Some file systems have no sync for folders, which is no failure. */
static bool sync_folder(int fd)
{
    if (fd < 0) return true;
    const bool is_synced = fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
    const int reason = errno;
    (void)close(fd);
    errno = reason;
    return is_synced;
}

bool weir_file_sync_folder(const char *path)
{
    int fd;
    return open_folder_of(&fd, path) && sync_folder(fd);
}

/* Reserves bytes where the file system can. */
static bool reserve(int fd, size_t size)
{
    int result = fallocate(fd, 0, 0, (off_t)size);
    while (result != 0 && errno == EINTR) result = fallocate(fd, 0, 0, (off_t)size);
    return result == 0 || errno == EOPNOTSUPP || errno == ENOSYS;
}

/* Writes to a device or a pipe in place: a rename would replace it by a regular file. */
static weir_status write_special(const char *path, const void *bytes, size_t n, weir_error *error)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return weir_error_set(error, WEIR_EIO, "%s: cannot open: %s", path, strerror(errno));
    const weir_status status = write_bytes(fd, bytes, n);
    const int reason = errno;
    (void)close(fd);
    return status == WEIR_OK
               ? WEIR_OK
               : weir_error_set(
                     error, status, "%s: cannot write %zu bytes: %s", path, n, strerror(reason)
                 );
}

static void forget(weir_new_file *file)
{
    free(file->path);
    free(file->temporary);
    *file = (weir_new_file){ .fd = -1 };
}

/* Drops the new file and fails with the text of errno `reason`. */
static weir_status fail_new(weir_new_file *file, const char *what, int reason, weir_error *error)
{
    const weir_status status =
        weir_error_set(error, WEIR_EIO, "%s: cannot %s: %s", file->path, what, strerror(reason));
    weir_new_file_drop(file);
    return status;
}

/* A clean-up that came between `open` and this has locked the file, or deleted it. A file system
 * without locks has no clean-up. */
static bool is_own(int fd)
{
    struct stat st;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
    return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

/* Creates and locks the temporary file. Returns false with errno. */
static bool create(weir_new_file *file, mode_t mode)
{
    enum { TRIES = 8 };
    const size_t length = strlen(file->path) + sizeof WEIR_TEMPORARY_MARK + 8;
    for (int i = 0; i < TRIES; i++) {
        uint32_t drawn;
        if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
            drawn = (uint32_t)weir_clock_ns();
        (void)snprintf(
            file->temporary, length, "%s" WEIR_TEMPORARY_MARK "%08x", file->path, (unsigned)drawn
        );
        file->fd =
            open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
        if (file->fd < 0 && errno == EEXIST) continue;
        if (file->fd < 0) return false;
        if (is_own(file->fd) && (mode != 0600 || fchmod(file->fd, mode) == 0)) return true;
        const int reason = errno;
        (void)unlink(file->temporary);
        (void)close(file->fd);
        file->fd = -1;
        errno = reason;
    }
    return false;
}

static weir_status open_new(
    weir_new_file *file, const char *path, size_t size, mode_t mode, weir_error *error
)
{
    *file = (weir_new_file){ .path = strdup(path),
                             .temporary = malloc(strlen(path) + sizeof WEIR_TEMPORARY_MARK + 8),
                             .fd = -1 };
    if (file->path == NULL || file->temporary == NULL) {
        forget(file);
        return weir_error_set(error, WEIR_ENOMEM, "%s: no memory for its name", path);
    }
    if (!create(file, mode)) {
        const weir_status status = weir_error_set(
            error, WEIR_EIO, "%s: cannot create: %s", file->temporary, strerror(errno)
        );
        forget(file);
        return status;
    }
    if (size > 0 && !reserve(file->fd, size)) {
        char what[64];
        const int reason = errno;
        (void)snprintf(what, sizeof what, "reserve %zu bytes on the disk", size);
        return fail_new(file, what, reason, error);
    }
    return WEIR_OK;
}

weir_status weir_new_file_open(
    weir_new_file *file, const char *path, size_t size, weir_error *error
)
{
    return open_new(file, path, size, 0600, error);
}

weir_status weir_new_file_open_public(
    weir_new_file *file, const char *path, size_t size, weir_error *error
)
{
    return open_new(file, path, size, 0666, error);
}

weir_status weir_new_file_keep(weir_new_file *file, weir_error *error)
{
    int folder;
    if (fsync(file->fd) != 0) return fail_new(file, "sync to the disk", errno, error);
    if (!open_folder_of(&folder, file->path))
        return fail_new(file, "open its folder", errno, error);
    if (rename(file->temporary, file->path) != 0) {
        const int reason = errno;
        if (folder >= 0) (void)close(folder);
        return fail_new(file, "rename into place", reason, error);
    }
    (void)close(file->fd); /* unlocks it; all of it is on the disk */
    const weir_status status =
        sync_folder(folder)
            ? WEIR_OK
            : weir_error_set(
                  error, WEIR_EIO,
                  "%s: is written, but its folder cannot be synced to the disk: %s; a loss of "
                  "power may bring the old file back",
                  file->path, strerror(errno)
              );
    forget(file);
    return status;
}

void weir_new_file_drop(weir_new_file *file)
{
    if (file->path == NULL) return;
    (void)unlink(file->temporary);
    if (file->fd >= 0) (void)close(file->fd);
    forget(file);
}

/* Open for writing: over NFS an exclusive lock needs that. */
bool weir_file_drop_torn(const char *path)
{
    struct stat st;
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) return false;
    const bool is_dropped = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                            flock(fd, LOCK_EX | LOCK_NB) == 0 && unlink(path) == 0;
    (void)close(fd);
    return is_dropped;
}

static weir_status write_atomic(
    const char *path, const void *bytes, size_t n, mode_t mode, weir_error *error
)
{
    struct stat old;
    weir_new_file file;
    if (stat(path, &old) == 0 && !S_ISREG(old.st_mode) && !S_ISDIR(old.st_mode))
        return write_special(path, bytes, n, error);
    WEIR_TRY(open_new(&file, path, n, mode, error));
    if (write_bytes(file.fd, bytes, n) == WEIR_OK) return weir_new_file_keep(&file, error);
    const weir_status status =
        weir_error_set(error, WEIR_EIO, "%s: cannot write %zu bytes: %s", path, n, strerror(errno));
    weir_new_file_drop(&file);
    return status;
}

weir_status weir_file_write_atomic(const char *path, const void *bytes, size_t n, weir_error *error)
{
    return write_atomic(path, bytes, n, 0666, error);
}

weir_status weir_file_write_private(
    const char *path, const void *bytes, size_t n, weir_error *error
)
{
    return write_atomic(path, bytes, n, 0600, error);
}
