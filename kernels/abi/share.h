/* kernels/abi/share.h - a thread's share of a loop inside `omp parallel`.
 *
 * Replaces `omp for schedule(static)`, for which libomp allocates four times per loop: a warm step
 * allocates nothing. Shares are contiguous and equal up to one iteration. */
#pragma once
#include <omp.h>
#include <stdint.h>

typedef struct weir_share {
    int64_t first, end;
} weir_share;

static inline weir_share weir_share_of(int64_t n)
{
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num(),
                  each = n / threads, rest = n % threads;
    const int64_t first = thread * each + (thread < rest ? thread : rest);
    return (weir_share){ first, first + each + (thread < rest) };
}
