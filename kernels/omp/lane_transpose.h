/* kernels/omp/lane_transpose.h - squares of floats transposed in registers. */
#pragma once
#include "kernels/omp/lanes.h"

#pragma omp declare target
/* to[j * to_stride + i] = from[i * n + j], i and j < n; n a multiple of LANE_WIDTH. Threads share
 * the elements. */
#if defined(WEIR_GPU_LANES) || defined(WEIR_EMULATE_LANES)
WEIR_INLINE void lane_transpose(
    float *restrict to, int64_t to_stride, const float *restrict from, int n, int tid
)
{
    for (int at = tid; at < n * n; at += LANE_THREADS)
        to[at / n * to_stride + at % n] = from[at % n * n + at / n];
}
#else
/* Lanes of a and b by turns, of their first halves and of their second. */
#if LANE_WIDTH_IS_16
#define LANE_ZIP_LOW(a, b)                                                                         \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define LANE_ZIP_HIGH(a, b)                                                                        \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif LANE_WIDTH_IS_8
#define LANE_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define LANE_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define LANE_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define LANE_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif
/* A square of LANE_WIDTH lanes in registers: each pass turns the bits of (row, lane) by one. */
WEIR_INLINE void lane_transpose_square(
    float *restrict to, int64_t to_stride, const float *restrict from, int64_t from_stride
)
{
    lane_float x[LANE_WIDTH], y[LANE_WIDTH];
    UNROLL
    for (int i = 0; i < LANE_WIDTH; i++) x[i] = lane_load(from + i * from_stride);
    UNROLL
    for (int pass = 1; pass < LANE_WIDTH; pass *= 2) {
        UNROLL
        for (int i = 0; i < LANE_WIDTH / 2; i++) {
            y[2 * i] = LANE_ZIP_LOW(x[i], x[i + LANE_WIDTH / 2]);
            y[2 * i + 1] = LANE_ZIP_HIGH(x[i], x[i + LANE_WIDTH / 2]);
        }
        UNROLL
        for (int i = 0; i < LANE_WIDTH; i++) x[i] = y[i];
    }
    UNROLL
    for (int i = 0; i < LANE_WIDTH; i++) lane_store(to + i * to_stride, x[i]);
}
WEIR_INLINE void lane_transpose(
    float *restrict to, int64_t to_stride, const float *restrict from, int n, int tid
)
{
    (void)tid;
    for (int i = 0; i < n; i += LANE_WIDTH)
        for (int j = 0; j < n; j += LANE_WIDTH)
            lane_transpose_square(to + j * to_stride + i, to_stride, from + i * n + j, n);
}
#endif
#pragma omp end declare target
