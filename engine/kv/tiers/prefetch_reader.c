/* engine/kv/tiers/prefetch_reader.c - the thread that reads cold blocks ahead of attention. */
#include "engine/base/clock.h"
#include "engine/kv/tiers/prefetch_internal.h"

/* ---- the order of reading, the same for both threads ----------------------------------------- */
/* The number of its first cold block that is not before this one. */
static int32_t first_cold_from(const weir_kv_prefetch *s, int32_t segment, int32_t block)
{
    const kv_cold_block *const cold = kv_cold_of(s, segment);
    int32_t low = 0, high = s->n_cold[segment];
    while (low < high) {
        const int32_t middle = (low + high) / 2;
        if (cold[middle].block < block)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int32_t first_seen(const weir_kv_prefetch *s, const weir_kv_view *view, int64_t layer)
{
    const int64_t window = s->spec.geometry[layer].window;
    return window > 0 && view->n_past >= window ? (int32_t)(view->n_past - window + 1) : 0;
}

bool weir_kv_prefetch_is_cold(const weir_kv_prefetch *s, int64_t layer, int32_t segment)
{
    const int32_t n = s->n_cold[segment];
    return n > 0 && kv_cold_of(s, segment)[n - 1].block >=
                        first_seen(s, &s->views[segment], layer) / WEIR_PAGE_TOKENS;
}

kv_prefetch_span kv_prefetch_next(
    const weir_kv_prefetch *s, int64_t layer, int32_t segment, int32_t first_split
)
{
    const weir_kv_view *const view = &s->views[segment];
    const kv_cold_block *const cold = kv_cold_of(s, segment);
    const int32_t seen = first_seen(s, view, layer) / WEIR_PAGE_TOKENS,
                  all = (int32_t)kv_prefetch_blocks(view->n_past + view->n_rows);
    kv_prefetch_span r = { .first_split = first_split,
                           .end_split = first_split,
                           .first = first_split * KV_SPLIT_BLOCKS };
    if (r.first < seen) r.first = seen;
    r.end = r.first;
    r.first_cold = first_cold_from(s, segment, r.first);
    while (!r.is_last) {
        const int32_t past = (r.end_split + 1) * KV_SPLIT_BLOCKS, end = past < all ? past : all;
        int32_t n_cold = r.n_cold;
        while (r.first_cold + n_cold < s->n_cold[segment] && cold[r.first_cold + n_cold].block < end
        )
            n_cold++;
        if (r.end_split > first_split && n_cold > s->sizes.blocks) break;
        r.n_cold = n_cold;
        r.end_split++;
        if (r.end < end) r.end = end;
        r.is_last = past >= all;
    }
    return r;
}

/* ---- the reading thread ---------------------------------------------------------------------- */
/* Consecutive blocks in the file are one read. */
static void fill(
    weir_kv_prefetch *s, int64_t layer, const kv_cold_block *cold, int32_t n_cold, char *buffer,
    bool *bad
)
{
    const size_t bytes = weir_kv_layer_stride(&s->spec, layer);
    weir_error error;
    for (int32_t n = 0, run = 0; n < n_cold; n += run) {
        const int32_t place = cold[n].place;
        for (run = 1; n + run < n_cold && cold[n + run].place == place + run;) run++;
        char *const at = buffer + (size_t)n * bytes;
        const bool failed =
            weir_lower_tier_read_async(
                weir_kv_store_lower_tier(s->store), place, layer, 0, at, (size_t)run * bytes, &error
            ) != WEIR_OK;
        for (int32_t i = 0; i < run; i++) bad[n + i] = failed;
        if (!failed) continue;
        weir_ledger_clear(s->ledger, at, (size_t)run * bytes);
        weir_worker_lock(&s->worker);
        if (s->error.code == WEIR_OK) s->error = error;
        weir_worker_unlock(&s->worker);
    }
}

/* Waits for a buffer, fills it and passes it on. Returns false if the step has ended. */
static bool stage(weir_kv_prefetch *s, int64_t layer, int32_t segment, const kv_prefetch_span *r)
{
    weir_worker_lock(&s->worker);
    while (s->filled - s->emptied == KV_PREFETCH_BUFFERS && !s->is_stopped)
        weir_worker_wait(&s->worker);
    const int64_t index = s->filled % KV_PREFETCH_BUFFERS;
    const bool is_wanted = !s->is_stopped;
    weir_worker_unlock(&s->worker);
    if (!is_wanted) return false;
    if (s->device != NULL) weir_device_event_wait(s->device, (int)index);
    fill(
        s, layer, kv_cold_of(s, segment) + r->first_cold, r->n_cold,
        s->buffers + (size_t)index * s->sizes.buffer, s->bad + index * s->sizes.blocks
    );
    s->staged[index] =
        (kv_staged_for){ .layer = layer, .segment = segment, .first_split = r->first_split };
    weir_worker_lock(&s->worker);
    s->filled++;
    s->full_since_ns = weir_clock_ns();
    weir_worker_report(&s->worker);
    weir_worker_unlock(&s->worker);
    return true;
}

/* Reads a segment of a layer. Returns false if the step has ended. */
static bool read_segment(weir_kv_prefetch *s, int64_t layer, int32_t segment)
{
    kv_prefetch_span r = { .is_last = !weir_kv_prefetch_is_cold(s, layer, segment) };
    while (!r.is_last) {
        r = kv_prefetch_next(s, layer, segment, r.end_split);
        if (r.n_cold > 0 && !stage(s, layer, segment, &r)) return false;
    }
    return true;
}

static void read_step(weir_kv_prefetch *s)
{
    for (const weir_kv_reader *r = s->readers; r < s->readers + s->n_readers; r++) {
        for (int32_t i = 0; i < s->n_views; i++)
            if (!read_segment(s, r->layer, i)) return;
        for (int32_t i = 0; i < s->n_views; i++)
            if (s->views[i].is_reread && r->is_watched && !read_segment(s, r->layer, i)) return;
    }
}

void *kv_prefetch_read(void *user)
{
    weir_kv_prefetch *const s = user;
    weir_worker_lock(&s->worker);
    while (!s->worker.is_closing) {
        if (!s->is_reading) {
            weir_worker_wait(&s->worker);
            continue;
        }
        weir_worker_unlock(&s->worker);
        read_step(s);
        weir_worker_lock(&s->worker);
        s->is_reading = false;
        weir_worker_wake(&s->worker);
    }
    weir_worker_unlock(&s->worker);
    return NULL;
}
