/* kernels/ref/key_products.c - vectors times keys and times the lengths of their pairs, a slot at a
 * time. */
#include <math.h>

#include "kernels/ref/kv_rows.h"
#include "kernels/ref/row.h"

static void load_key(const weir_key_products_args *args, int64_t slot, float *key)
{
    const ref_pages pages = REF_KEY_PAGES(args);
    const weir_kv_part part = ref_part(pages, args->rows, 0, slot / WEIR_PAGE_TOKENS, WEIR_KV_K);
    ref_read_row(&part, slot % WEIR_PAGE_TOKENS, true, key);
}

static double product(const weir_key_products_args *args, int64_t vector, const float *key)
{
    double sum = 0.0;
    for (int64_t d = 0; d < args->key_dim; d++)
        sum += (double)args->vectors[vector * args->key_dim + d] * (double)key[d];
    for (int64_t f = 0; args->lengths && f < args->n_pairs; f++) {
        const double a = (double)key[args->is_interleaved ? 2 * f : f],
                     b = (double)key[args->is_interleaved ? 2 * f + 1 : f + args->n_pairs];
        sum += (double)args->lengths[vector * args->n_pairs + f] * sqrt(a * a + b * b);
    }
    return sum;
}

static weir_status weir_k_ref_key_products(const weir_kernel_context *context, const void *op_args)
{
    const weir_key_products_args *const args = op_args;
    float key[WEIR_KV_DIM_MAX];
    (void)context;
    if (weir_key_products_reject(args)) return WEIR_EUNSUPPORTED;
    if (!weir_key_products_is_sound(args)) return WEIR_EINVAL;
    for (int64_t i = 0; i < args->rows->n_rows; i++) {
        load_key(args, args->rows->n_past + i, key);
        for (int64_t v = 0; v < args->n_vectors; v++)
            args->out[v * args->out_stride + i] = (float)product(args, v, key);
    }
    return WEIR_OK;
}

WEIR_REF_ROW(key_products, WEIR_OP_KEY_PRODUCTS)
