/* kernels/abi/kv_format.h - the number formats of KV rows: what a page part holds, where, and which
 * head widths a format takes.
 *
 * A page is the K part and then the V part of 64 tokens of one KV head; the two have formats of
 * their own. Parts, tiles and arrays start at multiples of 64 bytes. weir_kv_layout_of gives all
 * offsets. What the codes mean is in kernels/ref/kv_codec.h.
 *
 * K part: two tiles of 32 tokens, each  [scales][mins][codes], the token innermost. A lane is a
 * token, on SIMD registers and on warps:
 *
 *     f32 f16 bf16     codes [dim][32] values
 *     others           codes [word][32] of 32 bits: word w of token t holds dims w*n .. w*n+n-1,
 *                      dim i at bit bits*(i - w*n), n = 32/bits
 *                          8 bits: d0 d1 d2 d3 | 4 bits: d0 .. d7 | 2 bits: d0 .. d15      (past
 *                            the last dim: zeros)
 *                          3 bits: the words of the low 2 bits, then words of the high bit, 32 dims
 *                            each One load serves all dims of a word with shifts by constants;
 *                            8-bit words are what VNNI and dp4a multiply. A token owns its words,
 *                            so a row is written, moved and dropped without touching its
 *                            neighbours.
 *     q8_0 q4_0        scales [dim/32][32] f16
 *     fp8              scales [32] f32
 *     turbo            scales [32] f16
 *     kivi             scales [dim] f16, mins [dim] f16: of the 32 tokens of the tile
 *     int8             scales [dim] f16, mins [dim] f16: of the 64 tokens, once, before the first
 *                      tile
 *
 * V part: [scales][mins][codes], a row per token, the dim innermost. A lane is a dim; a row moves
 * as bytes:
 *
 *     f32 f16 bf16     codes [64][dim] values
 *     8 bits           codes [64][dim] bytes
 *     others           codes [64][dim/32 rounded up] blocks of 32 dims:
 *                          4 bits, 16 bytes: byte j holds dim j low, dim j+16 high
 *                          2 bits,  8 bytes: two words, dim i at bit 2*(i%16) of word i/16
 *                          3 bits, 12 bytes: the two words of the low 2 bits, then a word of the
 *                            high bits
 *     q8_0 q4_0        scales [64][dim/32] f16
 *     fp8              scales [64] f32
 *     turbo            scales [64] f16
 *     kivi             scales [64][dim/32] f16, mins [64][dim/32] f16: of 32 dims of a token
 *     int8             scales [dim] f16, mins [dim] f16: of the 64 tokens
 *
 * Open pages. int8 and kivi code values against their neighbours in time, so a page of them can
 * only be coded as a whole ("closed"). Until its 64th token is written, a page is open: its rows
 * stay wide, as f16, in memory beside the page (weir_kv_open_bytes: an f16 K part, then an f16 V
 * part, of the parts that need it; kivi's V needs it for quality only: recent values stay f16).
 * Writing token 63 codes the part from the f16 rows, whether rows came one at a time or all at
 * once: the same bits for any cut. Closed pages are never written again, so they can be shared;
 * dropping rows from one means dropping the page.
 *     What a query at position p reads: the rows of its own page wide, even its 64th, the rows of
 *     earlier pages closed.
 * That depends on positions alone, so prefill and decode give the same bits. A sequence thus keeps
 * at most one open page per layer and head between steps, and a step holds one for every page that
 * it writes to. The other formats code each row by itself, once, and every query reads the coded
 * row. Which layers use which format is the store's business; the first pages of a text may have
 * one of their own (weir_kv_sinks). */
#pragma once
#include <string.h>

#include "kernels/abi/dtype.h"
#include "kernels/abi/kv_page.h"

typedef enum weir_kv_scheme {
    WEIR_KV_PLAIN, /* a float per value */
    WEIR_KV_BLOCK, /* f16 scale per token and 32 dims */
    WEIR_KV_FLOAT8, /* f32 scale per token */
    WEIR_KV_CHANNEL, /* f16 scale and minimum per dim over the 64 tokens of a page, K and V */
    WEIR_KV_KIVI, /* f16 scale and minimum: K per dim over 32 tokens, V per token over 32 dims */
    WEIR_KV_TURBO, /* f16 scale per token, codes into a book of the row rotated by H D */
} weir_kv_scheme;

/*     name      text        bits  scheme  */
#define WEIR_KV_FORMAT_MAP(X)                                                                      \
    X(F32, "f32", 32, PLAIN)                                                                       \
    X(F16, "f16", 16, PLAIN)                                                                       \
    X(BF16, "bf16", 16, PLAIN)                                                                     \
    X(Q8_0, "q8_0", 8, BLOCK)                                                                      \
    X(Q4_0, "q4_0", 4, BLOCK)                                                                      \
    X(INT8, "int8", 8, CHANNEL)                                                                    \
    X(FP8_E4M3, "fp8_e4m3", 8, FLOAT8)                                                             \
    X(FP8_E5M2, "fp8_e5m2", 8, FLOAT8)                                                             \
    X(KIVI2, "kivi2", 2, KIVI)                                                                     \
    X(KIVI4, "kivi4", 4, KIVI)                                                                     \
    X(KIVI8, "kivi8", 8, KIVI)                                                                     \
    X(TURBO2, "turbo2", 2, TURBO)                                                                  \
    X(TURBO3, "turbo3", 3, TURBO)                                                                  \
    X(TURBO4, "turbo4", 4, TURBO)

typedef enum weir_kv_format {
#define X(name, text, bits, scheme) WEIR_KV_##name,
    WEIR_KV_FORMAT_MAP(X)
#undef X
        WEIR_KV_FORMAT_COUNT
} weir_kv_format;

typedef enum weir_kv_side { WEIR_KV_K, WEIR_KV_V } weir_kv_side;

/* Of the pages of a layer. */
typedef struct weir_kv_pair {
    weir_kv_format k, v;
} weir_kv_pair;

/* Pages 0 .. n_pages - 1 of every text have this pair, whatever the others of their layer have;
 * n_pages 0: there are none such. */
typedef struct weir_kv_sinks {
    weir_kv_pair pair;
    int32_t      n_pages;
} weir_kv_sinks;

static inline weir_kv_pair weir_kv_pair_at(weir_kv_pair others, weir_kv_sinks sinks, int64_t page)
{
    return page < sinks.n_pages ? sinks.pair : others;
}

enum {
    WEIR_KV_GROUP = 32, /* dims or tokens that share a scale */
    WEIR_KV_DIM_MAX = 576, /* MLA's latent rows                 */
    WEIR_KV_TURBO_DIM_MAX = 512,
    WEIR_KV_ALIGNMENT = 64,
};

/* ---- the table: switches, because kernels on devices ask too --------------------------------- */
static inline int weir_kv_bits(weir_kv_format format)
{
    switch (format) {
#define X(name, text, bits, scheme)                                                                \
    case WEIR_KV_##name: return bits;
        WEIR_KV_FORMAT_MAP(X)
#undef X
    case WEIR_KV_FORMAT_COUNT: break;
    }
    return 0;
}

static inline weir_kv_scheme weir_kv_scheme_of(weir_kv_format format)
{
    switch (format) {
#define X(name, text, bits, scheme)                                                                \
    case WEIR_KV_##name: return WEIR_KV_##scheme;
        WEIR_KV_FORMAT_MAP(X)
#undef X
    case WEIR_KV_FORMAT_COUNT: break;
    }
    return WEIR_KV_PLAIN;
}

/* As printed and as written in kv.format. */
static inline const char *weir_kv_format_name(weir_kv_format format)
{
    switch (format) {
#define X(name, text, bits, scheme)                                                                \
    case WEIR_KV_##name: return text;
        WEIR_KV_FORMAT_MAP(X)
#undef X
    case WEIR_KV_FORMAT_COUNT: break;
    }
    return "unknown";
}

/* The format of a name; COUNT if there is none. */
static inline weir_kv_format weir_kv_format_named(const char *name)
{
    int format = 0;
    while (format < WEIR_KV_FORMAT_COUNT &&
           strcmp(name, weir_kv_format_name((weir_kv_format)format)) != 0)
        format++;
    return (weir_kv_format)format;
}

/* A page part of this format is coded as a whole, and is wide until then: see "Open pages"
 * above. */
static inline bool weir_kv_needs_open(weir_kv_format format)
{
    const weir_kv_scheme scheme = weir_kv_scheme_of(format);
    return scheme == WEIR_KV_CHANNEL || scheme == WEIR_KV_KIVI;
}

/* Loses something beside f16's rounding: to be disclosed. */
static inline bool weir_kv_is_lossy(weir_kv_format format) { return weir_kv_bits(format) < 16; }

/* NULL, or why rows of `dim` values cannot be kept in this format. */
static inline const char *weir_kv_format_reject(weir_kv_format format, weir_kv_side side,
                                                int64_t dim)
{
    if (format < 0 || format >= WEIR_KV_FORMAT_COUNT) return "is no KV format";
    if (dim < 1 || dim > WEIR_KV_DIM_MAX) return "takes head widths from 1 to 576";
    const weir_kv_scheme scheme = weir_kv_scheme_of(format);
    if (scheme == WEIR_KV_BLOCK && dim % WEIR_KV_GROUP != 0)
        return "takes head widths that are multiples of 32";
    if (scheme == WEIR_KV_KIVI && side == WEIR_KV_V && dim % WEIR_KV_GROUP != 0)
        return "takes value widths that are multiples of 32";
    if (scheme == WEIR_KV_TURBO &&
        ((dim & (dim - 1)) != 0 || dim < 16 || dim > WEIR_KV_TURBO_DIM_MAX))
        return "takes head widths that are powers of two from 16 to 512";
    return NULL;
}

/* The same for pages with sinks among them, in terms of both sides. */
static inline const char *weir_kv_pages_reject(weir_kv_pair others, weir_kv_sinks sinks,
                                               int64_t key_dim, int64_t value_dim)
{
    const weir_kv_pair first = weir_kv_pair_at(others, sinks, 0);
    const char        *why = weir_kv_format_reject(others.k, WEIR_KV_K, key_dim);
    if (!why) why = weir_kv_format_reject(others.v, WEIR_KV_V, value_dim);
    if (!why) why = weir_kv_format_reject(first.k, WEIR_KV_K, key_dim);
    return why ? why : weir_kv_format_reject(first.v, WEIR_KV_V, value_dim);
}

/* Some page needs open rows. */
static inline bool weir_kv_any_open(weir_kv_pair others, weir_kv_sinks sinks)
{
    const weir_kv_pair first = weir_kv_pair_at(others, sinks, 0);
    return weir_kv_needs_open(others.k) || weir_kv_needs_open(others.v) ||
           weir_kv_needs_open(first.k) || weir_kv_needs_open(first.v);
}

/* ---- layout ---------------------------------------------------------------------------------- */
/* Byte offsets in a part: of tile 0 (K) or token 0 (V), and the step to the next tile or token.
 * `mins` means something for int8 and kivi only. */
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
    const weir_kv_scheme scheme = weir_kv_scheme_of(format);
    const int            bits = weir_kv_bits(format);
    const int64_t        codes = WEIR_TILE_TOKENS *
                          (scheme == WEIR_KV_PLAIN ? dim * bits / 8 : 4 * weir_kv_words(bits, dim));
    int64_t scales = 0, mins = 0;
    if (scheme == WEIR_KV_BLOCK) scales = dim / WEIR_KV_GROUP * WEIR_TILE_TOKENS * 2;
    if (scheme == WEIR_KV_FLOAT8) scales = WEIR_TILE_TOKENS * 4;
    if (scheme == WEIR_KV_TURBO) scales = WEIR_TILE_TOKENS * 2;
    if (scheme == WEIR_KV_KIVI || scheme == WEIR_KV_CHANNEL) scales = mins = weir_kv_align(dim * 2);
    const int64_t once = scheme == WEIR_KV_CHANNEL ? scales + mins : 0,
                  tile = scales + mins - once + weir_kv_align(codes);
    const int64_t step = once > 0 ? 0 : tile;
    return (weir_kv_layout){ .scales = 0,
                             .mins = scales,
                             .codes = scales + mins,
                             .scales_step = step,
                             .mins_step = step,
                             .codes_step = tile,
                             .bytes = once + WEIR_PAGE_TOKENS / WEIR_TILE_TOKENS * tile };
}

static inline weir_kv_layout weir_kv_layout_v(weir_kv_format format, int64_t dim)
{
    const weir_kv_scheme scheme = weir_kv_scheme_of(format);
    const int64_t        row = weir_kv_row_codes(weir_kv_bits(format), dim);
    int64_t              step = 0;
    if (scheme == WEIR_KV_BLOCK || scheme == WEIR_KV_KIVI) step = dim / WEIR_KV_GROUP * 2;
    if (scheme == WEIR_KV_FLOAT8) step = 4;
    if (scheme == WEIR_KV_TURBO) step = 2;
    const int64_t scales =
        weir_kv_align(scheme == WEIR_KV_CHANNEL ? dim * 2 : WEIR_PAGE_TOKENS * step);
    const int64_t codes = scheme == WEIR_KV_KIVI || scheme == WEIR_KV_CHANNEL ? 2 * scales : scales;
    return (weir_kv_layout){ .scales = 0,
                             .mins = scales,
                             .codes = codes,
                             .scales_step = step,
                             .mins_step = scheme == WEIR_KV_KIVI ? step : 0,
                             .codes_step = row,
                             .bytes = codes + weir_kv_align(WEIR_PAGE_TOKENS * row) };
}

static inline weir_kv_layout weir_kv_layout_of(weir_kv_format format, weir_kv_side side,
                                               int64_t dim)
{
    return side == WEIR_KV_K ? weir_kv_layout_k(format, dim) : weir_kv_layout_v(format, dim);
}

static inline int64_t weir_kv_part_bytes(weir_kv_format format, weir_kv_side side, int64_t dim)
{
    return weir_kv_layout_of(format, side, dim).bytes;
}

/* Where the V part begins. The widths were accepted by weir_kv_format_reject: nothing here
 * overflows. */
static inline int64_t weir_kv_v_part(weir_kv_format k_format, int64_t key_dim)
{
    return weir_kv_part_bytes(k_format, WEIR_KV_K, key_dim);
}

static inline int64_t weir_kv_bytes(weir_kv_format k_format, weir_kv_format v_format,
                                    int64_t key_dim, int64_t value_dim)
{
    return weir_kv_v_part(k_format, key_dim) + weir_kv_part_bytes(v_format, WEIR_KV_V, value_dim);
}

/* The same for the wide rows of an open page; 0 bytes when no part needs them. */
static inline int64_t weir_kv_open_v_part(weir_kv_format k_format, int64_t key_dim)
{
    return weir_kv_needs_open(k_format) ? weir_kv_part_bytes(WEIR_KV_F16, WEIR_KV_K, key_dim) : 0;
}

static inline int64_t weir_kv_open_bytes(weir_kv_format k_format, weir_kv_format v_format,
                                         int64_t key_dim, int64_t value_dim)
{
    return weir_kv_open_v_part(k_format, key_dim) +
           (weir_kv_needs_open(v_format) ? weir_kv_part_bytes(WEIR_KV_F16, WEIR_KV_V, value_dim)
                                         : 0);
}

/* What is coded of a value: a NaN counts as 0 and the rest is held within f16's finite range, so
 * that one bad element cannot spoil the scale of its neighbours. f32, f16 and bf16 keep every value
 * as it is. */
static inline float weir_kv_finite(float x)
{
    x = x == x ? x : 0.0f;
    x = x < -65504.0f ? -65504.0f : x;
    return x > 65504.0f ? 65504.0f : x;
}

/* ---- turbo: D and the book ------------------------------------------------------------------- */
/* D of the rotation, +1 or -1: fixed, because pages are saved and shared; K and V differ. */
static inline float weir_kv_sign(weir_kv_side side, int64_t dim)
{
    uint32_t x = ((uint32_t)dim * 2u + (uint32_t)side + 1u) * 0x9E3779B9u;
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return (x ^ x >> 16) & 1u ? -1.0f : 1.0f;
}

/* 1 / sqrt(dim), dim a power of two: the scale of an orthonormal H. */
static inline float weir_kv_orthonormal(int64_t dim)
{
    float scale = 1.0f;
    for (; dim >= 4; dim /= 4) scale *= 0.5f;
    return dim == 2 ? scale * 0.70710678f : scale;
}

/* Lloyd-Max centroids of the standard normal, the positive half; code 2^(bits-1) + i is centroid i,
 * code 2^(bits-1) - 1 - i its negative. */
#define WEIR_KV_BOOK2 0.452780f, 1.510418f
#define WEIR_KV_BOOK3 0.245094f, 0.756005f, 1.343909f, 2.151946f
#define WEIR_KV_BOOK4                                                                              \
    0.128395f, 0.388048f, 0.656759f, 0.942340f, 1.256231f, 1.618046f, 2.069017f, 2.732590f
