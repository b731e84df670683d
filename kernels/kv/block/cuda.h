/* kernels/kv/block/cuda.h - q8_0 pages in CUDA's attention, and rows of q8_0. Codes are integers,
 * exact in bf16; scales multiply sums of 32 dims (K) and weights (V). */
template <weir_kv_format FORMAT, int BITS> struct SchemePages<WEIR_KV_BLOCK, FORMAT, BITS> {
    static_assert(BITS == 8, "attention expands codes of 8 bits");
    static constexpr bool kIsBf16 = true, kIsCoded = true, kHasCodebook = false;
    static constexpr int kBits = BITS, kPlanes = 1;
};

template <weir_kv_format FORMAT> struct SchemeRows<WEIR_KV_BLOCK, FORMAT> {
    static_assert(FORMAT == WEIR_KV_Q8_0, "codes of 8 bits");
    static constexpr int64_t kTile = WEIR_TILE_TOKENS, kGroup = WEIR_KV_GROUP;

    static __device__ __forceinline__ float finite(float x)
    {
        x = x == x ? x : 0.0f;
        return fminf(fmaxf(x, -65504.0f), 65504.0f);
    }

    static __device__ __forceinline__ float warp_max(float x)
    {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2)
            x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
        return x;
    }

    /* As codec.h, bit for bit: half away from zero is twice the magnitude, truncated, plus one,
     * halved. */
    static __device__ __forceinline__ signed char code_of(float value, float inverse)
    {
        const float scaled = value * inverse;
        const int magnitude = min(((int)(fabsf(scaled) * 2.0f) + 1) / 2, 127);
        return (signed char)(scaled < 0.0f ? -magnitude : magnitude);
    }

    template <bool IS_K>
    static __device__ __forceinline__ void write(
        char *part, const weir_kv_layout &layout, int64_t, int64_t token, int64_t group, int lane,
        float x
    )
    {
        const int64_t tile = token / kTile, t = token % kTile;
        const int64_t scale_at =
            layout.scales + (IS_K ? tile * layout.scales_step + (group * kTile + t) * 2
                                  : token * layout.scales_step + group * 2);
        /* The first code of the group, and the stride between words of codes. */
        const int64_t codes_at =
            layout.codes + (IS_K ? tile * layout.codes_step + (group * (kGroup / 4) * kTile + t) * 4
                                 : token * layout.codes_step + group * kGroup);
        const int64_t word_step = IS_K ? kTile * 4 : 4;
        const float value = finite(x), step = warp_max(fabsf(value)) / 127.0f,
                    inverse = step >= 0x1p-126f ? 1.0f / step : 0.0f;
        part[codes_at + lane / 4 * word_step + lane % 4] = code_of(value, inverse);
        if (lane == 0) *reinterpret_cast<__half *>(part + scale_at) = __float2half_rn(step);
    }
};
