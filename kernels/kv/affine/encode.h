/* kernels/kv/affine/encode.h - writes rows to unsealed pages, and seals pages as int8 (channel) and
 * kivi. Included by kernels/omp/kv_encode.h. */
typedef struct kv_range {
    float low, high;
} kv_range;

/* The range extended by n halves, `stride` apart. */
WEIR_INLINE kv_range kv_widen(kv_range range, const _Float16 *x, int64_t n, int64_t stride)
{
    for (int64_t i = 0; i < n; i++) {
        const float value = lane_half(x + i * stride);
        range.low = value < range.low ? value : range.low;
        range.high = value > range.high ? value : range.high;
    }
    return range;
}

WEIR_INLINE kv_range kv_range_of(const _Float16 *x, int64_t n, int64_t stride)
{
    return kv_widen((kv_range){ lane_half(x), lane_half(x) }, x, n, stride);
}

/* Scale and minimum as stored; -0 becomes 0. */
WEIR_INLINE kv_scale kv_affine_scale(const int bits, kv_range range)
{
    const float low = range.low + 0.0f, high = range.high + 0.0f;
    const uint16_t step = weir_f16_from_f32((high - low) / (float)((1 << bits) - 1)),
                   min = weir_f16_from_f32(low);
    return (kv_scale){ .step = weir_f16_to_f32(step), .min = weir_f16_to_f32(min) };
}

WEIR_INLINE uint32_t kv_channel_code(const weir_kv_format format, float x, kv_scale scale)
{
    const float most = (float)((1 << weir_kv_bits(format)) - 1),
                to_integer = 0x1.8p23f; /* adding it rounds to nearest even */
    float t = scale.step > 0.0f ? (x - scale.min) / scale.step : 0.0f;
    t = t > 0.0f ? t : 0.0f;
    t = t < most ? t : most;
    return weir_f32_bits(t + to_integer) & 0xFFu;
}

WEIR_INLINE uint32_t kv_kivi_code(const weir_kv_format format, float x, kv_scale scale)
{
    return kv_channel_code(format, x, scale);
}

WEIR_INLINE void kv_channel_write(
    const kv_target *to, const weir_kv_format format, const float *x, float *row, int64_t token,
    int tid
)
{
    (void)format, (void)row;
    for (int64_t d = tid; d < to->dim; d += LANE_THREADS)
        ((_Float16 *)to->unsealed)[kv_plain_index(to, token, d)] = (_Float16)weir_kv_finite(x[d]);
}

WEIR_INLINE void kv_kivi_write(
    const kv_target *to, const weir_kv_format format, const float *x, float *row, int64_t token,
    int tid
)
{
    kv_channel_write(to, format, x, row, token, tid);
}

WEIR_INLINE void kv_store_affine(const kv_target *to, int64_t unit, int64_t index, kv_scale scale)
{
    kv_store_half(
        to->coded + to->layout.scales + unit * to->layout.scales_step + index * 2, scale.step
    );
    kv_store_half(to->coded + to->layout.mins + unit * to->layout.mins_step + index * 2, scale.min);
}

/* A thread codes the dims that share a word. */
WEIR_INLINE void kv_seal_k(const kv_target *to, const weir_kv_format format, int tid)
{
    const int bits = weir_kv_bits(format), per = 32 / bits;
    const bool whole_page = weir_kv_scheme_of(format) == WEIR_KV_CHANNEL;
    const _Float16 *const unsealed = (const _Float16 *)to->unsealed;
    for (int64_t w = tid; w * per < to->dim; w += LANE_THREADS) {
        for (int64_t token = 0; token < WEIR_PAGE_TOKENS; token += WEIR_TILE_TOKENS) {
            const int64_t tile = token / WEIR_TILE_TOKENS;
            uint32_t words[WEIR_TILE_TOKENS] = { 0 };
            for (int i = 0; i < per && w * per + i < to->dim; i++) {
                const int64_t d = w * per + i;
                const _Float16 *const x = unsealed + weir_page_k(token, d, to->dim);
                kv_range range = kv_range_of(x, WEIR_TILE_TOKENS, 1);
                if (whole_page)
                    range = kv_widen(
                        range, unsealed + weir_page_k(token ^ WEIR_TILE_TOKENS, d, to->dim),
                        WEIR_TILE_TOKENS, 1
                    );
                const kv_scale scale = kv_affine_scale(bits, range);
                kv_store_affine(to, tile, d, scale);
                for (int t = 0; t < WEIR_TILE_TOKENS; t++)
                    words[t] |= kv_code(format, lane_half(x + t), scale) << (bits * i);
            }
            uint32_t *const stored =
                (uint32_t *)(to->coded + to->layout.codes + tile * to->layout.codes_step) +
                w * WEIR_TILE_TOKENS;
            for (int t = 0; t < WEIR_TILE_TOKENS; t++) stored[t] = words[t];
        }
    }
}

/* int8: a thread codes a dim; kivi: 32 dims of a token. */
WEIR_INLINE void kv_seal_v(const kv_target *to, const weir_kv_format format, int tid)
{
    const int bits = weir_kv_bits(format);
    const _Float16 *const unsealed = (const _Float16 *)to->unsealed;
    char *const rows = to->coded + to->layout.codes;
    if (weir_kv_scheme_of(format) == WEIR_KV_CHANNEL) {
        for (int64_t d = tid; d < to->dim; d += LANE_THREADS) {
            const kv_scale scale =
                kv_affine_scale(bits, kv_range_of(unsealed + d, WEIR_PAGE_TOKENS, to->dim));
            kv_store_affine(to, 0, d, scale);
            for (int64_t t = 0; t < WEIR_PAGE_TOKENS; t++)
                rows[t * to->layout.codes_step + d] =
                    (char)kv_code(format, lane_half(unsealed + t * to->dim + d), scale);
        }
        return;
    }
    const int64_t n_groups = to->dim / KV_GROUP;
    for (int64_t item = tid; item < WEIR_PAGE_TOKENS * n_groups; item += LANE_THREADS) {
        const int64_t token = item / n_groups, group = item % n_groups;
        const _Float16 *const x = unsealed + token * to->dim + group * KV_GROUP;
        const kv_scale scale = kv_affine_scale(bits, kv_range_of(x, KV_GROUP, 1));
        uint32_t codes[KV_GROUP];
        kv_store_affine(to, token, group, scale);
        for (int i = 0; i < KV_GROUP; i++) codes[i] = kv_code(format, lane_half(x + i), scale);
        kv_pack_v(rows + token * to->layout.codes_step + group * 4 * bits, codes, bits, KV_GROUP);
    }
}
