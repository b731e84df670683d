/* kernels/kv/turbo/codec.h - codes into a codebook of rotated rows. Included by
 * kernels/ref/kv_codec.c.
 *   scale = f16(|x| / sqrt(dim)), y = H D x / scale, code = the centroid whose cell holds y; a
 *   boundary is in the upper cell
 *   x = D H (scale * centroid)
 * H in natural order, H_ij = (-1)^popcount(i & j) / sqrt(dim): stages of sums and differences at
 * distance 1, 2, 4 ..., then one product. */
static const float *codebook_of(int bits)
{
    static const float codebook2[] = { WEIR_KV_CODEBOOK2 }, codebook3[] = { WEIR_KV_CODEBOOK3 },
                       codebook4[] = { WEIR_KV_CODEBOOK4 };
    return bits == 2 ? codebook2 : bits == 3 ? codebook3 : codebook4;
}

static float centroid(int bits, int code)
{
    const int half = 1 << (bits - 1);
    return code >= half ? codebook_of(bits)[code - half] : -codebook_of(bits)[half - 1 - code];
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

void weir_kv_turbo_encode(
    int bits, uint8_t *codes, uint16_t *scale, const float *x, const float *sign, int64_t dim
)
{
    float row[WEIR_KV_TURBO_DIM_MAX];
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

static float turbo_value(weir_kv_format format, uint32_t code, float scale, float min)
{
    (void)min;
    return centroid(weir_kv_bits(format), (int)code) * scale;
}

static void encode_turbo(const weir_kv_part *part, int64_t token, const float *x)
{
    uint8_t codes[WEIR_KV_TURBO_DIM_MAX];
    float sign[WEIR_KV_TURBO_DIM_MAX];
    uint16_t scale;
    for (int64_t d = 0; d < part->dim; d++) sign[d] = weir_kv_sign(part->side, d);
    weir_kv_turbo_encode(weir_kv_bits(part->format), codes, &scale, x, sign, part->dim);
    put(scale_place(part, token, 0, false), scale);
    for (int64_t d = 0; d < part->dim; d++) put_code(part, token, d, codes[d]);
}
