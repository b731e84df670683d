/* engine/base/file.c - reads and maps files. */
#include "engine/base/file.h"

#include <errno.h>
#include <fcntl.h>
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
