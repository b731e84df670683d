/* kernels/kv/plain/layout.h - f32, f16, bf16: a float per value, no scales. Rules of all layouts:
 * kernels/abi/kv_format.h. */
static inline const char *weir_kv_plain_reject(weir_kv_side side, int64_t dim)
{
    (void)side, (void)dim;
    return NULL;
}
