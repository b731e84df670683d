/* kernels/omp/kv_tile.h - coded KV rows (kernels/abi/kv_format.h) to f32, a tile of 32 tokens by 32
 * dims at a time: what fits in L1 or in a team's shared memory together with the queries. The
 * arithmetic of a scheme is in kernels/kv/<scheme>/tile.h.
 *
 *   K   out [32 dims][32 tokens], the token innermost: what score_tile of attention_tile.h
 *       multiplies
 *   V   out [32 dims] of a token
 * Turbo's rows stay rotated, H D x: attention multiplies them with kv_hadamard(D q), and rotates
 * its sum of V back by kv_hadamard and then D. Every value is what kernels/ref/kv_codec.c decodes,
 * to the bit: codes times scales are exact products (8 + 11 bits), except for fp8 and turbo, which
 * round once, without a sum after it that could be fused. Cost per value and lane: a shift, a mask,
 * a conversion, a product; a word is loaded once for its 4 to 16 dims. Formats are constants of the
 * inlined code: callers switch with KV_FORMAT_SWITCH outside their loops. */
#pragma once
#include "kernels/omp/lanes.h"

enum {
    KV_GROUP = WEIR_KV_GROUP,
    KV_LANE_THREADS = LANE_THREADS < KV_GROUP
                          ? LANE_THREADS
                          : KV_GROUP, /* threads side by side in a group of 32  */
    /* Groups of 32 that a team expands at a time. */
    KV_GROUP_THREADS = LANE_THREADS / KV_LANE_THREADS,
    KV_VECTORS = KV_GROUP / (KV_LANE_THREADS * LANE_WIDTH),
};

/* The statement with `format` as a constant. */
#define KV_FORMAT_CASE_(name, statement)                                                           \
    case WEIR_KV_##name: {                                                                         \
        const weir_kv_format format = WEIR_KV_##name;                                              \
        statement break;                                                                           \
    }
#define KV_FORMAT_CASE(name, ...) KV_FORMAT_CASE_(name, KV_FORMAT_STATEMENT)
#define KV_FORMAT_SWITCH(value)                                                                    \
    switch (value) {                                                                               \
        WEIR_KV_FORMAT_MAP(KV_FORMAT_CASE)                                                         \
    case WEIR_KV_FORMAT_COUNT: break;                                                              \
    }

#pragma omp declare target

/* ---- codes to values ------------------------------------------------------------------------- */
#define WEIR_KV_PART tile.h
#include "kernels/kv/schemes.inc"

/* The upper bits of `code` are zero, unless the format is read directly. */
WEIR_INLINE lane_float
kv_value(const weir_kv_format format, lane_uint code, lane_float scale, lane_float min)
{
    switch (weir_kv_scheme_of(format)) {
#define WEIR_KV_SCHEME(NAME, name, ...)                                                            \
    case WEIR_KV_##NAME: return kv_##name##_value(format, code, scale, min);
#include "kernels/kv/schemes.inc"
    }
    return (lane_float)0.0f;
}

/* ---- K --------------------------------------------------------------------------------------- */
/* The scale of a lane's tokens for the 32 dims from `first` on; 1 if scales belong to dims. */
WEIR_INLINE lane_float
kv_k_scale(const weir_kv_format format, const char *scales, int64_t first, int64_t token)
{
    const weir_kv_scales of = weir_kv_scales_of(format, WEIR_KV_K);
    const int64_t index = weir_kv_scale_index(format, WEIR_KV_K, token, first);
    if (of != WEIR_KV_SCALES_TOKEN && of != WEIR_KV_SCALES_GROUP) return (lane_float)1.0f;
    return weir_kv_scale_bytes(format) == 4 ? lane_load((const float *)scales + index)
                                            : lane_load_half((const _Float16 *)scales + index);
}

/* Expands dims [first, first + 32) of tile `tile` (0 or 1) of a K part, first a multiple of 32;
 * dims past the last are not written. Threads share the tile: needs a barrier before others read
 * it. */
WEIR_INLINE void kv_expand_k(
    float *restrict out, const void *part, const weir_kv_format format, int64_t dim, int64_t tile,
    int64_t first, int tid
)
{
    const weir_kv_layout layout = weir_kv_layout_k(format, dim);
    const weir_kv_scheme scheme = weir_kv_scheme_of(format);
    const char *const scales = (const char *)part + layout.scales + tile * layout.scales_step;
    const char *const mins = (const char *)part + layout.mins + tile * layout.mins_step;
    const char *const codes = (const char *)part + layout.codes + tile * layout.codes_step;
    const bool per_dim = weir_kv_seals_pages(format);
    const int bits = weir_kv_bits(format),
              low = bits == 3  ? 2
                    : bits < 8 ? bits
                               : 8,
              per = scheme == WEIR_KV_PLAIN ? 1 : 32 / low;
    const int64_t n = dim - first < KV_GROUP ? dim - first : KV_GROUP;
    UNROLL
    for (int v = 0; v < KV_VECTORS; v++) {
        const int64_t token = (v * KV_LANE_THREADS + tid % KV_LANE_THREADS) * LANE_WIDTH;
        const lane_float scale = kv_k_scale(format, scales, first, token);
        lane_uint high = (lane_uint)0u;
        if (bits == 3)
            high = lane_load_words(
                (const uint32_t *)codes +
                (weir_kv_words(2, dim) + first / KV_GROUP) * WEIR_TILE_TOKENS + token
            );
        for (int64_t w = tid / KV_LANE_THREADS; w * per < n; w += KV_GROUP_THREADS) {
            if (scheme == WEIR_KV_PLAIN) {
                lane_store(
                    out + w * WEIR_TILE_TOKENS + token,
                    kv_load_plain(format, codes, (first + w) * WEIR_TILE_TOKENS + token)
                );
                continue;
            }
            const lane_uint word = lane_load_words(
                (const uint32_t *)codes + (first / per + w) * WEIR_TILE_TOKENS + token
            );
            UNROLL
            for (int i = 0; i < per; i++) {
                const int64_t d = w * per + i;
                if (d >= n) break;
                lane_uint code = word >> (uint32_t)(low * i) & ((1u << low) - 1u);
                if (bits == 3) code |= (high >> (uint32_t)d & 1u) << 2;
                const lane_float step =
                    per_dim ? (lane_float)lane_half(scales + (first + d) * 2) : scale;
                const lane_float base =
                    per_dim ? (lane_float)lane_half(mins + (first + d) * 2) : (lane_float)0.0f;
                lane_store(out + d * WEIR_TILE_TOKENS + token, kv_value(format, code, step, base));
            }
        }
    }
}

/* ---- V --------------------------------------------------------------------------------------- */
/* Codes of a lane's dims i, i + 1, ... of the block of 32 at `block`; of 4 bits with others above
 * them. */
WEIR_INLINE lane_uint kv_v_codes(const int bits, const char *block, int i)
{
    if (bits == 8) return lane_load_bytes((const uint8_t *)block + i);
    if (bits == 4)
        return lane_load_bytes((const uint8_t *)block + i % 16) >> (uint32_t)(i / 16 * 4);
    const uint32_t *const words = (const uint32_t *)block;
    const lane_uint at = (lane_uint)(lane_iota() + i);
    lane_uint code = (lane_uint)words[i / 16] >> ((at & 15u) * 2u) & 3u;
    if (bits == 3) code |= ((lane_uint)words[2] >> at & 1u) << 2;
    return code;
}

/* Scale number `index` of a token. */
WEIR_INLINE float kv_v_scale(const weir_kv_format format, const char *scales, int64_t index)
{
    return weir_kv_scale_bytes(format) == 4 ? ((const float *)scales)[index]
                                            : lane_half(scales + index * 2);
}

/* A lane's dims from d on, all of one block of 32. */
WEIR_INLINE lane_float kv_v_lanes(
    const weir_kv_format format, const weir_kv_layout *layout, const char *part, int64_t token,
    int64_t d
)
{
    const char *const row = part + layout->codes + token * layout->codes_step;
    if (weir_kv_scheme_of(format) == WEIR_KV_PLAIN) return kv_load_plain(format, row, d);
    const int bits = weir_kv_bits(format);
    const int64_t first = d / KV_GROUP * KV_GROUP,
                  index = weir_kv_scale_index(format, WEIR_KV_V, token, d);
    const char *scales = part + layout->scales + token * layout->scales_step,
               *mins = part + layout->mins + token * layout->mins_step;
    const lane_uint code =
        kv_v_codes(bits, row + first / KV_GROUP * 4 * bits, (int)(d - first)) & ((1u << bits) - 1u);
    if (weir_kv_scales_of(format, WEIR_KV_V) == WEIR_KV_SCALES_PAGE)
        return kv_value(
            format, code, lane_load_half((const _Float16 *)scales + index),
            lane_load_half((const _Float16 *)mins + index)
        );
    const float scale = kv_v_scale(format, scales, index),
                min = weir_kv_seals_pages(format) ? lane_half(mins + index * 2) : 0.0f;
    return kv_value(format, code, (lane_float)scale, (lane_float)min);
}

/* Expands dims [first, first + 32) of a token of a V part, by the threads of one group of 32. A
 * last vector that is not full is read from a copy: in place it would reach past the page. Dims
 * past the last are not written. */
WEIR_INLINE void kv_expand_v(
    float *restrict out, const void *part, const weir_kv_format format, int64_t dim, int64_t token,
    int64_t first, int tid
)
{
    const weir_kv_layout layout = weir_kv_layout_v(format, dim);
    const int64_t n = dim - first;
    UNROLL
    for (int v = 0; v < KV_VECTORS; v++) {
        const int64_t i = (v * KV_LANE_THREADS + tid % KV_LANE_THREADS) * LANE_WIDTH;
        if (i >= n) break;
        if (i + LANE_WIDTH <= n) {
            lane_store(out + i, kv_v_lanes(format, &layout, part, token, first + i));
            continue;
        }
        /* The last dims of the row are read from a copy of the row's end that has a whole
         * vector. */
        const int64_t left = n - i, bytes = weir_kv_bits(format) / 8;
        _Alignas(64) char end[LANE_WIDTH * 4] = { 0 };
        _Alignas(64) char scale_end[LANE_WIDTH * 2] = { 0 }, min_end[LANE_WIDTH * 2] = { 0 };
        const char *const row =
            (const char *)part + layout.codes + token * layout.codes_step + (first + i) * bytes;
        lane_float value;
        __builtin_memcpy(end, row, (size_t)(left * bytes));
        if (weir_kv_scheme_of(format) == WEIR_KV_PLAIN) {
            value = kv_load_plain(format, end, 0);
        } else if (weir_kv_scales_of(format, WEIR_KV_V) == WEIR_KV_SCALES_PAGE) {
            __builtin_memcpy(
                scale_end, (const char *)part + layout.scales + (first + i) * 2, (size_t)(left * 2)
            );
            __builtin_memcpy(
                min_end, (const char *)part + layout.mins + (first + i) * 2, (size_t)(left * 2)
            );
            value = kv_value(
                format, lane_load_bytes((const uint8_t *)end),
                lane_load_half((const _Float16 *)scale_end),
                lane_load_half((const _Float16 *)min_end)
            );
        } else {
            const float scale = kv_v_scale(
                format, (const char *)part + layout.scales + token * layout.scales_step, 0
            );
            value = kv_value(
                format, lane_load_bytes((const uint8_t *)end), (lane_float)scale, (lane_float)0.0f
            );
        }
        lane_store_part(out + i, value, left);
    }
}

#pragma omp end declare target
