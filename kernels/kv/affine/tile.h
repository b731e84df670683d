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
