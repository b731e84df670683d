/* kernels/kv/affine/tile.h - codes of int8 (channel) and kivi to f32. Included by
 * kernels/omp/kv_tile.h. */
WEIR_INLINE lane_float
kv_channel_value(const weir_kv_format format, lane_uint code, lane_float scale, lane_float min)
{
    (void)format;
    return lane_fma(lane_from_int((lane_int)code), scale, min);
}

WEIR_INLINE lane_float
kv_kivi_value(const weir_kv_format format, lane_uint code, lane_float scale, lane_float min)
{
    return kv_channel_value(format, code, scale, min);
}

WEIR_INLINE lane_float kv_channel_k_scale(const char *scales, int64_t first, int64_t token)
{
    (void)scales, (void)first, (void)token;
    return (lane_float)1.0f; /* scales are of dims */
}

WEIR_INLINE lane_float kv_kivi_k_scale(const char *scales, int64_t first, int64_t token)
{
    return kv_channel_k_scale(scales, first, token);
}

WEIR_INLINE int64_t kv_channel_v_index(int64_t d) { return d; }
WEIR_INLINE int64_t kv_kivi_v_index(int64_t d) { return d / KV_GROUP; }
