/* engine/kv/prune/evict_cold.c - evicts rows of tables with blocks on disk: rows that stay go to
 * new pages, and the table is unchanged until all are there. */
#include <string.h>

#include "engine/kv/prune/evict_internal.h"

static weir_status load_on_thread(
    weir_kv_evictor *e, void *bytes, const void *page, int64_t head, weir_error *error
)
{
    if (atomic_load(e->is_stopped))
        return weir_error_set(error, WEIR_ECANCELED, "the rows are not needed any more");
    const weir_status status = weir_kv_page_copy(e->store, bytes, page, head, error);
    if (status != WEIR_OK) e->unreadable = page;
    return status;
}

weir_status evict_load(
    weir_kv_evictor *e, void *bytes, const void *page, int64_t head, weir_error *error
)
{
    if (e->is_stopped != NULL) return load_on_thread(e, bytes, page, head, error);
    const weir_status status = kv_page_load(e->store, bytes, page, head, error);
    if (status != WEIR_OK && weir_kv_is_cold(e->store, page))
        weir_kv_mark_unreadable(e->store, page);
    return status;
}

/* Moves rows [first, end) of those that stay as bytes, one page at a time: destination and source
 * are passed as a table of two pages. */
static weir_status move_rows(
    weir_kv_evictor *e, const weir_kv_table *table, int64_t head, int64_t first, int64_t end,
    weir_kv_pair pair, weir_error *error
)
{
    const kv_stay *const stay = &e->stays[head];
    int64_t loaded = -1;
    void *pages[2] = { 0 };
    e->segments[0] = (weir_kv_compact_segment){ .pages = pages,
                                                .page_stride = 2,
                                                .keep_stride = e->store->spec.max_rows,
                                                .keep = e->lists,
                                                .n_keep = e->n_lists };
    for (int64_t row = first; row < end;) {
        const int64_t to = row / WEIR_PAGE_TOKENS, from = stay->keep[row] / WEIR_PAGE_TOKENS;
        int32_t n = 0;
        if (from != loaded)
            WEIR_TRY(evict_page(
                e, table->pages[head * table->capacity + from], head, 0, &pages[1], error
            ));
        loaded = from;
        pages[0] = e->fresh[head * e->stride + to];
        while (n < row % WEIR_PAGE_TOKENS) {
            e->lists[n] = n;
            n++;
        }
        for (; row < end && row / WEIR_PAGE_TOKENS == to &&
               stay->keep[row] / WEIR_PAGE_TOKENS == from;
             row++)
            e->lists[n++] = WEIR_PAGE_TOKENS + stay->keep[row] % WEIR_PAGE_TOKENS;
        e->n_lists[0] = n;
        evict_compact(e, weir_kv_layer_of(&e->store->spec, head), 1, pair);
    }
    return WEIR_OK;
}

static weir_status fill_written(
    weir_kv_evictor *e, const weir_kv_table *table, int64_t head, int64_t first, weir_error *error
)
{
    const kv_stay *const stay = &e->stays[head];
    const weir_kv_spec *const spec = &e->store->spec;
    void *const *const to = e->fresh + head * e->stride;
    if (evict_is_whole(e, head))
        return evict_recode(e, table, head, to, first, stay->n_keep, error);
    const kv_border border = evict_border(e, stay);
    const int64_t crossing = border.from > first ? border.from : first,
                  others = border.to > first ? border.to : first;
    WEIR_TRY(move_rows(e, table, head, first, border.from, spec->sinks.pair, error));
    WEIR_TRY(evict_recode(e, table, head, to, crossing, border.to, error));
    WEIR_TRY(move_rows(
        e, table, head, others, stay->n_keep, spec->formats[weir_kv_layer_of(spec, head)], error
    ));
    evict_rotate(e, head, to);
    return WEIR_OK;
}

/* Pages whose rows all stay in place are copied whole. */
weir_status evict_to_fresh(weir_kv_evictor *e, const weir_kv_table *table, weir_error *error)
{
    for (int64_t h = 0; h < table->n_heads; h++) {
        const kv_page_range written = evict_written(e, h, &e->stays[h]);
        for (int64_t p = 0; p < written.first && p < table->n_pages; p++) {
            void *const fresh = e->fresh[h * e->stride + p];
            if (fresh != NULL)
                WEIR_TRY(evict_load(e, fresh, table->pages[h * table->capacity + p], h, error));
        }
        if (written.first < written.end)
            WEIR_TRY(fill_written(e, table, h, written.first * WEIR_PAGE_TOKENS, error));
    }
    return WEIR_OK;
}
