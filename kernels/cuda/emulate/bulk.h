/* kernels/cuda/emulate/bulk.h - emulates kernels/cuda/bulk.h. */
#pragma once
#include "kernels/cuda/emulate/async.h"

namespace weir_cuda {

inline void begin_phases(uint64_t *phases, unsigned arrivals)
{
    weir_emulate::begin_phases(phases, arrivals);
}
inline void phases_begun() {}
inline void arrive(uint64_t *phases) { weir_emulate::arrive(phases, 0); }
inline void arrive_expecting(uint64_t *phases, unsigned bytes)
{
    weir_emulate::arrive(phases, bytes);
}
inline void wait_for_phase(uint64_t *phases, unsigned parity, weir_emulate_here here = {})
{
    weir_emulate::wait_for_phase(phases, parity, here.site);
}
inline void copy_bulk(void *shared, const void *global, unsigned bytes, uint64_t *phases)
{
    weir_emulate::copy_bulk(shared, global, bytes, phases);
}
template <int THREADS> void barrier_of(int id, weir_emulate_here here = {})
{
    weir_emulate::barrier_of(id, THREADS, here.site);
}

} // namespace weir_cuda
