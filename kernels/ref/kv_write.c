/* kernels/ref/kv_write.c - new K and V rows into their pages (kernels/abi/kv_page.h). */
#include "kernels/ref/row.h"

static void store(void *page, weir_dtype dtype, int64_t index, float value)
{
    if (dtype == WEIR_F16)
        ((_Float16 *)page)[index] = (_Float16)value;
    else
        ((float *)page)[index] = value;
}

static void write_row(const weir_kv_write_args *args, const weir_kv_segment *segment, int64_t row, int64_t head)
{
    const int64_t      position = segment->n_past + row, token = position % WEIR_PAGE_TOKENS, t = segment->first_row + row;
    void *const        page = segment->pages[head * segment->page_stride + position / WEIR_PAGE_TOKENS];
    const float *const k = args->k + t * args->k_stride + head * args->key_dim;
    const float *const v = args->v + t * args->v_stride + head * args->value_dim;
    for (int64_t d = 0; d < args->key_dim; d++) store(page, args->dtype, weir_page_k(token, d, args->key_dim), k[d]);
    for (int64_t d = 0; d < args->value_dim; d++) store(page, args->dtype, weir_page_v(token, args->key_dim, args->value_dim) + d, v[d]);
}

static weir_status weir_k_ref_kv_write(const weir_kernel_context *context, const void *op_args)
{
    const weir_kv_write_args *const args = op_args;
    (void)context;
    if (args->dtype != WEIR_F16 && args->dtype != WEIR_F32) return WEIR_EUNSUPPORTED;
    for (int64_t s = 0; s < args->n_segments; s++)
        for (int64_t row = 0; row < args->segments[s].n_rows; row++)
            for (int64_t head = 0; head < args->n_kv_heads; head++) write_row(args, args->segments + s, row, head);
    return WEIR_OK;
}

WEIR_REF_ROW(kv_write, WEIR_OP_KV_WRITE)
