/* engine/kv/prune/evict_products.c - products with keys in place: the last page unsealed if it has
 * unsealed rows, pages on disk through copies, a few at a time. */
#include "engine/kv/prune/evict_internal.h"

typedef struct span {
    int64_t first, end; /* rows */
} span;

/* True if the page is read through a copy. */
static bool is_cold(
    const weir_kv_evictor *e, const weir_kv_table *table, int64_t head, int64_t page
)
{
    return e->is_stopped != NULL ||
           weir_kv_is_cold(e->store, table->pages[head * table->capacity + page]);
}

/* The end of a call that starts at row `first`: all pages in memory, or as many as there are
 * copies; a last page that may be unsealed is a call of its own. */
static int64_t end_of_call(
    const weir_kv_evictor *e, const weir_kv_table *table, int64_t head, span rows
)
{
    const int64_t first = rows.first / WEIR_PAGE_TOKENS, n_rows = weir_kv_rows_at(table, head);
    int64_t end = kv_pages_per_head(rows.end);
    if (table->unsealed != NULL && end * WEIR_PAGE_TOKENS > n_rows && end - first > 1) end--;
    int64_t page = first;
    while (page < end && !is_cold(e, table, head, page)) page++;
    if (page == first) page = end - first < COPIES ? end : first + COPIES;
    return page * WEIR_PAGE_TOKENS < rows.end ? page * WEIR_PAGE_TOKENS : rows.end;
}

/* Vectors of one call. */
static int64_t vectors_at_once(const weir_kv_evictor *e, const weir_policy_products *p)
{
    if (weir_stream_device(e->stream) == NULL) return p->n_vectors;
    const int64_t n = p->stride > 0 ? PRODUCTS / p->stride : 1;
    return n > VECTORS ? VECTORS : n > 0 ? n : 1;
}

static weir_status multiply_span(
    weir_kv_evictor *e, const weir_kv_table *table, const weir_policy_products *p,
    weir_rope_pairs pairs, span rows, weir_error *error
)
{
    const weir_kv_spec *const spec = &e->store->spec;
    const weir_kv_geometry *const g = &spec->geometry[p->layer];
    const int64_t head = g->first_head + p->head, page = rows.first / WEIR_PAGE_TOKENS,
                  end = kv_pages_per_head(rows.end), n_sinks = spec->sinks.n_pages - page;
    void *copies[COPIES],
        *unsealed = NULL, *const *pages = table->pages + head * table->capacity + page;
    if (is_cold(e, table, head, page)) {
        for (int64_t i = 0; page + i < end; i++)
            WEIR_TRY(evict_page(
                e, table->pages[head * table->capacity + page + i], head, i, &copies[i], error
            ));
        pages = copies;
    }
    if (table->unsealed != NULL && end * WEIR_PAGE_TOKENS > weir_kv_rows_at(table, head))
        unsealed = table->unsealed[head];
    const weir_kv_segment segment = { .pages = pages,
                                      .n_rows = (int32_t)(rows.end - rows.first),
                                      .n_past = (int32_t)(rows.first % WEIR_PAGE_TOKENS),
                                      .unsealed_pages = unsealed != NULL ? &unsealed : NULL };
    weir_key_products_args args = { .rows = &segment,
                                    .out_stride = p->stride,
                                    .key_dim = g->key_dim,
                                    .n_pairs = pairs.n,
                                    .k_format = spec->formats[p->layer].k,
                                    .sinks = { spec->sinks.pair,
                                               n_sinks > 0 ? (int32_t)n_sinks : 0 },
                                    .is_interleaved = pairs.is_interleaved };
    const int64_t most = vectors_at_once(e, p);
    for (int64_t v = 0; v < p->n_vectors; v += most) {
        args.out = p->out + v * p->stride + rows.first - p->first;
        args.vectors = p->vectors + v * g->key_dim;
        args.lengths = p->lengths != NULL ? p->lengths + v * pairs.n : NULL;
        args.n_vectors = p->n_vectors - v < most ? p->n_vectors - v : most;
        WEIR_TRY(weir_key_products(e->stream, &args));
    }
    return WEIR_OK;
}

weir_status weir_kv_multiply_rows(
    weir_kv_evictor *e, const weir_kv_table *table, const weir_policy_products *p,
    weir_rope_pairs pairs, weir_error *error
)
{
    const int64_t head = e->store->spec.geometry[p->layer].first_head + p->head;
    span rows = { .first = p->first, .end = p->first };
    WEIR_ASSERT(p->first >= 0 && p->n >= 0 && p->first + p->n <= weir_kv_rows_at(table, head));
    while (rows.first < p->first + p->n) {
        rows.end = p->first + p->n;
        rows.end = end_of_call(e, table, head, rows);
        WEIR_TRY(multiply_span(e, table, p, pairs, rows, error));
        rows.first = rows.end;
    }
    return WEIR_OK;
}
