#include "engine/kv/tiers/lower_tier.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "engine/base/checked.h"
#include "engine/base/log.h"

enum { PIECES = 256, TMPFS = 0x01021994 };

struct weir_lower_tier {
    weir_ledger *ledger;
    weir_lower_tier_io io;
    char *folder;
    int fd;
    bool is_direct;
    /* n_free includes those in memory. */
    int64_t n_blocks, n_host_blocks, n_parts, n_free, n_free_host;
    int64_t next, next_host; /* where the search for a free block continues */
    size_t block_bytes, metadata_bytes;
    /* [n_parts]; this and the next two are owned, together with the bits. */
    size_t *part_bytes;
    /* [n_parts] offsets in the file, in memory. */
    size_t *part_start, *host_start;
    char *host; /* memory of the first blocks; may be NULL */
    size_t host_bytes, way_bytes;
    /* [way_bytes], the size of a part, between a device and the file; NULL: no device, or no
     * file. */
    char *way;
    pthread_mutex_t way_lock;
    uint64_t *used; /* one bit per block */
    atomic_llong written, read, write_errors, read_errors;
};

/* ---- opening --------------------------------------------------------------------------------- */
static size_t words_of(int64_t n_blocks) { return ((size_t)n_blocks + 63) / 64; }

size_t weir_lower_tier_metadata_bytes(int64_t n_blocks, int64_t n_parts)
{
    return words_of(n_blocks) * sizeof(uint64_t) + 3 * (size_t)n_parts * sizeof(size_t);
}

/* O_TMPFILE if the file system supports it, otherwise unlinked after creation. */
static int open_nameless(const char *folder)
{
    char path[PATH_MAX];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL))
        return fd;
    const int n = snprintf(path, sizeof path, "%s/weir-pages-XXXXXX", folder);
    if (n < 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) (void)unlink(path);
    return fd;
}

/* Some file systems accept the flag and refuse the transfer, so one is tried. */
static bool turn_direct(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    void *page = NULL;
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) != 0) return false;
    bool does = posix_memalign(&page, WEIR_LOWER_TIER_ALIGNMENT, WEIR_LOWER_TIER_ALIGNMENT) == 0;
    if (does) memset(page, 0, WEIR_LOWER_TIER_ALIGNMENT);
    does = does && pwrite(fd, page, WEIR_LOWER_TIER_ALIGNMENT, 0) == WEIR_LOWER_TIER_ALIGNMENT &&
           pread(fd, page, WEIR_LOWER_TIER_ALIGNMENT, 0) == WEIR_LOWER_TIER_ALIGNMENT &&
           ftruncate(fd, 0) == 0;
    free(page);
    if (!does) (void)fcntl(fd, F_SETFL, flags);
    return does;
}

static weir_status open_file(weir_lower_tier *s, weir_error *error)
{
    struct statfs system;
    s->fd = open_nameless(s->folder);
    if (s->fd < 0)
        return weir_error_set(
            error, WEIR_EIO,
            "%s: cannot open a file for KV pages here: %s; set memory.disk_dir "
            "to a folder on a disk",
            s->folder, strerror(errno)
        );
    s->is_direct = turn_direct(s->fd);
    if (fstatfs(s->fd, &system) == 0 && system.f_type == TMPFS)
        weir_log(
            WEIR_LOG_WARNING,
            "%s is in memory (tmpfs), so KV pages stored there free none; set memory.disk_dir to a "
            "folder on a disk",
            s->folder
        );
    return WEIR_OK;
}

static weir_status lay_out(
    weir_lower_tier *s, const weir_lower_tier_layout *layout, weir_error *error
)
{
    const size_t in_memory = (size_t)s->n_host_blocks,
                 in_file = (size_t)(s->n_blocks - s->n_host_blocks);
    size_t at = 0, bytes, all;
    for (int64_t part = 0; part < layout->n_parts; part++) {
        s->part_start[part] = at;
        s->host_start[part] = s->host_bytes;
        s->part_bytes[part] = layout->part_bytes[part];
        WEIR_ASSERT(s->part_bytes[part] % WEIR_LOWER_TIER_ALIGNMENT == 0);
        s->block_bytes += s->part_bytes[part];
        if (s->part_bytes[part] > s->way_bytes) s->way_bytes = s->part_bytes[part];
        if (!weir_mul_size(&all, s->part_bytes[part], (size_t)s->n_blocks) ||
            !weir_add_size(&bytes, all, at) || !weir_add_size(&bytes, all, s->host_bytes) ||
            bytes > INT64_MAX)
            return weir_error_set(
                error, WEIR_EINVAL,
                "%" PRId64 " blocks of KV pages are too many; lower memory.disk", s->n_blocks
            );
        at += s->part_bytes[part] * in_file;
        s->host_bytes += s->part_bytes[part] * in_memory;
    }
    return WEIR_OK;
}

static weir_status open_memory(weir_lower_tier *s, weir_error *error)
{
    const bool has_way = weir_ledger_device(s->ledger) != NULL && s->n_blocks > s->n_host_blocks;
    WEIR_TRY(weir_ledger_alloc_pinned(
        s->ledger, (void **)&s->host, WEIR_ACCOUNT_KV, s->host_bytes, error
    ));
    if (!has_way) s->way_bytes = 0;
    return weir_ledger_alloc_pinned(
        s->ledger, (void **)&s->way, WEIR_ACCOUNT_KV, s->way_bytes, error
    );
}

weir_status weir_lower_tier_open(
    weir_lower_tier **out, const weir_lower_tier_layout *layout, weir_ledger *ledger,
    weir_error *error
)
{
    weir_lower_tier *const s = calloc(1, sizeof *s);
    if (s == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the metadata of the lower tier");
    s->fd = -1;
    s->ledger = ledger;
    s->n_blocks = s->n_free = layout->n_blocks;
    s->n_host_blocks = s->n_free_host = layout->n_host_blocks;
    s->next = s->n_host_blocks;
    s->n_parts = layout->n_parts;
    s->folder = strdup(layout->folder != NULL ? layout->folder : "");
    (void)pthread_mutex_init(&s->way_lock, NULL);
    weir_lower_tier_set_io(s, NULL);
    void *books = NULL;
    weir_status status =
        s->folder != NULL ? WEIR_OK : weir_error_set(error, WEIR_ENOMEM, "no memory for a path");
    if (status == WEIR_OK)
        status = weir_ledger_alloc(
            ledger, &books, WEIR_ACCOUNT_PAGE_TABLES,
            weir_lower_tier_metadata_bytes(s->n_blocks, s->n_parts), error
        );
    if (status == WEIR_OK) {
        s->metadata_bytes = weir_lower_tier_metadata_bytes(s->n_blocks, s->n_parts);
        s->used = books;
        s->part_bytes = (size_t *)(s->used + words_of(s->n_blocks));
        s->part_start = s->part_bytes + s->n_parts;
        s->host_start = s->part_start + s->n_parts;
        status = lay_out(s, layout, error);
    }
    if (status == WEIR_OK) status = open_memory(s, error);
    if (status == WEIR_OK && s->n_blocks > s->n_host_blocks) status = open_file(s, error);
    if (status != WEIR_OK)
        weir_lower_tier_close(s);
    else
        *out = s;
    return status;
}

/* Allocated blocks of the file. */
static int64_t on_disk(const weir_lower_tier *s)
{
    return (s->n_blocks - s->n_free) - (s->n_host_blocks - s->n_free_host);
}

void weir_lower_tier_close(weir_lower_tier *lower)
{
    if (lower == NULL) return;
    if (lower->fd >= 0) (void)close(lower->fd);
    weir_ledger_return(
        lower->ledger, WEIR_TIER_DISK, WEIR_ACCOUNT_KV, (size_t)on_disk(lower) * lower->block_bytes
    );
    weir_ledger_free_pinned(lower->ledger, lower->host, WEIR_ACCOUNT_KV, lower->host_bytes);
    weir_ledger_free_pinned(lower->ledger, lower->way, WEIR_ACCOUNT_KV, lower->way_bytes);
    if (lower->used != NULL)
        weir_ledger_free(
            lower->ledger, lower->used, WEIR_ACCOUNT_PAGE_TABLES, lower->metadata_bytes
        );
    (void)pthread_mutex_destroy(&lower->way_lock);
    free(lower->folder);
    free(lower);
}

static const weir_lower_tier_io system_io = { .write = pwritev, .read = pread };

void weir_lower_tier_set_io(weir_lower_tier *lower, const weir_lower_tier_io *io)
{
    lower->io = io != NULL ? *io : system_io;
}

/* ---- blocks ---------------------------------------------------------------------------------- */
static bool is_used(const weir_lower_tier *s, int64_t block)
{
    return (s->used[block / 64] >> (block % 64) & 1) != 0;
}

/* A free block of [first, end), which must have one, searched from *next on and then from the
 * first. */
static int32_t take_between(weir_lower_tier *s, int64_t first, int64_t end, int64_t *next)
{
    int64_t at = *next;
    while (at >= end || is_used(s, at)) {
        if (at >= end)
            at = first;
        else if (at % 64 == 0 && s->used[at / 64] == UINT64_MAX)
            at += 64;
        else
            at++;
    }
    s->used[at / 64] |= UINT64_C(1) << (at % 64);
    s->n_free--;
    *next = at + 1;
    return (int32_t)at;
}

weir_status weir_lower_tier_alloc(weir_lower_tier *lower, int32_t *block, weir_error *error)
{
    if (lower->n_free == 0)
        return weir_error_set(
            error, WEIR_EFULL, "all %" PRId64 " blocks of KV pages %s are taken; raise %s",
            lower->n_blocks, lower->n_host_blocks > 0 ? "below the device" : "on disk",
            lower->n_host_blocks > 0 ? "kv.tiers.host or memory.disk" : "memory.disk"
        );
    if (lower->n_free_host > 0) {
        lower->n_free_host--;
        *block = take_between(lower, 0, lower->n_host_blocks, &lower->next_host);
        return WEIR_OK;
    }
    WEIR_TRY(weir_ledger_reserve(
        lower->ledger, WEIR_TIER_DISK, WEIR_ACCOUNT_KV, lower->block_bytes, error
    ));
    *block = take_between(lower, lower->n_host_blocks, lower->n_blocks, &lower->next);
    return WEIR_OK;
}

void weir_lower_tier_free(weir_lower_tier *lower, int32_t block)
{
    WEIR_ASSERT(block >= 0 && block < lower->n_blocks && is_used(lower, block));
    lower->used[block / 64] &= ~(UINT64_C(1) << (block % 64));
    lower->n_free++;
    if (block < lower->n_host_blocks) {
        lower->n_free_host++;
        return;
    }
    weir_ledger_return(lower->ledger, WEIR_TIER_DISK, WEIR_ACCOUNT_KV, lower->block_bytes);
    if (on_disk(lower) > 0) return;
    lower->next = lower->n_host_blocks;
    if (ftruncate(lower->fd, 0) != 0)
        weir_log(
            WEIR_LOG_DEBUG, "%s: the file of KV pages cannot be truncated: %s", lower->folder,
            strerror(errno)
        );
}

int64_t weir_lower_tier_free_blocks(const weir_lower_tier *lower) { return lower->n_free; }

/* ---- bytes ----------------------------------------------------------------------------------- */
static off_t offset_of(const weir_lower_tier *s, int32_t block, int64_t part, size_t at)
{
    return (off_t)(s->part_start[part] + (size_t)(block - s->n_host_blocks) * s->part_bytes[part] +
                   at);
}

static char *memory_of(const weir_lower_tier *s, int32_t block, int64_t part, size_t at)
{
    return s->host + s->host_start[part] + (size_t)block * s->part_bytes[part] + at;
}

static weir_status write_file(
    weir_lower_tier *lower, int32_t block, int64_t part, const struct iovec *pieces, int n_pieces,
    weir_error *error
)
{
    struct iovec left[PIECES];
    off_t at = offset_of(lower, block, part, 0);
    const off_t start = at;
    for (int first = 0; first < n_pieces; first += PIECES) {
        int n = n_pieces - first < PIECES ? n_pieces - first : PIECES, done = 0;
        memcpy(left, pieces + first, (size_t)n * sizeof *left);
        while (done < n) {
            const ssize_t wrote = lower->io.write(lower->fd, left + done, n - done, at);
            if (wrote < 0 && errno == EINTR) continue;
            if (wrote <= 0) {
                const int reason = wrote < 0 ? errno : ENOSPC;
                atomic_fetch_add(&lower->write_errors, 1);
                return weir_error_set(
                    error, WEIR_EIO,
                    "%s: cannot write KV pages: %s; free space there, or lower memory.disk",
                    lower->folder, strerror(reason)
                );
            }
            at += wrote;
            size_t over = (size_t)wrote;
            while (done < n && over >= left[done].iov_len) over -= left[done++].iov_len;
            if (over == 0) continue;
            left[done].iov_base = (char *)left[done].iov_base + over;
            left[done].iov_len -= over;
        }
    }
    if (!lower->is_direct) {
        (void)sync_file_range(
            lower->fd, start, at - start, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER
        );
        (void)posix_fadvise(lower->fd, start, at - start, POSIX_FADV_DONTNEED);
    }
    atomic_fetch_add(&lower->written, at - start);
    return WEIR_OK;
}

/* Copies the pieces one after the other. */
static size_t gather(const weir_lower_tier *s, char *out, const struct iovec *pieces, int n_pieces)
{
    size_t at = 0;
    for (int i = 0; i < n_pieces; at += pieces[i++].iov_len)
        weir_ledger_copy(s->ledger, out + at, pieces[i].iov_base, pieces[i].iov_len);
    return at;
}

weir_status weir_lower_tier_write(
    weir_lower_tier *lower, int32_t block, int64_t part, const struct iovec *pieces, int n_pieces,
    weir_error *error
)
{
    if (block < lower->n_host_blocks) {
        atomic_fetch_add(
            &lower->written,
            (long long)gather(lower, memory_of(lower, block, part, 0), pieces, n_pieces)
        );
        return WEIR_OK;
    }
    if (lower->way == NULL) return write_file(lower, block, part, pieces, n_pieces, error);
    (void)pthread_mutex_lock(&lower->way_lock);
    const struct iovec all = { lower->way, gather(lower, lower->way, pieces, n_pieces) };
    const weir_status status = write_file(lower, block, part, &all, 1, error);
    (void)pthread_mutex_unlock(&lower->way_lock);
    return status;
}

static weir_status read_file(
    weir_lower_tier *lower, int32_t block, int64_t part, size_t at, void *bytes, size_t n,
    weir_error *error
)
{
    const off_t start = offset_of(lower, block, part, at);
    for (size_t done = 0; done < n;) {
        const ssize_t got =
            lower->io.read(lower->fd, (char *)bytes + done, n - done, start + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            const int reason = errno;
            atomic_fetch_add(&lower->read_errors, 1);
            return weir_error_set(
                error, WEIR_EIO, "%s: cannot read KV pages back: %s; check this disk",
                lower->folder, got < 0 ? strerror(reason) : "the file is too short"
            );
        }
        done += (size_t)got;
    }
    if (!lower->is_direct) (void)posix_fadvise(lower->fd, start, (off_t)n, POSIX_FADV_DONTNEED);
    atomic_fetch_add(&lower->read, (long long)n);
    return WEIR_OK;
}

static void copy_out(weir_lower_tier *s, void *out, const void *bytes, size_t n, bool is_beside)
{
    if (is_beside && weir_ledger_device(s->ledger) != NULL)
        weir_device_copy_async(weir_ledger_device(s->ledger), out, bytes, n);
    else
        weir_ledger_copy(s->ledger, out, bytes, n);
}

/* Through the bounce buffer, as many bytes at a time as it holds. */
static weir_status read_over(
    weir_lower_tier *s, int32_t block, int64_t part, size_t at, char *bytes, size_t n,
    bool is_beside, weir_error *error
)
{
    weir_status status = WEIR_OK;
    (void)pthread_mutex_lock(&s->way_lock);
    for (size_t done = 0, some; status == WEIR_OK && done < n; done += some) {
        some = n - done < s->way_bytes ? n - done : s->way_bytes;
        status = read_file(s, block, part, at + done, s->way, some, error);
        if (status == WEIR_OK) copy_out(s, bytes + done, s->way, some, is_beside);
    }
    (void)pthread_mutex_unlock(&s->way_lock);
    return status;
}

/* Reads the part of a run of blocks that is in memory, then the part in the file. */
static weir_status read_bytes(
    weir_lower_tier *s, int32_t block, int64_t part, size_t at, char *bytes, size_t n,
    bool is_beside, weir_error *error
)
{
    if (block < s->n_host_blocks) {
        const size_t left = (size_t)(s->n_host_blocks - block) * s->part_bytes[part],
                     here = left > at ? left - at : 0;
        const size_t some = n < here ? n : here;
        copy_out(s, bytes, memory_of(s, block, part, at), some, is_beside);
        atomic_fetch_add(&s->read, (long long)some);
        if (some == n) return WEIR_OK;
        return read_bytes(
            s, (int32_t)s->n_host_blocks, part, at + some - left, bytes + some, n - some, is_beside,
            error
        );
    }
    return s->way != NULL ? read_over(s, block, part, at, bytes, n, is_beside, error)
                          : read_file(s, block, part, at, bytes, n, error);
}

weir_status weir_lower_tier_read(
    weir_lower_tier *lower, int32_t block, int64_t part, size_t at, void *bytes, size_t n,
    weir_error *error
)
{
    return read_bytes(lower, block, part, at, bytes, n, false, error);
}

weir_status weir_lower_tier_read_async(
    weir_lower_tier *lower, int32_t block, int64_t part, size_t at, void *bytes, size_t n,
    weir_error *error
)
{
    return read_bytes(lower, block, part, at, bytes, n, true, error);
}

weir_lower_tier_stats weir_lower_tier_stats_of(const weir_lower_tier *lower)
{
    return (weir_lower_tier_stats){ .written = atomic_load(&lower->written),
                                    .read = atomic_load(&lower->read),
                                    .write_errors = atomic_load(&lower->write_errors),
                                    .read_errors = atomic_load(&lower->read_errors) };
}
