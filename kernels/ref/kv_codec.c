/* kernels/ref/kv_codec.c - see kv_codec.h. Codes one value at a time. */
#include "kernels/ref/kv_codec.h"

#include <math.h>

#include "kernels/abi/convert.h"

/* Below this 1 / d is not finite. */
static const float smallest_step = 0x1p-126f;

/* ---- places in a part ------------------------------------------------------------------------ */
/* `n_bits` bits of a code at bit `shift` of the n_bytes wide integer at `at`. */
typedef struct place {
    char *at;
    int n_bytes, shift, n_bits;
} place;

static uint32_t get(place p)
{
    uint32_t number = 0;
    memcpy(&number, p.at, (size_t)p.n_bytes);
    return number >> p.shift & (p.n_bits == 32 ? ~0u : (1u << p.n_bits) - 1u);
}

static void put(place p, uint32_t bits)
{
    uint32_t number = 0;
    const uint32_t mask = (p.n_bits == 32 ? ~0u : (1u << p.n_bits) - 1u) << p.shift;
    memcpy(&number, p.at, (size_t)p.n_bytes);
    number = (number & ~mask) | (bits << p.shift & mask);
    memcpy(p.at, &number, (size_t)p.n_bytes);
}

static weir_kv_layout layout_of(const weir_kv_part *part)
{
    return weir_kv_layout_of(part->format, part->side, part->dim);
}

/* The place of a value's code, or of its low 2 bits if codes have 3; with `high`, of the third
 * bit. */
static place code_place(
    const weir_kv_part *part, const weir_kv_layout *layout, int64_t token, int64_t d, bool high
)
{
    const int bits = weir_kv_bits(part->format), low = bits == 3 ? 2 : bits;
    const bool plain = weir_kv_scheme_of(part->format) == WEIR_KV_PLAIN;
    char *const codes = (char *)part->coded + layout->codes;
    if (part->side == WEIR_KV_K) {
        char *const tile = codes + token / WEIR_TILE_TOKENS * layout->codes_step;
        const int64_t t = token % WEIR_TILE_TOKENS;
        if (plain)
            return (place){ tile + (d * WEIR_TILE_TOKENS + t) * bits / 8, bits / 8, 0, bits };
        const int64_t per = 32 / low, word = high ? weir_kv_words(2, part->dim) + d / 32 : d / per;
        return (place){ tile + (word * WEIR_TILE_TOKENS + t) * 4, 4,
                        (int)(high ? d % 32 : low * (d % per)), high ? 1 : low };
    }
    char *const row = codes + token * layout->codes_step;
    if (bits >= 8) return (place){ row + d * bits / 8, bits / 8, 0, bits };
    char *const block = row + d / 32 * 4 * bits;
    const int64_t i = d % 32;
    if (bits == 4) return (place){ block + i % 16, 1, (int)(i / 16 * 4), 4 };
    if (high) return (place){ block + 8, 4, (int)i, 1 };
    return (place){ block + i / 16 * 4, 4, (int)(2 * (i % 16)), 2 };
}

static void put_code(const weir_kv_part *part, int64_t token, int64_t d, uint32_t code)
{
    const weir_kv_layout layout = layout_of(part);
    put(code_place(part, &layout, token, d, false), code);
    if (weir_kv_bits(part->format) == 3) put(code_place(part, &layout, token, d, true), code >> 2);
}

static uint32_t get_code_at(
    const weir_kv_part *part, const weir_kv_layout *layout, int64_t token, int64_t d
)
{
    const uint32_t low = get(code_place(part, layout, token, d, false));
    return weir_kv_bits(part->format) == 3
               ? low | get(code_place(part, layout, token, d, true)) << 2
               : low;
}

static uint32_t get_code(const weir_kv_part *part, int64_t token, int64_t d)
{
    const weir_kv_layout layout = layout_of(part);
    return get_code_at(part, &layout, token, d);
}

static place scale_place(const weir_kv_part *part, int64_t token, int64_t d, bool min);

static weir_kv_part unsealed_part(const weir_kv_part *part)
{
    return (weir_kv_part){ WEIR_KV_F16, part->side, part->dim, part->unsealed, NULL };
}

/* ---- the schemes ----------------------------------------------------------------------------- */
#define WEIR_KV_PART codec.h
#include "kernels/kv/schemes.inc"

float weir_kv_value(weir_kv_format format, uint32_t code, float scale, float min)
{
    switch (weir_kv_scheme_of(format)) {
#define WEIR_KV_SCHEME(NAME, name, ...)                                                            \
    case WEIR_KV_##NAME: return name##_value(format, code, scale, min);
#include "kernels/kv/schemes.inc"
    }
    return 0.0f;
}

static place scale_place_at(
    const weir_kv_part *part, const weir_kv_layout *layout, int64_t token, int64_t d, bool min
)
{
    const int bytes = weir_kv_scale_bytes(part->format);
    const int64_t unit = part->side == WEIR_KV_K ? token / WEIR_TILE_TOKENS : token,
                  index =
                      weir_kv_scale_index(part->format, part->side, token % WEIR_TILE_TOKENS, d);
    const int64_t offset =
        min ? layout->mins + unit * layout->mins_step : layout->scales + unit * layout->scales_step;
    char *const array = (char *)part->coded + offset;
    return (place){ array + index * bytes, bytes, 0, 8 * bytes };
}

static place scale_place(const weir_kv_part *part, int64_t token, int64_t d, bool min)
{
    const weir_kv_layout layout = layout_of(part);
    return scale_place_at(part, &layout, token, d, min);
}

static float scale_value(place p)
{
    return p.n_bytes == 4 ? weir_f32_from_bits(get(p)) : weir_f16_to_f32((uint16_t)get(p));
}

/* ---- rows ------------------------------------------------------------------------------------ */
static void encode_row(const weir_kv_part *part, int64_t token, const float *x)
{
    switch (weir_kv_scheme_of(part->format)) {
#define WEIR_KV_SCHEME(NAME, name, ...)                                                            \
    case WEIR_KV_##NAME: encode_##name(part, token, x); return;
#include "kernels/kv/schemes.inc"
    }
}

void weir_kv_encode_rows(
    const weir_kv_part *part, int64_t first, int64_t n, const float *rows, int64_t stride
)
{
    for (int64_t i = 0; i < n; i++) encode_row(part, first + i, rows + i * stride);
}

void weir_kv_decode_rows(
    const weir_kv_part *part, int64_t first, int64_t n, float *rows, int64_t stride, bool rotated
)
{
    const weir_kv_layout layout = layout_of(part);
    const bool has_scale = weir_kv_scheme_of(part->format) != WEIR_KV_PLAIN,
               has_min = weir_kv_seals_pages(part->format);
    for (int64_t i = 0; i < n; i++) {
        float *const row = rows + i * stride;
        const int64_t token = first + i;
        for (int64_t d = 0; d < part->dim; d++) {
            const float scale =
                has_scale ? scale_value(scale_place_at(part, &layout, token, d, false)) : 1.0f;
            const float min =
                has_min ? scale_value(scale_place_at(part, &layout, token, d, true)) : 0.0f;
            const uint32_t code = get_code_at(part, &layout, token, d);
            row[d] = weir_kv_value(part->format, code, scale, min);
        }
        if (!weir_kv_is_rotated(part->format) || rotated) continue;
        weir_kv_hadamard(row, part->dim);
        for (int64_t d = 0; d < part->dim; d++) row[d] *= weir_kv_sign(part->side, d);
    }
}

void weir_kv_decode_open(
    const weir_kv_part *part, int64_t first, int64_t n, float *rows, int64_t stride
)
{
    const weir_kv_part unsealed = unsealed_part(part);
    weir_kv_decode_rows(&unsealed, first, n, rows, stride, false);
}
