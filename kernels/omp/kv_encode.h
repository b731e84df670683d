/* kernels/omp/kv_encode.h - rows and closed pages to codes: the arithmetic of
 * kernels/ref/kv_codec.h, to the bit, on every target.
 *
 * Kernels are compiled with fused multiply-adds where the target has them, so no sum here has a
 * product of its own that could be fused with another rounding: products feed products, comparisons
 * and conversions; sums of squares are exact products in f64; the maximum with -8 in q4_0's code
 * stands between its product and its sum. A group of 32 dims is one thread's: no reduction over
 * threads, no barrier. What belongs to a whole row (fp8's amax, turbo's norm) is computed by every
 * thread for itself. */
#pragma once
#include "kernels/omp/kv_tile.h"

#pragma omp declare target

/* What a code is relative to. */
typedef struct kv_scale {
    float step, inverse, min;
} kv_scale;

WEIR_INLINE float kv_magnitude(float x) { return x < 0.0f ? -x : x; }

/* ---- one value ------------------------------------------------------------------------------- */
WEIR_INLINE uint32_t kv_turbo_code(const int bits, float y)
{
    static const float codebook[3][8] = { { WEIR_KV_CODEBOOK2 },
                                          { WEIR_KV_CODEBOOK3 },
                                          { WEIR_KV_CODEBOOK4 } };
    const int          half = 1 << (bits - 1);
    uint32_t           code = y >= 0.0f;
    UNROLL
    for (int i = 1; i < half; i++) {
        const float edge = (codebook[bits - 2][i - 1] + codebook[bits - 2][i]) * 0.5f;
        code += (uint32_t)(y >= edge) + (uint32_t)(y >= -edge);
    }
    return code;
}

WEIR_INLINE uint32_t kv_code(const weir_kv_format format, float x, kv_scale scale)
{
    const int bits = weir_kv_bits(format);
    switch (weir_kv_scheme_of(format)) {
    case WEIR_KV_PLAIN: break;
    case WEIR_KV_BLOCK: {
        const float t = weir_kv_finite(x) * scale.inverse;
        if (format ==
            WEIR_KV_Q8_0) { /* half away from zero: twice the magnitude, cut, plus one, halved */
            const int32_t twice = (int32_t)(kv_magnitude(t) * 2.0f), q = (twice + 1) / 2,
                          most = q < 127 ? q : 127;
            return (uint32_t)(t < 0.0f ? -most : most) & 0xFFu;
        }
        const int32_t q = (int32_t)((t > -8.0f ? t : -8.0f) + 8.5f);
        return (uint32_t)(q < 15 ? q : 15);
    }
    case WEIR_KV_FLOAT8: {
        const float t = scale.step > 0.0f ? weir_kv_finite(x) / scale.step : 0.0f;
        return format == WEIR_KV_FP8_E4M3 ? weir_f8_e4m3_from_f32(t) : weir_f8_e5m2_from_f32(t);
    }
    case WEIR_KV_CHANNEL:
    case WEIR_KV_KIVI: {
        const float most = (float)((1 << bits) - 1),
                    to_integer = 0x1.8p23f; /* adding it rounds to nearest even */
        float t = scale.step > 0.0f ? (x - scale.min) / scale.step : 0.0f;
        t = t > 0.0f ? t : 0.0f;
        t = t < most ? t : most;
        return weir_f32_bits(t + to_integer) & 0xFFu;
    }
    case WEIR_KV_TURBO: return kv_turbo_code(bits, scale.step > 0.0f ? x / scale.step : 0.0f);
    }
    return 0;
}

/* ---- scales ---------------------------------------------------------------------------------- */
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

typedef struct kv_range {
    float low, high;
} kv_range;

/* Widened by n halves, `stride` apart. */
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

/* Step and minimum as stored; -0 becomes 0. */
WEIR_INLINE kv_scale kv_affine_scale(const int bits, kv_range range)
{
    const float    low = range.low + 0.0f, high = range.high + 0.0f;
    const uint16_t step = weir_f16_from_f32((high - low) / (float)((1 << bits) - 1)),
                   min = weir_f16_from_f32(low);
    return (kv_scale){ .step = weir_f16_to_f32(step), .min = weir_f16_to_f32(min) };
}

WEIR_INLINE void kv_store_half(char *at, float value)
{
    *(uint16_t *)at = weir_f16_from_f32(value);
}

/* ---- packing --------------------------------------------------------------------------------- */
/* Codes of n <= 32 dims from `first` on to the words of one token of a K tile. */
WEIR_INLINE void kv_pack_k(char *tile_codes, const uint32_t *codes, const int bits, int64_t dim,
                           int64_t first, int64_t n, int64_t t)
{
    uint32_t *const words = (uint32_t *)tile_codes + t;
    const int       low = bits == 3 ? 2 : bits, per = 32 / low;
    for (int64_t w = 0; w * per < n; w++) {
        uint32_t word = 0;
        for (int i = 0; i < per && w * per + i < n; i++)
            word |= (codes[w * per + i] & ((1u << low) - 1u)) << (low * i);
        words[(first / per + w) * WEIR_TILE_TOKENS] = word;
    }
    if (bits != 3) return;
    uint32_t high = 0;
    for (int i = 0; i < n; i++) high |= codes[i] >> 2 << i;
    words[(weir_kv_words(2, dim) + first / KV_GROUP) * WEIR_TILE_TOKENS] = high;
}

/* To the block of a V row. */
WEIR_INLINE void kv_pack_v(char *block, const uint32_t *codes, const int bits, int64_t n)
{
    if (bits == 8) {
        for (int64_t i = 0; i < n; i++) block[i] = (char)codes[i];
        return;
    }
    if (bits == 4) {
        for (int j = 0; j < 16; j++)
            block[j] = (char)(codes[j] | (j + 16 < n ? codes[j + 16] << 4 : 0u));
        return;
    }
    uint32_t words[3] = { 0, 0, 0 };
    for (int i = 0; i < n; i++)
        words[i / 16] |= (codes[i] & 3u) << (2 * (i % 16)), words[2] |= codes[i] >> 2 << i;
    for (int w = 0; w < bits; w++) ((uint32_t *)block)[w] = words[w];
}

/* ---- rows ------------------------------------------------------------------------------------ */
/* A page part to write to. */
typedef struct kv_target {
    char          *coded, *open;
    weir_kv_layout layout;
    int64_t        dim;
    weir_kv_side   side;
} kv_target;

WEIR_INLINE int64_t kv_plain_index(const kv_target *to, int64_t token, int64_t d)
{
    return to->side == WEIR_KV_K ? weir_page_k(token, d, to->dim) : token * to->dim + d;
}

WEIR_INLINE void kv_write_plain(const kv_target *to, const weir_kv_format format, const float *x,
                                int64_t token, int tid)
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

WEIR_INLINE void kv_write_open(const kv_target *to, const float *x, int64_t token, int tid)
{
    for (int64_t d = tid; d < to->dim; d += LANE_THREADS)
        ((_Float16 *)to->open)[kv_plain_index(to, token, d)] = (_Float16)weir_kv_finite(x[d]);
}

/* Codes of all groups of a row; `scale` is of the whole row where the format has one. */
WEIR_INLINE void kv_write_groups(const kv_target *to, const weir_kv_format format, const float *x,
                                 kv_scale scale, int64_t token, int tid)
{
    const int64_t tile = token / WEIR_TILE_TOKENS, t = token % WEIR_TILE_TOKENS,
                  n_groups = (to->dim + KV_GROUP - 1) / KV_GROUP;
    const int bits = weir_kv_bits(format);
    for (int64_t group = tid; group < n_groups; group += LANE_THREADS) {
        const int64_t first = group * KV_GROUP,
                      n = to->dim - first < KV_GROUP ? to->dim - first : KV_GROUP;
        if (weir_kv_scheme_of(format) == WEIR_KV_BLOCK) {
            scale = kv_block_scale(format, x + first);
            const int64_t at = to->side == WEIR_KV_K ? tile * to->layout.scales_step +
                                                           (group * WEIR_TILE_TOKENS + t) * 2
                                                     : token * to->layout.scales_step + group * 2;
            kv_store_half(to->coded + to->layout.scales + at, scale.step);
        }
        uint32_t codes[KV_GROUP] = { 0 };
        for (int64_t i = 0; i < n; i++) codes[i] = kv_code(format, x[first + i], scale);
        if (to->side == WEIR_KV_K)
            kv_pack_k(to->coded + to->layout.codes + tile * to->layout.codes_step, codes, bits,
                      to->dim, first, n, t);
        else
            kv_pack_v(to->coded + to->layout.codes + token * to->layout.codes_step +
                          group * 4 * bits,
                      codes, bits, n);
    }
}

WEIR_INLINE char *kv_row_scale(const kv_target *to, int64_t token, int64_t bytes)
{
    char *const scales = to->coded + to->layout.scales;
    return to->side == WEIR_KV_K ? scales + token / WEIR_TILE_TOKENS * to->layout.scales_step +
                                       token % WEIR_TILE_TOKENS * bytes
                                 : scales + token * to->layout.scales_step;
}

/* `row`: WEIR_KV_TURBO_DIM_MAX floats that the team shares. */
WEIR_INLINE void kv_write_turbo(const kv_target *to, const weir_kv_format format, const float *x,
                                float *row, int64_t token, int tid)
{
    double squares = 0.0;
    for (int64_t d = 0; d < to->dim; d++) {
        const double value = (double)weir_kv_finite(x[d]);
        squares += value * value;
    }
    const uint16_t step = weir_f16_from_f32((float)__builtin_sqrt(squares / (double)to->dim));
    if (tid == 0) *(uint16_t *)kv_row_scale(to, token, 2) = step;
    for (int64_t d = tid; d < to->dim; d += LANE_THREADS)
        row[d] = weir_kv_sign(to->side, d) * weir_kv_finite(x[d]);
    TEAM_BARRIER
    kv_hadamard(row, to->dim, 1, tid);
    kv_write_groups(to, format, row, (kv_scale){ .step = weir_f16_to_f32(step) }, token, tid);
    TEAM_BARRIER
}

WEIR_INLINE void kv_write_row(const kv_target *to, const weir_kv_format format, const float *x,
                              float *row, int64_t token, int tid)
{
    switch (weir_kv_scheme_of(format)) {
    case WEIR_KV_PLAIN: kv_write_plain(to, format, x, token, tid); break;
    case WEIR_KV_BLOCK: kv_write_groups(to, format, x, (kv_scale){ 0 }, token, tid); break;
    case WEIR_KV_FLOAT8: {
        const kv_scale scale = kv_float8_scale(format, x, to->dim);
        if (tid == 0) *(float *)kv_row_scale(to, token, 4) = scale.step;
        kv_write_groups(to, format, x, scale, token, tid);
        break;
    }
    case WEIR_KV_TURBO: kv_write_turbo(to, format, x, row, token, tid); break;
    case WEIR_KV_CHANNEL:
    case WEIR_KV_KIVI: kv_write_open(to, x, token, tid); break;
    }
}

/* ---- closing --------------------------------------------------------------------------------- */
WEIR_INLINE void kv_store_affine(const kv_target *to, int64_t unit, int64_t index, kv_scale scale)
{
    kv_store_half(to->coded + to->layout.scales + unit * to->layout.scales_step + index * 2,
                  scale.step);
    kv_store_half(to->coded + to->layout.mins + unit * to->layout.mins_step + index * 2, scale.min);
}

/* A thread has the dims that share a word. */
WEIR_INLINE void kv_close_k(const kv_target *to, const weir_kv_format format, int tid)
{
    const int             bits = weir_kv_bits(format), per = 32 / bits;
    const bool            whole_page = weir_kv_scheme_of(format) == WEIR_KV_CHANNEL;
    const _Float16 *const open = (const _Float16 *)to->open;
    for (int64_t w = tid; w * per < to->dim; w += LANE_THREADS) {
        for (int64_t token = 0; token < WEIR_PAGE_TOKENS; token += WEIR_TILE_TOKENS) {
            const int64_t tile = token / WEIR_TILE_TOKENS;
            uint32_t      words[WEIR_TILE_TOKENS] = { 0 };
            for (int i = 0; i < per && w * per + i < to->dim; i++) {
                const int64_t         d = w * per + i;
                const _Float16 *const x = open + weir_page_k(token, d, to->dim);
                kv_range              range = kv_range_of(x, WEIR_TILE_TOKENS, 1);
                if (whole_page)
                    range =
                        kv_widen(range, open + weir_page_k(token ^ WEIR_TILE_TOKENS, d, to->dim),
                                 WEIR_TILE_TOKENS, 1);
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

/* int8: a thread has a dim; kivi: 32 dims of a token. */
WEIR_INLINE void kv_close_v(const kv_target *to, const weir_kv_format format, int tid)
{
    const int             bits = weir_kv_bits(format);
    const _Float16 *const open = (const _Float16 *)to->open;
    char *const           rows = to->coded + to->layout.codes;
    if (weir_kv_scheme_of(format) == WEIR_KV_CHANNEL) {
        for (int64_t d = tid; d < to->dim; d += LANE_THREADS) {
            const kv_scale scale =
                kv_affine_scale(bits, kv_range_of(open + d, WEIR_PAGE_TOKENS, to->dim));
            kv_store_affine(to, 0, d, scale);
            for (int64_t t = 0; t < WEIR_PAGE_TOKENS; t++)
                rows[t * to->layout.codes_step + d] =
                    (char)kv_code(format, lane_half(open + t * to->dim + d), scale);
        }
        return;
    }
    const int64_t n_groups = to->dim / KV_GROUP;
    for (int64_t item = tid; item < WEIR_PAGE_TOKENS * n_groups; item += LANE_THREADS) {
        const int64_t         token = item / n_groups, group = item % n_groups;
        const _Float16 *const x = open + token * to->dim + group * KV_GROUP;
        const kv_scale        scale = kv_affine_scale(bits, kv_range_of(x, KV_GROUP, 1));
        uint32_t              codes[KV_GROUP];
        kv_store_affine(to, token, group, scale);
        for (int i = 0; i < KV_GROUP; i++) codes[i] = kv_code(format, lane_half(x + i), scale);
        kv_pack_v(rows + token * to->layout.codes_step + group * 4 * bits, codes, bits, KV_GROUP);
    }
}

/* After the barrier behind the last open row. */
WEIR_INLINE void kv_close(const kv_target *to, const weir_kv_format format, int tid)
{
    if (!weir_kv_needs_open(format)) return;
    if (to->side == WEIR_KV_K)
        kv_close_k(to, format, tid);
    else
        kv_close_v(to, format, tid);
}
#pragma omp end declare target
