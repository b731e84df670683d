/* kernels/kv/turbo/cuda.h - turbo4 pages in CUDA's attention. A centroid is two f16, each in its
 * own plane; a token's scale multiplies its score and its weight (kernels/cuda/attention_turbo.h).
 * The single source writes them. */
template <weir_kv_format FORMAT, int BITS> struct SchemePages<WEIR_KV_TURBO, FORMAT, BITS> {
    static_assert(BITS == 4, "attention expands codes of 4 bits");
    static constexpr bool kIsBf16 = false, kIsCoded = true, kHasCodebook = true;
    static constexpr int kBits = BITS, kPlanes = 2;
};
