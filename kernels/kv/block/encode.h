/* kernels/kv/block/encode.h - rows to q8_0 and q4_0. Included by kernels/omp/kv_encode.h. */
WEIR_INLINE kv_scale kv_block_scale(const weir_kv_format format, const float *x)
{
    float largest = 0.0f, signed_largest = 0.0f;
    for (int i = 0; i < KV_GROUP; i++) {
        const float value = weir_kv_finite(x[i]), magnitude = kv_magnitude(value);
        signed_largest = magnitude > largest ? value : signed_largest;
        largest = magnitude > largest ? magnitude : largest;
    }
    const float d = format == WEIR_KV_Q8_0 ? largest / 127.0f : signed_largest / -8.0f;
    return (kv_scale){ .step = d, .inverse = kv_magnitude(d) >= 0x1p-126f ? 1.0f / d : 0.0f };
}

WEIR_INLINE uint32_t kv_block_code(const weir_kv_format format, float x, kv_scale scale)
{
    const float t = weir_kv_finite(x) * scale.inverse;
    if (format == WEIR_KV_Q8_0) {
        /* Half away from zero: twice the magnitude, truncated, plus one, halved. */
        const int32_t twice = (int32_t)(kv_magnitude(t) * 2.0f), q = (twice + 1) / 2,
                      most = q < 127 ? q : 127;
        return (uint32_t)(t < 0.0f ? -most : most) & 0xFFu;
    }
    const int32_t q = (int32_t)((t > -8.0f ? t : -8.0f) + 8.5f);
    return (uint32_t)(q < 15 ? q : 15);
}

WEIR_INLINE void kv_block_write(
    const kv_target *to, const weir_kv_format format, const float *x, float *row, int64_t token,
    int tid
)
{
    (void)row;
    for (int64_t group = tid; group < to->dim / KV_GROUP; group += LANE_THREADS) {
        const int64_t first = group * KV_GROUP;
        const kv_scale scale = kv_block_scale(format, x + first);
        kv_store_half(kv_scale_at(to, format, token, first), scale.step);
        kv_write_group(to, format, x, scale, token, group);
    }
}
