/* kernels/kv/float8/codec.h - 8-bit floats under one scale per token. Included by
 * kernels/ref/kv_codec.c.
 *   scale = amax / 448 (e4m3) or amax / 57344 (e5m2), code = nearest(x / scale), saturating
 *   x = value * scale */
float weir_kv_float8_scale(weir_kv_format format, const float *x, int64_t n)
{
    float largest = 0.0f;
    for (int64_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(weir_kv_finite(x[i])));
    const float scale = largest / (format == WEIR_KV_FP8_E4M3 ? 448.0f : 57344.0f);
    return scale >= smallest_step ? scale : 0.0f;
}

void weir_kv_float8_encode(
    weir_kv_format format, uint8_t *codes, float scale, const float *x, int64_t n
)
{
    for (int64_t i = 0; i < n; i++) {
        const float t = scale > 0.0f ? weir_kv_finite(x[i]) / scale : 0.0f;
        codes[i] = format == WEIR_KV_FP8_E4M3 ? weir_f8_e4m3_from_f32(t) : weir_f8_e5m2_from_f32(t);
    }
}

static float float8_value(weir_kv_format format, uint32_t code, float scale, float min)
{
    (void)min;
    return (format == WEIR_KV_FP8_E4M3 ? weir_f8_e4m3_to_f32((uint8_t)code)
                                       : weir_f8_e5m2_to_f32((uint8_t)code)) *
           scale;
}

static void encode_float8(const weir_kv_part *part, int64_t token, const float *x)
{
    uint8_t codes[WEIR_KV_DIM_MAX];
    const float scale = weir_kv_float8_scale(part->format, x, part->dim);
    weir_kv_float8_encode(part->format, codes, scale, x, part->dim);
    put(scale_place(part, token, 0, false), weir_f32_bits(scale));
    for (int64_t d = 0; d < part->dim; d++) put_code(part, token, d, codes[d]);
}
