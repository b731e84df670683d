/* kernels/cuda/emulate/async.h - what goes on while the threads of an emulated block run: copies,
 * phases in shared memory, bulk copies that complete on them, products of warpgroups
 * (kernels/cuda/bulk.h, kernels/cuda/warpgroup.h).
 *
 * The target of a bulk copy holds NaN until it arrives, at a scrambled time, the latest when no
 * thread can continue. Products read their operands and sums when they are waited for, the latest
 * time that a device may do it. These end the program with a message:
 *     - phases that were not begun, more arrivals than a phase has, phases that never end
 *     - misaligned copies, copies that arrive where nothing waits for them
 *     - products that are not waited for, of operands outside shared memory, not of a whole
 *       warpgroup, or without a fence after the registers were last used */
#pragma once
#include "kernels/cuda/emulate/block.h"

namespace weir_emulate {

void begin_phases(const uint64_t *phases, unsigned arrivals);
/* Announces `bytes` of copies, then arrives. */
void arrive(const uint64_t *phases, int64_t bytes);
/* Until the phase of this parity has ended. */
void wait_for_phase(const uint64_t *phases, unsigned parity, Site site);
void copy_bulk(void *shared, const void *global, size_t bytes, const uint64_t *phases);

/* Barrier `id` of `threads` threads. */
void barrier_of(int id, int threads, Site site);

/* 8 rows of 128 bytes at a time, swizzled: 16 columns from 16 * k on. */
struct Operand {
    const char *rows;
    int k;
};
struct WarpgroupProduct {
    float *sums; /* [columns / 2] of the thread */
    int columns;
    bool is_f16, keeps; /* keeps: adds to the sums, otherwise begins at zero */
    Operand a, b;
};
void fence_products();
void multiply(const WarpgroupProduct &product);
void commit_products();
void wait_for_products(int n_left, Site site);

/* Of the scheduler: a block, and a thread, begins or ends. */
void begin_async();
void end_thread();
void end_async();
bool deliver_copy(uint64_t random); /* a bulk copy arrives; false if none is under way */

} // namespace weir_emulate
