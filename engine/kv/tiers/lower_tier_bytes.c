/* engine/kv/tiers/lower_tier_bytes.c - writes and reads the blocks of the lower tier. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Inlined it is twice as fast as in the library, which is built for any processor. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "engine/kv/tiers/lower_tier_internal.h"

enum { PIECES = 256 };

static off_t offset_of(const weir_lower_tier *s, int32_t block, const tier_part *p, size_t at)
{
    return (off_t)(tier_offset(s, block, p) + at);
}

static char *memory_of(const weir_lower_tier *s, int32_t block, const tier_part *p, size_t at)
{
    return s->host + p->host_start + (size_t)block * p->bytes + at;
}

/* Of page `page` of the part, counted on into the following blocks. */
static uint32_t *checksum_of(
    const weir_lower_tier *s, int32_t block, const tier_part *p, int64_t page
)
{
    const int64_t in_file = block - s->n_host_blocks + page / p->n_pages;
    return &s->checksums[in_file * s->n_pages + p->first_page + page % p->n_pages];
}

/* The lower half: it finds what a disk or a file system garbled. */
static uint32_t checksum(const void *bytes, size_t n) { return (uint32_t)XXH3_64bits(bytes, n); }

static void set_checksums(
    weir_lower_tier *s, int32_t block, const tier_part *p, const struct iovec *pieces, int n_pieces
)
{
    int64_t page = 0;
    for (int i = 0; i < n_pieces; i++)
        for (size_t at = 0; at < pieces[i].iov_len; at += p->page_bytes)
            *checksum_of(s, block, p, page++) =
                checksum((const char *)pieces[i].iov_base + at, p->page_bytes);
    WEIR_ASSERT(page == p->n_pages);
}

static bool has_checksums(
    const weir_lower_tier *s, int32_t block, const tier_part *p, size_t at, const char *bytes,
    size_t n
)
{
    int64_t page = (int64_t)(at / p->page_bytes);
    WEIR_ASSERT(at % p->page_bytes == 0 && n % p->page_bytes == 0);
    for (size_t done = 0; done < n; done += p->page_bytes)
        if (checksum(bytes + done, p->page_bytes) != *checksum_of(s, block, p, page++))
            return false;
    return true;
}

static weir_status fail_write(weir_lower_tier *lower, weir_status status)
{
    lower->fails = true;
    atomic_fetch_add(&lower->write_errors, 1);
    return status;
}

static weir_status write_file(
    weir_lower_tier *lower, int32_t block, const tier_part *p, const struct iovec *pieces,
    int n_pieces, weir_error *error
)
{
    struct iovec left[PIECES];
    off_t at = offset_of(lower, block, p, 0);
    const off_t start = at, end = at + (off_t)p->bytes;
    if (tier_take_space(lower, block, error) != WEIR_OK) return fail_write(lower, WEIR_EIO);
    if (end > lower->end) lower->end = end;
    set_checksums(lower, block, p, pieces, n_pieces);
    for (int first = 0; first < n_pieces; first += PIECES) {
        int n = n_pieces - first < PIECES ? n_pieces - first : PIECES, done = 0;
        memcpy(left, pieces + first, (size_t)n * sizeof *left);
        while (done < n) {
            const ssize_t wrote = lower->io.write(lower->fd, left + done, n - done, at);
            if (wrote < 0 && errno == EINTR) continue;
            if (wrote <= 0) {
                const int reason = wrote < 0 ? errno : ENOSPC;
                (void)weir_error_set(
                    error, WEIR_EIO,
                    "%s: cannot write KV pages: %s; free space there, or lower memory.disk",
                    lower->folder, strerror(reason)
                );
                return fail_write(lower, WEIR_EIO);
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
    lower->fails = false;
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
    const tier_part *const p = &lower->parts[part];
    if (block < lower->n_host_blocks) {
        atomic_fetch_add(
            &lower->written,
            (long long)gather(lower, memory_of(lower, block, p, 0), pieces, n_pieces)
        );
        return WEIR_OK;
    }
    if (lower->way == NULL) return write_file(lower, block, p, pieces, n_pieces, error);
    (void)pthread_mutex_lock(&lower->way_lock);
    const struct iovec all = { lower->way, gather(lower, lower->way, pieces, n_pieces) };
    const weir_status status = write_file(lower, block, p, &all, 1, error);
    (void)pthread_mutex_unlock(&lower->way_lock);
    return status;
}

bool weir_lower_tier_fails(const weir_lower_tier *lower)
{
    return lower->fails && lower->n_free_host == 0;
}

static weir_status fail_read(weir_lower_tier *lower, const char *why, weir_error *error)
{
    atomic_fetch_add(&lower->read_errors, 1);
    return weir_error_set(
        error, WEIR_EIO, "%s: cannot read KV pages back: %s; check this disk", lower->folder, why
    );
}

static weir_status read_file(
    weir_lower_tier *lower, int32_t block, const tier_part *p, size_t at, void *bytes, size_t n,
    weir_error *error
)
{
    const off_t start = offset_of(lower, block, p, at);
    for (size_t done = 0; done < n;) {
        const ssize_t got =
            lower->io.read(lower->fd, (char *)bytes + done, n - done, start + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return fail_read(lower, got < 0 ? strerror(errno) : "the file is too short", error);
        done += (size_t)got;
    }
    if (!lower->is_direct) (void)posix_fadvise(lower->fd, start, (off_t)n, POSIX_FADV_DONTNEED);
    atomic_fetch_add(&lower->read, (long long)n);
    return has_checksums(lower, block, p, at, bytes, n)
               ? WEIR_OK
               : fail_read(lower, "their checksum is wrong", error);
}

static void copy_out(weir_lower_tier *s, void *out, const void *bytes, size_t n, bool is_async)
{
    if (is_async && weir_ledger_device(s->ledger) != NULL)
        weir_device_copy_async(weir_ledger_device(s->ledger), out, bytes, n);
    else
        weir_ledger_copy(s->ledger, out, bytes, n);
}

/* Through the bounce buffer, as many pages at a time as it holds. */
static weir_status read_over(
    weir_lower_tier *s, int32_t block, const tier_part *p, size_t at, char *bytes, size_t n,
    bool is_async, weir_error *error
)
{
    const size_t most = s->way_bytes / p->page_bytes * p->page_bytes;
    weir_status status = WEIR_OK;
    (void)pthread_mutex_lock(&s->way_lock);
    for (size_t done = 0, some; status == WEIR_OK && done < n; done += some) {
        some = n - done < most ? n - done : most;
        status = read_file(s, block, p, at + done, s->way, some, error);
        if (status == WEIR_OK) copy_out(s, bytes + done, s->way, some, is_async);
    }
    (void)pthread_mutex_unlock(&s->way_lock);
    return status;
}

typedef enum read_way {
    READ_TO_HOST, /* to memory of the host */
    READ, /* to any memory */
    READ_ASYNC /* to memory of a device, while its kernels run */
} read_way;

/* Reads the part of a run of blocks that is in memory, then the part in the file. */
static weir_status read_bytes(
    weir_lower_tier *s, int32_t block, const tier_part *p, size_t at, char *bytes, size_t n,
    read_way way, weir_error *error
)
{
    if (block < s->n_host_blocks) {
        const size_t left = (size_t)(s->n_host_blocks - block) * p->bytes,
                     here = left > at ? left - at : 0;
        const size_t some = n < here ? n : here;
        copy_out(s, bytes, memory_of(s, block, p, at), some, way == READ_ASYNC);
        atomic_fetch_add(&s->read, (long long)some);
        if (some == n) return WEIR_OK;
        return read_bytes(
            s, (int32_t)s->n_host_blocks, p, at + some - left, bytes + some, n - some, way, error
        );
    }
    return s->way != NULL && way != READ_TO_HOST
               ? read_over(s, block, p, at, bytes, n, way == READ_ASYNC, error)
               : read_file(s, block, p, at, bytes, n, error);
}

weir_status weir_lower_tier_read(
    weir_lower_tier *lower, int32_t block, int64_t part, size_t at, void *bytes, size_t n,
    weir_error *error
)
{
    return read_bytes(lower, block, &lower->parts[part], at, bytes, n, READ, error);
}

weir_status weir_lower_tier_read_to_host(
    weir_lower_tier *lower, int32_t block, int64_t part, size_t at, void *bytes, size_t n,
    weir_error *error
)
{
    return read_bytes(lower, block, &lower->parts[part], at, bytes, n, READ_TO_HOST, error);
}

weir_status weir_lower_tier_read_async(
    weir_lower_tier *lower, int32_t block, int64_t part, size_t at, void *bytes, size_t n,
    weir_error *error
)
{
    return read_bytes(lower, block, &lower->parts[part], at, bytes, n, READ_ASYNC, error);
}

weir_lower_tier_stats weir_lower_tier_stats_of(const weir_lower_tier *lower)
{
    return (weir_lower_tier_stats){ .written = atomic_load(&lower->written),
                                    .read = atomic_load(&lower->read),
                                    .write_errors = atomic_load(&lower->write_errors),
                                    .read_errors = atomic_load(&lower->read_errors) };
}
