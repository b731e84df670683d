/* kernels/omp/attention_formats.h - how attention reads the tiles of a page (the column `attention`
 * of the table in kernels/abi/kv_format.h).
 *
 *   DIRECT     codes become floats in registers, between the load and the product. A token's scale
 *              stays outside the sum over dims: K multiplies the score by it, V the weight.
 *   EXPANDED   32 dims of K or a chunk of V are converted to f32 in team memory and read like f32
 *              pages; also for ends of V rows that do not fill a chunk. The functions that expand
 *              are not inlined, so a format costs one small loop and not one per register block.
 * K and V are chosen separately: any pair of formats works without code of its own. The choice
 * depends only on format and width. */
#pragma once
#include "kernels/abi/kv_format_text.h"
#include "kernels/omp/kv_tile.h"

enum {
    TILE = WEIR_TILE_TOKENS,
    /* Dims of V that the team holds in one set of registers. */
    VECTORS_DIMS = LANE_THREADS * LANE_WIDTH * LANE_VECTORS,
    /* Dims of V that are expanded at a time. */
    CHUNK = VECTORS_DIMS > KV_GROUP ? VECTORS_DIMS : KV_GROUP,
};

/* One side of a tile: `token` is its first in the page. */
typedef struct tile_source {
    const char *part;
    int64_t token;
    weir_kv_format format; /* f16 if unsealed rows are read */
} tile_source;

/* True if this build reads all formats. GPUs read those of the column `device`, all pages in one:
 * with more formats in one kernel ptxas spills (452 bytes on sm_90). */
#define WEIR_PLAIN_ONLY_nvptx 1
#if WEIR_PASTE3(WEIR_PLAIN_, ONLY, WEIR_ISA)
#define READS_CODED 0
#else
#define READS_CODED 1
#endif
/* A constant: this build reads pages of a format with `device` in that column. */
#define READS(device) (READS_CODED || WEIR_KV_DEVICE_##device)

/* PAGE_FORMAT_STATEMENT with the format of all pages as a constant, if there is only one: that
 * leaves nothing of others in the registers. */
#if READS_CODED
#define PAGE_FORMAT_SWITCH(value)                                                                  \
    {                                                                                              \
        const weir_kv_format format = (value);                                                     \
        PAGE_FORMAT_STATEMENT                                                                      \
    }
#else
#define PAGE_FORMAT_NONE(name)
#define PAGE_FORMAT_READ(name) KV_FORMAT_CASE_(name, PAGE_FORMAT_STATEMENT)
#define PAGE_FORMAT_CASE(name, text, bits, scheme, coded, attention, device, cuda)                 \
    PAGE_FORMAT_##device(name)
#define PAGE_FORMAT_SWITCH(value)                                                                  \
    switch (value) {                                                                               \
        WEIR_KV_FORMAT_MAP(PAGE_FORMAT_CASE)                                                       \
    default: break;                                                                                \
    }
#endif

#define CHECK_EXPANDED(scheme)
#define CHECK_DIRECT(scheme)                                                                       \
    _Static_assert(                                                                                \
        WEIR_KV_##scheme##_SCALE_BYTES <= 2 && WEIR_KV_##scheme##_K_SCALES < WEIR_KV_SCALES_DIM && \
            WEIR_KV_##scheme##_V_SCALES < WEIR_KV_SCALES_DIM,                                      \
        "scales of tokens or groups, f16"                                                          \
    );
#define X(name, text, bits, scheme, coded, attention, ...) CHECK_##attention(scheme)
WEIR_KV_FORMAT_MAP(X)
#undef X
#undef CHECK_EXPANDED
#undef CHECK_DIRECT

/* NULL, or why this build's attention cannot read pages of these formats. */
static inline const char *pages_reject(weir_kv_pair others, weir_kv_pair first)
{
    if (READS_CODED) return NULL;
    if (others.k != others.v || !weir_kv_is_read_on_devices(others.k))
        return "GPUs read KV in" WEIR_KV_DEVICE_READ_TEXT;
    return first.k != others.k || first.v != others.v ? "GPUs read all pages in one format" : NULL;
}

/* The same for kernels that read K alone. */
static inline const char *key_pages_reject(weir_kv_format others, weir_kv_sinks sinks)
{
    const weir_kv_format first = sinks.n_pages > 0 ? sinks.pair.k : others;
    return pages_reject((weir_kv_pair){ others, others }, (weir_kv_pair){ first, first });
}

#pragma omp declare target
/* True if pages of either format hold rotated rows. */
WEIR_INLINE bool any_rotated(weir_kv_format first, weir_kv_format others)
{
    return READS_CODED && (weir_kv_is_rotated(first) || weir_kv_is_rotated(others));
}

/* Rows of 16 dims do not fill a block of codes. */
WEIR_INLINE bool is_direct_v(weir_kv_format format, int64_t value_dim)
{
    return weir_kv_is_direct(format) && (weir_kv_bits(format) >= 8 || value_dim >= KV_GROUP);
}

/* The scales of a V tile that go into the weights, f16 [32]; NULL: values are multiplied as they
 * are. */
WEIR_INLINE const _Float16 *weight_scales(const tile_source *v, int64_t value_dim)
{
    if (!READS_CODED || weir_kv_scales_of(v->format, WEIR_KV_V) != WEIR_KV_SCALES_TOKEN ||
        !is_direct_v(v->format, value_dim))
        return NULL;
    return (const _Float16 *)(v->part + weir_kv_layout_v(v->format, value_dim).scales) + v->token;
}

/* ---- K --------------------------------------------------------------------------------------- */
/* Offsets of codes and scales of a K tile. */
typedef struct key_tile {
    const char *codes, *scales;
} key_tile;

WEIR_INLINE key_tile key_tile_of(const tile_source *k, const weir_kv_format format, int64_t key_dim)
{
    const weir_kv_layout layout = weir_kv_layout_k(format, key_dim);
    const int64_t tile = k->token / TILE;
    return (key_tile){ k->part + layout.codes + tile * layout.codes_step,
                       k->part + layout.scales + tile * layout.scales_step };
}

/* Dim i of a word, without its scale. */
WEIR_INLINE lane_float key_of_word(const weir_kv_format format, lane_uint word, const int i)
{
    const lane_uint code = word >> (uint32_t)(weir_kv_bits(format) * i);
    return kv_value(format, code, (lane_float)1.0f, (lane_float)0.0f);
}

/* Expands dims [first, first + 32) of a K tile to block [32 dims][32 tokens]. Takes no address of a
 * local variable: on devices those of functions that are not inlined go to local memory. */
WEIR_NOINLINE void expand_keys(
    float *block, const char *part, weir_kv_format page_format, int64_t key_dim, int64_t tile,
    int64_t first, int tid
)
{
#define KV_FORMAT_STATEMENT                                                                        \
    if (!weir_kv_is_direct(format)) kv_expand_k(block, part, format, key_dim, tile, first, tid);
    KV_FORMAT_SWITCH(page_format)
#undef KV_FORMAT_STATEMENT
}

/* ---- V --------------------------------------------------------------------------------------- */
/* Rows of 32 tokens: token t's start at codes + t * codes_step, its scales at scales + t *
 * scales_step. */
typedef struct value_tile_rows {
    const char *codes, *scales, *next_codes, *next_scales;
    int64_t codes_step, scales_step;
} value_tile_rows;

WEIR_INLINE value_tile_rows
value_rows_of(const tile_source *v, const tile_source *next, int64_t value_dim)
{
    const weir_kv_layout layout = weir_kv_layout_v(v->format, value_dim);
    const int64_t codes = layout.codes + v->token * layout.codes_step,
                  scales = layout.scales + v->token * layout.scales_step;
    /* Otherwise it is another page, unsealed, and far away. */
    const bool alike = next->format == v->format;
    return (value_tile_rows){
        .codes = v->part + codes,
        .scales = v->part + scales,
        .next_codes =
            alike ? next->part + layout.codes + next->token * layout.codes_step : v->part + codes,
        .next_scales = alike ? next->part + layout.scales + next->token * layout.scales_step
                             : v->part + scales,
        .codes_step = layout.codes_step,
        .scales_step = layout.scales_step,
    };
}

/* Vector v of token t's dims from d on, without scales. */
WEIR_INLINE lane_float value_lanes(
    const value_tile_rows *rows, const weir_kv_format format, int64_t t, int64_t d, const int v
)
{
    const char *const row = rows->codes + t * rows->codes_step;
    const int bits = weir_kv_bits(format);
    if (bits >= 16) return kv_load_plain(format, row, d + v * LANE_WIDTH);
    const int i =
        (LANE_THREADS == 1 && VECTORS_DIMS == KV_GROUP ? 0 : (int)(d % KV_GROUP)) + v * LANE_WIDTH;
    const lane_uint code = bits == 8 ? lane_load_bytes((const uint8_t *)row + d + v * LANE_WIDTH)
                                     : kv_v_codes(bits, row + d / KV_GROUP * 4 * bits, i);
    return kv_value(format, code, (lane_float)1.0f, (lane_float)0.0f);
}

WEIR_INLINE void prefetch_range(const char *from, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += 64) PREFETCH(from + at);
}
#pragma omp end declare target
