/* kernels/kv/plain/tile.h - f32, f16, bf16 values to f32. Included by kernels/omp/kv_tile.h. */
WEIR_INLINE lane_float kv_load_plain(const weir_kv_format format, const char *values, int64_t index)
{
    if (format == WEIR_KV_F32) return lane_load((const float *)values + index);
    if (format == WEIR_KV_F16) return lane_load_half((const _Float16 *)values + index);
    return lane_load_bf16((const uint16_t *)values + index);
}

WEIR_INLINE lane_float
kv_plain_value(const weir_kv_format format, lane_uint code, lane_float scale, lane_float min)
{
    (void)format, (void)code, (void)scale, (void)min;
    return (lane_float)0.0f; /* has no codes: kv_load_plain */
}
