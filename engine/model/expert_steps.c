/* engine/model/expert_steps.c - the cache of experts in a step: which slot an expert gets, which is
 * evicted, and what is read next. */
#include <string.h>

#include "engine/base/clock.h"
#include "engine/model/expert_cache.h"
#include "engine/model/expert_cache_internal.h"

/* ---- the list: all with the lock ------------------------------------------------------------- */
static void link_newest(weir_expert_cache *c, int32_t slot)
{
    expert_slot *const s = &c->slots[slot];
    s->older = c->newest;
    s->newer = -1;
    *(c->newest >= 0 ? &c->slots[c->newest].newer : &c->oldest) = slot;
    c->newest = slot;
    s->is_listed = true;
    c->n_listed++;
}

static void link_oldest(weir_expert_cache *c, int32_t slot)
{
    expert_slot *const s = &c->slots[slot];
    s->newer = c->oldest;
    s->older = -1;
    *(c->oldest >= 0 ? &c->slots[c->oldest].older : &c->newest) = slot;
    c->oldest = slot;
    s->is_listed = true;
    c->n_listed++;
}

void weir_expert_link(weir_expert_cache *c, int32_t slot)
{
    const int32_t unit = c->slots[slot].unit;
    if (unit < 0)
        link_oldest(c, slot);
    else if (!c->is_pinned[unit])
        link_newest(c, slot);
}

void weir_expert_unlink(weir_expert_cache *c, int32_t slot)
{
    expert_slot *const s = &c->slots[slot];
    if (!s->is_listed) return;
    *(s->older >= 0 ? &c->slots[s->older].newer : &c->oldest) = s->newer;
    *(s->newer >= 0 ? &c->slots[s->newer].older : &c->newest) = s->older;
    s->is_listed = false;
    c->n_listed--;
}

/* ---- slots: all with the lock ---------------------------------------------------------------- */
static int32_t slot_of(const weir_expert_cache *c, int32_t index)
{
    return c->slot_of[weir_expert_unit(c, c->layer, c->wanted[index])];
}

/* Points the weights of an expert at its slot, or nowhere. */
static void point(weir_expert_cache *c, int32_t slot, bool is_ready)
{
    const int32_t unit = c->slots[slot].unit;
    char *at = c->slot_memory + (size_t)slot * c->plan.slot_bytes;
    for (size_t i = 0; i < c->model->n_expert_arrays; i++) {
        const weir_expert_array *const array = &c->model->expert_arrays[i];
        const int64_t expert = unit - c->first_unit[array->layer];
        if (expert < 0 || expert >= array->n) continue;
        weir_weight *const weight = &c->model->weights[array->first + (size_t)expert];
        weight->data = is_ready ? at : NULL;
        at += (weight->bytes + WEIR_WEIGHT_ALIGNMENT - 1) / WEIR_WEIGHT_ALIGNMENT *
              WEIR_WEIGHT_ALIGNMENT;
    }
}

static void forget(weir_expert_cache *c, int32_t slot)
{
    expert_slot *const s = &c->slots[slot];
    if (s->unit < 0) return;
    point(c, slot, false);
    if (s->is_ahead) c->counts[s->layer].prefetch_unused++;
    c->slot_of[s->unit] = -1;
    s->unit = -1;
    s->state = SLOT_FREE;
    s->is_ahead = false;
}

/* Gives the slot that was used least recently to an expert, which is to be read. */
static int32_t evict(weir_expert_cache *c, int64_t layer, int32_t unit)
{
    const int32_t slot = c->oldest;
    expert_slot *const s = &c->slots[slot];
    weir_expert_unlink(c, slot);
    forget(c, slot);
    s->unit = unit;
    s->layer = layer;
    s->step = -1;
    s->state = SLOT_LOADING;
    c->slot_of[unit] = slot;
    return slot;
}

/* Gives slots to the next experts that have none, and lets the threads read them. */
static void place_next(weir_expert_cache *c)
{
    for (; c->n_placed < c->n_wanted && c->n_listed > 0; c->n_placed++) {
        const int64_t unit = weir_expert_unit(c, c->layer, c->wanted[c->n_placed]);
        const int32_t slot = evict(c, c->layer, (int32_t)unit);
        c->slots[slot].is_used = true;
        c->slots[slot].step = c->step;
        c->queue[(c->first_queued + c->n_queued++) % c->plan.n_slots] = slot;
    }
    if (c->n_queued > 0 || c->n_ahead > 0) (void)pthread_cond_broadcast(&c->changed);
}

/* What the step needs goes first. Reading ahead waits for its last expert to have a slot, and
 * leaves as many slots as one token of the next layer needs. */
int32_t weir_expert_next(weir_expert_cache *c)
{
    if (c->n_queued > 0) {
        const int32_t slot = c->queue[c->first_queued];
        c->first_queued = (c->first_queued + 1) % c->plan.n_slots;
        c->n_queued--;
        return slot;
    }
    while (c->n_ahead > 0 && c->n_placed == c->n_wanted &&
           c->n_listed > c->model->shape.n_experts_used) {
        const int32_t unit = c->ahead[0];
        memmove(c->ahead, c->ahead + 1, (size_t)--c->n_ahead * sizeof *c->ahead);
        if (c->slot_of[unit] >= 0) continue;
        const int32_t slot = evict(c, c->ahead_layer, unit);
        c->slots[slot].is_ahead = true;
        c->counts[c->ahead_layer].prefetched++;
        return slot;
    }
    return -1;
}

void weir_expert_finish(weir_expert_cache *c, int32_t slot, int64_t n_read, const weir_error *error)
{
    expert_slot *const s = &c->slots[slot];
    c->counts[s->layer].bytes_read += n_read;
    s->state = error->code == WEIR_OK ? SLOT_READY : SLOT_FAILED;
    if (s->state == SLOT_READY) {
        point(c, slot, true);
    } else {
        c->stats.errors++;
        if (s->is_used && c->error.code == WEIR_OK) c->error = *error;
        if (!s->is_used) forget(c, slot);
    }
    if (!s->is_used) weir_expert_link(c, slot);
    (void)pthread_cond_broadcast(&c->changed);
}

/* ---- a step ---------------------------------------------------------------------------------- */
/* Takes the slot of an expert that is in memory, or being read ahead. */
static void adopt(weir_expert_cache *c, int32_t slot)
{
    expert_slot *const s = &c->slots[slot];
    weir_expert_unlink(c, slot);
    s->is_used = true;
    s->step = c->step;
    c->counts[s->layer].prefetch_used += s->is_ahead;
    s->is_ahead = false;
}

/* 0: in memory, 1: being read, 2: neither. */
static int rank_of(const weir_expert_cache *c, int32_t expert)
{
    const int32_t slot = c->slot_of[weir_expert_unit(c, c->layer, expert)];
    return slot < 0 ? 2 : c->slots[slot].state == SLOT_READY ? 0 : 1;
}

void weir_expert_cache_begin(weir_expert_cache *c, int64_t layer, int32_t *experts, int32_t n)
{
    WEIR_ASSERT(c->layer < 0 && n >= 1 && n <= c->model->shape.n_experts);
    int32_t n_here = 0;
    c->layer = layer;
    c->step++;
    (void)pthread_mutex_lock(&c->lock);
    c->n_ahead = 0;
    if (layer <= c->last_layer) weir_expert_count_pass(c);
    c->last_layer = layer;
    for (int rank = 0; rank < 3; rank++)
        for (int32_t i = 0; i < n; i++)
            if (rank_of(c, experts[i]) == rank) c->wanted[n_here++] = experts[i];
    for (int32_t i = 0; i < n; i++) c->uses[weir_expert_unit(c, layer, experts[i])]++;
    for (c->n_placed = 0; c->n_placed < n && slot_of(c, c->n_placed) >= 0; c->n_placed++)
        adopt(c, slot_of(c, c->n_placed));
    c->counts[layer].hits += c->n_placed;
    c->counts[layer].misses += n - c->n_placed;
    c->n_wanted = n;
    c->n_given = c->n_taken = 0;
    place_next(c);
    (void)pthread_mutex_unlock(&c->lock);
    memcpy(experts, c->wanted, (size_t)n * sizeof *experts);
}

weir_status weir_expert_cache_take(weir_expert_cache *c, int32_t *n)
{
    weir_status status = WEIR_OK;
    (void)pthread_mutex_lock(&c->lock);
    WEIR_ASSERT(c->n_taken == 0 && c->n_given < c->n_placed);
    const expert_slot *const first = &c->slots[slot_of(c, c->n_given)];
    const int64_t begin = first->state == SLOT_LOADING ? weir_clock_ns() : 0;
    while (first->state == SLOT_LOADING) (void)pthread_cond_wait(&c->changed, &c->lock);
    c->stats.waits += begin > 0;
    if (begin > 0) c->stats.wait_ns += weir_clock_ns() - begin;
    while (c->n_given + c->n_taken < c->n_placed &&
           c->slots[slot_of(c, c->n_given + c->n_taken)].state == SLOT_READY)
        c->n_taken++;
    if (c->n_taken == 0) status = c->error.code != WEIR_OK ? c->error.code : WEIR_EIO;
    (void)pthread_mutex_unlock(&c->lock);
    *n = c->n_taken;
    return status;
}

/* Ends the use of `wanted` [first, end). A slot that is still being read is put into the list by
 * its reader. With the lock. */
static void release(weir_expert_cache *c, int32_t first, int32_t end)
{
    for (int32_t i = first; i < end; i++) {
        const int32_t slot = slot_of(c, i);
        c->slots[slot].is_used = false;
        if (c->slots[slot].state == SLOT_LOADING) continue;
        if (c->slots[slot].state == SLOT_FAILED) forget(c, slot);
        weir_expert_link(c, slot);
    }
}

void weir_expert_cache_give(weir_expert_cache *c)
{
    (void)pthread_mutex_lock(&c->lock);
    release(c, c->n_given, c->n_given + c->n_taken);
    c->n_given += c->n_taken;
    c->n_taken = 0;
    place_next(c);
    (void)pthread_mutex_unlock(&c->lock);
}

void weir_expert_cache_skip(weir_expert_cache *c)
{
    WEIR_ASSERT(c->n_taken == 0);
    c->n_taken = 1;
    weir_expert_cache_give(c);
}

/* The experts of a step have the same age: what is evicted first among them does not depend on
 * which were in memory. With the lock. */
static void order_step(weir_expert_cache *c)
{
    const int64_t first = c->first_unit[c->layer];
    for (int64_t i = 0; i < c->model->shape.n_experts; i++) {
        const int32_t slot = c->slot_of[first + i];
        if (slot < 0 || c->slots[slot].step != c->step || !c->slots[slot].is_listed) continue;
        weir_expert_unlink(c, slot);
        link_newest(c, slot);
    }
}

void weir_expert_cache_end(weir_expert_cache *c)
{
    (void)pthread_mutex_lock(&c->lock);
    c->n_wanted = c->n_placed; /* no more are placed */
    release(c, c->n_given, c->n_placed);
    /* What the step still reads is waited for: the next one finds its slots in the list. */
    for (int32_t i = 0; i < c->plan.n_slots; i++)
        while (c->slots[i].state == SLOT_LOADING && c->slots[i].step == c->step)
            (void)pthread_cond_wait(&c->changed, &c->lock);
    order_step(c);
    c->n_placed = c->n_wanted = 0;
    if (c->n_ahead > 0) (void)pthread_cond_broadcast(&c->changed);
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
        const int32_t slot = c->slot_of[unit];
        if (slot < 0 && c->n_ahead < WEIR_EXPERTS_AHEAD) c->ahead[c->n_ahead++] = (int32_t)unit;
        if (slot < 0 || !c->slots[slot].is_listed) continue;
        weir_expert_unlink(c, slot);
        link_newest(c, slot);
    }
    if (c->n_ahead > 0) (void)pthread_cond_broadcast(&c->changed);
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
