/* engine/kv/policy/products.c - products of vectors with the keys of a head: in place by the owner
 * of the rows if it can, else from rows that are read. The order of summation of each depends only
 * on the vector and the key. */
#include <math.h>

#include "engine/kv/policy/policy_ops.h"

/* out [n_bands]: lengths of the pairs of a key. */
static void band_lengths(float *out, const float *key, int64_t n_bands, bool is_interleaved)
{
    if (is_interleaved)
        for (int64_t f = 0; f < n_bands; f++)
            out[f] = sqrtf(key[2 * f] * key[2 * f] + key[2 * f + 1] * key[2 * f + 1]);
    else
        for (int64_t f = 0; f < n_bands; f++)
            out[f] = sqrtf(key[f] * key[f] + key[n_bands + f] * key[n_bands + f]);
}

size_t policy_multiply_scratch(const weir_policy_shape *shape)
{
    return policy_scratch_size((size_t)(WEIR_POLICY_TILE * shape->key_dim), sizeof(float)) +
           policy_scratch_size((size_t)shape->rotary_dim / 2, sizeof(float));
}

policy_tile policy_take_tile(policy_call *call)
{
    const weir_policy_shape *const shape = &call->policy->shape;
    return (policy_tile
    ){ .keys = policy_scratch(call, (size_t)(WEIR_POLICY_TILE * shape->key_dim) * sizeof(float)),
       .lengths = policy_scratch(call, (size_t)shape->rotary_dim / 2 * sizeof(float)) };
}

static void multiply_key(
    const weir_policy_shape *shape, const weir_policy_products *p, const float *key, float *lengths,
    float *out
)
{
    const int64_t dim = shape->key_dim, n_bands = shape->rotary_dim / 2;
    if (p->lengths != NULL) band_lengths(lengths, key, n_bands, shape->is_interleaved);
    for (int64_t v = 0; v < p->n_vectors; v++) {
        const float product = policy_dot(p->vectors + v * dim, key, dim);
        out[v * p->stride] = p->lengths != NULL
                                 ? product + policy_dot(p->lengths + v * n_bands, lengths, n_bands)
                                 : product;
    }
}

weir_status policy_multiply(
    const policy_call *call, const policy_head *at, const weir_policy_products *products,
    const policy_tile *tile
)
{
    const weir_policy_shape *const shape = &call->policy->shape;
    weir_policy_products p = *products;
    p.layer = at->layer;
    p.head = at->head;
    WEIR_DASSERT(p.n > 0 && p.first >= 0 && p.first + p.n <= at->n && p.stride >= p.n);
    const weir_status status = call->rows->multiply != NULL
                                   ? call->rows->multiply(call->rows->context, &p)
                                   : WEIR_EUNSUPPORTED;
    if (status == WEIR_OK) return WEIR_OK;
    if (status != WEIR_EUNSUPPORTED) return policy_read_failed(call, at, status);
    for (int64_t done = 0; done < p.n; done += WEIR_POLICY_TILE) {
        const int64_t n = p.n - done < WEIR_POLICY_TILE ? p.n - done : WEIR_POLICY_TILE;
        WEIR_TRY(policy_read(call, at, p.first + done, n, tile->keys, NULL));
        for (int64_t i = 0; i < n; i++)
            multiply_key(
                shape, &p, tile->keys + i * shape->key_dim, tile->lengths, p.out + done + i
            );
    }
    return WEIR_OK;
}
