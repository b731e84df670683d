/* kernels/ref/kv_codec.c - see kv_codec.h. One value, one code, one place at a time. */
#include "kernels/ref/kv_codec.h"

#include <math.h>

#include "kernels/abi/convert.h"

/* Below this 1 / d is not finite. */
static const float smallest_step = 0x1p-126f;

/* ---- groups ---------------------------------------------------------------------------------- */
static uint8_t q8_0_code(float t)
{
    const float q = roundf(t);
    return (uint8_t)(int8_t)fmaxf(-127.0f, fminf(127.0f, q));
}

static uint8_t q4_0_code(float t)
{
    const float q = truncf(fmaxf(-8.0f, t) + 8.5f);
    return (uint8_t)fminf(15.0f, q);
}

void weir_kv_block_encode(weir_kv_format format, uint8_t *codes, uint16_t *scale, const float *x)
{
    float largest = 0.0f, signed_largest = 0.0f;
    for (int64_t i = 0; i < WEIR_KV_GROUP; i++) {
        const float value = weir_kv_finite(x[i]);
        if (fabsf(value) > largest) largest = fabsf(value), signed_largest = value;
    }
    const float d = format == WEIR_KV_Q8_0 ? largest / 127.0f : signed_largest / -8.0f;
    const float inverse = fabsf(d) >= smallest_step ? 1.0f / d : 0.0f;
    for (int64_t i = 0; i < WEIR_KV_GROUP; i++) {
        const float t = weir_kv_finite(x[i]) * inverse;
        codes[i] = format == WEIR_KV_Q8_0 ? q8_0_code(t) : q4_0_code(t);
    }
    *scale = weir_f16_from_f32(d);
}

float weir_kv_float8_scale(weir_kv_format format, const float *x, int64_t n)
{
    float largest = 0.0f;
    for (int64_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(weir_kv_finite(x[i])));
    const float scale = largest / (format == WEIR_KV_FP8_E4M3 ? 448.0f : 57344.0f);
    return scale >= smallest_step ? scale : 0.0f;
}

void weir_kv_float8_encode(weir_kv_format format, uint8_t *codes, float scale, const float *x,
                           int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float t = scale > 0.0f ? weir_kv_finite(x[i]) / scale : 0.0f;
        codes[i] = format == WEIR_KV_FP8_E4M3 ? weir_f8_e4m3_from_f32(t) : weir_f8_e5m2_from_f32(t);
    }
}

void weir_kv_affine_encode(int bits, uint8_t *codes, uint16_t *scale, uint16_t *min, const float *x,
                           int64_t n)
{
    const float most = (float)((1 << bits) - 1);
    float       low = weir_kv_finite(x[0]), high = low;
    for (int64_t i = 1; i < n; i++) {
        low = fminf(low, weir_kv_finite(x[i]));
        high = fmaxf(high, weir_kv_finite(x[i]));
    }
    low += 0.0f; /* -0 becomes 0: which of them is the least is nobody's business */
    high += 0.0f;
    *scale = weir_f16_from_f32((high - low) / most);
    *min = weir_f16_from_f32(low);
    const float step = weir_f16_to_f32(*scale), base = weir_f16_to_f32(*min);
    for (int64_t i = 0; i < n; i++) {
        const float t = step > 0.0f ? (weir_kv_finite(x[i]) - base) / step : 0.0f;
        codes[i] = (uint8_t)rintf(fmaxf(0.0f, fminf(most, t)));
    }
}

static const float *book_of(int bits)
{
    static const float book2[] = { WEIR_KV_CODEBOOK2 }, book3[] = { WEIR_KV_CODEBOOK3 },
                       book4[] = { WEIR_KV_CODEBOOK4 };
    return bits == 2 ? book2 : bits == 3 ? book3 : book4;
}

static float centroid(int bits, int code)
{
    const int half = 1 << (bits - 1);
    return code >= half ? book_of(bits)[code - half] : -book_of(bits)[half - 1 - code];
}

void weir_kv_hadamard(float *row, int64_t dim)
{
    for (int64_t h = 1; h < dim; h *= 2)
        for (int64_t i = 0; i < dim; i++) {
            if (i & h) continue;
            const float a = row[i], b = row[i + h];
            row[i] = a + b;
            row[i + h] = a - b;
        }
    for (int64_t i = 0; i < dim; i++) row[i] *= weir_kv_orthonormal(dim);
}

void weir_kv_turbo_encode(int bits, uint8_t *codes, uint16_t *scale, const float *x,
                          const float *sign, int64_t dim)
{
    float  row[WEIR_KV_TURBO_DIM_MAX];
    double squares = 0.0;
    for (int64_t i = 0; i < dim; i++) {
        const float value = weir_kv_finite(x[i]);
        squares += (double)value * (double)value;
        row[i] = sign[i] * value;
    }
    *scale = weir_f16_from_f32((float)sqrt(squares / (double)dim));
    weir_kv_hadamard(row, dim);
    const float s = weir_f16_to_f32(*scale);
    for (int64_t i = 0; i < dim; i++) {
        const float y = s > 0.0f ? row[i] / s : 0.0f;
        codes[i] = 0;
        for (int c = 1; c < 1 << bits; c++)
            codes[i] =
                (uint8_t)(codes[i] + (y >= (centroid(bits, c - 1) + centroid(bits, c)) * 0.5f));
    }
}

float weir_kv_value(weir_kv_format format, uint32_t code, float scale, float min)
{
    switch (weir_kv_scheme_of(format)) {
    case WEIR_KV_PLAIN:
        return format == WEIR_KV_F32   ? weir_f32_from_bits(code)
               : format == WEIR_KV_F16 ? weir_f16_to_f32((uint16_t)code)
                                       : weir_bf16_to_f32((uint16_t)code);
    case WEIR_KV_BLOCK:
        return format == WEIR_KV_Q8_0 ? (float)(int8_t)code * scale : ((float)code - 8.0f) * scale;
    case WEIR_KV_FLOAT8:
        return (format == WEIR_KV_FP8_E4M3 ? weir_f8_e4m3_to_f32((uint8_t)code)
                                           : weir_f8_e5m2_to_f32((uint8_t)code)) *
               scale;
    case WEIR_KV_CHANNEL:
    case WEIR_KV_KIVI: return (float)code * scale + min;
    case WEIR_KV_TURBO: return centroid(weir_kv_bits(format), (int)code) * scale;
    }
    return 0.0f;
}

/* ---- places in a part ------------------------------------------------------------------------ */
/* `n_bits` bits of a code at bit `shift` of the n_bytes wide number at `at`. */
typedef struct place {
    char *at;
    int   n_bytes, shift, n_bits;
} place;

static uint32_t get(place p)
{
    uint32_t number = 0;
    memcpy(&number, p.at, (size_t)p.n_bytes);
    return number >> p.shift & (p.n_bits == 32 ? ~0u : (1u << p.n_bits) - 1u);
}

static void put(place p, uint32_t bits)
{
    uint32_t       number = 0;
    const uint32_t mask = (p.n_bits == 32 ? ~0u : (1u << p.n_bits) - 1u) << p.shift;
    memcpy(&number, p.at, (size_t)p.n_bytes);
    number = (number & ~mask) | (bits << p.shift & mask);
    memcpy(p.at, &number, (size_t)p.n_bytes);
}

/* The code of a value, or its low 2 bits where codes have 3; with `high`, the third bit. */
static place code_place(const weir_kv_part *part, int64_t token, int64_t d, bool high)
{
    const weir_kv_layout layout = weir_kv_layout_of(part->format, part->side, part->dim);
    const int            bits = weir_kv_bits(part->format), low = bits == 3 ? 2 : bits;
    const bool           plain = weir_kv_scheme_of(part->format) == WEIR_KV_PLAIN;
    char *const          codes = (char *)part->coded + layout.codes;
    if (part->side == WEIR_KV_K) {
        char *const   tile = codes + token / WEIR_TILE_TOKENS * layout.codes_step;
        const int64_t t = token % WEIR_TILE_TOKENS;
        if (plain)
            return (place){ tile + (d * WEIR_TILE_TOKENS + t) * bits / 8, bits / 8, 0, bits };
        const int64_t per = 32 / low, word = high ? weir_kv_words(2, part->dim) + d / 32 : d / per;
        return (place){ tile + (word * WEIR_TILE_TOKENS + t) * 4, 4,
                        (int)(high ? d % 32 : low * (d % per)), high ? 1 : low };
    }
    char *const row = codes + token * layout.codes_step;
    if (bits >= 8) return (place){ row + d * bits / 8, bits / 8, 0, bits };
    char *const   block = row + d / 32 * 4 * bits;
    const int64_t i = d % 32;
    if (bits == 4) return (place){ block + i % 16, 1, (int)(i / 16 * 4), 4 };
    if (high) return (place){ block + 8, 4, (int)i, 1 };
    return (place){ block + i / 16 * 4, 4, (int)(2 * (i % 16)), 2 };
}

static void put_code(const weir_kv_part *part, int64_t token, int64_t d, uint32_t code)
{
    put(code_place(part, token, d, false), code);
    if (weir_kv_bits(part->format) == 3) put(code_place(part, token, d, true), code >> 2);
}

static uint32_t get_code(const weir_kv_part *part, int64_t token, int64_t d)
{
    const uint32_t low = get(code_place(part, token, d, false));
    return weir_kv_bits(part->format) == 3 ? low | get(code_place(part, token, d, true)) << 2 : low;
}

/* Which scale belongs to a value: an index into the array of a tile (K) or token (V). */
static int64_t scale_index(const weir_kv_part *part, int64_t token, int64_t d)
{
    const int64_t t = token % WEIR_TILE_TOKENS;
    switch (weir_kv_scheme_of(part->format)) {
    case WEIR_KV_PLAIN: break;
    case WEIR_KV_BLOCK:
        return part->side == WEIR_KV_K ? d / WEIR_KV_GROUP * WEIR_TILE_TOKENS + t
                                       : d / WEIR_KV_GROUP;
    case WEIR_KV_FLOAT8:
    case WEIR_KV_TURBO: return part->side == WEIR_KV_K ? t : 0;
    case WEIR_KV_CHANNEL: return d;
    case WEIR_KV_KIVI: return part->side == WEIR_KV_K ? d : d / WEIR_KV_GROUP;
    }
    return 0;
}

static place scale_place(const weir_kv_part *part, int64_t token, int64_t d, bool min)
{
    const weir_kv_layout layout = weir_kv_layout_of(part->format, part->side, part->dim);
    const int            bytes = weir_kv_scheme_of(part->format) == WEIR_KV_FLOAT8 ? 4 : 2;
    const int64_t        unit = part->side == WEIR_KV_K ? token / WEIR_TILE_TOKENS : token;
    char *const          array = (char *)part->coded + (min ? layout.mins + unit * layout.mins_step
                                                            : layout.scales + unit * layout.scales_step);
    return (place){ array + scale_index(part, token, d) * bytes, bytes, 0, 8 * bytes };
}

static float scale_value(place p)
{
    return p.n_bytes == 4 ? weir_f32_from_bits(get(p)) : weir_f16_to_f32((uint16_t)get(p));
}

/* ---- rows ------------------------------------------------------------------------------------ */
static void encode_plain(const weir_kv_part *part, int64_t token, const float *x)
{
    for (int64_t d = 0; d < part->dim; d++)
        put_code(part, token, d,
                 part->format == WEIR_KV_F32   ? weir_f32_bits(x[d])
                 : part->format == WEIR_KV_F16 ? weir_f16_from_f32(x[d])
                                               : weir_bf16_from_f32(x[d]));
}

static void encode_blocks(const weir_kv_part *part, int64_t token, const float *x)
{
    for (int64_t first = 0; first < part->dim; first += WEIR_KV_GROUP) {
        uint8_t  codes[WEIR_KV_GROUP];
        uint16_t scale;
        weir_kv_block_encode(part->format, codes, &scale, x + first);
        put(scale_place(part, token, first, false), scale);
        for (int64_t i = 0; i < WEIR_KV_GROUP; i++) put_code(part, token, first + i, codes[i]);
    }
}

static void encode_whole(const weir_kv_part *part, int64_t token, const float *x)
{
    uint8_t codes[WEIR_KV_DIM_MAX];
    if (weir_kv_scheme_of(part->format) == WEIR_KV_FLOAT8) {
        const float scale = weir_kv_float8_scale(part->format, x, part->dim);
        weir_kv_float8_encode(part->format, codes, scale, x, part->dim);
        put(scale_place(part, token, 0, false), weir_f32_bits(scale));
    } else {
        float    sign[WEIR_KV_TURBO_DIM_MAX];
        uint16_t scale;
        for (int64_t d = 0; d < part->dim; d++) sign[d] = weir_kv_sign(part->side, d);
        weir_kv_turbo_encode(weir_kv_bits(part->format), codes, &scale, x, sign, part->dim);
        put(scale_place(part, token, 0, false), scale);
    }
    for (int64_t d = 0; d < part->dim; d++) put_code(part, token, d, codes[d]);
}

static weir_kv_part open_part(const weir_kv_part *part)
{
    return (weir_kv_part){ WEIR_KV_F16, part->side, part->dim, part->open, NULL };
}

/* A group of values that share scale and minimum: `n` of them from (token, d) on, along tokens or
 * along dims. */
static void close_group(const weir_kv_part *part, int64_t token, int64_t d, int64_t n,
                        bool along_tokens)
{
    const weir_kv_part open = open_part(part);
    float              x[WEIR_PAGE_TOKENS];
    uint8_t            codes[WEIR_PAGE_TOKENS];
    uint16_t           scale, min;
    for (int64_t i = 0; i < n; i++)
        x[i] = weir_f16_to_f32((uint16_t)(along_tokens ? get_code(&open, token + i, d)
                                                       : get_code(&open, token, d + i)));
    weir_kv_affine_encode(weir_kv_bits(part->format), codes, &scale, &min, x, n);
    put(scale_place(part, token, d, false), scale);
    put(scale_place(part, token, d, true), min);
    for (int64_t i = 0; i < n; i++) {
        if (along_tokens)
            put_code(part, token + i, d, codes[i]);
        else
            put_code(part, token, d + i, codes[i]);
    }
}

static void close_part(const weir_kv_part *part)
{
    const bool channel = weir_kv_scheme_of(part->format) == WEIR_KV_CHANNEL,
               along_tokens = channel || part->side == WEIR_KV_K;
    const int64_t n = channel ? WEIR_PAGE_TOKENS : WEIR_KV_GROUP;
    for (int64_t token = 0; token < WEIR_PAGE_TOKENS; token += along_tokens ? n : 1)
        for (int64_t d = 0; d < part->dim; d += along_tokens ? 1 : n)
            close_group(part, token, d, n, along_tokens);
}

static void encode_row(const weir_kv_part *part, int64_t token, const float *x)
{
    switch (weir_kv_scheme_of(part->format)) {
    case WEIR_KV_PLAIN: encode_plain(part, token, x); return;
    case WEIR_KV_BLOCK: encode_blocks(part, token, x); return;
    case WEIR_KV_FLOAT8:
    case WEIR_KV_TURBO: encode_whole(part, token, x); return;
    case WEIR_KV_CHANNEL:
    case WEIR_KV_KIVI: break;
    }
    const weir_kv_part open = open_part(part);
    for (int64_t d = 0; d < part->dim; d++)
        put_code(&open, token, d, weir_f16_from_f32(weir_kv_finite(x[d])));
    if (token == WEIR_PAGE_TOKENS - 1) close_part(part);
}

void weir_kv_encode_rows(const weir_kv_part *part, int64_t first, int64_t n, const float *rows,
                         int64_t stride)
{
    for (int64_t i = 0; i < n; i++) encode_row(part, first + i, rows + i * stride);
}

void weir_kv_decode_rows(const weir_kv_part *part, int64_t first, int64_t n, float *rows,
                         int64_t stride, bool rotated)
{
    const weir_kv_scheme scheme = weir_kv_scheme_of(part->format);
    for (int64_t i = 0; i < n; i++) {
        float *const row = rows + i * stride;
        for (int64_t d = 0; d < part->dim; d++) {
            const float scale = scheme == WEIR_KV_PLAIN
                                    ? 1.0f
                                    : scale_value(scale_place(part, first + i, d, false));
            const float min = weir_kv_needs_open(part->format)
                                  ? scale_value(scale_place(part, first + i, d, true))
                                  : 0.0f;
            row[d] = weir_kv_value(part->format, get_code(part, first + i, d), scale, min);
        }
        if (scheme != WEIR_KV_TURBO || rotated) continue;
        weir_kv_hadamard(row, part->dim);
        for (int64_t d = 0; d < part->dim; d++) row[d] *= weir_kv_sign(part->side, d);
    }
}

void weir_kv_decode_open(const weir_kv_part *part, int64_t first, int64_t n, float *rows,
                         int64_t stride)
{
    const weir_kv_part open = open_part(part);
    weir_kv_decode_rows(&open, first, n, rows, stride, false);
}
