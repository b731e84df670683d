/* kernels/x86/tiles.c - the formats of WEIR_LAYOUT_TILES, and packing of file blocks. Runs at
 * load, and where experts are read while a model runs. */
#include "kernels/x86/tiles.h"

#include <string.h>

#include "kernels/abi/convert.h"
#include "kernels/x86/tiles_blocks.h"

const uint8_t weir_tile_values[WEIR_TILE_CODES_COUNT][16] = {
    [WEIR_TILE_U4_TABLE] = { 1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217,
                             241 },
    [WEIR_TILE_U4_FP4] = { 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0 },
    [WEIR_TILE_U4_IQ3_S] = { 16, 18, 20, 22, 24, 26, 28, 30, 14, 12, 10, 8, 6, 4, 2, 0 },
    [WEIR_TILE_U4_IQ3_XXS] = { 66, 74, 82, 90, 98, 106, 114, 124, 58, 50, 42, 34, 26, 18, 10, 0 },
    [WEIR_TILE_U3_IQ2] = { 51, 68, 86, 43, 35, 18, 0, 43 },
    [WEIR_TILE_U3_IQ1] = { 2, 10, 18, 9, 0, 8, 16, 9 },
};

bool weir_tile_format_of(weir_dtype dtype, weir_tile_format *out)
{
    const weir_tile_format *const format = weir_tile_format_for(dtype);
    if (format) *out = *format;
    return format != NULL;
}

bool weir_tiles_bytes(size_t *out, weir_dtype dtype, int64_t n_out, int64_t n_in)
{
    weir_tile_format format;
    if (!weir_tile_format_of(dtype, &format) || n_out <= 0 || n_in <= 0) return false;
    if (n_in % weir_dtype_of(dtype).block_elements || n_out > INT32_MAX || n_in > INT32_MAX)
        return false;
    return !__builtin_mul_overflow(
        weir_panel_bytes(format, n_in), (size_t)weir_panel_count(n_out), out
    );
}

/* ---- records --------------------------------------------------------------------------------- */
/* Four codes of up to 8 bits. */
static uint32_t four_codes(const uint8_t *codes)
{
    uint32_t word;
    memcpy(&word, codes, sizeof word);
    return word;
}

/* Codes of `bits` bits, 1 << k: quads j, n + j, .. in vector j of n, from the low bits on. */
static inline void put_plane(uint8_t *at, const uint8_t *codes, int bits)
{
    const uint32_t mask = 0x01010101u * ((1u << bits) - 1);
    for (int j = 0; j < bits; j++) {
        uint32_t word = 0;
        for (int i = 0; i < 8 / bits; i++)
            word |= (four_codes(codes + 4 * (i * bits + j)) & mask) << (bits * i);
        memcpy(at + j * 128, &word, sizeof word);
    }
}

/* Bit `bit` of the codes of quad q in bit q of a vector. */
static inline void put_bits(uint8_t *at, const uint8_t *codes, int bit)
{
    uint32_t word = 0;
    for (int quad = 0; quad < 8; quad++)
        word |= (four_codes(codes + 4 * quad) >> bit & 0x01010101u) << quad;
    memcpy(at, &word, sizeof word);
}

/* Writes 32 codes of one row to the record; byte vectors of both tiles are 128 bytes. */
static void put_codes(uint8_t *record, weir_tile_codes kind, int row, const uint8_t *codes)
{
    uint8_t *const at = record + row * 4;
    switch (weir_tile_index_bits(kind)) {
    case 8: put_plane(at, codes, 8); break;
    case 4: put_plane(at, codes, 4); break;
    case 3:
        put_plane(at, codes, 2);
        put_bits(at + 2 * 128, codes, 2);
        break;
    case 2: put_plane(at, codes, 2); break;
    default: put_bits(at, codes, 1); break;
    }
}

static void put_scales(uint8_t *at, int splits, int row, const uint16_t *scales)
{
    for (int s = 0; s < splits; s++)
        memcpy(at + (size_t)(s * WEIR_PANEL_ROWS + row) * 2, scales + s, 2);
}

/* Decodes block `b` of a row and writes it to the records of its groups. */
static bool pack_block(
    uint8_t *record, const uint8_t *src, weir_dtype dtype, weir_tile_format format, int row
)
{
    const size_t code_bytes = weir_record_code_bytes(format),
                 scale_bytes = weir_record_scale_bytes(format);
    const int groups = weir_dtype_of(dtype).block_elements / WEIR_TILE_GROUP;
    weir_tile_block decoded;
    const bool is_finite = weir_tile_block_decode(&decoded, src, dtype);
    for (int g = 0; g < groups; g++, record += weir_record_bytes(format)) {
        uint8_t *const scales = record + code_bytes;
        put_codes(record, format.codes, row, decoded.codes + g * WEIR_TILE_GROUP);
        put_scales(scales, format.splits, row, decoded.scales + g * format.splits);
        if (format.minimum)
            put_scales(
                scales + scale_bytes, format.splits, row, decoded.minima + g * format.splits
            );
    }
    return is_finite;
}

weir_status weir_tiles_pack_panel(
    void *dst, const void *src, weir_dtype dtype, int64_t n_out, int64_t n_in, int64_t panel
)
{
    const weir_tile_format format = *weir_tile_format_for(dtype);
    const weir_dtype_info info = weir_dtype_of(dtype);
    const weir_tile_move move = weir_tile_move_of(dtype);
    const size_t row_bytes = weir_row_bytes(dtype, n_in);
    const int64_t first = panel * WEIR_PANEL_ROWS, left = n_out - first,
                  blocks = n_in / info.block_elements;
    const size_t records =
        weir_record_bytes(format) * (size_t)(info.block_elements / WEIR_TILE_GROUP);
    const int rows = left < WEIR_PANEL_ROWS ? (int)left : WEIR_PANEL_ROWS;
    if (rows < WEIR_PANEL_ROWS) memset(dst, 0, weir_panel_bytes(format, n_in));
    const uint8_t *const source = (const uint8_t *)src + (size_t)first * row_bytes;
    bool bad = false;
    int moved = 0;
    for (; move != NULL && moved + 4 <= rows; moved += 4)
        bad = !move(dst, source + (size_t)moved * row_bytes, row_bytes, blocks, moved) || bad;
    for (int64_t b = 0; b < blocks; b++)
        for (int row = moved; row < rows; row++) {
            const uint8_t *const at =
                source + (size_t)row * row_bytes + (size_t)b * (size_t)info.block_bytes;
            bad = !pack_block((uint8_t *)dst + (size_t)b * records, at, dtype, format, row) || bad;
        }
    return bad ? WEIR_EFORMAT : WEIR_OK;
}

/* The code of input `input` of a group of a row, whose byte vectors begin at `at`. */
static int code_at(const uint8_t *at, weir_tile_codes kind, int input)
{
    const int bits = weir_tile_index_bits(kind), plane = bits == 3 ? 2 : bits, quad = input / 4,
              shift = plane * (quad / plane);
    int code = at[quad % plane * 128 + input % 4] >> shift & ((1 << plane) - 1);
    if (bits == 3) code |= (at[2 * 128 + input % 4] >> quad & 1) << 2;
    if (bits == 1) code *= 2;
    return weir_tile_has_values(kind) ? weir_tile_values[kind][code] : code;
}

weir_tile_element weir_tiles_element(const weir_weight *weight, int64_t row, int64_t column)
{
    const weir_tile_format format = *weir_tile_format_for(weight->dtype);
    const int input = (int)(column % WEIR_TILE_GROUP);
    const uint8_t *record =
        (const uint8_t *)weight->data +
        (size_t)(row / WEIR_PANEL_ROWS) * weir_panel_bytes(format, weight->n_in) +
        (size_t)(column / WEIR_TILE_GROUP) * weir_record_bytes(format);
    const int code = code_at(record + row % WEIR_PANEL_ROWS * 4, format.codes, input);
    const int split = input / (WEIR_TILE_GROUP / format.splits);
    const uint8_t *scales = record + weir_record_code_bytes(format) +
                            (split * WEIR_PANEL_ROWS + row % WEIR_PANEL_ROWS) * 2;
    uint16_t scale, minimum = 0;
    memcpy(&scale, scales, sizeof scale);
    if (format.minimum) memcpy(&minimum, scales + weir_record_scale_bytes(format), sizeof minimum);
    return (weir_tile_element){ code - format.zero, weir_f16_to_f32(scale) * format.unit,
                                weir_f16_to_f32(minimum) * format.unit };
}
