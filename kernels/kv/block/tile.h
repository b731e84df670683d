/* kernels/kv/block/tile.h - codes of q8_0 and q4_0 to f32. Included by kernels/omp/kv_tile.h. */
WEIR_INLINE lane_float
kv_block_value(const weir_kv_format format, lane_uint code, lane_float scale, lane_float min)
{
    (void)min;
    return (format == WEIR_KV_Q8_0 ? lane_from_int((lane_int)(code << 24) >> 24)
                                   : lane_from_int((lane_int)code - 8)) *
           scale;
}
