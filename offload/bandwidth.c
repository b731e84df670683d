/* offload/bandwidth.c - sums a large buffer with the widest registers of the machine, one
 * contiguous part per thread; measures a device with its own copies. */
#include "offload/bandwidth.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/base/clock.h"
#include "offload/caps.h"

enum {
    MAX_REPETITIONS = 1000,
    VECTOR_BYTES = 64,
    CHAINS = 4,
    STEP = VECTOR_BYTES * CHAINS,
    AHEAD = 8192
};
#define HUGE_PAGE ((size_t)2 << 20)
#define DEFAULT_BYTES ((size_t)256 << 20)

typedef uint64_t vector __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t (*sum_function)(const char *data, size_t bytes);

/* Four chains hide the latency of an add; the compiler splits vectors where registers are narrower.
 * Without the prefetch, hardware read-ahead leaves up to a third of the bandwidth unused, and
 * kernels that prefetch would show more than 100 %. */
static inline __attribute__((always_inline)) uint64_t sum_body(const char *data, size_t bytes)
{
    vector sums[CHAINS] = { 0 };
    for (size_t at = 0; at < bytes; at += STEP)
        for (size_t c = 0; c < CHAINS; c++) {
            __builtin_prefetch(data + at + c * VECTOR_BYTES + AHEAD, 0, 3);
            sums[c] += *(const vector *)(const void *)(data + at + c * VECTOR_BYTES);
        }
    const vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    uint64_t sum = 0;
    for (int lane = 0; lane < 8; lane++) sum += all[lane];
    return sum;
}
static uint64_t sum_v2(const char *data, size_t bytes) { return sum_body(data, bytes); }
__attribute__((target("avx2"))) static uint64_t sum_v3(const char *data, size_t bytes)
{
    return sum_body(data, bytes);
}
__attribute__((target("avx512f"))) static uint64_t sum_v4(const char *data, size_t bytes)
{
    return sum_body(data, bytes);
}

static sum_function widest_sum(void)
{
    const weir_caps caps = weir_caps_detect();
    return caps.x86_v4 ? sum_v4 : caps.x86_v3 ? sum_v3 : sum_v2;
}

/* Start of thread t's part of `bytes`, a multiple of STEP. */
static size_t part_of(size_t bytes, int32_t n_threads, int32_t t)
{
    return bytes / STEP * (size_t)t / (size_t)n_threads * STEP;
}

/* Each page is first touched by the thread that will read it, so that it is local to it. */
static void touch(char *data, size_t bytes, int32_t n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static, 1)
    for (int32_t t = 0; t < n_threads; t++)
        memset(
            data + part_of(bytes, n_threads, t), t + 1,
            part_of(bytes, n_threads, t + 1) - part_of(bytes, n_threads, t)
        );
}

static uint64_t sum_all(sum_function sum, const char *data, size_t bytes, int32_t n_threads)
{
    uint64_t total = 0;
#pragma omp parallel for num_threads(n_threads) schedule(static, 1) reduction(+ : total)
    for (int32_t t = 0; t < n_threads; t++)
        total +=
            sum(data + part_of(bytes, n_threads, t),
                part_of(bytes, n_threads, t + 1) - part_of(bytes, n_threads, t));
    return total;
}

double weir_bandwidth_read(const void *data, size_t bytes, int32_t n_threads)
{
    const sum_function sum = widest_sum();
    const size_t whole = bytes / STEP * STEP;
    const int64_t start = weir_clock_ns();
    const uint64_t total =
        sum_all(sum, data, whole, n_threads > 0 ? n_threads : omp_get_max_threads());
    __asm__ volatile("" : : "r"(total)); /* the sum is used */
    const int64_t spent = weir_clock_ns() - start;
    return (double)whole / (double)(spent > 0 ? spent : 1);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static weir_bandwidth summarise(double *rates, int32_t n, int32_t n_threads)
{
    qsort(rates, (size_t)n, sizeof rates[0], ascending);
    return (weir_bandwidth){ .best = rates[n - 1], .median = rates[n / 2], .n_threads = n_threads };
}

weir_status weir_bandwidth_measure(
    weir_bandwidth *out, int32_t n_threads, size_t bytes, int32_t repetitions, weir_error *error
)
{
    if (n_threads == 0) n_threads = omp_get_max_threads();
    if (repetitions == 0) repetitions = 12;
    if (bytes == 0) bytes = DEFAULT_BYTES;
    if (n_threads < 1 || n_threads > 1024 || repetitions < 1 || repetitions > MAX_REPETITIONS ||
        bytes > SIZE_MAX / 2)
        return weir_error_set(
            error, WEIR_EINVAL, "bandwidth: %d threads, %d repetitions: out of range", n_threads,
            repetitions
        );
    const size_t rounded = (bytes + STEP - 1) / STEP * STEP;
    double rates[MAX_REPETITIONS];
    char *data = aligned_alloc(HUGE_PAGE, (rounded + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (!data)
        return weir_error_set(
            error, WEIR_ENOMEM, "bandwidth: no %zu bytes for the buffer", rounded
        );
    (void)madvise(data, rounded, MADV_HUGEPAGE);
    touch(data, rounded, n_threads);
    (void)weir_bandwidth_read(data, rounded, n_threads); /* wakes the threads */
    for (int32_t r = 0; r < repetitions; r++)
        rates[r] = weir_bandwidth_read(data, rounded, n_threads);
    free(data);
    *out = summarise(rates, repetitions, n_threads);
    return WEIR_OK;
}

weir_status weir_bandwidth_measure_device(
    weir_bandwidth *out, weir_device *device, int32_t repetitions, weir_error *error
)
{
    const size_t share = weir_device_memory_bytes(device) / 32 / HUGE_PAGE * HUGE_PAGE,
                 most = (size_t)512 << 20;
    const size_t bytes = share < HUGE_PAGE ? HUGE_PAGE : share < most ? share : most;
    double rates[MAX_REPETITIONS];
    if (repetitions == 0) repetitions = 12;
    if (repetitions < 1 || repetitions > MAX_REPETITIONS)
        return weir_error_set(
            error, WEIR_EINVAL, "bandwidth: %d repetitions: out of range", repetitions
        );
    void *const from = weir_device_alloc(device, bytes), *const to =
                                                             weir_device_alloc(device, bytes);
    for (int32_t r = -1; from != NULL && to != NULL && r < repetitions;
         r++) { /* the first one wakes the device */
        const int64_t start = weir_clock_ns();
        weir_device_copy(device, to, from, bytes);
        const int64_t spent = weir_clock_ns() - start;
        if (r >= 0) rates[r] = 2.0 * (double)bytes / (double)(spent > 0 ? spent : 1);
    }
    const bool was_full = from == NULL || to == NULL;
    weir_device_free(device, from, bytes);
    weir_device_free(device, to, bytes);
    const char *const failure = weir_device_failure(device);
    if (failure != NULL) return weir_error_set(error, WEIR_EDEVICE, "bandwidth: %s", failure);
    if (was_full)
        return weir_error_set(
            error, WEIR_ENOMEM, "bandwidth: %s has no %zu bytes left for it; lower memory.device",
            weir_device_name(device), 2 * bytes
        );
    *out = summarise(rates, repetitions, 1);
    return WEIR_OK;
}
