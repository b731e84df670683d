/* kernels/x86/tiles_blocks.h - file blocks as the records of WEIR_LAYOUT_TILES hold them. */
#pragma once
#include "kernels/x86/tiles.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_TILE_BLOCK_MAX = 256, WEIR_TILE_SCALES_MAX = WEIR_TILE_BLOCK_MAX / 16 };

/* Codes widened to bytes; scales and minima as f16 bits, in units of the format. */
typedef struct weir_tile_block {
    uint8_t codes[WEIR_TILE_BLOCK_MAX];
    uint16_t scales[WEIR_TILE_SCALES_MAX], minima[WEIR_TILE_SCALES_MAX];
} weir_tile_block;

/* The format of a type, NULL if it has none. */
const weir_tile_format *weir_tile_format_for(weir_dtype dtype);

/* Decodes one file block, unaligned, of a type that has a format. Returns false if a scale or
 * minimum is not finite, of types with levels also if a scale does not fit f16. */
bool weir_tile_block_decode(weir_tile_block *out, const void *src, weir_dtype dtype);

/* Packs four adjacent rows of a panel, n_blocks blocks each, row_bytes apart: `row` is the first,
 * `record` the panel's first record. Returns false if a scale or minimum is not finite. For types
 * whose words of codes are those of records. */
typedef bool (*weir_tile_move)(
    uint8_t *record, const uint8_t *src, size_t row_bytes, int64_t n_blocks, int row
);
/* NULL: blocks of the type have to be decoded. */
weir_tile_move weir_tile_move_of(weir_dtype dtype);

#ifdef __cplusplus
}
#endif
