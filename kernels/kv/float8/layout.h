/* kernels/kv/float8/layout.h - fp8_e4m3, fp8_e5m2: an f32 scale per token.
 *   K  scales [32]     V  scales [64] */
static inline const char *weir_kv_float8_reject(weir_kv_side side, int64_t dim)
{
    (void)side, (void)dim;
    return NULL;
}
