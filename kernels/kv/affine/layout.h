/* kernels/kv/affine/layout.h - int8 (channel) and kivi: an f16 scale and minimum per group of
 * values, which needs unsealed pages.
 *   int8  K, V  scales [dim], mins [dim] of the 64 tokens of a page; K: before the first tile
 *   kivi  K     scales [dim], mins [dim] of the 32 tokens of a tile
 *         V     scales [64][dim/32], mins [64][dim/32] of 32 dims of a token */
static inline const char *weir_kv_channel_reject(weir_kv_side side, int64_t dim)
{
    (void)side, (void)dim;
    return NULL;
}

static inline const char *weir_kv_kivi_reject(weir_kv_side side, int64_t dim)
{
    return side == WEIR_KV_V && dim % WEIR_KV_GROUP != 0
               ? "takes value widths that are multiples of 32"
               : NULL;
}
