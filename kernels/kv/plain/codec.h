/* kernels/kv/plain/codec.h - f32, f16, bf16: the value, rounded to nearest even. Included by
 * kernels/ref/kv_codec.c. */
static float plain_value(weir_kv_format format, uint32_t code, float scale, float min)
{
    (void)scale, (void)min;
    return format == WEIR_KV_F32   ? weir_f32_from_bits(code)
           : format == WEIR_KV_F16 ? weir_f16_to_f32((uint16_t)code)
                                   : weir_bf16_to_f32((uint16_t)code);
}

static void encode_plain(const weir_kv_part *part, int64_t token, const float *x)
{
    for (int64_t d = 0; d < part->dim; d++)
        put_code(
            part, token, d,
            part->format == WEIR_KV_F32   ? weir_f32_bits(x[d])
            : part->format == WEIR_KV_F16 ? weir_f16_from_f32(x[d])
                                          : weir_bf16_from_f32(x[d])
        );
}
