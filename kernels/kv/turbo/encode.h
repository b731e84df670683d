/* kernels/kv/turbo/encode.h - rows to turbo. Included by kernels/omp/kv_encode.h. */
WEIR_INLINE uint32_t kv_centroid_of(const int bits, float y)
{
    static const float codebook[3][8] = { { WEIR_KV_CODEBOOK2 },
                                          { WEIR_KV_CODEBOOK3 },
                                          { WEIR_KV_CODEBOOK4 } };
    const int half = 1 << (bits - 1);
    uint32_t code = y >= 0.0f;
    UNROLL
    for (int i = 1; i < half; i++) {
        const float edge = (codebook[bits - 2][i - 1] + codebook[bits - 2][i]) * 0.5f;
        code += (uint32_t)(y >= edge) + (uint32_t)(y >= -edge);
    }
    return code;
}

WEIR_INLINE uint32_t kv_turbo_code(const weir_kv_format format, float x, kv_scale scale)
{
    return kv_centroid_of(weir_kv_bits(format), scale.step > 0.0f ? x / scale.step : 0.0f);
}

/* `row`: WEIR_KV_TURBO_DIM_MAX floats shared by the team. */
WEIR_INLINE void kv_turbo_write(
    const kv_target *to, const weir_kv_format format, const float *x, float *row, int64_t token,
    int tid
)
{
    double squares = 0.0;
    for (int64_t d = 0; d < to->dim; d++) {
        const double value = (double)weir_kv_finite(x[d]);
        squares += value * value;
    }
    const uint16_t step = weir_f16_from_f32((float)__builtin_sqrt(squares / (double)to->dim));
    if (tid == 0) *(uint16_t *)kv_scale_at(to, format, token, 0) = step;
    for (int64_t d = tid; d < to->dim; d += LANE_THREADS)
        row[d] = weir_kv_sign(to->side, d) * weir_kv_finite(x[d]);
    TEAM_BARRIER
    kv_hadamard(row, to->dim, 1, tid);
    kv_write_groups(to, format, row, (kv_scale){ .step = weir_f16_to_f32(step) }, token, tid);
    TEAM_BARRIER
}
