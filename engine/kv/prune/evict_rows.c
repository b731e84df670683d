/* engine/kv/prune/evict_rows.c - reads rows of pages as f32, codes them again, or moves them as
 * bytes. */
#include <string.h>

#include "engine/kv/prune/evict_internal.h"
#include "kernels/abi/minmax.h"

/* Arguments of kv_read and kv_write for contiguous rows of one head. */
#define ONE_HEAD(geometry, segment)                                                                \
    .segments = (segment), .n_segments = 1, .n_kv_heads = 1, .key_dim = (geometry)->key_dim,       \
    .value_dim = weir_kv_stored_value_dim(geometry), .k_stride = (geometry)->key_dim,              \
    .v_stride = weir_kv_stored_value_dim(geometry)

static const weir_kv_geometry *geometry_of(const weir_kv_evictor *e, int64_t head)
{
    const weir_kv_spec *const spec = &e->store->spec;
    return &spec->geometry[weir_kv_layer_of(spec, head)];
}

/* ---- formats --------------------------------------------------------------------------------- */
static weir_kv_pair pair_of(const weir_kv_evictor *e, int64_t head, int64_t page)
{
    const weir_kv_spec *const spec = &e->store->spec;
    return weir_kv_pair_at(spec->formats[weir_kv_layer_of(spec, head)], spec->sinks, page);
}

bool evict_is_whole(const weir_kv_evictor *e, int64_t head)
{
    const weir_kv_spec *const spec = &e->store->spec;
    return weir_kv_any_unsealed(spec->formats[weir_kv_layer_of(spec, head)], spec->sinks);
}

char *evict_unsealed_rows(const weir_kv_evictor *e, int64_t head)
{
    const weir_kv_spec *const spec = &e->store->spec;
    const int64_t layer = weir_kv_layer_of(spec, head);
    size_t at = 0;
    if (kv_unsealed_bytes(spec, layer) == 0) return NULL;
    for (int64_t i = 0; i < layer; i++)
        at += (size_t)spec->geometry[i].n_heads * kv_unsealed_bytes(spec, i);
    return e->unsealed + at +
           (size_t)(head - spec->geometry[layer].first_head) * kv_unsealed_bytes(spec, layer);
}

/* ---- reading --------------------------------------------------------------------------------- */
weir_status evict_page(
    weir_kv_evictor *e, const void *page, int64_t head, int64_t copy, void **out, weir_error *error
)
{
    *out = (void *)page; /* The sequence is only read. */
    if (e->is_stopped != NULL ? kv_is_sink(e->store, page) : !weir_kv_is_cold(e->store, page))
        return WEIR_OK;
    *out = e->copies + (size_t)copy * e->copy_bytes;
    return evict_load(e, *out, page, head, error);
}

/* Sets values that alias keys; keys [n, key_dim]. */
static void copy_values(const weir_kv_geometry *g, const float *keys, const weir_policy_tile *tile)
{
    for (int64_t i = 0; i < tile->n; i++)
        memcpy(
            tile->values + i * g->value_dim, keys + i * g->key_dim,
            (size_t)g->value_dim * sizeof *keys
        );
}

weir_status weir_kv_read_rows(
    weir_kv_evictor *e, const weir_kv_table *table, const weir_policy_tile *tile, weir_error *error
)
{
    const weir_kv_spec *const spec = &e->store->spec;
    const weir_kv_geometry *const g = &spec->geometry[tile->layer];
    const int64_t head = g->first_head + tile->head, rows = weir_kv_rows_at(table, head);
    const int64_t first = tile->first / WEIR_PAGE_TOKENS,
                  end = kv_pages_per_head(tile->first + tile->n);
    void *pages[COPIES] = { 0 }, *unsealed[COPIES] = { 0 };
    WEIR_ASSERT(
        tile->first >= 0 && tile->n >= 0 && tile->n <= WEIR_POLICY_TILE &&
        tile->first + tile->n <= rows
    );
    for (int64_t p = first; p < end; p++) {
        WEIR_TRY(evict_page(
            e, table->pages[head * table->capacity + p], head, p - first, &pages[p - first], error
        ));
        if (table->unsealed != NULL && (p + 1) * WEIR_PAGE_TOKENS > rows)
            unsealed[p - first] = table->unsealed[head];
    }
    const weir_kv_segment segment = { .pages = pages,
                                      .page_stride = COPIES,
                                      .n_rows = (int32_t)tile->n,
                                      .n_past = (int32_t)(tile->first % WEIR_PAGE_TOKENS),
                                      .unsealed_pages = unsealed,
                                      .unsealed_stride = COPIES };
    const int64_t n_sinks = spec->sinks.n_pages - first;
    const weir_kv_pair pair = spec->formats[tile->layer];
    const bool copies = g->value_aliases_key && tile->values != NULL;
    float *const keys = copies && tile->keys == NULL ? e->tile_keys : tile->keys;
    const weir_kv_read_args args = { .k = keys,
                                     .v = copies ? NULL : tile->values,
                                     ONE_HEAD(g, &segment),
                                     .k_format = pair.k,
                                     .v_format = pair.v,
                                     .sinks = { spec->sinks.pair,
                                                n_sinks > 0 ? (int32_t)n_sinks : 0 } };
    WEIR_TRY(weir_kv_read(e->stream, &args));
    if (copies) copy_values(g, keys, tile);
    return WEIR_OK;
}

/* ---- coding again ---------------------------------------------------------------------------- */
/* Cannot fail: the arguments are valid and the memory is allocated (evict_scratch.c). A lost device
 * keeps its failure: the next step reports it, and this table is never used. */
static void must_launch(weir_status status)
{
    WEIR_ASSERT(status == WEIR_OK || status == WEIR_EDEVICE);
}

/* Writes the rows being moved as rows [first, end) of the head, all in one page; without values,
 * only their keys. */
static void write_rows(
    weir_kv_evictor *e, int64_t head, void *const *page, int64_t first, int64_t end,
    const float *values
)
{
    void *const unsealed = evict_unsealed_rows(e, head);
    const weir_kv_geometry *const geometry = geometry_of(e, head);
    const weir_kv_pair pair = pair_of(e, head, first / WEIR_PAGE_TOKENS);
    const weir_kv_segment segment = { .pages = page,
                                      .page_stride = 1,
                                      .n_rows = (int32_t)(end - first),
                                      .n_past = (int32_t)(first % WEIR_PAGE_TOKENS),
                                      .unsealed_pages = unsealed != NULL ? &unsealed : NULL,
                                      .unsealed_stride = 1 };
    const weir_kv_write_args args = { .k = e->keys,
                                      .v = geometry->value_aliases_key ? NULL : values,
                                      ONE_HEAD(geometry, &segment),
                                      .k_format = pair.k,
                                      .v_format = pair.v };
    must_launch(weir_kv_write(e->stream, &args));
}

/* Reads rows of source page `page`. */
static weir_status load_page(
    weir_kv_evictor *e, const weir_kv_table *table, int64_t head, int64_t page, weir_error *error
)
{
    const int64_t layer = weir_kv_layer_of(&e->store->spec, head), first = page * WEIR_PAGE_TOKENS,
                  left = e->stays[head].n - first;
    const weir_policy_tile tile = { .layer = layer,
                                    .head = head - e->store->spec.geometry[layer].first_head,
                                    .first = first,
                                    .n = left < WEIR_PAGE_TOKENS ? left : WEIR_PAGE_TOKENS,
                                    .keys = e->page_keys,
                                    .values = geometry_of(e, head)->value_aliases_key
                                                  ? NULL
                                                  : e->page_values };
    return weir_kv_read_rows(e, table, &tile, error);
}

/* Rotates keys among rows [first, end) being moved. */
static void rotate_keys(weir_kv_evictor *e, int64_t head, int64_t first, int64_t end)
{
    const int64_t layer = weir_kv_layer_of(&e->store->spec, head),
                  n = e->stays[head].n_rotated < end ? e->stays[head].n_rotated : end;
    const weir_policy_tile tile = { .layer = layer,
                                    .head = head - e->store->spec.geometry[layer].first_head,
                                    .first = first,
                                    .n = n - first,
                                    .keys = e->keys };
    if (tile.n > 0) e->keep->rotate(e->keep->user, &tile, e->stays[head].n_keep);
}

void evict_rotate(weir_kv_evictor *e, int64_t head, void *const *to)
{
    const int64_t n = e->stays[head].n_rotated;
    for (int64_t first = 0, end; first < n; first = end) {
        end = first + WEIR_PAGE_TOKENS < n ? first + WEIR_PAGE_TOKENS : n;
        rotate_keys(e, head, first, end);
        write_rows(e, head, to + first / WEIR_PAGE_TOKENS, first, end, NULL);
    }
}

/* A page is written after its last row was read, and rows never move backwards in the list: what is
 * overwritten has been read. */
weir_status evict_recode(
    weir_kv_evictor *e, const weir_kv_table *table, int64_t head, void *const *to, int64_t first,
    int64_t end, weir_error *error
)
{
    const kv_stay *const stay = &e->stays[head];
    const weir_kv_geometry *const g = geometry_of(e, head);
    const size_t key_dim = (size_t)g->key_dim, value_dim = (size_t)weir_kv_stored_value_dim(g);
    int64_t loaded = -1;
    for (int64_t row = first; row < end;) {
        const int64_t page = row / WEIR_PAGE_TOKENS, past = (page + 1) * WEIR_PAGE_TOKENS,
                      stop = past < end ? past : end;
        for (int64_t i = row; i < stop; i++) {
            const int32_t slot = stay->keep[i];
            const size_t from = (size_t)(slot % WEIR_PAGE_TOKENS), at = (size_t)(i - row);
            if (slot / WEIR_PAGE_TOKENS != loaded)
                WEIR_TRY(load_page(e, table, head, loaded = slot / WEIR_PAGE_TOKENS, error));
            memcpy(e->keys + at * key_dim, e->page_keys + from * key_dim, key_dim * sizeof(float));
            memcpy(
                e->values + at * value_dim, e->page_values + from * value_dim,
                value_dim * sizeof(float)
            );
        }
        rotate_keys(e, head, row, stop);
        write_rows(e, head, to + page, row, stop, e->values);
        row = stop;
    }
    return WEIR_OK;
}

/* ---- moving ---------------------------------------------------------------------------------- */
kv_border evict_border(const weir_kv_evictor *e, const kv_stay *stay)
{
    const int64_t sinks = (int64_t)e->store->spec.sinks.n_pages * WEIR_PAGE_TOKENS;
    int64_t low = 0, high = stay->n_keep;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (stay->keep[middle] < sinks)
            low = middle + 1;
        else
            high = middle;
    }
    return (kv_border){ .from = low, .to = sinks < stay->n_keep ? sinks : stay->n_keep };
}

void evict_compact(weir_kv_evictor *e, int64_t layer, int64_t n, weir_kv_pair pair)
{
    const weir_kv_geometry *const g = &e->store->spec.geometry[layer];
    const weir_kv_compact_args args = { .segments = e->segments,
                                        .n_segments = n,
                                        .n_kv_heads = 1,
                                        .key_dim = g->key_dim,
                                        .value_dim = weir_kv_stored_value_dim(g),
                                        .k_format = pair.k,
                                        .v_format = pair.v };
    if (n > 0) must_launch(weir_kv_compact(e->stream, &args));
}

/* Segment n: rows [first, end) of those that stay, relative to the page that the first of them
 * moves to, so that earlier pages are not touched. */
static int64_t add_segment(
    weir_kv_evictor *e, const weir_kv_table *table, int64_t head, int64_t first, int64_t end,
    int64_t n
)
{
    const int64_t max_rows = e->store->spec.max_rows, page = first / WEIR_PAGE_TOKENS,
                  base = page * WEIR_PAGE_TOKENS;
    int32_t *const list = e->lists + n * max_rows;
    if (first >= end) return n;
    for (int64_t i = base; i < end; i++)
        list[i - base] = (int32_t)((i < first ? i : e->stays[head].keep[i]) - base);
    e->n_lists[n] = (int32_t)(end - base);
    e->segments[n] =
        (weir_kv_compact_segment){ .pages = table->pages + head * table->capacity + page,
                                   .page_stride = table->capacity,
                                   .keep_stride = max_rows,
                                   .keep = list,
                                   .n_keep = &e->n_lists[n] };
    return n + 1;
}

static void recode_in_place(
    weir_kv_evictor *e, const weir_kv_table *table, int64_t head, int64_t first, int64_t end
)
{
    /* All is in memory. */
    must_launch(
        evict_recode(e, table, head, table->pages + head * table->capacity, first, end, NULL)
    );
}

/* First sinks, then rows that become sinks, then the others: nothing is overwritten before it is
 * moved. */
static void move_in_place(weir_kv_evictor *e, const weir_kv_table *table, int64_t layer)
{
    const weir_kv_geometry *const g = &e->store->spec.geometry[layer];
    const int64_t begin = g->first_head, end = begin + g->n_heads;
    int64_t n = 0;
    for (int64_t h = begin; h < end; h++)
        n = add_segment(e, table, h, e->stays[h].first, evict_border(e, &e->stays[h]).from, n);
    evict_compact(e, layer, n, e->store->spec.sinks.pair);
    n = 0;
    for (int64_t h = begin; h < end; h++) {
        const kv_border border = evict_border(e, &e->stays[h]);
        if (border.from < border.to) recode_in_place(e, table, h, border.from, border.to);
        n = add_segment(e, table, h, weir_max(e->stays[h].first, border.to), e->stays[h].n_keep, n);
    }
    evict_compact(e, layer, n, e->store->spec.formats[layer]);
}

void evict_in_place(weir_kv_evictor *e, const weir_kv_table *table, int64_t layer)
{
    const weir_kv_geometry *const g = &e->store->spec.geometry[layer];
    const int64_t begin = g->first_head, end = begin + g->n_heads;
    if (e->stays[begin].keep == NULL) return;
    if (!evict_is_whole(e, begin)) {
        move_in_place(e, table, layer);
        for (int64_t h = begin; h < end; h++)
            evict_rotate(e, h, table->pages + h * table->capacity);
        return;
    }
    for (int64_t h = begin; h < end; h++)
        recode_in_place(
            e, table, h, evict_written(e, h, &e->stays[h]).first * WEIR_PAGE_TOKENS,
            e->stays[h].n_keep
        );
}
