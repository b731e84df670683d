/* kernels/kv/block/layout.h - q8_0, q4_0: an f16 scale per token and 32 dims.
 *   K  scales [dim/32][32]     V  scales [64][dim/32] */
static inline const char *weir_kv_block_reject(weir_kv_side side, int64_t dim)
{
    (void)side;
    return dim % WEIR_KV_GROUP != 0 ? "takes head widths that are multiples of 32" : NULL;
}
