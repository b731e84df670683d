/* kernels/ref/kv_write.c - writes new K and V rows to their pages (kernels/abi/kv_format.h), with
 * the codecs of kv_codec.h. */
#include "kernels/ref/kv_codec.h"
#include "kernels/ref/row.h"

/* The parts of the page that contains `position`. */
static weir_kv_part part_at(
    const weir_kv_write_args *args, const weir_kv_segment *segment, int64_t position, int64_t head,
    weir_kv_side side
)
{
    const int64_t page = position / WEIR_PAGE_TOKENS,
                  unsealed_page = page - segment->n_past / WEIR_PAGE_TOKENS;
    const int64_t table = head - segment->first_head;
    const bool key = side == WEIR_KV_K;
    const weir_kv_pair pair =
        weir_kv_pair_at((weir_kv_pair){ args->k_format, args->v_format }, args->sinks, page);
    const int64_t coded_at = key ? 0 : weir_kv_v_part(pair.k, args->key_dim);
    const int64_t unsealed_at = key ? 0 : weir_kv_unsealed_v_part(pair.k, args->key_dim);
    const weir_kv_part part = {
        .format = key ? pair.k : pair.v,
        .side = side,
        .dim = key ? args->key_dim : args->value_dim,
        .coded = (char *)segment->pages[table * segment->page_stride + page] + coded_at
    };
    if (!weir_kv_seals_pages(part.format)) return part;
    weir_kv_part with_unsealed = part;
    with_unsealed.unsealed =
        (char *)segment->unsealed_pages[table * segment->unsealed_stride + unsealed_page] +
        unsealed_at;
    return with_unsealed;
}

static void write_row(
    const weir_kv_write_args *args, const weir_kv_segment *segment, int64_t row, int64_t head
)
{
    const int64_t position = segment->n_past + row, token = position % WEIR_PAGE_TOKENS,
                  t = segment->first_row + row;
    const weir_kv_part k = part_at(args, segment, position, head, WEIR_KV_K),
                       v = part_at(args, segment, position, head, WEIR_KV_V);
    if (args->k != NULL)
        weir_kv_encode_rows(&k, token, 1, args->k + t * args->k_stride + head * args->key_dim, 0);
    if (args->v != NULL)
        weir_kv_encode_rows(&v, token, 1, args->v + t * args->v_stride + head * args->value_dim, 0);
}

static weir_status weir_k_ref_kv_write(const weir_kernel_context *context, const void *op_args)
{
    const weir_kv_write_args *const args = op_args;
    (void)context;
    if (weir_kv_pages_reject(
            (weir_kv_pair){ args->k_format, args->v_format }, args->sinks, args->key_dim,
            args->value_dim
        ))
        return WEIR_EUNSUPPORTED;
    if (!weir_kv_segments_are_sound(args->segments, args->n_segments, args->n_kv_heads))
        return WEIR_EINVAL;
    for (int64_t s = 0; s < args->n_segments; s++) {
        const weir_kv_segment *const segment = args->segments + s;
        const int64_t end = segment->first_head + weir_kv_segment_heads(segment, args->n_kv_heads);
        for (int64_t row = 0; row < segment->n_rows; row++)
            for (int64_t head = segment->first_head; head < end; head++)
                write_row(args, segment, row, head);
    }
    return WEIR_OK;
}

WEIR_REF_ROW(kv_write, WEIR_OP_KV_WRITE)
