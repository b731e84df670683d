/* engine/model/expert_steps.c - the cache of experts in a step: which entry an expert gets, and
 * which is evicted. The engine thread owns entries and their list. */
#include <string.h>

#include "engine/base/clock.h"
#include "engine/model/expert_cache.h"
#include "engine/model/expert_cache_internal.h"

/* ---- the list -------------------------------------------------------------------------------- */
static void link_newest(weir_expert_cache *c, int32_t entry)
{
    expert_entry *const s = &c->entries[entry];
    s->older = c->newest;
    s->newer = -1;
    *(c->newest >= 0 ? &c->entries[c->newest].newer : &c->oldest) = entry;
    c->newest = entry;
    s->is_listed = true;
    c->n_listed++;
}

static void link_oldest(weir_expert_cache *c, int32_t entry)
{
    expert_entry *const s = &c->entries[entry];
    s->newer = c->oldest;
    s->older = -1;
    *(c->oldest >= 0 ? &c->entries[c->oldest].older : &c->newest) = entry;
    c->oldest = entry;
    s->is_listed = true;
    c->n_listed++;
}

void weir_expert_link(weir_expert_cache *c, int32_t entry)
{
    const int32_t unit = c->entries[entry].unit;
    if (unit < 0)
        link_oldest(c, entry);
    else if (!c->is_pinned[unit])
        link_newest(c, entry);
}

void weir_expert_unlink(weir_expert_cache *c, int32_t entry)
{
    expert_entry *const s = &c->entries[entry];
    if (!s->is_listed) return;
    *(s->older >= 0 ? &c->entries[s->older].newer : &c->oldest) = s->newer;
    *(s->newer >= 0 ? &c->entries[s->newer].older : &c->newest) = s->older;
    s->is_listed = false;
    c->n_listed--;
}

/* ---- entries --------------------------------------------------------------------------------- */
static int32_t unit_of(const weir_expert_cache *c, int32_t index)
{
    return (int32_t)weir_expert_unit(c, c->layer, c->wanted[index]);
}

/* Points the weights of an expert at its entry, or nowhere. */
static void point(weir_expert_cache *c, int32_t entry, bool is_ready)
{
    char *at = c->entry_memory + (size_t)entry * c->plan.entry_bytes;
    size_t weights[WEIR_EXPERT_MATRICES];
    const int32_t n = weir_expert_weights(c, c->entries[entry].unit, weights);
    for (int32_t i = 0; i < n; i++) {
        weir_weight *const weight = &c->model->weights[weights[i]];
        weight->data = is_ready ? at : NULL;
        at += (weight->bytes + WEIR_WEIGHT_ALIGNMENT - 1) / WEIR_WEIGHT_ALIGNMENT *
              WEIR_WEIGHT_ALIGNMENT;
    }
}

static void use(weir_expert_cache *c, int32_t entry)
{
    weir_expert_unlink(c, entry);
    c->entries[entry].is_used = true;
    c->entries[entry].step = c->step;
}

/* Empties the entry that was used least recently, for the step. With the lock. */
static int32_t evict(weir_expert_cache *c)
{
    const int32_t entry = c->oldest;
    expert_entry *const s = &c->entries[entry];
    use(c, entry);
    if (s->unit < 0) return entry;
    point(c, entry, false);
    c->entry_of[s->unit] = -1;
    s->unit = -1;
    return entry;
}

/* ---- a step ---------------------------------------------------------------------------------- */
/* 0: in memory, 1: read, 2: being read, 3: none of them. With the lock. */
static int rank_of(const weir_expert_cache *c, int32_t expert)
{
    const int64_t unit = weir_expert_unit(c, c->layer, expert);
    if (c->entry_of[unit] >= 0) return 0;
    const int32_t read = c->read_of[unit];
    return read < 0 ? 3 : c->reads[read].state == READ_BEGUN ? 2 : 1;
}

/* The step wants what is in memory or read. With the lock. */
static void adopt(weir_expert_cache *c, int32_t unit)
{
    if (c->entry_of[unit] >= 0) {
        use(c, c->entry_of[unit]);
        return;
    }
    expert_read *const r = &c->reads[c->read_of[unit]];
    r->is_wanted = true;
    c->counts[r->layer].prefetch_used += r->is_ahead;
    r->is_ahead = false;
}

void weir_expert_cache_begin(weir_expert_cache *c, int64_t layer, int32_t *experts, int32_t n)
{
    WEIR_ASSERT(c->layer < 0 && n >= 1 && n <= c->model->shape.n_experts);
    int32_t n_here = 0, n_hits = 0;
    c->layer = layer;
    c->step++;
    (void)pthread_mutex_lock(&c->lock);
    c->n_ahead = 0;
    if (layer <= c->last_layer) weir_expert_count_pass(c);
    c->last_layer = layer;
    for (int rank = 0; rank < 4; rank++) {
        if (rank == 3) n_hits = n_here;
        for (int32_t i = 0; i < n; i++)
            if (rank_of(c, experts[i]) == rank) c->wanted[n_here++] = experts[i];
    }
    for (int32_t i = 0; i < n; i++) c->uses[weir_expert_unit(c, layer, experts[i])]++;
    for (int32_t i = 0; i < n_hits; i++) adopt(c, unit_of(c, i));
    c->counts[layer].hits += n_hits;
    c->counts[layer].misses += n - n_hits;
    c->n_placed = n_hits;
    c->n_wanted = n;
    c->n_given = c->n_taken = 0;
    if (n_hits < n) weir_expert_place(c);
    (void)pthread_mutex_unlock(&c->lock);
    memcpy(experts, c->wanted, (size_t)n * sizeof *experts);
}

/* Packs an expert that was read, and frees its buffer for the next. With the lock, which it gives
 * away meanwhile: the read is the step's, and entries are the engine thread's. */
static weir_status pack(weir_expert_cache *c, int32_t unit, weir_error *error)
{
    const int32_t read = c->read_of[unit], entry = evict(c);
    (void)pthread_mutex_unlock(&c->lock);
    const weir_status status = weir_expert_pack(c, &c->reads[read], entry, error);
    (void)pthread_mutex_lock(&c->lock);
    if (status != WEIR_OK) {
        c->entries[entry].is_used = false;
        weir_expert_link(c, entry);
        return status;
    }
    c->entries[entry].unit = unit;
    c->entry_of[unit] = entry;
    point(c, entry, true);
    weir_expert_forget(c, read);
    if (c->n_placed < c->n_wanted)
        weir_expert_place(c);
    else if (c->n_ahead > 0)
        (void)pthread_cond_broadcast(&c->work); /* it may wait for this buffer */
    return WEIR_OK;
}

static bool is_read(const weir_expert_cache *c, int32_t unit)
{
    const int32_t read = c->read_of[unit];
    return read >= 0 && c->reads[read].state != READ_BEGUN;
}

/* Waits for an expert to be read. False: the disk does not answer. With the lock. */
static bool wait_for(weir_expert_cache *c, int32_t unit)
{
    if (is_read(c, unit)) return true;
    const int64_t begin = weir_clock_ns();
    bool answers = true;
    while (answers && !is_read(c, unit)) answers = weir_expert_wait(c, c->read_of[unit]);
    c->stats.waits++;
    c->stats.wait_ns += weir_clock_ns() - begin;
    c->stats.errors += !answers;
    return answers;
}

/* Makes an expert of the step be in memory; waits for the first (n_taken 0). False: it cannot be
 * read, or is no first one and not read yet, or has no entry yet. With the lock. */
static bool make_ready(weir_expert_cache *c, int32_t unit, weir_error *error)
{
    const bool is_first = c->n_taken == 0;
    if (c->entry_of[unit] >= 0) return true;
    const bool is_there = is_first ? wait_for(c, unit) : is_read(c, unit);
    if (is_there && c->reads[c->read_of[unit]].state == READ_DONE) {
        WEIR_ASSERT(!is_first || c->n_listed > 0);
        return c->n_listed > 0 && pack(c, unit, error) == WEIR_OK;
    }
    if (is_first) weir_expert_say(c, unit, error);
    return false;
}

weir_status weir_expert_cache_take(weir_expert_cache *c, int32_t *n)
{
    weir_error error = { 0 };
    (void)pthread_mutex_lock(&c->lock);
    WEIR_ASSERT(c->n_taken == 0 && c->n_given < c->n_wanted);
    while (c->n_given + c->n_taken < c->n_wanted &&
           make_ready(c, unit_of(c, c->n_given + c->n_taken), &error))
        c->n_taken++;
    if (c->n_taken == 0 && c->error.code == WEIR_OK) c->error = error;
    (void)pthread_mutex_unlock(&c->lock);
    *n = c->n_taken;
    return c->n_taken > 0 ? WEIR_OK : error.code;
}

/* Ends the use of `wanted` [first, end). With the lock. */
static void release(weir_expert_cache *c, int32_t first, int32_t end)
{
    for (int32_t i = first; i < end; i++) {
        const int32_t unit = unit_of(c, i), entry = c->entry_of[unit];
        if (c->read_of[unit] >= 0) weir_expert_unwant(c, c->read_of[unit]);
        if (entry < 0) continue;
        c->entries[entry].is_used = false;
        weir_expert_link(c, entry);
    }
}

void weir_expert_cache_give(weir_expert_cache *c)
{
    (void)pthread_mutex_lock(&c->lock);
    release(c, c->n_given, c->n_given + c->n_taken);
    c->n_given += c->n_taken;
    c->n_taken = 0;
    if (c->n_placed < c->n_given) c->n_placed = c->n_given; /* it had no buffer */
    if (c->n_placed < c->n_wanted) weir_expert_place(c);
    (void)pthread_mutex_unlock(&c->lock);
}

void weir_expert_cache_skip(weir_expert_cache *c)
{
    WEIR_ASSERT(c->n_taken == 0);
    c->n_taken = 1;
    weir_expert_cache_give(c);
}

/* The experts of a step have the same age: what is evicted first among them does not depend on
 * which were in memory. */
static void order_step(weir_expert_cache *c)
{
    const int64_t first = c->first_unit[c->layer];
    for (int64_t i = 0; i < c->model->shape.n_experts; i++) {
        const int32_t entry = c->entry_of[first + i];
        if (entry < 0 || c->entries[entry].step != c->step || !c->entries[entry].is_listed)
            continue;
        weir_expert_unlink(c, entry);
        link_newest(c, entry);
    }
}

void weir_expert_cache_end(weir_expert_cache *c)
{
    (void)pthread_mutex_lock(&c->lock);
    release(c, c->n_given, c->n_placed);
    order_step(c);
    c->n_placed = c->n_wanted = 0;
    if (c->n_ahead > 0) (void)pthread_cond_broadcast(&c->work);
    (void)pthread_mutex_unlock(&c->lock);
    c->n_given = c->n_taken = 0;
    c->layer = -1;
}

void weir_expert_cache_prefetch(
    weir_expert_cache *c, int64_t layer, const int32_t *experts, int32_t n
)
{
    (void)pthread_mutex_lock(&c->lock);
    c->n_ahead = 0;
    c->ahead_layer = layer;
    for (int32_t i = 0; i < n; i++) {
        const int64_t unit = weir_expert_unit(c, layer, experts[i]);
        const int32_t entry = c->entry_of[unit], read = c->read_of[unit];
        if (read >= 0) c->reads[read].number = c->n_begun++;
        if (entry < 0 && read < 0 && c->n_ahead < WEIR_EXPERTS_AHEAD)
            c->ahead[c->n_ahead++] = (int32_t)unit;
        if (entry < 0 || !c->entries[entry].is_listed) continue;
        weir_expert_unlink(c, entry);
        link_newest(c, entry);
    }
    if (c->n_ahead > 0) (void)pthread_cond_broadcast(&c->work);
    (void)pthread_mutex_unlock(&c->lock);
}

bool weir_expert_cache_problem(weir_expert_cache *c, weir_error *out)
{
    (void)pthread_mutex_lock(&c->lock);
    *out = c->error;
    c->error = (weir_error){ 0 };
    (void)pthread_mutex_unlock(&c->lock);
    return out->code != WEIR_OK;
}
