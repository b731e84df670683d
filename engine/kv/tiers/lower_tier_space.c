/* engine/kv/tiers/lower_tier_space.c - what the files of a lower tier hold on disk. A file holds
 * the bytes of each block that was written, also after it was freed, until they are given back: by
 * truncation once the file has no block, or by a hole, if another block needs the space. Blocks
 * that are allocated never exceed the limit, so a thread that is about to write always finds freed
 * ones to give back. It does that itself: the engine thread waits for no disk. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/kv/tiers/lower_tier_internal.h"

/* ---- sharing --------------------------------------------------------------------------------- */
void tier_share_space(weir_lower_tier *tier, weir_lower_tier *other)
{
    tier_space *const space = other != NULL ? other->space : &tier->own_space;
    tier->space = space;
    if (other == NULL) {
        *space = (tier_space){ .limit = (size_t)tier_file_blocks(tier) * tier->block_bytes };
        (void)pthread_mutex_init(&space->lock, NULL);
    }
    (void)pthread_mutex_lock(&space->lock);
    int i = 0;
    while (i < SHARERS && space->tiers[i] != NULL) i++;
    WEIR_ASSERT(i < SHARERS);
    space->tiers[i] = tier;
    (void)pthread_mutex_unlock(&space->lock);
}

void tier_leave_space(weir_lower_tier *tier)
{
    tier_space *const space = tier->space;
    if (space == NULL) return;
    (void)pthread_mutex_lock(&space->lock);
    for (int i = 0; i < SHARERS; i++)
        if (space->tiers[i] == tier) space->tiers[i] = NULL;
    space->used -= (size_t)tier_on_disk(tier) * tier->block_bytes;
    atomic_fetch_sub(&space->held, (size_t)tier->n_held * tier->block_bytes);
    (void)pthread_mutex_unlock(&space->lock);
    if (space == &tier->own_space) (void)pthread_mutex_destroy(&space->lock);
    tier->space = NULL;
}

bool tier_grows(const weir_lower_tier *tier)
{
    return atomic_load(&tier->space->held) + tier->block_bytes <= tier->space->limit;
}

/* ---- giving back ----------------------------------------------------------------------------- */
/* Blocks of a file next to each other. */
typedef struct run {
    int64_t first, n;
} run;

static bool may_go(const weir_lower_tier *tier, int64_t block)
{
    return bits_have(tier->held, block) && !bits_have(tier->used, block);
}

/* Freed blocks that hold bytes, at most `most`; n == 0: there are none. */
static run find_freed(weir_lower_tier *tier, int64_t most)
{
    const int64_t n_words = bits_words(tier->n_blocks);
    for (int64_t i = 0; i < n_words; i++) {
        const int64_t word = (tier->next_freed / 64 + i) % n_words;
        const uint64_t freed = atomic_load(&tier->held[word]) & ~atomic_load(&tier->used[word]);
        if (freed == 0) continue;
        run found = { .first = word * 64 + __builtin_ctzll(freed) };
        while (found.n < most && found.first + found.n < tier->n_blocks &&
               may_go(tier, found.first + found.n))
            found.n++;
        tier->next_freed = found.first;
        if (found.n > 0) return found;
    }
    return (run){ 0 };
}

static void let_go(weir_lower_tier *tier, const run *blocks)
{
    for (int64_t i = blocks->first; i < blocks->first + blocks->n; i++) bits_clear(tier->held, i);
    tier->n_held -= blocks->n;
    atomic_fetch_sub(&tier->space->held, (size_t)blocks->n * tier->block_bytes);
}

/* Makes holes where they were. */
static weir_status give_back(weir_lower_tier *tier, const run *blocks, weir_error *error)
{
    for (const tier_part *p = tier->parts; p < tier->parts + tier->n_parts; p++) {
        const off_t at = (off_t)tier_offset(tier, blocks->first, p),
                    n = (off_t)((size_t)blocks->n * p->bytes);
        int result;
        do {
            result = tier->io.make_hole(tier->fd, at, n);
        } while (result != 0 && errno == EINTR);
        if (result == 0) continue;
        return weir_error_set(
            error, WEIR_EIO, "%s: the space of freed KV pages cannot be used again: %s",
            tier->folder, strerror(errno)
        );
    }
    let_go(tier, blocks);
    return WEIR_OK;
}

/* Finds freed blocks of one of the files: those of others first, since a file with some of its own
 * has written to those (tier_grows). Only blocks for `bytes` bytes. */
static weir_lower_tier *find_victims(
    const tier_space *space, weir_lower_tier *own, size_t bytes, run *victims
)
{
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < SHARERS; i++) {
            weir_lower_tier *const tier = space->tiers[i];
            if (tier == NULL || (tier == own) != (pass == 1)) continue;
            *victims =
                find_freed(tier, (int64_t)((bytes + tier->block_bytes - 1) / tier->block_bytes));
            if (victims->n > 0) return tier;
        }
    return NULL;
}

/* The engine thread may free one block and allocate another meanwhile: then both are seen as
 * allocated, and it is looked again. */
static weir_status make_room(weir_lower_tier *own, weir_error *error)
{
    tier_space *const space = own->space;
    const size_t wanted = atomic_load(&space->held) + own->block_bytes;
    const unsigned long long before = atomic_load(&space->n_changes);
    run victims = { 0 };
    weir_lower_tier *const tier = find_victims(space, own, wanted - space->limit, &victims);
    if (tier != NULL) return give_back(tier, &victims, error);
    WEIR_ASSERT(before != atomic_load(&space->n_changes));
    return WEIR_OK;
}

weir_status tier_take_space(weir_lower_tier *tier, int64_t block, weir_error *error)
{
    tier_space *const space = tier->space;
    weir_status status = WEIR_OK;
    (void)pthread_mutex_lock(&space->lock);
    const bool is_new = !bits_have(tier->held, block);
    while (is_new && status == WEIR_OK && !tier_grows(tier)) status = make_room(tier, error);
    if (is_new && status == WEIR_OK) {
        bits_set(tier->held, block);
        tier->n_held++;
        atomic_fetch_add(&space->held, tier->block_bytes);
    }
    (void)pthread_mutex_unlock(&space->lock);
    return status;
}

/* ---- an empty file --------------------------------------------------------------------------- */
bool weir_lower_tier_may_shrink(const weir_lower_tier *lower)
{
    return atomic_load(&lower->may_shrink) && tier_on_disk(lower) == 0;
}

void weir_lower_tier_shrink(weir_lower_tier *lower)
{
    static const off_t piece = 128 << 20;
    const off_t left = lower->end > piece ? lower->end - piece : 0;
    const bool is_done = lower->io.truncate(lower->fd, left) == 0;
    if (!is_done)
        weir_log(
            WEIR_LOG_DEBUG, "%s: the file of KV pages cannot be truncated: %s", lower->folder,
            strerror(errno)
        );
    if (is_done) lower->end = left;
    if (is_done && left > 0) return;
    atomic_store(&lower->may_shrink, false);
    if (!is_done) return;
    (void)pthread_mutex_lock(&lower->space->lock);
    for (int64_t i = 0; i < bits_words(lower->n_blocks); i++) atomic_store(&lower->held[i], 0);
    atomic_fetch_sub(&lower->space->held, (size_t)lower->n_held * lower->block_bytes);
    lower->n_held = 0;
    (void)pthread_mutex_unlock(&lower->space->lock);
}
