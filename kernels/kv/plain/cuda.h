/* kernels/kv/plain/cuda.h - f16 and bf16 pages in CUDA's attention, which tensor cores read
 * unchanged, and rows of f32, f16 and bf16. */
template <weir_kv_format FORMAT, int BITS> struct SchemePages<WEIR_KV_PLAIN, FORMAT, BITS> {
    static_assert(BITS == 16, "attention reads pages of 16 bits");
    static constexpr bool kIsBf16 = FORMAT == WEIR_KV_BF16, kIsCoded = false, kHasCodebook = false;
    static constexpr int kBits = BITS, kPlanes = 1;
};

template <weir_kv_format FORMAT> struct SchemeRows<WEIR_KV_PLAIN, FORMAT> {
    template <bool IS_K>
    static __device__ __forceinline__ void write(
        char *part, const weir_kv_layout &, int64_t dim, int64_t token, int64_t group, int lane,
        float x
    )
    {
        constexpr int64_t kTile = WEIR_TILE_TOKENS;
        const int64_t d = group * WEIR_KV_GROUP + lane;
        const int64_t at =
            IS_K ? token / kTile * dim * kTile + d * kTile + token % kTile : token * dim + d;
        if (d >= dim) return;
        if (FORMAT == WEIR_KV_F32) reinterpret_cast<float *>(part)[at] = x;
        if (FORMAT == WEIR_KV_F16) reinterpret_cast<__half *>(part)[at] = __float2half_rn(x);
        if (FORMAT == WEIR_KV_BF16)
            reinterpret_cast<__nv_bfloat16 *>(part)[at] = __float2bfloat16_rn(x);
    }
};
