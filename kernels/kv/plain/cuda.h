/* kernels/kv/plain/cuda.h - f16 and bf16 pages in CUDA's attention, which tensor cores read
 * unchanged. */
template <weir_kv_format FORMAT, int BITS> struct SchemePages<WEIR_KV_PLAIN, FORMAT, BITS> {
    static_assert(BITS == 16, "attention reads pages of 16 bits");
    typedef typename PartsOf<FORMAT == WEIR_KV_BF16>::Parts Parts;
    static constexpr bool kIsCoded = false, kHasCodebook = false;
    static constexpr int kBits = BITS, kPlanes = 1;
};
