/* offload/bandwidth.h - measures the machine's read bandwidth, with which memory-bound kernels are
 * compared.
 *
 * It differs between processes on one machine (threads run on other core complexes), so a report of
 * speed measures it in the same process. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "offload/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_bandwidth {
    double best, median; /* GB/s (1e9 bytes) over the repetitions */
    int32_t n_threads;
} weir_bandwidth;

/* Reads data [bytes] once, a multiple of 256, 64-byte aligned, with all threads. Returns GB/s. 0
 * threads: all. */
double weir_bandwidth_read(const void *data, size_t bytes, int32_t n_threads);

/* Sums a buffer of `bytes` (0: 256 MiB; take several times the last-level cache) with all threads,
 * `repetitions` times (0: 12). */
WEIR_MUST_CHECK weir_status weir_bandwidth_measure(
    weir_bandwidth *out, int32_t n_threads, size_t bytes, int32_t repetitions, weir_error *error
);

/* Copies on a device from one block of its memory to another, `repetitions` (0: 12) times; counts
 * bytes read and written. The two blocks, of half a gibibyte or of a 32nd of the free memory each,
 * are charged to no account and freed again. Returns ENOMEM, EDEVICE. */
WEIR_MUST_CHECK weir_status weir_bandwidth_measure_device(
    weir_bandwidth *out, weir_device *device, int32_t repetitions, weir_error *error
);

#ifdef __cplusplus
}
#endif
