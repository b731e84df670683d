/* engine/model/expert_reads.c - the buffers of a cache of experts: what is read into which, and in
 * which order. All with the lock. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/model/expert_cache_internal.h"

/* ---- buffers --------------------------------------------------------------------------------- */
void weir_expert_forget(weir_expert_cache *c, int32_t read)
{
    expert_read *const r = &c->reads[read];
    if (r->is_ahead) c->counts[r->layer].prefetch_unused++;
    c->read_of[r->unit] = -1;
    r->unit = -1;
    r->state = READ_NONE;
    r->is_ahead = r->is_wanted = false;
}

/* A free buffer, or that of the expert that was read first and is not needed, but none of
 * `but_layer`; -1: there is none. */
static int32_t take_buffer(weir_expert_cache *c, int64_t but_layer)
{
    int32_t oldest = -1;
    for (int32_t i = 0; i < c->plan.n_reads; i++) {
        const expert_read *const r = &c->reads[i];
        if (r->state == READ_NONE) return i;
        if (r->state == READ_DONE && !r->is_wanted && r->layer != but_layer &&
            (oldest < 0 || r->number < c->reads[oldest].number))
            oldest = i;
    }
    if (oldest >= 0) weir_expert_forget(c, oldest);
    return oldest;
}

static void begin_read(weir_expert_cache *c, int32_t read, int64_t layer, int32_t unit)
{
    expert_read *const r = &c->reads[read];
    r->unit = unit;
    r->layer = layer;
    r->state = READ_BEGUN;
    r->number = c->n_begun++;
    r->run = r->n_requests = 0;
    r->done = 0;
    r->failure = 0;
    c->read_of[unit] = read;
    weir_expert_find(c, r);
}

void weir_expert_place(weir_expert_cache *c)
{
    for (; c->n_placed < c->n_wanted; c->n_placed++) {
        const int32_t read = take_buffer(c, -1);
        if (read < 0) break;
        begin_read(
            c, read, c->layer, (int32_t)weir_expert_unit(c, c->layer, c->wanted[c->n_placed])
        );
        c->reads[read].is_wanted = true;
    }
    (void)pthread_cond_broadcast(&c->work);
}

void weir_expert_unwant(weir_expert_cache *c, int32_t read)
{
    expert_read *const r = &c->reads[read];
    r->is_wanted = false;
    if (r->state == READ_FAILED) weir_expert_forget(c, read);
}

/* ---- requests -------------------------------------------------------------------------------- */
/* What the step wants goes first, then what was begun first. */
static int32_t next_read(const weir_expert_cache *c)
{
    int32_t best = -1;
    for (int32_t i = 0; i < c->plan.n_reads; i++) {
        const expert_read *const r = &c->reads[i], *const b = best >= 0 ? &c->reads[best] : NULL;
        if (r->state != READ_BEGUN || r->run == r->n_runs) continue;
        if (b == NULL || (r->is_wanted != b->is_wanted ? r->is_wanted : r->number < b->number))
            best = i;
    }
    return best;
}

/* Begins to read the next expert ahead; the step's have buffers by then. -1: there is none, or no
 * buffer for it. */
static int32_t begin_ahead(weir_expert_cache *c)
{
    while (c->n_ahead > 0 && c->n_placed == c->n_wanted) {
        const int32_t unit = c->ahead[0];
        const bool is_there = c->entry_of[unit] >= 0 || c->read_of[unit] >= 0;
        const int32_t read = is_there ? -1 : take_buffer(c, c->ahead_layer);
        if (!is_there && read < 0) return -1;
        memmove(c->ahead, c->ahead + 1, (size_t)--c->n_ahead * sizeof *c->ahead);
        if (is_there) continue;
        begin_read(c, read, c->ahead_layer, unit);
        c->reads[read].is_ahead = true;
        c->counts[c->ahead_layer].prefetched++;
        return read;
    }
    return -1;
}

bool weir_expert_next(weir_expert_cache *c, expert_request *out)
{
    int32_t read = next_read(c);
    if (read < 0) read = begin_ahead(c);
    if (read < 0) return false;
    expert_read *const r = &c->reads[read];
    const expert_run run = r->runs[r->run];
    const size_t left = run.end - run.at - r->done,
                 n = left < WEIR_EXPERT_REQUEST ? left : WEIR_EXPERT_REQUEST;
    *out = (expert_request
    ){ .read = read,
       .run = { run.tensor, run.at + r->done, run.at + r->done + n, run.to + r->done } };
    r->done = n < left ? r->done + n : 0;
    r->run += n == left;
    r->n_requests++;
    return true;
}

void weir_expert_finish(weir_expert_cache *c, const expert_request *request, int failure)
{
    expert_read *const r = &c->reads[request->read];
    if (failure == 0)
        c->counts[r->layer].bytes_read += (int64_t)(request->run.end - request->run.at);
    if (failure != 0 && r->failure == 0) {
        r->failure = failure;
        r->failed = request->run.tensor;
        r->run = r->n_runs; /* the rest is not read */
        c->stats.errors++;
    }
    if (--r->n_requests > 0 || r->run < r->n_runs) return;
    r->state = r->failure == 0 ? READ_DONE : READ_FAILED;
    if (r->state == READ_FAILED && !r->is_wanted) weir_expert_forget(c, request->read);
    if (c->n_placed < c->n_wanted) weir_expert_place(c);
    (void)pthread_cond_broadcast(&c->changed);
}

/* ---- waiting --------------------------------------------------------------------------------- */
/* When the disk is late with a read: by then a request of it has taken timeout_ns, or one of each
 * thread has. Without a buffer: one of each thread that has any, as they hold the buffers.
 * INT64_MAX: a thread is free. */
static int64_t late_at(const weir_expert_cache *c, int32_t read)
{
    int64_t own = INT64_MAX, last = 0;
    for (const expert_reader *r = c->readers; r < c->readers + WEIR_EXPERT_READERS; r++) {
        const bool is_free = r->since_ns == 0;
        if (is_free && read < 0) continue;
        if (!is_free && r->read == read && r->since_ns < own) own = r->since_ns;
        if (is_free || r->since_ns > last) last = is_free ? INT64_MAX : r->since_ns;
    }
    const int64_t since = own < last ? own : last;
    return since > 0 && since < INT64_MAX ? since + c->plan.timeout_ns : INT64_MAX;
}

bool weir_expert_wait(weir_expert_cache *c, int32_t read)
{
    const int64_t now = weir_clock_ns(), late = late_at(c, read);
    if (late <= now) return false;
    const struct timespec until =
        weir_clock_after(CLOCK_MONOTONIC, late < INT64_MAX ? late - now : c->plan.timeout_ns);
    (void)pthread_cond_clockwait(&c->changed, &c->lock, CLOCK_MONOTONIC, &until);
    return true;
}

void weir_expert_say(const weir_expert_cache *c, int32_t unit, weir_error *error)
{
    const int32_t read = c->read_of[unit];
    const expert_read *const r = read >= 0 && c->reads[read].failure != 0 ? &c->reads[read] : NULL;
    size_t weights[WEIR_EXPERT_MATRICES];
    (void)weir_expert_weights(c, unit, weights);
    const weir_tensor *const tensor = r != NULL ? r->failed : c->model->matrices[weights[0]].tensor;
    char why[128];
    if (r == NULL)
        (void)snprintf(
            why, sizeof why, "the disk has not answered for %.3g s (memory.experts_timeout)",
            (double)c->plan.timeout_ns / 1e9
        );
    else
        (void)snprintf(
            why, sizeof why, "%s",
            r->failure == ENODATA ? "the file became shorter" : strerror(r->failure)
        );
    (void)weir_error_set(
        error, WEIR_EIO, "%s: cannot read an expert of tensor %s: %s",
        weir_tensor_directory_file(c->model->directory, tensor->file), tensor->name, why
    );
}
