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

/* GPUs read f32 and f16 pages: with more formats in one kernel ptxas spills (452 bytes on
 * sm_90). */
#define WEIR_PLAIN_ONLY_nvptx 1
#if WEIR_PASTE3(WEIR_PLAIN_, ONLY, WEIR_ISA)
enum { READS_CODED = 0 };
#else
enum { READS_CODED = 1 };
#endif

#pragma omp declare target
/* Direct turbo rows of 16 dims do not fill a block of codes. */
WEIR_INLINE bool is_direct_v(weir_kv_format format, int64_t value_dim)
{
    return weir_kv_is_direct(format) && (!weir_kv_is_rotated(format) || value_dim >= KV_GROUP);
}

/* The scales of a V tile that go into the weights, f16 [32]; NULL: values are multiplied as they
 * are. */
WEIR_INLINE const _Float16 *weight_scales(const tile_source *v, int64_t value_dim)
{
    if (!READS_CODED || v->format != WEIR_KV_TURBO4 || !is_direct_v(v->format, value_dim))
        return NULL;
    return (const _Float16 *)(v->part + weir_kv_layout_v(WEIR_KV_TURBO4, value_dim).scales) +
           v->token;
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
    if (format == WEIR_KV_Q8_0)
        return lane_from_int((lane_int)(word << (uint32_t)(24 - 8 * i)) >> 24);
    return kv_centroid(4, word >> (uint32_t)(4 * i));
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

/* Vector v of token t's dims from d on; q8_0's and turbo4's without their scales. */
WEIR_INLINE lane_float value_lanes(
    const value_tile_rows *rows, const weir_kv_format format, int64_t t, int64_t d, const int v
)
{
    const char *const row = rows->codes + t * rows->codes_step;
    if (format == WEIR_KV_Q8_0) {
        const lane_uint code = lane_load_bytes((const uint8_t *)row + d + v * LANE_WIDTH);
        return lane_from_int((lane_int)(code << 24) >> 24);
    }
    if (format == WEIR_KV_TURBO4) {
        const int i = (LANE_THREADS == 1 && VECTORS_DIMS == KV_GROUP ? 0 : (int)(d % KV_GROUP)) +
                      v * LANE_WIDTH;
        const uint8_t *const block = (const uint8_t *)row + d / KV_GROUP * 16;
        return kv_centroid(4, lane_load_bytes(block + i % 16) >> (uint32_t)(i / 16 * 4));
    }
    return kv_load_plain(format, row, d + v * LANE_WIDTH);
}

WEIR_INLINE void prefetch_range(const char *from, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += 64) PREFETCH(from + at);
}
#pragma omp end declare target
