/* kernels/ref/kv_write.c - writes new K and V rows to their pages (kernels/abi/kv_format.h), with
 * the codecs of kv_codec.h. */
#include "kernels/ref/kv_rows.h"
#include "kernels/ref/row.h"

static void write_row(
    const weir_kv_write_args *args, const weir_kv_segment *segment, int64_t row, int64_t head
)
{
    const int64_t position = segment->n_past + row, token = position % WEIR_PAGE_TOKENS,
                  page = position / WEIR_PAGE_TOKENS, table = head - segment->first_head,
                  t = segment->first_row + row;
    const ref_pages pages = REF_PAGES(args);
    const weir_kv_part k = ref_part(pages, segment, table, page, WEIR_KV_K),
                       v = ref_part(pages, segment, table, page, WEIR_KV_V);
    if (args->k != NULL)
        weir_kv_encode_rows(&k, token, 1, args->k + t * args->k_stride + head * args->key_dim, 0);
    if (args->v != NULL)
        weir_kv_encode_rows(&v, token, 1, args->v + t * args->v_stride + head * args->value_dim, 0);
}

static weir_status weir_k_ref_kv_write(const weir_kernel_context *context, const void *op_args)
{
    const weir_kv_write_args *const args = op_args;
    (void)context;
    if (weir_kv_write_reject(args)) return WEIR_EUNSUPPORTED;
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
