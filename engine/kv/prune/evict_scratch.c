/* engine/kv/prune/evict_scratch.c - plans the stream's scratch for the evictor's calls: on a
 * device, copies of rows, lists and products in host memory. */
#include <stdlib.h>

#include "engine/kv/prune/evict_internal.h"

/* Plans the largest calls of a layer's format. A call that no kernel accepts is never made. */
typedef struct planner {
    const weir_kv_spec *spec;
    weir_stream *stream;
    weir_kv_compact_segment *segments; /* [KV heads of the layer with the most] */
    weir_kv_pair pair; /* format and geometry of the layer */
    weir_kv_geometry g;
} planner;

/* Placeholder arrays, never read. */
static float a_row;
static void *a_page;

/* Plans as many vectors over few rows as a call takes, or one over all rows. */
static weir_status plan_products(const planner *p, int64_t n_vectors, int64_t n_rows)
{
    const weir_kv_segment segment = { .n_rows = (int32_t)n_rows, .unsealed_pages = &a_page };
    const weir_key_products_args args = { .out = &a_row,
                                          .vectors = &a_row,
                                          .lengths = &a_row,
                                          .rows = &segment,
                                          .n_vectors = n_vectors,
                                          .out_stride = n_rows,
                                          .key_dim = p->g.key_dim,
                                          .n_pairs = p->g.key_dim / 2,
                                          .k_format = p->pair.k };
    return weir_key_products(p->stream, &args);
}

/* Rows are written one page at a time, which takes fewer bytes. */
static weir_status plan_read(const planner *p)
{
    const weir_kv_segment segment = { .n_rows = WEIR_POLICY_TILE,
                                      .n_past = WEIR_PAGE_TOKENS - 1,
                                      .unsealed_pages = &a_page };
    const weir_kv_read_args args = { .k = &a_row,
                                     .v = p->g.value_aliases_key ? NULL : &a_row,
                                     .segments = &segment,
                                     .n_segments = 1,
                                     .n_kv_heads = 1,
                                     .key_dim = p->g.key_dim,
                                     .value_dim = weir_kv_stored_value_dim(&p->g),
                                     .k_stride = p->g.key_dim,
                                     .v_stride = weir_kv_stored_value_dim(&p->g),
                                     .k_format = p->pair.k,
                                     .v_format = p->pair.v,
                                     .sinks = p->spec->sinks };
    return weir_kv_read(p->stream, &args);
}

static weir_status plan_compact(const planner *p)
{
    const weir_kv_compact_args args = { .segments = p->segments,
                                        .n_segments = p->g.n_heads,
                                        .n_kv_heads = 1,
                                        .key_dim = p->g.key_dim,
                                        .value_dim = weir_kv_stored_value_dim(&p->g),
                                        .k_format = p->pair.k,
                                        .v_format = p->pair.v };
    for (int64_t h = 0; h < p->g.n_heads; h++)
        p->segments[h] = (weir_kv_compact_segment){ .keep_stride = p->spec->max_rows };
    return weir_kv_compact(p->stream, &args);
}

static bool is_planned(weir_status status)
{
    return status == WEIR_OK || status == WEIR_EUNSUPPORTED;
}

weir_status weir_kv_evictor_scratch_size(
    weir_stream_memory *out, const weir_kv_spec *spec, weir_stream *stream, weir_error *error
)
{
    *out = (weir_stream_memory){ 0 };
    if (!spec->evicts || weir_stream_device(stream) == NULL)
        return WEIR_OK; /* host kernels need no scratch for these */
    planner p = { .spec = spec,
                  .stream = stream,
                  .segments = calloc((size_t)weir_kv_most_heads(spec), sizeof *p.segments) };
    if (p.segments == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory to plan eviction");
    bool is_well = true;
    weir_stream_set_planning(stream, true);
    for (int64_t l = 0; l < spec->n_layers && is_well; l++) {
        p.pair = spec->formats[l];
        p.g = spec->geometry[l];
        is_well = is_planned(plan_products(&p, VECTORS, PRODUCTS / VECTORS)) &&
                  is_planned(plan_products(&p, 1, spec->max_rows)) && is_planned(plan_read(&p)) &&
                  is_planned(plan_compact(&p));
    }
    weir_stream_set_planning(stream, false);
    free(p.segments);
    *out = weir_stream_planned(stream);
    return is_well
               ? WEIR_OK
               : weir_error_set(error, WEIR_EINVAL, "eviction cannot be planned for this model");
}

static size_t beyond(size_t wanted, size_t held) { return wanted > held ? wanted - held : 0; }

weir_status evict_take_scratch(weir_kv_evictor *e, weir_error *error)
{
    const weir_stream_memory held = weir_stream_held(e->stream);
    weir_stream_memory planned;
    WEIR_TRY(weir_kv_evictor_scratch_size(&planned, &e->store->spec, e->stream, error));
    const size_t near = beyond(planned.scratch, held.scratch) + beyond(planned.device, held.device),
                 host = beyond(planned.host, held.host);
    WEIR_TRY(weir_ledger_reserve(
        e->ledger, weir_ledger_device_tier(e->ledger), WEIR_ACCOUNT_ACTIVATIONS, near, error
    ));
    e->device_scratch_size = near;
    WEIR_TRY(weir_ledger_reserve(e->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_ACTIVATIONS, host, error));
    e->host_scratch_size = host;
    const weir_status status =
        near > 0 || host > 0 ? weir_stream_reserve_planned(e->stream) : WEIR_OK;
    return status == WEIR_OK
               ? WEIR_OK
               : weir_error_set(
                     error, status, "no host memory for the copies of eviction; lower memory.device"
                 );
}

void evict_give_scratch(weir_kv_evictor *e)
{
    weir_ledger_return(
        e->ledger, weir_ledger_device_tier(e->ledger), WEIR_ACCOUNT_ACTIVATIONS,
        e->device_scratch_size
    );
    weir_ledger_return(e->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_ACTIVATIONS, e->host_scratch_size);
}
