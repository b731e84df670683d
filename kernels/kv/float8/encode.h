/* kernels/kv/float8/encode.h - rows to fp8. Included by kernels/omp/kv_encode.h. */
WEIR_INLINE kv_scale kv_float8_scale(const weir_kv_format format, const float *x, int64_t dim)
{
    float largest = 0.0f;
    for (int64_t d = 0; d < dim; d++) {
        const float magnitude = kv_magnitude(weir_kv_finite(x[d]));
        largest = magnitude > largest ? magnitude : largest;
    }
    const float scale = largest / (format == WEIR_KV_FP8_E4M3 ? 448.0f : 57344.0f);
    return (kv_scale){ .step = scale >= 0x1p-126f ? scale : 0.0f };
}

WEIR_INLINE uint32_t kv_float8_code(const weir_kv_format format, float x, kv_scale scale)
{
    const float t = scale.step > 0.0f ? weir_kv_finite(x) / scale.step : 0.0f;
    return format == WEIR_KV_FP8_E4M3 ? weir_f8_e4m3_from_f32(t) : weir_f8_e5m2_from_f32(t);
}

WEIR_INLINE void kv_float8_write(
    const kv_target *to, const weir_kv_format format, const float *x, float *row, int64_t token,
    int tid
)
{
    (void)row;
    const kv_scale scale = kv_float8_scale(format, x, to->dim);
    if (tid == 0) *(float *)kv_scale_at(to, format, token, 0) = scale.step;
    kv_write_groups(to, format, x, scale, token, tid);
}
