/* kernels/ref/kv_read.c - reads rows of pages as f32, with the codecs of kv_codec.h. */
#include "kernels/ref/kv_rows.h"
#include "kernels/ref/row.h"

static void read_row(
    const weir_kv_read_args *args, const weir_kv_segment *segment, int64_t position, int64_t head,
    weir_kv_side side, float *row
)
{
    const ref_pages pages = REF_PAGES(args);
    const weir_kv_part part =
        ref_part(pages, segment, head - segment->first_head, position / WEIR_PAGE_TOKENS, side);
    ref_read_row(&part, position % WEIR_PAGE_TOKENS, true, row);
}

static weir_status weir_k_ref_kv_read(const weir_kernel_context *context, const void *op_args)
{
    const weir_kv_read_args *const args = op_args;
    (void)context;
    if (weir_kv_read_reject(args)) return WEIR_EUNSUPPORTED;
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
