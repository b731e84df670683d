/* kernels/x86/tiles.h - WEIR_LAYOUT_TILES: quantised weights in the order in which the dot kernels
 * read them.
 *
 * A weight [n_out, n_in] is cut into panels of 32 output rows (the last one padded with zero
 * scales); a panel is two tiles of 16 rows, one SIMD lane per output row, so that a dot product
 * needs no horizontal sum. Panels follow each other, and inside a panel one record per group of 32
 * inputs: a single sequential stream, whose records are independent integer sums.
 *
 *   record: codes  [8 or 4][2 tiles][16 rows][4 inputs]    u8 codes, or two 4-bit codes per byte
 *           scales [splits][32 rows] f16
 *           minima [splits][32 rows] f16                   only for types that have them
 *
 * 8-bit: byte vector j of a tile holds inputs 4j .. 4j + 3 of its 16 rows. 4-bit: vector j (of 4)
 * holds inputs 4j .. 4j + 3 in the low and 16 + 4j .. 16 + 4j + 3 in the high nibbles. splits is 1
 * (a scale per 32 inputs) or 2 (a scale per 16). All parts are whole cache lines.
 *
 *   weight = unit * (scale * (code - zero) + minimum)
 *
 * Q8_0 and Q4_0 take exactly their file's size. K types (and IQ4_XS) store the product of the
 * block's scale and the 6- or 8-bit scale of the group, rounded to f16; `unit` = 1/64 keeps the
 * products of small weights out of the subnormals of f16. MXFP4's scales are powers of two: those
 * of 2^-29 to 2^10 are exact, smaller ones are rounded, larger ones are refused. */
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
    WEIR_TILE_U4_TABLE, /* indices of weir_tile_table */
    WEIR_TILE_U4_FP4, /* indices of weir_tile_fp4 */
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

/* The 16 values of IQ4_NL and IQ4_XS plus 128. */
extern const uint8_t weir_tile_table[16];
/* Twice the 16 values of MXFP4 plus 12. */
extern const uint8_t weir_tile_fp4[16];

/* Returns false for a dtype without a tile format. */
bool weir_tile_format_of(weir_dtype dtype, weir_tile_format *out);

static inline int64_t weir_panel_count(int64_t n_out)
{
    return (n_out + WEIR_PANEL_ROWS - 1) / WEIR_PANEL_ROWS;
}
static inline size_t weir_record_code_bytes(weir_tile_format format)
{
    return format.codes == WEIR_TILE_U8 ? WEIR_PANEL_ROWS * WEIR_TILE_GROUP
                                        : WEIR_PANEL_ROWS * WEIR_TILE_GROUP / 2;
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
