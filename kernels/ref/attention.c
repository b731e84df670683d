/* kernels/ref/attention.c - causal softmax attention over pages: three passes over the scores of one row. The scores are computed again
 * in each pass, so that no scratch is needed. */
#include <math.h>

#include "kernels/ref/row.h"

/* A query row and the pages of its KV head. */
typedef struct ref_row {
    const weir_attention_args *args;
    void *const               *pages;
    const float               *q;
} ref_row;

static double load(const ref_row *row, int64_t position, int64_t index)
{
    const void *const page = row->pages[position / WEIR_PAGE_TOKENS];
    return row->args->dtype == WEIR_F16 ? (double)((const _Float16 *)page)[index] : (double)((const float *)page)[index];
}

static double score(const ref_row *row, int64_t position)
{
    double sum = 0.0;
    for (int64_t d = 0; d < row->args->key_dim; d++)
        sum += (double)row->q[d] * load(row, position, weir_page_k(position % WEIR_PAGE_TOKENS, d, row->args->key_dim));
    return sum * (double)row->args->scale;
}

static void attend(const ref_row *row, float *out, int64_t first, int64_t last)
{
    double maximum = -INFINITY, sum = 0.0;
    for (int64_t p = first; p <= last; p++) maximum = fmax(maximum, score(row, p));
    for (int64_t p = first; p <= last; p++) sum += exp(score(row, p) - maximum);
    const int64_t value_dim = row->args->value_dim;
    double        value[512]; /* dimensions at a time */
    for (int64_t d0 = 0; d0 < value_dim; d0 += 512) {
        const int64_t n = value_dim - d0 < 512 ? value_dim - d0 : 512;
        for (int64_t d = 0; d < n; d++) value[d] = 0.0;
        for (int64_t p = first; p <= last; p++) {
            const double weight = exp(score(row, p) - maximum) / sum;
            for (int64_t d = 0; d < n; d++)
                value[d] += weight * load(row, p, weir_page_v(p % WEIR_PAGE_TOKENS, row->args->key_dim, value_dim) + d0 + d);
        }
        for (int64_t d = 0; d < n; d++) out[d0 + d] = (float)value[d];
    }
}

static weir_status weir_k_ref_attention(const weir_kernel_context *context, const void *op_args)
{
    const weir_attention_args *const args = op_args;
    (void)context;
    if (args->n_kv_heads <= 0 || args->n_heads % args->n_kv_heads != 0) return WEIR_EINVAL;
    if (args->dtype != WEIR_F16 && args->dtype != WEIR_F32) return WEIR_EUNSUPPORTED;
    const int64_t group = args->n_heads / args->n_kv_heads;
    for (int64_t s = 0; s < args->n_segments; s++) {
        const weir_kv_segment *const segment = args->segments + s;
        for (int64_t t = 0; t < segment->n_rows; t++) {
            const int64_t last = segment->n_past + t, first = args->window > 0 && last >= args->window ? last - args->window + 1 : 0;
            for (int64_t h = 0; h < args->n_heads; h++) {
                const int64_t row = segment->first_row + t;
                const ref_row query = { args, segment->pages + h / group * segment->page_stride,
                                        args->q + row * args->q_stride + h * args->q_head_stride };
                attend(&query, args->out + row * args->out_stride + h * args->value_dim, first, last);
            }
        }
    }
    return WEIR_OK;
}

WEIR_REF_ROW(attention, WEIR_OP_ATTENTION)
