/* kernels/kv/plain/encode.h - rows to f32, f16, bf16. Included by kernels/omp/kv_encode.h. */
WEIR_INLINE void kv_write_plain(
    const kv_target *to, const weir_kv_format format, const float *x, int64_t token, int tid
)
{
    if (to->side == WEIR_KV_V) {
        LANES
        for (int64_t d = tid; d < to->dim; d += LANE_THREADS) {
            const int64_t at = token * to->dim + d;
            if (format == WEIR_KV_F32) ((float *)to->coded)[at] = x[d];
            if (format == WEIR_KV_F16) ((_Float16 *)to->coded)[at] = (_Float16)x[d];
            if (format == WEIR_KV_BF16) ((uint16_t *)to->coded)[at] = weir_bf16_from_f32(x[d]);
        }
        return;
    }
    for (int64_t d = tid; d < to->dim; d += LANE_THREADS) {
        const int64_t at = weir_page_k(token, d, to->dim);
        if (format == WEIR_KV_F32) ((float *)to->coded)[at] = x[d];
        if (format == WEIR_KV_F16) ((_Float16 *)to->coded)[at] = (_Float16)x[d];
        if (format == WEIR_KV_BF16) ((uint16_t *)to->coded)[at] = weir_bf16_from_f32(x[d]);
    }
}

WEIR_INLINE uint32_t kv_plain_code(const weir_kv_format format, float x, kv_scale scale)
{
    (void)format, (void)x, (void)scale;
    return 0; /* has no codes */
}

WEIR_INLINE void kv_plain_write(
    const kv_target *to, const weir_kv_format format, const float *x, float *row, int64_t token,
    int tid
)
{
    (void)row;
    kv_write_plain(to, format, x, token, tid);
}
