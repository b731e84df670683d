/* kernels/kv/plain/layout.h - f32, f16, bf16: a float per value, no scales. Rules of all layouts:
 * kernels/abi/kv_format.h. */
static inline const char *weir_kv_plain_reject(weir_kv_side side, int64_t dim)
{
    (void)side, (void)dim;
    return NULL;
}

static inline weir_kv_arrays weir_kv_plain_arrays(weir_kv_side side, int64_t dim)
{
    (void)side, (void)dim;
    const weir_kv_arrays none = { 0, 0, false };
    return none;
}
