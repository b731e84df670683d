/* kernels/x86/matmul_tiles_avxvnni.c - the product on tiles with AVX-VNNI, the dot product
 * instruction of processors without AVX-512. Registers as in matmul_tiles_v3.c.
 *
 * WEIR_EMULATED: a row of its own for tests, which computes the instruction with those of AVX2. */
#include <immintrin.h>

#ifdef WEIR_EMULATED
static inline __m256i emulated_dpbusd(__m256i sum, __m256i codes, __m256i input)
{
    const __m256i even = _mm256_and_si256(codes, _mm256_set1_epi16(255)),
                  odd = _mm256_srli_epi16(codes, 8);
    const __m256i x0 = _mm256_srai_epi16(_mm256_slli_epi16(input, 8), 8),
                  x1 = _mm256_srai_epi16(input, 8);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even, x0));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(odd, x1));
}
#define LANES_DPBUSD emulated_dpbusd
#define ROW weir_kernel_x86_matmul_tiles_avxvnni_emulated
#define NAME "x86.matmul_tiles.avxvnni_emulated"
#else
#define LANES_DPBUSD _mm256_dpbusd_avx_epi32
#define ROW weir_kernel_x86_matmul_tiles_avxvnni
#define NAME "x86.matmul_tiles.avxvnni"
#endif
#include "kernels/x86/kernels.h"
#include "kernels/x86/matmul_tiles_pass.h"

#define X(index, ...)                                                                              \
    PASS(index, 1, __VA_ARGS__)                                                                    \
    PASS(index, 2, __VA_ARGS__) PASS(index, 3, __VA_ARGS__) PASS(index, 4, __VA_ARGS__)
WEIR_TILES_FORMAT_MAP(X)
#undef X

static const weir_tiles_isa isa = {
    .few_rows = 4,
    .many_rows = 4,
    .row_ahead = 8192,
    .pass = {
#define X(index, ...)                                                                              \
    { NULL, pass_##index##_1, pass_##index##_2, pass_##index##_3, pass_##index##_4 },
        WEIR_TILES_FORMAT_MAP(X)
#undef X
    },
    .quantise = quantise_groups,
};

static const char *reject(const weir_caps *caps, const void *args)
{
#ifdef WEIR_EMULATED
    const bool here = caps->x86_v3;
#else
    const bool here = caps->x86_v3 && caps->avx_vnni;
#endif
    return here ? weir_tiles_reject(args) : "needs AVX-VNNI";
}
static size_t scratch(const void *args) { return weir_tiles_scratch(&isa, args); }
static weir_status run(const weir_kernel_context *context, const void *args)
{
    return weir_tiles_matmul(&isa, context, args);
}

const weir_kernel ROW = {
    WEIR_OP_MATMUL, WEIR_BACKEND_X86, NAME, WEIR_TILES_ATOL, WEIR_TILES_RTOL, reject, scratch, run,
};
