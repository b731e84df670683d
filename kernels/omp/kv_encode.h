/* kernels/omp/kv_encode.h - codes rows and seals pages: the arithmetic of kernels/ref/kv_codec.h,
 * to the bit, on every target. Schemes: kernels/kv/<scheme>/encode.h.
 *
 * Kernels are compiled with fused multiply-adds where the target has them, so no sum here adds a
 * product that could be fused with different rounding: products are inputs of products, comparisons
 * and conversions; sums of squares are exact products in f64; in q4_0's code the maximum with -8
 * separates product and sum. A group of 32 dims belongs to one thread: no reduction over threads,
 * no barrier. Values of a whole row (fp8's amax, turbo's norm) are computed by every thread. */
#pragma once
#include "kernels/omp/kv_tile.h"

#pragma omp declare target

/* The scale, minimum and inverse that codes are relative to. */
typedef struct kv_scale {
    float step, inverse, min;
} kv_scale;

WEIR_INLINE float kv_magnitude(float x) { return x < 0.0f ? -x : x; }

WEIR_INLINE void kv_store_half(char *at, float value)
{
    *(uint16_t *)at = weir_f16_from_f32(value);
}

/* ---- packing --------------------------------------------------------------------------------- */
/* Writes codes of n <= 32 dims from `first` on to the words of one token of a K tile. */
WEIR_INLINE void kv_pack_k(
    char *tile_codes, const uint32_t *codes, const int bits, int64_t dim, int64_t first, int64_t n,
    int64_t t
)
{
    uint32_t *const words = (uint32_t *)tile_codes + t;
    const int low = bits == 3 ? 2 : bits, per = 32 / low;
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

/* Writes codes to the block of a V row. */
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
    char *coded, *unsealed;
    weir_kv_layout layout;
    int64_t dim;
    weir_kv_side side;
} kv_target;

WEIR_INLINE int64_t kv_plain_index(const kv_target *to, int64_t token, int64_t d)
{
    return to->side == WEIR_KV_K ? weir_page_k(token, d, to->dim) : token * to->dim + d;
}

/* The place of the scale of dim d of a token. */
WEIR_INLINE char *kv_scale_at(
    const kv_target *to, const weir_kv_format format, int64_t token, int64_t d
)
{
    const int64_t unit = to->side == WEIR_KV_K ? token / WEIR_TILE_TOKENS : token,
                  index = weir_kv_scale_index(format, to->side, token % WEIR_TILE_TOKENS, d);
    return to->coded + to->layout.scales + unit * to->layout.scales_step +
           index * weir_kv_scale_bytes(format);
}

/* Codes one group of 32 dims, and all groups of a row, under one scale. */
WEIR_INLINE void kv_write_group(
    const kv_target *to, const weir_kv_format format, const float *x, kv_scale scale, int64_t token,
    int64_t group
);
WEIR_INLINE void kv_write_groups(
    const kv_target *to, const weir_kv_format format, const float *x, kv_scale scale, int64_t token,
    int tid
);
WEIR_INLINE uint32_t kv_code(const weir_kv_format format, float x, kv_scale scale);

/* ---- the schemes ----------------------------------------------------------------------------- */
#define WEIR_KV_PART encode.h
#include "kernels/kv/schemes.inc"

WEIR_INLINE uint32_t kv_code(const weir_kv_format format, float x, kv_scale scale)
{
    switch (weir_kv_scheme_of(format)) {
#define WEIR_KV_SCHEME(NAME, name, ...)                                                            \
    case WEIR_KV_##NAME: return kv_##name##_code(format, x, scale);
#include "kernels/kv/schemes.inc"
    }
    return 0;
}

WEIR_INLINE void kv_write_group(
    const kv_target *to, const weir_kv_format format, const float *x, kv_scale scale, int64_t token,
    int64_t group
)
{
    const int64_t tile = token / WEIR_TILE_TOKENS, t = token % WEIR_TILE_TOKENS,
                  first = group * KV_GROUP,
                  n = to->dim - first < KV_GROUP ? to->dim - first : KV_GROUP;
    const int bits = weir_kv_bits(format);
    uint32_t codes[KV_GROUP] = { 0 };
    for (int64_t i = 0; i < n; i++) codes[i] = kv_code(format, x[first + i], scale);
    if (to->side == WEIR_KV_K)
        kv_pack_k(
            to->coded + to->layout.codes + tile * to->layout.codes_step, codes, bits, to->dim,
            first, n, t
        );
    else
        kv_pack_v(
            to->coded + to->layout.codes + token * to->layout.codes_step + group * 4 * bits, codes,
            bits, n
        );
}

WEIR_INLINE void kv_write_groups(
    const kv_target *to, const weir_kv_format format, const float *x, kv_scale scale, int64_t token,
    int tid
)
{
    const int64_t n_groups = (to->dim + KV_GROUP - 1) / KV_GROUP;
    for (int64_t group = tid; group < n_groups; group += LANE_THREADS)
        kv_write_group(to, format, x, scale, token, group);
}

WEIR_INLINE void kv_write_row(
    const kv_target *to, const weir_kv_format format, const float *x, float *row, int64_t token,
    int tid
)
{
    switch (weir_kv_scheme_of(format)) {
#define WEIR_KV_SCHEME(NAME, name, ...)                                                            \
    case WEIR_KV_##NAME: kv_##name##_write(to, format, x, row, token, tid); break;
#include "kernels/kv/schemes.inc"
    }
}

/* Seals the page; call after the barrier that follows its last row. */
WEIR_INLINE void kv_seal(const kv_target *to, const weir_kv_format format, int tid)
{
    if (!weir_kv_seals_pages(format)) return;
    if (to->side == WEIR_KV_K)
        kv_seal_k(to, format, tid);
    else
        kv_seal_v(to, format, tid);
}
#pragma omp end declare target
