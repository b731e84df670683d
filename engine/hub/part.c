/* engine/hub/part.c - the file of a download. */
#include "engine/hub/part.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "engine/base/memory.h"

enum { PIECE = 1 << 20 };

weir_status weir_make_folders(const char *path, weir_error *error)
{
    char made[PATH_MAX];
    if (snprintf(made, sizeof made, "%s", path) >= (int)sizeof made)
        return weir_error_set(error, WEIR_EIO, "%.300s: this path is too long", path);
    for (char *at = made + 1;; at++) {
        const char end = *at;
        if (end != '/' && end != '\0') continue;
        *at = '\0';
        if (mkdir(made, 0777) != 0 && errno != EEXIST)
            return weir_error_set(
                error, WEIR_EIO, "%s: cannot make this folder: %s", made, strerror(errno)
            );
        *at = end;
        if (end == '\0') return WEIR_OK;
    }
}

static weir_status fail(const weir_part *part, const char *what, weir_error *error)
{
    return weir_error_set(error, WEIR_EIO, "%s: cannot %s: %s", part->path, what, strerror(errno));
}

weir_status weir_part_open(weir_part *part, const char *folder, const char *name, weir_error *error)
{
    char parent[PATH_MAX];
    *part = (weir_part){ .fd = -1 };
    if (snprintf(part->path, PATH_MAX, "%s/%s.part", folder, name) >= PATH_MAX)
        return weir_error_set(error, WEIR_EIO, "%.300s: this path is too long", folder);
    (void)snprintf(part->final, PATH_MAX, "%s/%s", folder, name);
    (void)snprintf(parent, sizeof parent, "%s", part->final);
    WEIR_TRY(weir_make_folders(dirname(parent), error));
    part->fd = open(part->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (part->fd < 0) return fail(part, "open", error);
    weir_sha256_begin(&part->sum);
    return WEIR_OK;
}

/* Adds the bytes of a file, from where it is, to a sum. */
static weir_status add_file(
    weir_sha256_stream *sum, int64_t *n, int fd, const char *path, bool (*is_cancelled)(void *user),
    void *user, weir_error *error
)
{
    char *const buffer = weir_memory_take(PIECE);
    weir_status status = WEIR_OK;
    if (buffer == NULL) return weir_error_set(error, WEIR_ENOMEM, "%s: no memory to read it", path);
    for (;;) {
        const ssize_t got = read(fd, buffer, PIECE);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            status = weir_error_set(error, WEIR_EIO, "%s: cannot read: %s", path, strerror(errno));
        else if (is_cancelled != NULL && is_cancelled(user))
            status = weir_error_set(error, WEIR_ECANCELED, "%s: interrupted", path);
        if (status != WEIR_OK || got == 0) break;
        weir_sha256_add(sum, buffer, (size_t)got);
        *n += got;
    }
    weir_memory_give(buffer);
    return status;
}

weir_status weir_part_resume(
    weir_part *part, int64_t limit, bool (*is_cancelled)(void *user), void *user, weir_error *error
)
{
    struct stat st;
    if (fstat(part->fd, &st) != 0) return fail(part, "read", error);
    if (st.st_size > limit) return weir_part_restart(part, error);
    part->have = 0;
    weir_sha256_begin(&part->sum);
    if (lseek(part->fd, 0, SEEK_SET) < 0) return fail(part, "read", error);
    return add_file(&part->sum, &part->have, part->fd, part->path, is_cancelled, user, error);
}

weir_status weir_part_restart(weir_part *part, weir_error *error)
{
    part->have = 0;
    weir_sha256_begin(&part->sum);
    if (ftruncate(part->fd, 0) != 0 || lseek(part->fd, 0, SEEK_SET) < 0)
        return fail(part, "empty", error);
    return WEIR_OK;
}

weir_status weir_part_write(weir_part *part, const void *bytes, size_t n, weir_error *error)
{
    const char *at = bytes;
    while (n > 0) {
        const ssize_t written = write(part->fd, at, n);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            const bool is_full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
            return weir_error_set(
                error, WEIR_EIO, "%s: cannot write after %lld bytes: %s%s", part->path,
                (long long)part->have, strerror(errno),
                is_full ? "; make room and run the command again: it goes on from there" : ""
            );
        }
        weir_sha256_add(&part->sum, at, (size_t)written);
        part->have += written;
        at += written;
        n -= (size_t)written;
    }
    return WEIR_OK;
}

weir_status weir_part_keep(weir_part *part, weir_error *error)
{
    weir_status status = WEIR_OK;
    if (fsync(part->fd) != 0)
        status = fail(part, "sync to the disk", error);
    else if (rename(part->path, part->final) != 0)
        status = fail(part, "rename into place", error);
    else if (!weir_file_sync_folder(part->final))
        status = fail(part, "sync its folder to the disk", error);
    weir_part_close(part);
    return status;
}

void weir_part_drop(weir_part *part)
{
    if (part->fd >= 0) (void)unlink(part->path);
    weir_part_close(part);
}

void weir_part_close(weir_part *part)
{
    if (part->fd >= 0) (void)close(part->fd);
    part->fd = -1;
}

weir_status weir_sum_file(
    weir_sha256 *out, const char *path, bool (*is_cancelled)(void *user), void *user,
    weir_error *error
)
{
    weir_sha256_stream sum;
    int64_t n = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return weir_error_set(error, WEIR_EIO, "%s: cannot open: %s", path, strerror(errno));
    weir_sha256_begin(&sum);
    const weir_status status = add_file(&sum, &n, fd, path, is_cancelled, user, error);
    if (status == WEIR_OK) *out = weir_sha256_end(&sum);
    (void)close(fd);
    return status;
}
