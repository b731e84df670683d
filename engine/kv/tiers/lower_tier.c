/* engine/kv/tiers/lower_tier.c - opens the lower tier, allocates and frees its blocks. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "engine/base/checked.h"
#include "engine/base/log.h"
#include "engine/kv/tiers/lower_tier_internal.h"

enum { TMPFS = 0x01021994 };

/* ---- opening --------------------------------------------------------------------------------- */
size_t weir_lower_tier_metadata_bytes(
    int64_t n_blocks, int64_t n_host_blocks, int64_t n_parts, int64_t n_pages
)
{
    return (size_t)bits_words(n_blocks) * 2 * sizeof(tier_bits) +
           (size_t)n_parts * sizeof(tier_part) +
           (size_t)(n_blocks - n_host_blocks) * (size_t)n_pages * sizeof(uint32_t);
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
static bool set_direct(int fd)
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

static int make_hole(int fd, off_t at, off_t n)
{
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, n);
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
    s->is_direct = set_direct(s->fd);
    s->gives_back = make_hole(s->fd, 0, WEIR_LOWER_TIER_ALIGNMENT) == 0;
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
    for (int64_t i = 0; i < layout->n_parts; i++) {
        tier_part *const p = &s->parts[i];
        *p = (tier_part){ .page_bytes = layout->parts[i].page_bytes,
                          .bytes = layout->parts[i].page_bytes * (size_t)layout->parts[i].n_pages,
                          .file_start = at,
                          .host_start = s->host_bytes,
                          .n_pages = layout->parts[i].n_pages,
                          .first_page = i > 0 ? p[-1].first_page + p[-1].n_pages : 0 };
        WEIR_ASSERT(p->page_bytes % WEIR_LOWER_TIER_ALIGNMENT == 0);
        s->block_bytes += p->bytes;
        if (p->bytes > s->way_bytes) s->way_bytes = p->bytes;
        if (!weir_mul_size(&all, p->bytes, (size_t)s->n_blocks) ||
            !weir_add_size(&bytes, all, at) || !weir_add_size(&bytes, all, s->host_bytes) ||
            bytes > INT64_MAX)
            return weir_error_set(
                error, WEIR_EINVAL,
                "%" PRId64 " blocks of KV pages are too many; lower memory.disk", s->n_blocks
            );
        at += p->bytes * in_file;
        s->host_bytes += p->bytes * in_memory;
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
    for (int64_t i = 0; i < layout->n_parts; i++) s->n_pages += layout->parts[i].n_pages;
    s->folder = strdup(layout->folder != NULL ? layout->folder : "");
    (void)pthread_mutex_init(&s->way_lock, NULL);
    weir_lower_tier_set_io(s, NULL);
    void *metadata = NULL;
    weir_status status =
        s->folder != NULL ? WEIR_OK : weir_error_set(error, WEIR_ENOMEM, "no memory for a path");
    const size_t metadata_bytes =
        weir_lower_tier_metadata_bytes(s->n_blocks, s->n_host_blocks, s->n_parts, s->n_pages);
    if (status == WEIR_OK)
        status =
            weir_ledger_alloc(ledger, &metadata, WEIR_ACCOUNT_PAGE_TABLES, metadata_bytes, error);
    if (status == WEIR_OK) {
        s->metadata_bytes = metadata_bytes;
        s->used = metadata;
        s->held = s->used + bits_words(s->n_blocks);
        s->parts = (tier_part *)(s->held + bits_words(s->n_blocks));
        s->checksums = (uint32_t *)(s->parts + s->n_parts);
        status = lay_out(s, layout, error);
    }
    if (status == WEIR_OK) tier_share_space(s, layout->shares_with);
    if (status == WEIR_OK) status = open_memory(s, error);
    if (status == WEIR_OK && s->n_blocks > s->n_host_blocks) status = open_file(s, error);
    if (status != WEIR_OK)
        weir_lower_tier_close(s);
    else
        *out = s;
    return status;
}

void weir_lower_tier_close(weir_lower_tier *lower)
{
    if (lower == NULL) return;
    tier_leave_space(lower);
    if (lower->fd >= 0) (void)close(lower->fd);
    weir_ledger_return(
        lower->ledger, WEIR_TIER_DISK, WEIR_ACCOUNT_KV,
        (size_t)tier_on_disk(lower) * lower->block_bytes
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

static const weir_lower_tier_io system_io = {
    .write = pwritev, .read = pread, .make_hole = make_hole, .truncate = ftruncate
};

void weir_lower_tier_set_io(weir_lower_tier *lower, const weir_lower_tier_io *io)
{
    lower->io = system_io;
    if (io == NULL) return;
    if (io->write != NULL) lower->io.write = io->write;
    if (io->read != NULL) lower->io.read = io->read;
    if (io->make_hole != NULL) lower->io.make_hole = io->make_hole;
    if (io->truncate != NULL) lower->io.truncate = io->truncate;
}

bool weir_lower_tier_gives_back(const weir_lower_tier *lower) { return lower->gives_back; }

/* ---- blocks ---------------------------------------------------------------------------------- */
/* The first free block of [first, end) from `from` on and then from the first; is_held: only those
 * that the file holds. -1: there is none. */
static int64_t find_free(
    const weir_lower_tier *s, int64_t first, int64_t end, int64_t from, bool is_held
)
{
    int64_t at = from;
    for (int64_t left = end - first, step; left > 0; at += step, left -= step) {
        if (at >= end) at = first;
        const uint64_t used = atomic_load(&s->used[at / 64]),
                       held = is_held ? atomic_load(&s->held[at / 64]) : UINT64_MAX;
        const uint64_t free_ones = (held & ~used) >> (at % 64);
        if ((free_ones & 1) != 0) return at;
        step = free_ones == 0 ? 64 - at % 64 : __builtin_ctzll(free_ones);
        if (step > end - at) step = end - at;
    }
    return -1;
}

/* A free block of [first, end), which must have one. If the files hold all that they may, one that
 * this file holds: no other has to be given back for it. */
static int32_t take_between(weir_lower_tier *s, int64_t first, int64_t end, int64_t *next)
{
    int64_t at = -1;
    if (first == s->n_host_blocks && !tier_grows(s)) at = find_free(s, first, end, *next, true);
    if (at < 0) at = find_free(s, first, end, *next, false);
    WEIR_ASSERT(at >= 0);
    bits_set(s->used, at);
    s->n_free--;
    *next = at + 1;
    return (int32_t)at;
}

static weir_status reserve_block(weir_lower_tier *s, weir_error *error)
{
    tier_space *const space = s->space;
    if (space->limit - space->used < s->block_bytes)
        return weir_error_set(
            error, WEIR_EFULL,
            "the disk has no room for KV pages while cached states or rows move there; raise "
            "memory.disk"
        );
    WEIR_TRY(weir_ledger_reserve(s->ledger, WEIR_TIER_DISK, WEIR_ACCOUNT_KV, s->block_bytes, error)
    );
    space->used += s->block_bytes;
    atomic_fetch_add(&s->n_on_disk, 1);
    return WEIR_OK;
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
    WEIR_TRY(reserve_block(lower, error));
    *block = take_between(lower, lower->n_host_blocks, lower->n_blocks, &lower->next);
    atomic_fetch_add(&lower->space->n_changes, 1);
    return WEIR_OK;
}

bool weir_lower_tier_free(weir_lower_tier *lower, int32_t block)
{
    WEIR_ASSERT(block >= 0 && block < lower->n_blocks && bits_have(lower->used, block));
    bits_clear(lower->used, block);
    lower->n_free++;
    if (block < lower->n_host_blocks) {
        lower->n_free_host++;
        return false;
    }
    atomic_fetch_add(&lower->space->n_changes, 1);
    lower->space->used -= lower->block_bytes;
    weir_ledger_return(lower->ledger, WEIR_TIER_DISK, WEIR_ACCOUNT_KV, lower->block_bytes);
    if (atomic_fetch_sub(&lower->n_on_disk, 1) > 1) return false;
    lower->next = lower->n_host_blocks;
    atomic_store(&lower->may_shrink, true);
    return true;
}

int64_t weir_lower_tier_free_blocks(const weir_lower_tier *lower) { return lower->n_free; }
