/* kernels/cuda/emulate/warpgroup.h - emulates kernels/cuda/warpgroup.h. */
#pragma once
#include "kernels/cuda/emulate/async.h"

#define WEIR_HAS_WARPGROUPS

namespace weir_cuda {

typedef weir_emulate::Operand matrix;
inline matrix matrix_of(const void *rows) { return { static_cast<const char *>(rows), 0 }; }
inline matrix inputs_from(matrix m, int k) { return { m.rows, m.k + k }; }

inline void fence_products() { weir_emulate::fence_products(); }
inline void commit_products() { weir_emulate::commit_products(); }
template <int LEFT> void wait_for_products(weir_emulate_here here = {})
{
    weir_emulate::wait_for_products(LEFT, here.site);
}
template <bool IS_F16, int N> void multiply(float (&sums)[N / 2], matrix a, matrix b, bool keeps)
{
    weir_emulate::multiply({ sums, N, IS_F16, keeps, a, b });
}

template <int N> void give_registers()
{
    static_assert(N % 8 == 0 && N >= 24 && N <= 256, "no such number of registers");
}
template <int N> void take_registers() { give_registers<N>(); }

} // namespace weir_cuda
