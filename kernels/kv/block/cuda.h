/* kernels/kv/block/cuda.h - q8_0 pages in CUDA's attention. Codes are integers, exact in bf16;
 * scales multiply sums of 32 dims (K) and weights (V). */
template <weir_kv_format FORMAT, int BITS> struct SchemePages<WEIR_KV_BLOCK, FORMAT, BITS> {
    static_assert(BITS == 8, "attention expands codes of 8 bits");
    typedef PartsBf16 Parts;
    static constexpr bool kIsCoded = true, kHasCodebook = false;
    static constexpr int kBits = BITS, kPlanes = 1;
};
