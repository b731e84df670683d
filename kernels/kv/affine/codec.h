/* kernels/kv/affine/codec.h - int8 (channel) and kivi: codes between a minimum and a maximum.
 * Included by kernels/ref/kv_codec.c.
 *   scale = f16((max - min) / (2^bits - 1)), min = f16(min), q = round((x - min) / scale), ties to
 *   even, in 0 .. 2^bits - 1
 *   x = q * scale + min */
void weir_kv_affine_encode(
    int bits, uint8_t *codes, uint16_t *scale, uint16_t *min, const float *x, int64_t n
)
{
    const float most = (float)((1 << bits) - 1);
    float low = weir_kv_finite(x[0]), high = low;
    for (int64_t i = 1; i < n; i++) {
        low = fminf(low, weir_kv_finite(x[i]));
        high = fmaxf(high, weir_kv_finite(x[i]));
    }
    low += 0.0f; /* -0 becomes 0: either may be the minimum */
    high += 0.0f;
    *scale = weir_f16_from_f32((high - low) / most);
    *min = weir_f16_from_f32(low);
    const float step = weir_f16_to_f32(*scale), base = weir_f16_to_f32(*min);
    for (int64_t i = 0; i < n; i++) {
        const float t = step > 0.0f ? (weir_kv_finite(x[i]) - base) / step : 0.0f;
        codes[i] = (uint8_t)rintf(fmaxf(0.0f, fminf(most, t)));
    }
}

static float channel_value(weir_kv_format format, uint32_t code, float scale, float min)
{
    (void)format;
    return (float)code * scale + min;
}

static float kivi_value(weir_kv_format format, uint32_t code, float scale, float min)
{
    return channel_value(format, code, scale, min);
}

/* Codes a group of values that share scale and minimum: `n` of them from (token, d) on, along
 * tokens or along dims. */
static void close_group(
    const weir_kv_part *part, int64_t token, int64_t d, int64_t n, bool along_tokens
)
{
    const weir_kv_part unsealed = unsealed_part(part);
    float x[WEIR_PAGE_TOKENS];
    uint8_t codes[WEIR_PAGE_TOKENS];
    uint16_t scale, min;
    for (int64_t i = 0; i < n; i++)
        x[i] = weir_f16_to_f32((uint16_t)(along_tokens ? get_code(&unsealed, token + i, d)
                                                       : get_code(&unsealed, token, d + i)));
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

/* The row stays unsealed; the last one seals the page. */
static void encode_channel(const weir_kv_part *part, int64_t token, const float *x)
{
    const weir_kv_part unsealed = unsealed_part(part);
    for (int64_t d = 0; d < part->dim; d++)
        put_code(&unsealed, token, d, weir_f16_from_f32(weir_kv_finite(x[d])));
    if (token == WEIR_PAGE_TOKENS - 1) close_part(part);
}

static void encode_kivi(const weir_kv_part *part, int64_t token, const float *x)
{
    encode_channel(part, token, x);
}
