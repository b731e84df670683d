/* kernels/kv/block/layout.h - q8_0, q4_0: an f16 scale per token and 32 dims.
 *   K  scales [dim/32][32]     V  scales [64][dim/32] */
static inline const char *weir_kv_block_reject(weir_kv_side side, int64_t dim)
{
    (void)side;
    return dim % WEIR_KV_GROUP != 0 ? "takes head widths that are multiples of 32" : NULL;
}

static inline weir_kv_arrays weir_kv_block_arrays(weir_kv_side side, int64_t dim)
{
    const int64_t scales = dim / WEIR_KV_GROUP * 2;
    const weir_kv_arrays k = { scales * WEIR_TILE_TOKENS, 0, false }, v = { scales, 0, false };
    return side == WEIR_KV_K ? k : v;
}
