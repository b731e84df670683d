/* kernels/x86/tiles.h - WEIR_LAYOUT_TILES: quantised weights in the order in which the dot kernels
 * read them.
 *
 * A weight [n_out, n_in] is cut into panels of 32 output rows (the last one padded with zero
 * scales); a panel is two tiles of 16 rows, one SIMD lane per output row, so that a dot product
 * needs no horizontal sum. Panels follow each other, and inside a panel one record per group of 32
 * inputs: a single sequential stream, whose records are independent integer sums.
 *
 *   record: codes  [8, 4, 2 or 1][2 tiles][16 rows][4 inputs] one to eight codes per byte
 *           third bits  [2 tiles][16 rows][4 inputs]       only of 3-bit codes
 *           scales [splits][32 rows] f16
 *           minima [splits][32 rows] f16                   only for types that have them
 *
 * Quad q is inputs 4q .. 4q + 3 of a group. 8-bit: byte vector j of a tile holds quad j of its 16
 * rows. 4-bit: vector j (of 4) holds quad j in the low and quad 4 + j in the high nibbles. 2-bit:
 * vector j (of 2) holds quads j, 2 + j, 4 + j and 6 + j from the low bits on. 3-bit: the low two
 * bits as those; bit q of the third vector is the high bit of quad q. 1-bit: bit q of the only
 * vector is half the code of quad q. splits is 1 (a scale per 32 inputs) or 2 (a scale per 16). All
 * parts are whole cache lines.
 *
 *   weight = unit * (scale * (code - zero) + minimum)
 *
 * Q8_0 and Q4_0 take exactly their file's size. K types and IQ types but IQ4_NL store the product
 * of the block's scale and the 3- to 8-bit scale of the group, rounded to f16; `unit` = 1/64 keeps
 * the products of small weights out of the subnormals of f16. MXFP4's scales are powers of two:
 * those of 2^-29 to 2^10 are exact, smaller ones are rounded, larger ones are refused. All other
 * types are exact. Bits per weight: docs/kernels.md. */
#pragma once
#include <stdbool.h>

#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_TILE_LANES = 16, /* output rows of a tile                       */
    WEIR_PANEL_TILES = 2,
    WEIR_PANEL_ROWS = 32,
    WEIR_TILE_GROUP = 32, /* inputs per record and per activation scale  */
};

typedef enum weir_tile_codes {
    WEIR_TILE_U8,
    WEIR_TILE_U4,
    /* Those below but U1 and U2 are indices of weir_tile_values. */
    WEIR_TILE_U4_TABLE, /* IQ4_NL and IQ4_XS */
    WEIR_TILE_U4_FP4,
    WEIR_TILE_U4_IQ3_S,
    WEIR_TILE_U4_IQ3_XXS,
    WEIR_TILE_U3_IQ2,
    WEIR_TILE_U3_IQ1,
    WEIR_TILE_U2,
    WEIR_TILE_U1, /* codes 0 and 2 */
    WEIR_TILE_CODES_COUNT
} weir_tile_codes;

typedef struct weir_tile_format {
    weir_tile_codes codes;
    /* Codes (with a table, their values) are below 2^bits; with 8 bits zero is 128. */
    int32_t bits;
    bool minimum; /* zero is 0 then */
    int32_t splits; /* 1 or 2 scales per group                                       */
    int32_t zero; /* subtracted from a code (with a table, from its value) */
    float unit; /* a power of two                                                 */
} weir_tile_format;

/* The levels of the types with such codes, plus the zero of their formats. */
extern const uint8_t weir_tile_values[WEIR_TILE_CODES_COUNT][16];

static inline bool weir_tile_has_values(weir_tile_codes kind)
{
    return kind != WEIR_TILE_U8 && kind != WEIR_TILE_U4 && kind != WEIR_TILE_U2 &&
           kind != WEIR_TILE_U1;
}

/* Bits per stored code. A record has as many lines of 128 bytes of codes. */
static inline int weir_tile_index_bits(weir_tile_codes kind)
{
    switch (kind) {
    case WEIR_TILE_U8: return 8;
    case WEIR_TILE_U3_IQ2:
    case WEIR_TILE_U3_IQ1: return 3;
    case WEIR_TILE_U2: return 2;
    case WEIR_TILE_U1: return 1;
    default: return 4;
    }
}

/* Returns false for a dtype without a tile format. */
bool weir_tile_format_of(weir_dtype dtype, weir_tile_format *out);

static inline int64_t weir_panel_count(int64_t n_out)
{
    return (n_out + WEIR_PANEL_ROWS - 1) / WEIR_PANEL_ROWS;
}
static inline size_t weir_record_code_bytes(weir_tile_format format)
{
    return (size_t)weir_tile_index_bits(format.codes) * (WEIR_PANEL_ROWS * WEIR_TILE_GROUP / 8);
}
static inline size_t weir_record_scale_bytes(weir_tile_format format)
{
    return (size_t)format.splits * WEIR_PANEL_ROWS * sizeof(uint16_t);
}
static inline size_t weir_record_bytes(weir_tile_format format)
{
    return weir_record_code_bytes(format) +
           weir_record_scale_bytes(format) * (format.minimum ? 2 : 1);
}
static inline size_t weir_panel_bytes(weir_tile_format format, int64_t n_in)
{
    return weir_record_bytes(format) * (size_t)(n_in / WEIR_TILE_GROUP);
}
/* Bytes of the packed weight. Returns false if they overflow a size_t, n_in is not a multiple of
 * the block or the dtype has no format. */
bool weir_tiles_bytes(size_t *out, weir_dtype dtype, int64_t n_out, int64_t n_in);

/* Packs panel `panel` of file rows `src` (n_out rows, unaligned) to dst, 64-byte aligned,
 * weir_panel_bytes long. Threads pack different panels. errors : EFORMAT if a block's scale or
 * minimum is not finite */
WEIR_MUST_CHECK weir_status weir_tiles_pack_panel(
    void *dst, const void *src, weir_dtype dtype, int64_t n_out, int64_t n_in, int64_t panel
);

/* One weight's parts, for the reference kernel and tests: unit, minimum and scale are already
 * floats. */
typedef struct weir_tile_element {
    int32_t code; /* code - zero */
    float scale, minimum;
} weir_tile_element;
weir_tile_element weir_tiles_element(const weir_weight *weight, int64_t row, int64_t column);

#ifdef __cplusplus
}
#endif
