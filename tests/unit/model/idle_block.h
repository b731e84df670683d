/* tests/unit/model/idle_block.h - parts of blocks that compute nothing: no parameters, no scratch,
 * KV rows of `dim` elements. */
#pragma once
#include "engine/model/block.h"

static const weir_parameter idle_parameters[] = { { 0 } };
static const char *const idle_kv_shapes[] = { "n_kv_heads", NULL };
static const char *const idle_no_shapes[] = { NULL };

static inline weir_block_kv idle_kv(const weir_shape *shape, int64_t dim, float scale)
{
    return (weir_block_kv
    ){ .geometry = { .n_heads = shape->n_kv_heads, .key_dim = dim, .value_dim = dim },
       .scale = scale,
       .n_queries = shape->n_kv_heads,
       .watched = true };
}

static inline int64_t idle_scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)shape, (void)options, (void)n_rows, (void)n_segments;
    return 0;
}
