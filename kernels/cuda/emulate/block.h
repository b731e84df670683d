/* kernels/cuda/emulate/block.h - runs the threads of a block as fibers of one host thread:
 * launches, barriers, warp operations, asynchronous copies (async.h has more of these).
 *
 * Fibers run until they wait. Their order is scrambled in every round, some warps sleep until the
 * others cannot continue, and the order of blocks is scrambled too. Shared memory starts as NaN in
 * every block. These end the program with a message:
 *     - barriers that threads reach at different lines, or after some have left the kernel
 *     - warp operations of lanes that are not in their mask, have left, or are at another
 *       operation;
 *       reads from lanes outside the mask
 *     - rows of ldmatrix and targets of copies that are not in shared memory, or not 16-byte
 *       aligned;
 *       copies that nothing waited for
 *     - writes past dynamic shared memory; launches that no device accepts
 * A missing barrier shows as a NaN or a stale value in some of the orders. */
#pragma once
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "kernels/cuda/emulate/types.h"

namespace weir_emulate {

/* The line of a barrier or a warp operation. */
struct Site {
    const char *file;
    int line;
};

[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char *format, ...);

/* ---- of the running fiber -------------------------------------------------------------------- */
struct Place {
    uint3 thread, block;
    dim3 block_shape, grid_shape;
};
extern Place place;

void *dynamic_shared();
bool is_shared(const void *address, size_t bytes);
/* Waits for all threads of the block. Returns the sum of `value` over them. */
int barrier(int value, Site site);

/* Waits for all lanes of `mask`, each with its own arguments; then calls `complete` with all of
 * them, NULL for lanes outside the mask. */
typedef void (*WarpOperation)(void *const *lanes, unsigned mask);
void warp(unsigned mask, WarpOperation complete, void *arguments, Site site);
int lane();
int thread_index(); /* within the block */

/* Waits until is_over(arguments). */
void wait_until(bool (*is_over)(const void *), const void *arguments, Site site);

/* cp.async: 16 bytes are written to shared memory by the wait that covers them; until then the
 * target holds NaN. From NULL: zeros. */
void copy16(void *shared, const void *global);
void commit_copies();
void wait_for_copies(int n_left);

/* Of the thread: kernels overlap (kernels/cuda/cuda.h), so each must wait for the one before it. */
void wait_for_previous();

/* ---- launches -------------------------------------------------------------------------------- */
typedef void (*ThreadBody)(const void *launch);
void run_grid(
    const void *kernel, dim3 grid, dim3 block, size_t shared_bytes, ThreadBody body,
    const void *launch
);
int take_error(); /* cudaError_t of the last launch that no device accepts */
/* 80, or what WEIR_EMULATED_CAPABILITY says: which paths are tested. */
int capability();
/* At most 227 KB of sm_90; otherwise 99, the limit of sm_86 and sm_89, the lowest since sm_80. */
int allow_shared(const void *kernel, int bytes);

template <class... Parameters> struct Launch {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
    static void run(const void *launch)
    {
        const auto *self = static_cast<const Launch *>(launch);
        std::apply(self->kernel, self->arguments);
    }
};

template <class T> struct Same {
    typedef T type;
};
template <class... Parameters>
void launch(
    void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, void *stream,
    typename Same<Parameters>::type... arguments
)
{
    (void)stream;
    const Launch<Parameters...> call = { kernel, std::tuple<Parameters...>(arguments...) };
    run_grid(
        reinterpret_cast<const void *>(kernel), grid, block, shared_bytes,
        Launch<Parameters...>::run, &call
    );
}

} // namespace weir_emulate
