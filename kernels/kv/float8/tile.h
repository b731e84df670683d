/* kernels/kv/float8/tile.h - codes of fp8 to f32. Included by kernels/omp/kv_tile.h. */
/* Of codes that the encoder writes, which include no NaN and no infinity. */
WEIR_INLINE lane_float kv_float8(const weir_kv_format format, lane_uint code)
{
    const int shift = format == WEIR_KV_FP8_E4M3 ? 20 : 21;
    const uint32_t rebias = (format == WEIR_KV_FP8_E4M3 ? 120u : 112u) << 23;
    const lane_uint magnitude = code & 0x7Fu;
    const lane_float tiny =
        lane_from_int((lane_int)magnitude) * (format == WEIR_KV_FP8_E4M3 ? 0x1p-9f : 0x1p-16f);
    const lane_float normal = lane_from_bits((magnitude << shift) + rebias);
    const lane_float value =
        lane_select((lane_int)magnitude < (format == WEIR_KV_FP8_E4M3 ? 8 : 4), tiny, normal);
    return lane_select((lane_int)(code & 0x80u) != 0, -value, value);
}

WEIR_INLINE lane_float
kv_float8_value(const weir_kv_format format, lane_uint code, lane_float scale, lane_float min)
{
    (void)min;
    return kv_float8(format, code) * scale;
}
