/* kernels/abi/kv_page.h - a KV page: 64 tokens of one KV head of one layer, K and V together; its
 * layout when K and V are f16 or f32. kv_format.h has the other formats.
 *
 *   K: 2 tiles of 32 tokens, each [key_dim][32], the token innermost: a SIMD register or a warp
 *   holds 32 tokens of one dimension, so a dot product needs no horizontal sum and reads are
 *   coalesced (measured: 2.2 times row-major K on the host). V: [64][value_dim], the dimension
 *   innermost.
 * Unwritten rows are zero: kernels may multiply them by a zero probability. */
#pragma once
#include "kernels/abi/dtype.h"

enum { WEIR_PAGE_TOKENS = 64, WEIR_TILE_TOKENS = 32 };

/* Element offsets inside a page. */
static inline int64_t weir_page_k_tile(int64_t token, int64_t key_dim)
{
    return token / WEIR_TILE_TOKENS * key_dim * WEIR_TILE_TOKENS;
}
static inline int64_t weir_page_k(int64_t token, int64_t dim, int64_t key_dim)
{
    return weir_page_k_tile(token, key_dim) + dim * WEIR_TILE_TOKENS + token % WEIR_TILE_TOKENS;
}
static inline int64_t weir_page_v(int64_t token, int64_t key_dim, int64_t value_dim)
{
    return WEIR_PAGE_TOKENS * key_dim + token * value_dim;
}
static inline size_t weir_page_bytes(weir_dtype dtype, int64_t key_dim, int64_t value_dim)
{
    return weir_row_bytes(dtype, WEIR_PAGE_TOKENS * (key_dim + value_dim));
}
