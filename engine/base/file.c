#include "engine/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens a regular file for reading. Sets *size to its length. */
static weir_status open_regular(int *fd, size_t *size, const char *path, weir_error *error)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return weir_error_set(
            error, errno == ENOENT ? WEIR_ENOTFOUND : WEIR_EIO, "%s: cannot open: %s", path,
            strerror(errno)
        );
    struct stat st;
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)close(*fd);
        return weir_error_set(error, WEIR_EIO, "%s: not a regular file", path);
    }
    *size = (size_t)st.st_size;
    return WEIR_OK;
}

weir_status weir_map_open(weir_map *map, const char *path, weir_error *error)
{
    int fd;
    size_t size;
    WEIR_TRY(open_regular(&fd, &size, path, error));
    *map = (weir_map){ 0 };
    weir_status status = WEIR_OK;
    if (size > 0) {
        void *const data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = weir_error_set(
                error, WEIR_EIO, "%s: cannot map %zu bytes: %s", path, size, strerror(errno)
            );
        else
            *map = (weir_map){ .data = data, .size = size };
    }
    (void)close(fd);
    return status;
}

void weir_map_release(const weir_map *map, size_t offset, size_t n)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t first = (offset + page - 1) / page * page, last = (offset + n) / page * page;
    if (last > first && last <= map->size)
        (void)madvise((void *)(map->data + first), last - first, MADV_DONTNEED);
}

void weir_map_close(weir_map *map)
{
    if (map == NULL || map->data == NULL) return;
    (void)munmap((void *)map->data, map->size);
    *map = (weir_map){ 0 };
}

bool weir_file_exists(const char *path)
{
    return access(path, F_OK) == 0 ||
           (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG);
}

bool weir_file_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

weir_status weir_file_read(weir_buffer *out, const char *path, size_t limit, weir_error *error)
{
    int fd;
    size_t size;
    WEIR_TRY(open_regular(&fd, &size, path, error));
    weir_status status = WEIR_OK;
    if (size > limit)
        status = weir_error_set(
            error, WEIR_EFORMAT, "%s: %zu bytes; the limit is %zu", path, size, limit
        );
    else if (weir_buffer_reserve(out, size) != WEIR_OK)
        status = weir_error_set(error, WEIR_ENOMEM, "%s: no memory for %zu bytes", path, size);
    while (status == WEIR_OK && size > 0) {
        const ssize_t n = read(fd, out->data + out->size, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            status = weir_error_set(
                error, WEIR_EIO, "%s: cannot read: %s", path,
                n < 0 ? strerror(errno) : "file became shorter"
            );
            break;
        }
        out->size += (size_t)n;
        size -= (size_t)n;
    }
    if (out->data != NULL) out->data[out->size] = '\0';
    (void)close(fd);
    return status;
}

/* Reads to the end of the stream. Fails if that is more than `limit` bytes. */
static weir_status read_stream(
    weir_buffer *out, int fd, const char *path, size_t limit, weir_error *error
)
{
    enum { PIECE = 1 << 16 };
    const size_t before = out->size;
    for (;;) {
        if (weir_buffer_reserve(out, PIECE) != WEIR_OK)
            return weir_error_set(
                error, WEIR_ENOMEM, "%s: no memory after %zu bytes", path, out->size - before
            );
        const ssize_t n = read(fd, out->data + out->size, PIECE);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return weir_error_set(error, WEIR_EIO, "%s: cannot read: %s", path, strerror(errno));
        out->size += (size_t)n;
        out->data[out->size] = '\0';
        if (n == 0) return WEIR_OK;
        if (out->size - before > limit)
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: more than %zu bytes, which is the limit", path, limit
            );
    }
}

weir_status weir_file_read_input(
    weir_buffer *out, const char *path, size_t limit, weir_error *error
)
{
    struct stat st;
    if (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdin") == 0)
        return read_stream(out, STDIN_FILENO, "standard input", limit, error);
    if (stat(path, &st) != 0 || (!S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode)))
        return weir_file_read(out, path, limit, error);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return weir_error_set(error, WEIR_EIO, "%s: cannot open: %s", path, strerror(errno));
    const weir_status status = read_stream(out, fd, path, limit, error);
    (void)close(fd);
    return status;
}

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

static weir_status open_new(
    weir_new_file *file, const char *path, size_t size, mode_t mode, weir_error *error
)
{
    const size_t length = strlen(path) + 32;
    *file = (weir_new_file){ .path = strdup(path), .temporary = malloc(length), .fd = -1 };
    if (file->path == NULL || file->temporary == NULL) {
        forget(file);
        return weir_error_set(error, WEIR_ENOMEM, "%s: no memory for its name", path);
    }
    (void)snprintf(file->temporary, length, "%s.tmp.%ld", path, (long)getpid());
    file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (file->fd < 0 || (mode == 0600 && fchmod(file->fd, mode) != 0
                        )) { /* a file left by another process may have other permissions */
        const weir_status status = weir_error_set(
            error, WEIR_EIO, "%s: cannot create: %s", file->temporary, strerror(errno)
        );
        if (file->fd >= 0) (void)close(file->fd);
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

weir_status weir_new_file_keep(weir_new_file *file, weir_error *error)
{
    int folder;
    if (fsync(file->fd) != 0) return fail_new(file, "sync to the disk", errno, error);
    const int fd = file->fd;
    file->fd = -1;
    if (close(fd) != 0) return fail_new(file, "sync to the disk", errno, error);
    if (!open_folder_of(&folder, file->path))
        return fail_new(file, "open its folder", errno, error);
    if (rename(file->temporary, file->path) != 0) {
        const int reason = errno;
        if (folder >= 0) (void)close(folder);
        return fail_new(file, "rename into place", reason, error);
    }
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
    if (file->fd >= 0) (void)close(file->fd);
    (void)unlink(file->temporary);
    forget(file);
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
