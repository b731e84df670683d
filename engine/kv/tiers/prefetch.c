#include "engine/kv/tiers/prefetch.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/array_layout.h"
#include "engine/base/clock.h"
#include "engine/kv/tiers/prefetch_internal.h"

enum {
    /* At least, if the window is that long: shorter reads do not reach the disk's speed, nor short
     * copies the bus's: an H100 reads 64 KiB of memory in the microseconds that a copy takes to
     * start. */
    BUFFER_BYTES = 1 << 20,
    DEVICE_BUFFER_BYTES = 8 << 20,
};

/* ---- opening --------------------------------------------------------------------------------- */
static size_t place_arrays(weir_kv_prefetch *s, int32_t segments, char *base)
{
    weir_arrays arrays = { .base = base };
    WEIR_ARRAYS_PLACE(&arrays, s->table, weir_kv_most_heads(&s->spec) * s->sizes.stride);
    WEIR_ARRAYS_PLACE(&arrays, s->views, segments);
    WEIR_ARRAYS_PLACE(&arrays, s->cold, segments * s->sizes.stride);
    WEIR_ARRAYS_PLACE(&arrays, s->n_cold, segments);
    WEIR_ARRAYS_PLACE(&arrays, s->failed, segments);
    WEIR_ARRAYS_PLACE(&arrays, s->bad, KV_PREFETCH_BUFFERS * s->sizes.blocks);
    return arrays.bytes;
}

static kv_prefetch_sizes measure(const weir_kv_spec *spec, int32_t segments)
{
    kv_prefetch_sizes s = { .stride = kv_prefetch_blocks(spec->max_rows) };
    size_t largest = 0; /* of one layer of a block */
    for (int64_t layer = 0; layer < spec->n_layers; layer++) {
        const size_t bytes = weir_kv_layer_stride(spec, layer);
        if (bytes > largest) largest = bytes;
    }
    s.blocks = KV_SPLIT_BLOCKS;
    while ((size_t)s.blocks * largest < (spec->has_device ? DEVICE_BUFFER_BYTES : BUFFER_BYTES))
        s.blocks += KV_SPLIT_BLOCKS;
    if (s.blocks > s.stride) s.blocks = s.stride;
    s.buffer = (size_t)s.blocks * largest;
    s.near_bytes = WEIR_LOWER_TIER_ALIGNMENT + KV_PREFETCH_BUFFERS * s.buffer;
    weir_kv_prefetch none = { .spec = *spec, .sizes = s };
    s.bytes = place_arrays(&none, segments, NULL);
    return s;
}

static bool has_prefetch(const weir_kv_spec *spec)
{
    return weir_kv_cold_pages(spec) > 0 && spec->n_layers > 0;
}

size_t weir_kv_prefetch_bytes(const weir_kv_spec *spec, int32_t segments)
{
    return has_prefetch(spec) ? measure(spec, segments).bytes + sizeof(weir_kv_prefetch) : 0;
}

size_t weir_kv_prefetch_device_bytes(const weir_kv_spec *spec)
{
    return has_prefetch(spec) ? measure(spec, 1).near_bytes : 0;
}

size_t weir_kv_prefetch_read_bytes(const weir_kv_spec *spec)
{
    return has_prefetch(spec) ? measure(spec, 1).buffer : 0;
}

static void lay_out(weir_kv_prefetch *s, const weir_kv_prefetch_limits *limits)
{
    const uintptr_t misaligned = (uintptr_t)s->near % WEIR_LOWER_TIER_ALIGNMENT;
    s->buffers = s->near + (misaligned > 0 ? WEIR_LOWER_TIER_ALIGNMENT - misaligned : 0);
    (void)place_arrays(s, limits->segments, s->memory);
}

weir_status weir_kv_prefetch_open(
    weir_kv_prefetch **out, const weir_kv_spec *spec, const weir_kv_prefetch_limits *limits,
    weir_ledger *ledger, weir_error *error
)
{
    void *self = NULL;
    WEIR_TRY(
        weir_ledger_alloc(ledger, &self, WEIR_ACCOUNT_ACTIVATIONS, sizeof(weir_kv_prefetch), error)
    );
    weir_kv_prefetch *const s = self;
    *s = (weir_kv_prefetch){ .ledger = ledger,
                             .device = weir_ledger_device(ledger),
                             .spec = *spec,
                             .sizes = measure(spec, limits->segments),
                             .readers = limits->readers,
                             .n_readers = limits->n_readers,
                             .max_views = limits->segments };
    weir_status status =
        weir_ledger_alloc(ledger, &s->memory, WEIR_ACCOUNT_ACTIVATIONS, s->sizes.bytes, error);
    if (status == WEIR_OK)
        status = weir_ledger_alloc_device(
            ledger, (void **)&s->near, WEIR_ACCOUNT_ACTIVATIONS, s->sizes.near_bytes, error
        );
    if (status == WEIR_OK) {
        lay_out(s, limits);
        status = weir_worker_open(&s->worker, kv_prefetch_read, s, "reads KV pages", error);
    }
    if (status != WEIR_OK)
        weir_kv_prefetch_close(s);
    else
        *out = s;
    return status;
}

void weir_kv_prefetch_close(weir_kv_prefetch *prefetch)
{
    if (prefetch == NULL) return;
    weir_worker_close(&prefetch->worker);
    weir_ledger_free_device(
        prefetch->ledger, prefetch->near, WEIR_ACCOUNT_ACTIVATIONS, prefetch->sizes.near_bytes
    );
    weir_ledger_free(
        prefetch->ledger, prefetch->memory, WEIR_ACCOUNT_ACTIVATIONS, prefetch->sizes.bytes
    );
    weir_ledger_free(prefetch->ledger, prefetch, WEIR_ACCOUNT_ACTIVATIONS, sizeof *prefetch);
}

/* ---- the engine thread ----------------------------------------------------------------------- */
/* Finds the step's cold blocks. Nothing moves before it ends, so one look at each block will do for
 * all layers. */
static void find_cold(weir_kv_prefetch *s, int32_t segment)
{
    const weir_kv_view *const view = &s->views[segment];
    kv_cold_block *const cold = s->cold + segment * s->sizes.stride;
    int32_t n = 0, block = 0;
    for (; n < view->n_cold && block < view->end_cold; block++) {
        const int32_t place = weir_kv_place_of(s->store, view->pages[block]);
        if (place >= 0) cold[n++] = (kv_cold_block){ .block = block, .place = place };
    }
    WEIR_ASSERT(n == view->n_cold);
    s->n_lookups += block;
    s->n_cold[segment] = n;
}

weir_kv_view *weir_kv_prefetch_views(const weir_kv_prefetch *s) { return s->views; }

bool weir_kv_prefetch_begin(weir_kv_prefetch *s, weir_kv_store *store, int32_t n_views)
{
    bool any = false;
    WEIR_ASSERT(n_views <= s->max_views && s->store == NULL);
    s->why = (weir_error){ 0 };
    memset(s->failed, 0, (size_t)s->max_views * sizeof *s->failed);
    if (weir_kv_residency_of(store).pages_cold == 0) return false;
    s->n_views = n_views;
    s->next_split = 0;
    s->alone_until_ns = 0;
    s->store = store;
    int64_t n_cold = 0;
    for (int32_t i = 0; i < n_views; i++) {
        find_cold(s, i);
        n_cold += s->n_cold[i];
    }
    for (int64_t layer = 0; n_cold > 0 && !any && layer < s->spec.n_layers; layer++)
        for (int32_t i = 0; !any && i < n_views; i++) any = weir_kv_prefetch_is_cold(s, layer, i);
    if (!any) {
        s->store = NULL;
        return false;
    }
    weir_worker_lock(&s->worker);
    s->filled = s->emptied = 0;
    s->error = (weir_error){ 0 };
    s->is_stopped = false;
    s->is_reading = true;
    weir_worker_wake(&s->worker);
    weir_worker_unlock(&s->worker);
    return true;
}

void weir_kv_prefetch_end(weir_kv_prefetch *s)
{
    weir_worker_lock(&s->worker);
    s->is_stopped = true;
    weir_worker_wake(&s->worker);
    while (s->is_reading) weir_worker_wait(&s->worker);
    s->why = s->error;
    weir_worker_unlock(&s->worker);
    s->store = NULL;
}

/* Sets the table's entries for the blocks of the range: where they are, or where they were read
 * to. */
static void point(
    weir_kv_prefetch *s, int64_t layer, int32_t segment, const kv_prefetch_span *r, char *buffer,
    const bool *bad
)
{
    const weir_kv_view *const view = &s->views[segment];
    const weir_kv_geometry *const g = &s->spec.geometry[layer];
    const kv_cold_block *const cold = kv_cold_of(s, segment) + r->first_cold;
    const size_t bytes = weir_kv_page_stride(&s->spec, layer);
    for (int64_t h = 0; h < g->n_heads; h++)
        memcpy(
            s->table + h * s->sizes.stride + r->first,
            view->pages + (g->first_head + h) * view->stride + r->first,
            (size_t)(r->end - r->first) * sizeof *s->table
        );
    for (int32_t n = 0; n < r->n_cold; n++) {
        for (int64_t h = 0; h < g->n_heads; h++)
            s->table[h * s->sizes.stride + cold[n].block] =
                buffer + (size_t)(n * g->n_heads + h) * bytes;
        if (!bad[n]) continue;
        s->failed[segment] = true;
        weir_kv_mark_unreadable(s->store, view->pages[cold[n].block]);
    }
}

void weir_kv_prefetch_run_others(
    weir_kv_prefetch *s, bool (*run)(void *user), void (*listener)(void *user), void *user
)
{
    s->run_others = run;
    s->others = user;
    weir_worker_listen(&s->worker, listener, user);
}

/* Runs the others once. As long as the disk stood still meanwhile, because all buffers were full,
 * the step has the machine to itself. Returns false if there was nothing to run. With the lock,
 * which is released meanwhile. */
static bool run_others(weir_kv_prefetch *s)
{
    weir_worker_unlock(&s->worker);
    const int64_t begin = weir_clock_ns();
    kv_attend(s->store, s->views, s->n_views);
    const bool any = s->run_others != NULL && s->run_others(s->others);
    kv_attend(s->store, NULL, 0);
    const int64_t end = weir_clock_ns();
    weir_worker_lock(&s->worker);
    const bool is_full = s->filled - s->emptied == KV_PREFETCH_BUFFERS;
    const int64_t since = s->full_since_ns > begin ? s->full_since_ns : begin;
    s->alone_until_ns = any && is_full && end > since ? 2 * end - since : end;
    return any;
}

static void wait_for_buffer(weir_kv_prefetch *s)
{
    weir_worker_lock(&s->worker);
    while (s->filled == s->emptied) {
        const int64_t left = s->alone_until_ns - weir_clock_ns();
        if (left > 0)
            weir_worker_wait_for(&s->worker, left);
        else if (!run_others(s) && s->filled == s->emptied)
            weir_worker_wait(&s->worker);
    }
    weir_worker_unlock(&s->worker);
}

void weir_kv_prefetch_take(weir_kv_prefetch *s, int64_t layer, int32_t segment, weir_kv_range *out)
{
    int64_t index = 0;
    s->taken = kv_prefetch_next(s, layer, segment, s->next_split);
    s->next_split = s->taken.is_last ? 0 : s->taken.end_split;
    if (s->taken.n_cold > 0) {
        wait_for_buffer(s);
        index = s->emptied % KV_PREFETCH_BUFFERS;
        const kv_staged_for *const staged = &s->staged[index];
        WEIR_ASSERT(
            staged->layer == layer && staged->segment == segment &&
            staged->first_split == s->taken.first_split
        );
    }
    point(
        s, layer, segment, &s->taken, s->buffers + (size_t)index * s->sizes.buffer,
        s->bad + index * s->sizes.blocks
    );
    *out = (weir_kv_range){ .pages = s->table,
                            .page_stride = s->sizes.stride,
                            .first_split = s->taken.first_split,
                            .end_split = s->taken.end_split,
                            .is_last = s->taken.is_last };
}

void weir_kv_prefetch_give(weir_kv_prefetch *s)
{
    if (s->taken.n_cold == 0) return;
    /* Only this thread writes it. */
    if (s->device != NULL)
        weir_device_event_record(s->device, (int)(s->emptied % KV_PREFETCH_BUFFERS));
    weir_worker_lock(&s->worker);
    s->emptied++;
    weir_worker_wake(&s->worker);
    weir_worker_unlock(&s->worker);
}

bool weir_kv_prefetch_failed(const weir_kv_prefetch *s, int32_t segment, const char **why)
{
    *why = s->why.text;
    return s->failed[segment];
}

int64_t weir_kv_prefetch_lookups(const weir_kv_prefetch *s) { return s->n_lookups; }
