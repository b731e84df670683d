/* kernels/x86/matmul_tiles_avxvnni.c - the product on tiles with AVX-VNNI, the dot product
 * instruction of processors without AVX-512; registers as in matmul_tiles_v3.c. WEIR_EMULATED: a
 * row for tests, which computes the instruction with those of AVX2. */
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
#define RUNS_ON(caps) ((caps)->x86_v3)
#define ROW weir_kernel_x86_matmul_tiles_avxvnni_emulated
#define NAME "x86.matmul_tiles.avxvnni_emulated"
#else
#define LANES_DPBUSD _mm256_dpbusd_avx_epi32
#define RUNS_ON(caps) ((caps)->x86_v3 && (caps)->avx_vnni)
#define ROW weir_kernel_x86_matmul_tiles_avxvnni
#define NAME "x86.matmul_tiles.avxvnni"
#endif
#define ROWS 4
#define FEW_ROWS 4
#define ROW_AHEAD 8192
#define MISSING "needs AVX-VNNI"
#include "kernels/x86/matmul_tiles_row.h"
