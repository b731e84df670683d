/* kernels/cuda/bulk.h - from sm_90 on: copies of whole runs of bytes to shared memory, and the
 * phases that they complete on; barriers of some warps of a block.
 *
 * Phases are a word of shared memory. A phase ends when all arrivals and all announced bytes have
 * come, and the next one begins. The parity of the first is 0: a wait for parity 1 is over before
 * the first phase has ended, so those who fill a ring of stages begin with 1. */
#pragma once
#include "kernels/cuda/cuda.h"

#ifdef WEIR_EMULATE_CUDA
#include "kernels/cuda/emulate/bulk.h"
#else
namespace weir_cuda {

__device__ __forceinline__ unsigned shared_word(const void *shared)
{
    return (unsigned)__cvta_generic_to_shared(shared);
}

/* By one thread; the others may use them after phases_begun() and a barrier. */
__device__ __forceinline__ void begin_phases(uint64_t *phases, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_word(phases)), "r"(arrivals)
                 : "memory");
}
__device__ __forceinline__ void phases_begun()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
__device__ __forceinline__ void arrive(uint64_t *phases)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_word(phases)) : "memory");
}
/* Announces bytes of bulk copies to this phase, then arrives. */
__device__ __forceinline__ void arrive_expecting(uint64_t *phases, unsigned bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_word(phases)
                 ),
                 "r"(bytes)
                 : "memory");
#endif
}
/* Until the phase of this parity has ended. */
__device__ __forceinline__ void wait_for_phase(uint64_t *phases, unsigned parity)
{
#if __CUDA_ARCH__ >= 900
    unsigned is_over;
    do {
        asm volatile("{ .reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_over)
                     : "r"(shared_word(phases)), "r"(parity)
                     : "memory");
    } while (!is_over);
#endif
}

/* Copies `bytes`, a multiple of 16 as both addresses are. */
__device__ __forceinline__ void copy_bulk(
    void *shared, const void *global, unsigned bytes, uint64_t *phases
)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_word(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_word(phases))
                 : "memory");
#endif
}

/* A barrier of THREADS threads of the block, whole warps; 0 is that of __syncthreads(). */
template <int THREADS> __device__ __forceinline__ void barrier_of(int id)
{
    asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

} // namespace weir_cuda
#endif
