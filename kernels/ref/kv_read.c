/* kernels/ref/kv_read.c - reads rows of pages as f32, with the codecs of kv_codec.h. */
#include "kernels/ref/kv_codec.h"
#include "kernels/ref/row.h"

static void read_row(
    const weir_kv_read_args *args, const weir_kv_segment *segment, int64_t position, int64_t head,
    weir_kv_side side, float *row
)
{
    const int64_t page = position / WEIR_PAGE_TOKENS, token = position % WEIR_PAGE_TOKENS;
    const int64_t unsealed_page = page - segment->n_past / WEIR_PAGE_TOKENS,
                  table = head - segment->first_head;
    const bool key = side == WEIR_KV_K;
    const weir_kv_pair pair =
        weir_kv_pair_at((weir_kv_pair){ args->k_format, args->v_format }, args->sinks, page);
    weir_kv_part part = { .format = key ? pair.k : pair.v,
                          .side = side,
                          .dim = key ? args->key_dim : args->value_dim };
    char *const unsealed =
        segment->unsealed_pages
            ? segment->unsealed_pages[table * segment->unsealed_stride + unsealed_page]
            : NULL;
    if (weir_kv_seals_pages(part.format) && unsealed) {
        part.unsealed = unsealed + (key ? 0 : weir_kv_unsealed_v_part(pair.k, args->key_dim));
        weir_kv_decode_open(&part, token, 1, row, 0);
        return;
    }
    part.coded = (char *)segment->pages[table * segment->page_stride + page] +
                 (key ? 0 : weir_kv_v_part(pair.k, args->key_dim));
    weir_kv_decode_rows(&part, token, 1, row, 0, false);
}

static weir_status weir_k_ref_kv_read(const weir_kernel_context *context, const void *op_args)
{
    const weir_kv_read_args *const args = op_args;
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
        for (int64_t i = 0; i < segment->n_rows; i++)
            for (int64_t g = segment->first_head; g < end; g++) {
                const int64_t row = segment->first_row + i, position = segment->n_past + i;
                if (args->k)
                    read_row(
                        args, segment, position, g, WEIR_KV_K,
                        args->k + row * args->k_stride + g * args->key_dim
                    );
                if (args->v)
                    read_row(
                        args, segment, position, g, WEIR_KV_V,
                        args->v + row * args->v_stride + g * args->value_dim
                    );
            }
    }
    return WEIR_OK;
}

WEIR_REF_ROW(kv_read, WEIR_OP_KV_READ)
