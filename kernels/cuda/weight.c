/* kernels/cuda/weight.c - packs file rows into WEIR_LAYOUT_CUDA. Runs once, at load, on the host.
 * Plain C: one code per instruction on a few threads is faster than the file and the bus. */
#include "kernels/cuda/weight.h"

#include <stddef.h>
#include <string.h>

#include "kernels/abi/convert.h"
#include "kernels/abi/dequantise.h"
#include "kernels/ref/dequantise.h"
#include "kernels/ref/levels.h"

enum {
    BLOCK_MAX = 256,
    SCALES_MAX = BLOCK_MAX / 16,
    CHUNK = 256,
    LANES = 32,
    PAIRS = 8,
    LOAD = LANES * 16
};

/* A file block with its codes as multiplied. Nested: scales and minima are bytes; otherwise both
 * are floats, d and m of the block. */
typedef struct block {
    int8_t codes[BLOCK_MAX];
    int8_t scales[SCALES_MAX];
    uint8_t minima[SCALES_MAX];
    uint16_t d, m;
} block;

/* ---- file blocks ----------------------------------------------------------------------------- */
static void split_nibbles(int8_t *codes, const uint8_t *q, int n)
{
    for (int i = 0; i < n; i++) codes[i] = (int8_t)(q[i] & 15);
    for (int i = 0; i < n; i++) codes[n + i] = (int8_t)(q[i] >> 4);
}

static void subtract(int8_t *codes, int n, int zero)
{
    for (int i = 0; i < n; i++) codes[i] = (int8_t)(codes[i] - zero);
}

static void look_up(int8_t *codes, int n)
{
    for (int i = 0; i < n; i++) codes[i] = weir_iq4_levels[codes[i]];
}

static void add_fifth_bits(int8_t *codes, const uint8_t qh[4])
{
    for (int i = 0; i < 32; i++) codes[i] = (int8_t)(codes[i] | (qh[i / 8] >> (i % 8) & 1) << 4);
}

static void decode_q8_0(block *out, const void *src)
{
    weir_block_q8_0 b;
    memcpy(&b, src, sizeof b);
    memcpy(out->codes, b.q, sizeof b.q);
    out->d = b.d;
}

static void decode_q4_0(block *out, const void *src)
{
    weir_block_q4_0 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    subtract(out->codes, 32, 8);
    out->d = b.d;
}

static void decode_q4_1(block *out, const void *src)
{
    weir_block_q4_1 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    out->d = b.d;
    out->m = b.m;
}

static void decode_q5_0(block *out, const void *src)
{
    weir_block_q5_0 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    add_fifth_bits(out->codes, b.qh);
    subtract(out->codes, 32, 16);
    out->d = b.d;
}

static void decode_q5_1(block *out, const void *src)
{
    weir_block_q5_1 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    add_fifth_bits(out->codes, b.qh);
    out->d = b.d;
    out->m = b.m;
}

static void decode_iq4_nl(block *out, const void *src)
{
    weir_block_iq4_nl b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    look_up(out->codes, 32);
    out->d = b.d;
}

static void decode_iq4_xs(block *out, const void *src)
{
    weir_block_iq4_xs b;
    memcpy(&b, src, sizeof b);
    for (int g = 0; g < 8; g++) {
        const int low = b.scales_low[g / 2] >> (4 * (g % 2)) & 15,
                  high = b.scales_high >> (2 * g) & 3;
        out->scales[g] = (int8_t)((low | high << 4) - 32);
        split_nibbles(out->codes + 32 * g, b.q + 16 * g, 16);
    }
    look_up(out->codes, 256);
    out->d = b.d;
}

static void decode_k_scales(block *out, const uint8_t scales[12])
{
    for (int g = 0; g < 8; g++) {
        int scale, minimum;
        weir_k_scale_min(scales, g, &scale, &minimum);
        out->scales[g] = (int8_t)scale;
        out->minima[g] = (uint8_t)minimum;
    }
}

static void decode_q4_k(block *out, const void *src)
{
    weir_block_q4_k b;
    memcpy(&b, src, sizeof b);
    decode_k_scales(out, b.scales);
    for (int c = 0; c < 4; c++) split_nibbles(out->codes + 64 * c, b.q + 32 * c, 32);
    out->d = b.d;
    out->m = b.dmin;
}

static void decode_q5_k(block *out, const void *src)
{
    weir_block_q5_k b;
    memcpy(&b, src, sizeof b);
    decode_k_scales(out, b.scales);
    for (int c = 0; c < 4; c++) split_nibbles(out->codes + 64 * c, b.q + 32 * c, 32);
    for (int i = 0; i < 256; i++)
        out->codes[i] = (int8_t)(out->codes[i] | (b.qh[i % 32] >> (i / 32) & 1) << 4);
    out->d = b.d;
    out->m = b.dmin;
}

static void decode_q6_k(block *out, const void *src)
{
    weir_block_q6_k b;
    memcpy(&b, src, sizeof b);
    memcpy(out->scales, b.scales, sizeof b.scales);
    for (int half = 0; half < 2; half++) {
        int8_t *const codes = out->codes + 128 * half;
        split_nibbles(codes, b.ql + 64 * half, 64);
        for (int i = 0; i < 128; i++)
            codes[i] = (int8_t)(codes[i] | (b.qh[32 * half + i % 32] >> (2 * (i / 32)) & 3) << 4);
    }
    subtract(out->codes, 256, 32);
    out->d = b.d;
}

static void decode_two_bits(int8_t *codes, const uint8_t q[64])
{
    for (int i = 0; i < 256; i++)
        codes[i] = (int8_t)(q[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3);
}

static void decode_q3_k(block *out, const void *src)
{
    weir_block_q3_k b;
    memcpy(&b, src, sizeof b);
    for (int g = 0; g < 16; g++) {
        const int low = b.scales[g % 8] >> (4 * (g / 8)) & 15,
                  high = b.scales[8 + g % 4] >> (2 * (g / 4)) & 3;
        out->scales[g] = (int8_t)((low | high << 4) - 32);
    }
    decode_two_bits(out->codes, b.q);
    for (int i = 0; i < 256; i++)
        out->codes[i] = (int8_t)(out->codes[i] | (b.high_mask[i % 32] >> (i / 32) & 1) << 2);
    subtract(out->codes, 256, 4);
    out->d = b.d;
}

static void decode_q2_k(block *out, const void *src)
{
    weir_block_q2_k b;
    memcpy(&b, src, sizeof b);
    for (int g = 0; g < 16; g++) {
        out->scales[g] = (int8_t)(b.scales[g] & 15);
        out->minima[g] = b.scales[g] >> 4;
    }
    decode_two_bits(out->codes, b.q);
    out->d = b.d;
    out->m = b.dmin;
}

static void (*const decoders[WEIR_DTYPE_COUNT])(block *out, const void *src) = {
    [WEIR_Q8_0] = decode_q8_0,     [WEIR_Q4_0] = decode_q4_0, [WEIR_Q4_1] = decode_q4_1,
    [WEIR_Q5_0] = decode_q5_0,     [WEIR_Q5_1] = decode_q5_1, [WEIR_IQ4_NL] = decode_iq4_nl,
    [WEIR_IQ4_XS] = decode_iq4_xs, [WEIR_Q2_K] = decode_q2_k, [WEIR_Q3_K] = decode_q3_k,
    [WEIR_Q4_K] = decode_q4_k,     [WEIR_Q5_K] = decode_q5_k, [WEIR_Q6_K] = decode_q6_k,
};

/* ---- sizes ----------------------------------------------------------------------------------- */
weir_dtype weir_cuda_dtype(weir_dtype file, bool exact)
{
    if (exact) return WEIR_F32;
    switch (file) {
    case WEIR_F64: return WEIR_F32;
    case WEIR_F8_E4M3:
    case WEIR_F8_E5M2:
    case WEIR_MXFP4: return WEIR_BF16;
    default: return weir_levels_of(file) ? WEIR_F16 : file;
    }
}

bool weir_cuda_weight_bytes(size_t *out, weir_dtype kept, int64_t n_rows, int64_t n_in)
{
    if ((unsigned)kept >= WEIR_DTYPE_COUNT || n_rows < 0 || n_in < 1 || n_rows > INT32_MAX ||
        n_in > INT32_MAX - WEIR_CUDA_STEP)
        return false;
    if (kept == WEIR_F32)
        return !__builtin_mul_overflow(weir_cuda_row_stride(n_in), (size_t)n_rows, out);
    const size_t panels = (size_t)((n_rows + WEIR_CUDA_PANEL - 1) / WEIR_CUDA_PANEL);
    if (weir_cuda_is_half(kept))
        return !__builtin_mul_overflow(weir_cuda_half_panel(n_in), panels, out);
    weir_cuda_format format;
    if (!weir_cuda_format_of(kept, &format) || n_in % weir_dtype_of(kept).block_elements)
        return false;
    return !__builtin_mul_overflow(weir_cuda_planes_of(format, n_in).panel_bytes, panels, out);
}

/* ---- packing --------------------------------------------------------------------------------- */
/* Where a row's codes at input `column` of its step are stored: load, lane and byte, and for 4 bits
 * the half. */
typedef struct code_place {
    size_t byte;
    int shift;
} code_place;

static code_place place_of(weir_cuda_codes codes, int row, int column)
{
    const int group = column / WEIR_CUDA_GROUP, input = column % WEIR_CUDA_GROUP;
    const int lane = row % PAIRS * 4 + input % 16 / 4, word = row / PAIRS + 2 * (input / 16);
    const int byte = lane * 16 + word * 4 + input % 4;
    return codes == WEIR_CUDA_S8 ? (code_place){ (size_t)(group * LOAD + byte), 0 }
                                 : (code_place){ (size_t)byte, 4 * group };
}

static size_t scale_index(weir_cuda_format format, int row, int64_t step, int split)
{
    return ((size_t)step * PAIRS + (size_t)(row % PAIRS)) * (size_t)(4 * format.splits) +
           (size_t)(split * 2 + row / PAIRS);
}

static void put_codes(
    uint8_t *plane, weir_cuda_format format, int row, int64_t column, const int8_t *codes, int n
)
{
    uint8_t *const step =
        plane + (size_t)(column / WEIR_CUDA_STEP) * weir_cuda_step_code_bytes(format);
    const int first = (int)(column % WEIR_CUDA_STEP);
    for (int i = 0; i < n; i++) {
        const code_place at = place_of(format.codes, row, first + i);
        if (format.codes == WEIR_CUDA_S8)
            step[at.byte] = (uint8_t)codes[i];
        else
            step[at.byte] = (uint8_t)(step[at.byte] | ((uint8_t)codes[i] & 15) << at.shift);
    }
}

static void put_half(uint8_t *plane, size_t index, uint16_t bits)
{
    memcpy(plane + index * sizeof bits, &bits, sizeof bits);
}

static void put_block(
    uint8_t *panel, const weir_cuda_planes *planes, weir_cuda_format format, int row,
    int64_t column, const block *from, int n
)
{
    const int per_scale = WEIR_CUDA_GROUP / format.splits;
    for (int i = 0; i < n; i += WEIR_CUDA_GROUP)
        put_codes(panel, format, row, column + i, from->codes + i, WEIR_CUDA_GROUP);
    for (int s = 0; s < n / per_scale; s++) {
        const int64_t at = column + (int64_t)s * per_scale;
        const size_t index =
            scale_index(format, row, at / WEIR_CUDA_STEP, (int)(at % WEIR_CUDA_STEP) / per_scale);
        if (format.nested) {
            panel[planes->scales + index] = (uint8_t)from->scales[s];
            if (format.minimum) panel[planes->minima + index] = from->minima[s];
        } else {
            put_half(panel + planes->scales, index, from->d);
            if (format.minimum) put_half(panel + planes->minima, index, from->m);
        }
    }
    if (!format.nested) return;
    const size_t super = ((size_t)(column / WEIR_CUDA_SUPER) * PAIRS + (size_t)(row % PAIRS)) * 2 +
                         (size_t)(row / PAIRS);
    put_half(panel + planes->d, super, from->d);
    if (format.minimum) put_half(panel + planes->dmin, super, from->m);
}

static bool is_infinite_half(uint16_t bits) { return (bits & 0x7C00) == 0x7C00; }

static weir_status pack_panel(
    uint8_t *panel, weir_cuda_format format, weir_dtype kept, const uint8_t *source, int64_t n_in,
    int rows
)
{
    const weir_dtype_info info = weir_dtype_of(kept);
    const weir_cuda_planes planes = weir_cuda_planes_of(format, n_in);
    const size_t row_bytes = weir_row_bytes(kept, n_in);
    bool bad = false;
    memset(panel, 0, planes.panel_bytes);
    for (int row = 0; row < rows; row++)
        for (int64_t b = 0; b < n_in / info.block_elements; b++) {
            block decoded = { .m = 0 };
            decoders[kept](
                &decoded, source + (size_t)row * row_bytes + (size_t)b * (size_t)info.block_bytes
            );
            bad = bad || is_infinite_half(decoded.d) || is_infinite_half(decoded.m);
            put_block(
                panel, &planes, format, row, b * info.block_elements, &decoded, info.block_elements
            );
        }
    return bad ? WEIR_EFORMAT : WEIR_OK;
}

/* Rounds n values, at most 8, to a piece of 16 bytes. Returns EFORMAT if one is beyond f16. */
static weir_status put_halves(uint8_t *piece, weir_dtype kept, const float *values, int64_t n)
{
    bool bad = false;
    for (int64_t i = 0; i < n; i++) {
        const uint16_t bits =
            kept == WEIR_BF16 ? weir_bf16_from_f32(values[i]) : weir_f16_from_f32(values[i]);
        bad = bad || (kept == WEIR_F16 && is_infinite_half(bits));
        put_half(piece, (size_t)i, bits);
    }
    return bad ? WEIR_EFORMAT : WEIR_OK;
}

/* Expands CHUNK values of a file's row at a time; `to` is the row in f32, or its panel. */
static weir_status pack_dense_row(
    uint8_t *to, weir_dtype kept, const uint8_t *source, weir_dtype file, int64_t n_in, int64_t row
)
{
    for (int64_t column = 0; column < n_in; column += CHUNK) {
        float values[CHUNK];
        const int64_t n = n_in - column < CHUNK ? n_in - column : CHUNK;
        WEIR_TRY(
            weir_k_ref_dequantise_finite(values, source + weir_row_bytes(file, column), file, n)
        );
        if (kept == WEIR_F32) {
            memcpy(to + column * 4, values, (size_t)n * sizeof *values);
            continue;
        }
        for (int64_t i = 0; i < n; i += 8)
            WEIR_TRY(put_halves(
                to + weir_cuda_half_piece(row, column + i), kept, values + i, n - i < 8 ? n - i : 8
            ));
    }
    return WEIR_OK;
}

static weir_status pack_dense(
    uint8_t *to, weir_dtype kept, const uint8_t *source, weir_dtype file, int64_t n_in,
    int64_t count
)
{
    const bool is_half = weir_cuda_is_half(kept);
    size_t bytes;
    if (!weir_cuda_weight_bytes(&bytes, kept, count, n_in)) return WEIR_EINVAL;
    memset(to, 0, bytes);
    for (int64_t row = 0; row < count; row++) {
        const size_t at = is_half ? (size_t)(row / WEIR_CUDA_PANEL) * weir_cuda_half_panel(n_in)
                                  : (size_t)row * weir_cuda_row_stride(n_in);
        WEIR_TRY(pack_dense_row(
            to + at, kept, source + (size_t)row * weir_row_bytes(file, n_in), file, n_in,
            row % WEIR_CUDA_PANEL
        ));
    }
    return WEIR_OK;
}

weir_status weir_cuda_pack_rows(
    void *dst, weir_dtype kept, const void *src, weir_dtype file, int64_t n_in, int64_t first,
    int64_t count
)
{
    const uint8_t *source = (const uint8_t *)src + (size_t)first * weir_row_bytes(file, n_in);
    uint8_t *to = dst;
    if (kept == WEIR_F32 || weir_cuda_is_half(kept))
        return pack_dense(to, kept, source, file, n_in, count);
    weir_cuda_format format;
    if (!weir_cuda_format_of(kept, &format) || file != kept || first % WEIR_CUDA_PANEL)
        return WEIR_EINVAL;
    const size_t panel_bytes = weir_cuda_planes_of(format, n_in).panel_bytes,
                 rows_bytes = WEIR_CUDA_PANEL * weir_row_bytes(file, n_in);
    for (; count > 0; count -= WEIR_CUDA_PANEL, to += panel_bytes, source += rows_bytes)
        WEIR_TRY(pack_panel(
            to, format, kept, source, n_in, count < WEIR_CUDA_PANEL ? (int)count : WEIR_CUDA_PANEL
        ));
    return WEIR_OK;
}

/* ---- one element ----------------------------------------------------------------------------- */
static double half_at(const uint8_t *plane, size_t index)
{
    uint16_t bits;
    memcpy(&bits, plane + index * sizeof bits, sizeof bits);
    return (double)weir_f16_to_f32(bits);
}

static double dense_element(const weir_weight *weight, int64_t row, int64_t column)
{
    const uint8_t *data = weight->data;
    float value;
    uint16_t bits;
    if (weight->dtype == WEIR_F32) {
        data += (size_t)row * weir_cuda_row_stride(weight->n_in) + (size_t)column * sizeof value;
        memcpy(&value, data, sizeof value);
        return (double)value;
    }
    data += (size_t)(row / WEIR_CUDA_PANEL) * weir_cuda_half_panel(weight->n_in) +
            weir_cuda_half_piece(row % WEIR_CUDA_PANEL, column - column % 8);
    if (weight->dtype == WEIR_F16) return half_at(data, (size_t)(column % 8));
    memcpy(&bits, data + column % 8 * 2, sizeof bits);
    return (double)weir_bf16_to_f32(bits);
}

double weir_cuda_element(const weir_weight *weight, int64_t row, int64_t column)
{
    if (weight->dtype == WEIR_F32 || weir_cuda_is_half(weight->dtype))
        return dense_element(weight, row, column);
    weir_cuda_format format;
    if (!weir_cuda_format_of(weight->dtype, &format)) return 0.0;
    const weir_cuda_planes planes = weir_cuda_planes_of(format, weight->n_in);
    const uint8_t *const panel =
        (const uint8_t *)weight->data + (size_t)(row / WEIR_CUDA_PANEL) * planes.panel_bytes;
    const int in_panel = (int)(row % WEIR_CUDA_PANEL), in_step = (int)(column % WEIR_CUDA_STEP);
    const int64_t step = column / WEIR_CUDA_STEP;
    const code_place at = place_of(format.codes, in_panel, in_step);
    const int byte = panel[(size_t)step * weir_cuda_step_code_bytes(format) + at.byte];
    const int nibble = byte >> at.shift & 15;
    const int code = format.codes == WEIR_CUDA_S8                 ? (int8_t)byte
                     : format.codes == WEIR_CUDA_U4 || nibble < 8 ? nibble
                                                                  : nibble - 16;
    const size_t index =
        scale_index(format, in_panel, step, in_step * format.splits / WEIR_CUDA_GROUP);
    if (!format.nested) {
        const double minimum = format.minimum ? half_at(panel + planes.minima, index) : 0.0;
        return half_at(panel + planes.scales, index) * code + minimum;
    }
    const size_t super =
        ((size_t)(column / WEIR_CUDA_SUPER) * PAIRS + (size_t)(in_panel % PAIRS)) * 2 +
        (size_t)(in_panel / PAIRS);
    const double minimum =
        format.minimum ? half_at(panel + planes.dmin, super) * panel[planes.minima + index] : 0.0;
    return half_at(panel + planes.d, super) * (int8_t)panel[planes.scales + index] * code - minimum;
}
