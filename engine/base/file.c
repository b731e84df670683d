#include "engine/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens a regular file for reading; *size is its length. */
static weir_status open_regular(int *fd, size_t *size, const char *path, weir_error *error)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return weir_error_set(error, errno == ENOENT ? WEIR_ENOTFOUND : WEIR_EIO, "%s: cannot open: %s", path, strerror(errno));
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
    int    fd;
    size_t size;
    WEIR_TRY(open_regular(&fd, &size, path, error));
    *map = (weir_map){ 0 };
    weir_status status = WEIR_OK;
    if (size > 0) {
        void *const data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = weir_error_set(error, WEIR_EIO, "%s: cannot map %zu bytes: %s", path, size, strerror(errno));
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
    if (last > first && last <= map->size) (void)madvise((void *)(map->data + first), last - first, MADV_DONTNEED);
}

void weir_map_close(weir_map *map)
{
    if (map == NULL || map->data == NULL) return;
    (void)munmap((void *)map->data, map->size);
    *map = (weir_map){ 0 };
}

bool weir_file_exists(const char *path) { return access(path, F_OK) == 0; }

bool weir_file_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

weir_status weir_file_read(weir_buffer *out, const char *path, size_t limit, weir_error *error)
{
    int    fd;
    size_t size;
    WEIR_TRY(open_regular(&fd, &size, path, error));
    weir_status status = WEIR_OK;
    if (size > limit)
        status = weir_error_set(error, WEIR_EFORMAT, "%s: %zu bytes, at most %zu are read", path, size, limit);
    else if (weir_buffer_reserve(out, size) != WEIR_OK)
        status = weir_error_set(error, WEIR_ENOMEM, "%s: no memory for %zu bytes", path, size);
    while (status == WEIR_OK && size > 0) {
        const ssize_t n = read(fd, out->data + out->size, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            status = weir_error_set(error, WEIR_EIO, "%s: cannot read: %s", path, n < 0 ? strerror(errno) : "file became shorter");
            break;
        }
        out->size += (size_t)n;
        size -= (size_t)n;
    }
    if (out->data != NULL) out->data[out->size] = '\0';
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

static void sync_folder_of(const char *path)
{
    char copy[PATH_MAX];
    (void)snprintf(copy, sizeof copy, "%s", path);
    const int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    (void)close(fd);
}

/* A device or a pipe is written to: a rename would put a file in its place. */
static weir_status write_special(const char *path, const void *bytes, size_t n, weir_error *error)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return weir_error_set(error, WEIR_EIO, "%s: cannot open: %s", path, strerror(errno));
    const weir_status status = write_bytes(fd, bytes, n);
    const int         reason = errno;
    (void)close(fd);
    return status == WEIR_OK ? WEIR_OK : weir_error_set(error, status, "%s: cannot write %zu bytes: %s", path, n, strerror(reason));
}

weir_status weir_file_write_atomic(const char *path, const void *bytes, size_t n, weir_error *error)
{
    char        temporary[PATH_MAX];
    struct stat old;
    if (stat(path, &old) == 0 && !S_ISREG(old.st_mode) && !S_ISDIR(old.st_mode)) return write_special(path, bytes, n, error);
    if (snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid()) >= (int)sizeof temporary)
        return weir_error_set(error, WEIR_EINVAL, "%s: path too long", path);
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return weir_error_set(error, WEIR_EIO, "%s: cannot create: %s", temporary, strerror(errno));
    weir_status status = write_bytes(fd, bytes, n);
    if (status == WEIR_OK && fsync(fd) != 0) status = WEIR_EIO;
    int reason = errno;
    if (close(fd) != 0 && status == WEIR_OK) {
        status = WEIR_EIO;
        reason = errno;
    }
    if (status == WEIR_OK && rename(temporary, path) != 0) {
        status = WEIR_EIO;
        reason = errno;
    }
    if (status != WEIR_OK) {
        (void)unlink(temporary);
        return weir_error_set(error, status, "%s: cannot write %zu bytes: %s", path, n, strerror(reason));
    }
    sync_folder_of(path);
    return WEIR_OK;
}
