/* kernels/x86/matmul_dense_pass.h - the inner loop of the product on dense panels, for the
 * instruction set that the including file is compiled for. Include once per set, then define the
 * kernel row with DENSE_KERNEL. Per output and row, in ascending order of inputs, and nothing else:
 * sum = sum + weight * x, fused where the machine has FMA, else rounded twice, so AVX2 and SSE
 * differ in the last bits. Bounds: docs/kernels.md. */
#pragma once
#include <immintrin.h>

#include "kernels/abi/convert.h"
#include "kernels/x86/matmul_dense.h"

#define DENSE_INLINE static inline __attribute__((always_inline))
#define DENSE_UNROLL _Pragma("clang loop unroll(full)")

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

typedef __m256 lanes;
enum { LANES = 8 };

DENSE_INLINE lanes lanes_zero(void) { return _mm256_setzero_ps(); }
DENSE_INLINE lanes lanes_all(const float *p) { return _mm256_broadcast_ss(p); }
DENSE_INLINE lanes lanes_load(const float *p) { return _mm256_load_ps(p); }
DENSE_INLINE void lanes_store(float *p, lanes x) { _mm256_store_ps(p, x); }
DENSE_INLINE lanes lanes_add_product(lanes sum, lanes weights, lanes x)
{
    return _mm256_fmadd_ps(weights, x, sum);
}
DENSE_INLINE lanes lanes_low_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_load_si256((const void *)p), 16));
}
DENSE_INLINE lanes lanes_high_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_load_si256((const void *)p), _mm256_set1_epi32((int32_t)0xFFFF0000))
    );
}
DENSE_INLINE lanes lanes_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_load_si128((const void *)p));
}

#else

typedef __m128 lanes;
enum { LANES = 4 };

DENSE_INLINE lanes lanes_zero(void) { return _mm_setzero_ps(); }
DENSE_INLINE lanes lanes_all(const float *p) { return _mm_set1_ps(*p); }
DENSE_INLINE lanes lanes_load(const float *p) { return _mm_load_ps(p); }
DENSE_INLINE void lanes_store(float *p, lanes x) { _mm_store_ps(p, x); }
DENSE_INLINE lanes lanes_add_product(lanes sum, lanes weights, lanes x)
{
    return _mm_add_ps(sum, _mm_mul_ps(weights, x));
}
DENSE_INLINE lanes lanes_low_bf16(const uint16_t *p)
{
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_load_si128((const void *)p), 16));
}
DENSE_INLINE lanes lanes_high_bf16(const uint16_t *p)
{
    return _mm_castsi128_ps(
        _mm_and_si128(_mm_load_si128((const void *)p), _mm_set1_epi32((int32_t)0xFFFF0000))
    );
}
DENSE_INLINE lanes lanes_f16(const uint16_t *p)
{
    const float values[LANES] = { weir_f16_to_f32(p[0]), weir_f16_to_f32(p[1]),
                                  weir_f16_to_f32(p[2]), weir_f16_to_f32(p[3]) };
    return _mm_loadu_ps(values);
}

#endif

/* Vectors go in pairs: outputs p * LANES and up, and those 16 further on. */
enum { HALF_PANEL = WEIR_DENSE_PANEL / 2, PAIRS = HALF_PANEL / LANES };
typedef struct lanes_pair {
    lanes low, high;
} lanes_pair;

/* Pair p of input k. `form` is a constant of the loop that is compiled. */
DENSE_INLINE lanes_pair load_pair(const void *piece, int64_t k, int p, weir_dense_form form)
{
    const int64_t at = k * WEIR_DENSE_PANEL;
    if (form == WEIR_DENSE_F32) {
        const float *const weights = (const float *)piece + at + p * LANES;
        return (lanes_pair){ lanes_load(weights), lanes_load(weights + HALF_PANEL) };
    }
    if (form == WEIR_DENSE_BF16) {
        const uint16_t *const weights = (const uint16_t *)piece + at + 2 * p * LANES;
        return (lanes_pair){ lanes_low_bf16(weights), lanes_high_bf16(weights) };
    }
    const uint16_t *const weights = (const uint16_t *)piece + at + p * LANES;
    return (lanes_pair){ lanes_f16(weights), lanes_f16(weights + HALF_PANEL) };
}

/* Pairs whose accumulators fit in 16 registers together with weights and activations. */
DENSE_INLINE int pairs_of(int rows)
{
    return rows == 1 ? PAIRS : rows > 3 ? 1 : PAIRS < 2 ? PAIRS : 2;
}

DENSE_INLINE void multiply_pairs(
    const weir_dense_pass *pass, int first, int rows, int pairs, weir_dense_form form
)
{
    const int64_t n = pass->n, x_stride = pass->x_stride, ahead_stride = pass->ahead_stride,
                  ahead_pair = ahead_stride / PAIRS;
    const float *x = pass->x;
    const void *piece = pass->piece;
    const char *ahead = pass->ahead + first * ahead_pair;
    lanes_pair sums[WEIR_DENSE_ROWS][PAIRS];
    DENSE_UNROLL
    for (int r = 0; r < rows; r++) {
        DENSE_UNROLL
        for (int p = 0; p < pairs; p++) {
            const float *const from = pass->sums + r * WEIR_DENSE_PANEL + (first + p) * LANES;
            sums[r][p].low = pass->starts ? lanes_zero() : lanes_load(from);
            sums[r][p].high = pass->starts ? lanes_zero() : lanes_load(from + HALF_PANEL);
        }
    }
#pragma clang loop unroll_count(4)
    for (int64_t k = 0; k < n; k++, ahead += ahead_stride) {
        DENSE_UNROLL
        for (int p = 0; p < pairs; p++) {
            const lanes_pair weights = load_pair(piece, k, first + p, form);
            __builtin_prefetch(ahead + p * ahead_pair, 0, 2);
            DENSE_UNROLL
            for (int r = 0; r < rows; r++) {
                const lanes input = lanes_all(x + r * x_stride + k);
                sums[r][p].low = lanes_add_product(sums[r][p].low, weights.low, input);
                sums[r][p].high = lanes_add_product(sums[r][p].high, weights.high, input);
            }
        }
    }
    DENSE_UNROLL
    for (int r = 0; r < rows; r++) {
        DENSE_UNROLL
        for (int p = 0; p < pairs; p++) {
            float *const to = pass->sums + r * WEIR_DENSE_PANEL + (first + p) * LANES;
            lanes_store(to, sums[r][p].low);
            lanes_store(to + HALF_PANEL, sums[r][p].high);
        }
    }
}

DENSE_INLINE void multiply_pass(const weir_dense_pass *pass, int rows, weir_dense_form form)
{
    DENSE_UNROLL
    for (int first = 0; first < PAIRS; first += pairs_of(rows))
        multiply_pairs(pass, first, rows, pairs_of(rows), form);
}

DENSE_INLINE void expand_piece(float *dst, const void *piece, int64_t n, weir_dense_form form)
{
    for (int64_t k = 0; k < n; k++, dst += WEIR_DENSE_PANEL) {
        DENSE_UNROLL
        for (int p = 0; p < PAIRS; p++) {
            const lanes_pair weights = load_pair(piece, k, p, form);
            lanes_store(dst + p * LANES, weights.low);
            lanes_store(dst + HALF_PANEL + p * LANES, weights.high);
        }
    }
}

#define DENSE_PASS(form, rows)                                                                     \
    static void pass_##form##_##rows(const weir_dense_pass *pass)                                  \
    {                                                                                              \
        multiply_pass(pass, rows, WEIR_DENSE_##form);                                              \
    }
#define DENSE_FORM(form)                                                                           \
    DENSE_PASS(form, 1)                                                                            \
    DENSE_PASS(form, 2)                                                                            \
    DENSE_PASS(form, 3) DENSE_PASS(form, 4) DENSE_PASS(form, 5) DENSE_PASS(form, 6)
#define DENSE_PASSES(form)                                                                         \
    { NULL,                                                                                        \
      pass_##form##_1,                                                                             \
      pass_##form##_2,                                                                             \
      pass_##form##_3,                                                                             \
      pass_##form##_4,                                                                             \
      pass_##form##_5,                                                                             \
      pass_##form##_6 }

DENSE_FORM(F32)
DENSE_FORM(BF16)
DENSE_FORM(F16)

static void expand_bf16(float *dst, const void *piece, int64_t n)
{
    expand_piece(dst, piece, n, WEIR_DENSE_BF16);
}
static void expand_f16(float *dst, const void *piece, int64_t n)
{
    expand_piece(dst, piece, n, WEIR_DENSE_F16);
}

static const weir_dense_isa isa = {
    .pass = { DENSE_PASSES(F32), DENSE_PASSES(BF16), DENSE_PASSES(F16) },
    .expand = { NULL, expand_bf16, expand_f16 },
};
static weir_status run(const weir_kernel_context *context, const void *args)
{
    return weir_dense_matmul(&isa, context, args);
}

/* Weights are exact and activations f32: the error is the rounding of n_in sums in f32. */
#define DENSE_KERNEL(level, reject)                                                                \
    const weir_kernel weir_kernel_x86_matmul_dense_##level = {                                     \
        .op = WEIR_OP_MATMUL,                                                                      \
        .backend = WEIR_BACKEND_X86,                                                               \
        .name = "x86.matmul_dense." #level,                                                        \
        .atol = 1e-4,                                                                              \
        .rtol = 1e-5,                                                                              \
        .reject = reject,                                                                          \
        .run = run,                                                                                \
    }
