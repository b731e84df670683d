/* kernels/kv/float8/layout.h - fp8_e4m3, fp8_e5m2: an f32 scale per token.
 *   K  scales [32]     V  scales [64] */
static inline const char *weir_kv_float8_reject(weir_kv_side side, int64_t dim)
{
    (void)side, (void)dim;
    return NULL;
}

static inline weir_kv_arrays weir_kv_float8_arrays(weir_kv_side side, int64_t dim)
{
    (void)dim;
    const weir_kv_arrays k = { WEIR_TILE_TOKENS * 4, 0, false }, v = { 4, 0, false };
    return side == WEIR_KV_K ? k : v;
}
