/* kernels/kv/block/codec.h - codes of 32 dims of a token. Included by kernels/ref/kv_codec.c.
 *   q8_0  d = amax / 127, q = round(x * (1 / d)), ties away from zero, in +-127; scale f16(d)
 *         x = q * scale
 *   q4_0  d = M / -8, M the signed value of largest magnitude (the first of equals),
 *         q = min(15, trunc(x * (1 / d) + 8.5)); scale f16(d)
 *         x = (q - 8) * scale */
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

static float block_value(weir_kv_format format, uint32_t code, float scale, float min)
{
    (void)min;
    return format == WEIR_KV_Q8_0 ? (float)(int8_t)code * scale : ((float)code - 8.0f) * scale;
}

static void encode_block(const weir_kv_part *part, int64_t token, const float *x)
{
    for (int64_t first = 0; first < part->dim; first += WEIR_KV_GROUP) {
        uint8_t codes[WEIR_KV_GROUP];
        uint16_t scale;
        weir_kv_block_encode(part->format, codes, &scale, x + first);
        put(scale_place(part, token, first, false), scale);
        for (int64_t i = 0; i < WEIR_KV_GROUP; i++) put_code(part, token, first + i, codes[i]);
    }
}
