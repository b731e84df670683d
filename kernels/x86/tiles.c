/* kernels/x86/tiles.c - the formats of WEIR_LAYOUT_TILES, and packing of file blocks. Runs once, at
 * load. Plain C: it moves 4 bytes per instruction, which is faster than memory. */
#include "kernels/x86/tiles.h"

#include <stddef.h>
#include <string.h>

#include "kernels/abi/convert.h"
#include "kernels/abi/dequantise.h"
#include "kernels/abi/quant.h"

enum { BLOCK_MAX = 256, SCALES_MAX = BLOCK_MAX / 16 };
#define K_UNIT 0x1p-6f

const uint8_t weir_tile_table[16] = { 1,   24,  45,  63,  79,  93,  106, 118,
                                      129, 141, 153, 166, 181, 197, 217, 241 };

const uint8_t weir_tile_fp4[16] = { 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0 };

/* A file block with its codes widened to bytes; scales and minima as f16 bits, in units of the
 * format. */
typedef struct block {
    uint8_t codes[BLOCK_MAX];
    uint16_t scales[SCALES_MAX], minima[SCALES_MAX];
} block;

static uint16_t half_bits(float x)
{
    return weir_f16_from_f32(x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x);
}

static uint16_t k_scale(float d, int32_t scale)
{
    return half_bits(d * (float)scale * (1.0f / K_UNIT));
}

/* ---- file blocks ----------------------------------------------------------------------------- */
static void decode_q8_0(block *out, const void *src)
{
    weir_block_q8_0 b;
    memcpy(&b, src, sizeof b);
    for (int i = 0; i < 32; i++) out->codes[i] = (uint8_t)b.q[i] ^ 0x80;
    out->scales[0] = b.d;
}

static void split_nibbles(uint8_t *codes, const uint8_t *q, int n)
{
    for (int i = 0; i < n; i++) codes[i] = q[i] & 15;
    for (int i = 0; i < n; i++) codes[n + i] = q[i] >> 4;
}

static void decode_q4_0(
    block *out, const void *src
) /* also IQ4_NL: the same layout, other values */
{
    weir_block_q4_0 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    out->scales[0] = b.d;
}

static void decode_q4_1(block *out, const void *src)
{
    weir_block_q4_1 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    out->scales[0] = b.d;
    out->minima[0] = b.m;
}

static void add_fifth_bits(uint8_t *codes, const uint8_t qh[4])
{
    for (int i = 0; i < 32; i++) codes[i] |= (uint8_t)((qh[i / 8] >> (i % 8) & 1) << 4);
}

static void decode_q5_0(block *out, const void *src)
{
    weir_block_q5_0 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    add_fifth_bits(out->codes, b.qh);
    out->scales[0] = b.d;
}

static void decode_q5_1(block *out, const void *src)
{
    weir_block_q5_1 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    add_fifth_bits(out->codes, b.qh);
    out->scales[0] = b.d;
    out->minima[0] = b.m;
}

/* 2^(exponent - 127) times half of the doubled values; infinite beyond f16. */
static void decode_mxfp4(block *out, const void *src)
{
    weir_block_mxfp4 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    out->scales[0] = weir_f16_from_f32(weir_e8m0_half(b.exponent) * (1.0f / K_UNIT));
}

static void decode_iq4_xs(block *out, const void *src)
{
    weir_block_iq4_xs b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d);
    for (int g = 0; g < 8; g++) {
        const int low = b.scales_low[g / 2] >> (4 * (g % 2)) & 15,
                  high = b.scales_high >> (2 * g) & 3;
        out->scales[g] = k_scale(d, (low | high << 4) - 32);
        split_nibbles(out->codes + 32 * g, b.q + 16 * g, 16);
    }
}

/* Eight 6-bit scales and minima of Q4_K and Q5_K in 12 bytes. */
static void decode_k_scales(block *out, const uint8_t s[12], float d, float dmin)
{
    for (int g = 0; g < 8; g++) {
        const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
        const int minimum = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
        out->scales[g] = k_scale(d, scale);
        out->minima[g] = k_scale(-dmin, minimum);
    }
}

static void decode_q4_k(block *out, const void *src)
{
    weir_block_q4_k b;
    memcpy(&b, src, sizeof b);
    decode_k_scales(out, b.scales, weir_f16_to_f32(b.d), weir_f16_to_f32(b.dmin));
    for (int c = 0; c < 4; c++) split_nibbles(out->codes + 64 * c, b.q + 32 * c, 32);
}

static void decode_q5_k(block *out, const void *src)
{
    weir_block_q5_k b;
    memcpy(&b, src, sizeof b);
    decode_k_scales(out, b.scales, weir_f16_to_f32(b.d), weir_f16_to_f32(b.dmin));
    for (int c = 0; c < 4; c++) {
        split_nibbles(out->codes + 64 * c, b.q + 32 * c, 32);
        for (int i = 0; i < 64; i++)
            out->codes[64 * c + i] |= (uint8_t)((b.qh[i % 32] >> (2 * c + i / 32) & 1) << 4);
    }
}

static void decode_q6_k(block *out, const void *src)
{
    weir_block_q6_k b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d);
    for (int g = 0; g < 16; g++) out->scales[g] = k_scale(d, b.scales[g]);
    for (int half = 0; half < 2; half++) {
        uint8_t *codes = out->codes + 128 * half;
        split_nibbles(codes, b.ql + 64 * half, 64);
        for (int i = 0; i < 128; i++)
            codes[i] |= (uint8_t)((b.qh[32 * half + i % 32] >> (2 * (i / 32)) & 3) << 4);
    }
}

static void decode_two_bits(uint8_t *codes, const uint8_t q[64])
{
    for (int i = 0; i < 256; i++) codes[i] = q[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
}

static void decode_q3_k(block *out, const void *src)
{
    weir_block_q3_k b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d);
    for (int g = 0; g < 16; g++) {
        const int low = b.scales[g % 8] >> (4 * (g / 8)) & 15,
                  high = b.scales[8 + g % 4] >> (2 * (g / 4)) & 3;
        out->scales[g] = k_scale(d, (low | high << 4) - 32);
    }
    decode_two_bits(out->codes, b.q);
    for (int i = 0; i < 256; i++)
        out->codes[i] |= (uint8_t)((b.high_mask[i % 32] >> (i / 32) & 1) << 2);
}

static void decode_q2_k(block *out, const void *src)
{
    weir_block_q2_k b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d), dmin = weir_f16_to_f32(b.dmin);
    for (int g = 0; g < 16; g++) {
        out->scales[g] = k_scale(d, b.scales[g] & 15);
        out->minima[g] = k_scale(-dmin, b.scales[g] >> 4);
    }
    decode_two_bits(out->codes, b.q);
}

typedef struct packing {
    weir_tile_format format;
    void (*decode)(block *out, const void *src);
    /* Offsets of a block's f16 scale and minimum; equal if it has no minimum. NO_HALVES: it has
     * neither. */
    size_t d, m;
} packing;

enum { NO_HALVES = BLOCK_MAX };

#define SCALE(type) offsetof(weir_block_##type, d), offsetof(weir_block_##type, d)
#define SCALE_AND(type, minimum)                                                                   \
    offsetof(weir_block_##type, d), offsetof(weir_block_##type, minimum)

static const packing packings[WEIR_DTYPE_COUNT] = {
    [WEIR_Q8_0] = { { WEIR_TILE_U8, 8, false, 1, 128, 1.0f }, decode_q8_0, SCALE(q8_0) },
    [WEIR_Q4_0] = { { WEIR_TILE_U4, 4, false, 1, 8, 1.0f }, decode_q4_0, SCALE(q4_0) },
    [WEIR_Q4_1] = { { WEIR_TILE_U4, 4, true, 1, 0, 1.0f }, decode_q4_1, SCALE_AND(q4_1, m) },
    [WEIR_Q5_0] = { { WEIR_TILE_U8, 5, false, 1, 16, 1.0f }, decode_q5_0, SCALE(q5_0) },
    [WEIR_Q5_1] = { { WEIR_TILE_U8, 5, true, 1, 0, 1.0f }, decode_q5_1, SCALE_AND(q5_1, m) },
    [WEIR_IQ4_NL] = { { WEIR_TILE_U4_TABLE, 8, false, 1, 128, 1.0f }, decode_q4_0, SCALE(iq4_nl) },
    [WEIR_IQ4_XS] = { { WEIR_TILE_U4_TABLE, 8, false, 1, 128, K_UNIT },
                      decode_iq4_xs,
                      SCALE(iq4_xs) },
    [WEIR_MXFP4] = { { WEIR_TILE_U4_FP4, 5, false, 1, 12, K_UNIT },
                     decode_mxfp4,
                     NO_HALVES,
                     NO_HALVES },
    [WEIR_Q2_K] = { { WEIR_TILE_U4, 4, true, 2, 0, K_UNIT }, decode_q2_k, SCALE_AND(q2_k, dmin) },
    [WEIR_Q3_K] = { { WEIR_TILE_U4, 4, false, 2, 4, K_UNIT }, decode_q3_k, SCALE(q3_k) },
    [WEIR_Q4_K] = { { WEIR_TILE_U4, 4, true, 1, 0, K_UNIT }, decode_q4_k, SCALE_AND(q4_k, dmin) },
    [WEIR_Q5_K] = { { WEIR_TILE_U8, 5, true, 1, 0, K_UNIT }, decode_q5_k, SCALE_AND(q5_k, dmin) },
    [WEIR_Q6_K] = { { WEIR_TILE_U8, 6, false, 2, 32, K_UNIT }, decode_q6_k, SCALE(q6_k) },
};

bool weir_tile_format_of(weir_dtype dtype, weir_tile_format *out)
{
    if ((unsigned)dtype >= WEIR_DTYPE_COUNT || !packings[dtype].decode) return false;
    *out = packings[dtype].format;
    return true;
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
/* Writes eight groups of four codes of one row to the record: byte vectors of both tiles are 128
 * bytes. */
static void put_codes(uint8_t *record, weir_tile_codes kind, int row, const uint8_t *codes)
{
    uint8_t *at = record + row * 4;
    if (kind == WEIR_TILE_U8) {
        for (int j = 0; j < 8; j++) memcpy(at + j * 128, codes + j * 4, 4);
        return;
    }
    for (int j = 0; j < 4; j++) {
        uint32_t low, high;
        memcpy(&low, codes + j * 4, 4);
        memcpy(&high, codes + 16 + j * 4, 4);
        low |= high << 4;
        memcpy(at + j * 128, &low, 4);
    }
}

static void put_scales(uint8_t *at, int splits, int row, const uint16_t *scales)
{
    for (int s = 0; s < splits; s++)
        memcpy(at + (size_t)(s * WEIR_PANEL_ROWS + row) * 2, scales + s, 2);
}

/* NaN or infinity. K types clamp their products to f16, so an infinite scale would not be visible
 * in the packed data. */
static bool is_infinite_half(const uint8_t *at)
{
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return (bits & 0x7C00) == 0x7C00;
}

static bool is_infinite(const packing *how, const uint8_t *at, const block *decoded)
{
    if (how->d == NO_HALVES) return is_infinite_half((const uint8_t *)decoded->scales);
    return is_infinite_half(at + how->d) || is_infinite_half(at + how->m);
}

weir_status weir_tiles_pack_panel(
    void *dst, const void *src, weir_dtype dtype, int64_t n_out, int64_t n_in, int64_t panel
)
{
    const packing how = packings[dtype];
    const weir_dtype_info info = weir_dtype_of(dtype);
    const size_t record_bytes = weir_record_bytes(how.format),
                 code_bytes = weir_record_code_bytes(how.format);
    const size_t scale_bytes = weir_record_scale_bytes(how.format),
                 row_bytes = weir_row_bytes(dtype, n_in);
    const int64_t first = panel * WEIR_PANEL_ROWS, left = n_out - first;
    const int rows = left < WEIR_PANEL_ROWS ? (int)left : WEIR_PANEL_ROWS,
              groups = info.block_elements / WEIR_TILE_GROUP;
    if (rows < WEIR_PANEL_ROWS) memset(dst, 0, weir_panel_bytes(how.format, n_in));
    const uint8_t *source = (const uint8_t *)src + (size_t)first * row_bytes;
    uint8_t *block_records = dst;
    bool bad = false;
    for (int64_t b = 0; b < n_in / info.block_elements;
         b++, block_records += (size_t)groups * record_bytes) {
        for (int row = 0; row < rows; row++) {
            block decoded;
            const uint8_t *const at =
                source + (size_t)row * row_bytes + (size_t)b * (size_t)info.block_bytes;
            how.decode(&decoded, at);
            bad = bad || is_infinite(&how, at, &decoded);
            for (int g = 0; g < groups; g++) {
                uint8_t *record = block_records + (size_t)g * record_bytes;
                put_codes(record, how.format.codes, row, decoded.codes + g * WEIR_TILE_GROUP);
                put_scales(
                    record + code_bytes, how.format.splits, row,
                    decoded.scales + g * how.format.splits
                );
                if (how.format.minimum)
                    put_scales(
                        record + code_bytes + scale_bytes, how.format.splits, row,
                        decoded.minima + g * how.format.splits
                    );
            }
        }
    }
    return bad ? WEIR_EFORMAT : WEIR_OK;
}

weir_tile_element weir_tiles_element(const weir_weight *weight, int64_t row, int64_t column)
{
    const weir_tile_format format = packings[weight->dtype].format;
    const int input = (int)(column % WEIR_TILE_GROUP);
    const uint8_t *record =
        (const uint8_t *)weight->data +
        (size_t)(row / WEIR_PANEL_ROWS) * weir_panel_bytes(format, weight->n_in) +
        (size_t)(column / WEIR_TILE_GROUP) * weir_record_bytes(format);
    const uint8_t *codes = record + row % WEIR_PANEL_ROWS * 4 + input % 4;
    int code;
    if (format.codes == WEIR_TILE_U8) {
        code = codes[input / 4 * 128];
    } else {
        code = codes[input % 16 / 4 * 128] >> (4 * (input / 16)) & 15;
        if (format.codes == WEIR_TILE_U4_TABLE) code = weir_tile_table[code];
        if (format.codes == WEIR_TILE_U4_FP4) code = weir_tile_fp4[code];
    }
    const int split = input / (WEIR_TILE_GROUP / format.splits);
    const uint8_t *scales = record + weir_record_code_bytes(format) +
                            (split * WEIR_PANEL_ROWS + row % WEIR_PANEL_ROWS) * 2;
    uint16_t scale, minimum = 0;
    memcpy(&scale, scales, sizeof scale);
    if (format.minimum) memcpy(&minimum, scales + weir_record_scale_bytes(format), sizeof minimum);
    return (weir_tile_element){ code - format.zero, weir_f16_to_f32(scale) * format.unit,
                                weir_f16_to_f32(minimum) * format.unit };
}
