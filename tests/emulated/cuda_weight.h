// tests/emulated/cuda_weight.h - random weights in the layout of the CUDA kernels.
#pragma once
#include <algorithm>
#include <cstdlib>

#include "kernels/cuda/weight.h"
#include "tests/unit/matmul/fixture.h"

namespace weir_test {

struct CudaWeight {
    Memory memory;
    weir_weight weight = {};
    // The first n_out rows of a file, which has as many or n_file.
    CudaWeight(weir_dtype dtype, int64_t n_out, int64_t n_in, int64_t n_file = 0, uint32_t seed = 1)
    {
        const auto file = random_file(dtype, std::max(n_out, n_file) * n_in, seed);
        weight.n_out = n_out, weight.n_in = n_in, weight.dtype = dtype,
        weight.layout = WEIR_LAYOUT_CUDA;
        if (!weir_cuda_weight_bytes(&weight.bytes, dtype, n_out, n_in)) std::abort();
        memory = aligned_memory(weight.bytes);
        weight.data = memory.get();
        if (weir_cuda_pack_rows(memory.get(), dtype, file.data(), dtype, n_in, 0, n_out) != WEIR_OK)
            std::abort();
    }
};

} // namespace weir_test
