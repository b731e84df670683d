/* kernels/abi/kv_layout.h - the offsets of scales, minimums and codes in a page part, and the
 * widths that a format supports. Part of kv_format.h, which includes it. */
#pragma once

/* Scales and minimums of one tile (K) or one token (V), in bytes; 0: the scheme has none. */
typedef struct weir_kv_arrays {
    int64_t scales, mins;
    bool are_of_page; /* stored once for the part, not per tile or token */
} weir_kv_arrays;

#define WEIR_KV_PART layout.h
#include "kernels/kv/schemes.inc"

/* Returns NULL, or why rows of `dim` values cannot have this format. Pages whose values alias their
 * keys have no V part: V rows of 0 values. */
static inline const char *weir_kv_format_reject(
    weir_kv_format format, weir_kv_side side, int64_t dim
)
{
    if (format < 0 || format >= WEIR_KV_FORMAT_COUNT) return "is no KV format";
    if (side == WEIR_KV_V && dim == 0) return NULL;
    if (dim < 1 || dim > WEIR_KV_DIM_MAX) return "takes head widths from 1 to 576";
    switch (weir_kv_scheme_of(format)) {
#define WEIR_KV_SCHEME(NAME, name, ...)                                                            \
    case WEIR_KV_##NAME: return weir_kv_##name##_reject(side, dim);
#include "kernels/kv/schemes.inc"
    }
    return NULL;
}

static inline weir_kv_arrays weir_kv_arrays_of(
    weir_kv_format format, weir_kv_side side, int64_t dim
)
{
    const weir_kv_scales scales = weir_kv_scales_of(format, side);
    const int64_t rows = side == WEIR_KV_K ? WEIR_TILE_TOKENS : 1,
                  n = scales == WEIR_KV_SCALES_NONE    ? 0
                      : scales == WEIR_KV_SCALES_TOKEN ? rows
                      : scales == WEIR_KV_SCALES_GROUP ? dim / WEIR_KV_GROUP * rows
                                                       : dim,
                  bytes = n * weir_kv_scale_bytes(format);
    const weir_kv_arrays arrays = { bytes, weir_kv_seals_pages(format) ? bytes : 0,
                                    scales == WEIR_KV_SCALES_PAGE };
    return arrays;
}

/* Index in its array of the scale, and of the minimum, of dim d of token t of a tile (K) or of any
 * token (V). */
static inline int64_t weir_kv_scale_index(
    weir_kv_format format, weir_kv_side side, int64_t t, int64_t d
)
{
    switch (weir_kv_scales_of(format, side)) {
    case WEIR_KV_SCALES_NONE: return 0;
    case WEIR_KV_SCALES_TOKEN: return side == WEIR_KV_K ? t : 0;
    case WEIR_KV_SCALES_GROUP:
        return side == WEIR_KV_K ? d / WEIR_KV_GROUP * WEIR_TILE_TOKENS + t : d / WEIR_KV_GROUP;
    case WEIR_KV_SCALES_DIM:
    case WEIR_KV_SCALES_PAGE: return d;
    }
    return 0;
}

/* How many scales in a tile of K belong to one row alone. */
static inline int64_t weir_kv_row_scales(weir_kv_format format, int64_t dim)
{
    const weir_kv_scales scales = weir_kv_scales_of(format, WEIR_KV_K);
    return scales == WEIR_KV_SCALES_GROUP ? dim / WEIR_KV_GROUP : scales == WEIR_KV_SCALES_TOKEN;
}

/* The same for both sides of pages and sinks. */
static inline const char *weir_kv_pages_reject(
    weir_kv_pair others, weir_kv_sinks sinks, int64_t key_dim, int64_t value_dim
)
{
    const weir_kv_pair first = weir_kv_pair_at(others, sinks, 0);
    const char *why = weir_kv_format_reject(others.k, WEIR_KV_K, key_dim);
    if (!why) why = weir_kv_format_reject(others.v, WEIR_KV_V, value_dim);
    if (!why) why = weir_kv_format_reject(first.k, WEIR_KV_K, key_dim);
    return why ? why : weir_kv_format_reject(first.v, WEIR_KV_V, value_dim);
}

/* The same for K alone. */
static inline const char *weir_kv_keys_reject(
    weir_kv_format others, weir_kv_sinks sinks, int64_t key_dim
)
{
    const weir_kv_format first = sinks.n_pages > 0 ? sinks.pair.k : others;
    const char *const why = weir_kv_format_reject(others, WEIR_KV_K, key_dim);
    return why ? why : weir_kv_format_reject(first, WEIR_KV_K, key_dim);
}

/* Returns NULL, or why the first value_dim values of a key of such pages cannot be a value. V's
 * formats are not read. */
static inline const char *weir_kv_alias_reject(
    weir_kv_format others, weir_kv_sinks sinks, int64_t key_dim, int64_t value_dim
)
{
    const weir_kv_format first = sinks.n_pages > 0 ? sinks.pair.k : others;
    const char *const why = weir_kv_keys_reject(others, sinks, key_dim);
    if (why) return why;
    if (value_dim > key_dim) return "values that alias keys are wider than these";
    return weir_kv_is_rotated(others) || weir_kv_is_rotated(first)
               ? "codes are of rotated keys: their dims are no values"
               : NULL;
}

/* True if some page needs unsealed rows. */
static inline bool weir_kv_any_unsealed(weir_kv_pair others, weir_kv_sinks sinks)
{
    const weir_kv_pair first = weir_kv_pair_at(others, sinks, 0);
    return weir_kv_seals_pages(others.k) || weir_kv_seals_pages(others.v) ||
           weir_kv_seals_pages(first.k) || weir_kv_seals_pages(first.v);
}

/* ---- layout ---------------------------------------------------------------------------------- */
/* Byte offsets in a part: of tile 0 (K) or token 0 (V), and the step to the next tile or token.
 * `mins` is valid if a page is coded as a whole. */
typedef struct weir_kv_layout {
    int64_t scales, mins, codes;
    int64_t scales_step, mins_step, codes_step;
    int64_t bytes; /* of the part */
} weir_kv_layout;

static inline int64_t weir_kv_align(int64_t bytes)
{
    return (bytes + WEIR_KV_ALIGNMENT - 1) / WEIR_KV_ALIGNMENT * WEIR_KV_ALIGNMENT;
}

/* K: 32-bit words per token. */
static inline int64_t weir_kv_words(int bits, int64_t dim)
{
    if (bits == 3) return (dim + 15) / 16 + (dim + 31) / 32;
    return (dim + 32 / bits - 1) / (32 / bits);
}

/* V: bytes of the codes of a row. */
static inline int64_t weir_kv_row_codes(int bits, int64_t dim)
{
    return bits >= 8 ? dim * bits / 8 : (dim + WEIR_KV_GROUP - 1) / WEIR_KV_GROUP * 4 * bits;
}

static inline weir_kv_layout weir_kv_layout_k(weir_kv_format format, int64_t dim)
{
    const int bits = weir_kv_bits(format);
    const weir_kv_arrays arrays = weir_kv_arrays_of(format, WEIR_KV_K, dim);
    const bool is_plain = weir_kv_scheme_of(format) == WEIR_KV_PLAIN;
    const int64_t scales = weir_kv_align(arrays.scales), mins = weir_kv_align(arrays.mins),
                  codes =
                      WEIR_TILE_TOKENS * (is_plain ? dim * bits / 8 : 4 * weir_kv_words(bits, dim)),
                  once = arrays.are_of_page ? scales + mins : 0,
                  tile = scales + mins - once + weir_kv_align(codes),
                  step = arrays.are_of_page ? 0 : tile;
    const weir_kv_layout layout = { .scales = 0,
                                    .mins = scales,
                                    .codes = scales + mins,
                                    .scales_step = step,
                                    .mins_step = step,
                                    .codes_step = tile,
                                    .bytes = once + WEIR_PAGE_TOKENS / WEIR_TILE_TOKENS * tile };
    return layout;
}

static inline weir_kv_layout weir_kv_layout_v(weir_kv_format format, int64_t dim)
{
    const weir_kv_arrays arrays = weir_kv_arrays_of(format, WEIR_KV_V, dim);
    const int64_t row = weir_kv_row_codes(weir_kv_bits(format), dim),
                  n = arrays.are_of_page ? 1 : WEIR_PAGE_TOKENS,
                  scales = weir_kv_align(n * arrays.scales), mins = weir_kv_align(n * arrays.mins);
    const weir_kv_layout none = { 0, 0, 0, 0, 0, 0, 0 };
    if (dim == 0) return none;
    const weir_kv_layout layout = { .scales = 0,
                                    .mins = scales,
                                    .codes = scales + mins,
                                    .scales_step = arrays.are_of_page ? 0 : arrays.scales,
                                    .mins_step = arrays.are_of_page ? 0 : arrays.mins,
                                    .codes_step = row,
                                    .bytes =
                                        scales + mins + weir_kv_align(WEIR_PAGE_TOKENS * row) };
    return layout;
}

static inline weir_kv_layout weir_kv_layout_of(
    weir_kv_format format, weir_kv_side side, int64_t dim
)
{
    return side == WEIR_KV_K ? weir_kv_layout_k(format, dim) : weir_kv_layout_v(format, dim);
}

static inline int64_t weir_kv_part_bytes(weir_kv_format format, weir_kv_side side, int64_t dim)
{
    return weir_kv_layout_of(format, side, dim).bytes;
}

/* Offset of the V part. The widths must have been accepted by weir_kv_format_reject, so nothing
 * overflows. */
static inline int64_t weir_kv_v_part(weir_kv_format k_format, int64_t key_dim)
{
    return weir_kv_part_bytes(k_format, WEIR_KV_K, key_dim);
}

static inline int64_t weir_kv_bytes(
    weir_kv_format k_format, weir_kv_format v_format, int64_t key_dim, int64_t value_dim
)
{
    return weir_kv_v_part(k_format, key_dim) + weir_kv_part_bytes(v_format, WEIR_KV_V, value_dim);
}

/* The same for the f16 rows of an unsealed page; 0 bytes if no part needs them. */
static inline int64_t weir_kv_unsealed_v_part(weir_kv_format k_format, int64_t key_dim)
{
    return weir_kv_seals_pages(k_format) ? weir_kv_part_bytes(WEIR_KV_F16, WEIR_KV_K, key_dim) : 0;
}

static inline int64_t weir_kv_unsealed_bytes(
    weir_kv_format k_format, weir_kv_format v_format, int64_t key_dim, int64_t value_dim
)
{
    return weir_kv_unsealed_v_part(k_format, key_dim) +
           (weir_kv_seals_pages(v_format) ? weir_kv_part_bytes(WEIR_KV_F16, WEIR_KV_V, value_dim)
                                          : 0);
}

/* The value that is coded: NaN counts as 0 and others are clamped to f16's finite range, so that
 * one bad element cannot spoil its neighbours' scale. f32, f16 and bf16 keep every value. */
static inline float weir_kv_finite(float x)
{
    x = x == x ? x : 0.0f;
    x = x < -65504.0f ? -65504.0f : x;
    return x > 65504.0f ? 65504.0f : x;
}
