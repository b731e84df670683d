// Gathering matrices of experts whose tensors have inputs first, and of FP8, in GB/s of what is
// written (engine/model/gather.c).
#include <benchmark/benchmark.h>

#include <vector>

#include "engine/model/model_internal.h"

namespace {

// A matrix of an expert of Qwen3-VL 30B-A3B: gate and up side by side, of which it is one.
constexpr int64_t kOut = 768, kIn = 2048;

void gather(benchmark::State &state, bound_matrix matrix, size_t tensor_bytes)
{
    const std::vector<unsigned char> data(tensor_bytes, 0x3C);
    const size_t bytes = weir_row_bytes(matrix.dtype, kIn) * kOut;
    std::vector<unsigned char> out(bytes);
    matrix.data = data.data();
    for (auto _ : state) {
        weir_matrix_gather(out.data(), &matrix, kOut, kIn, static_cast<int32_t>(state.range(0)));
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
}

void transposed(benchmark::State &state)
{
    bound_matrix matrix = {};
    matrix.runs = { kIn, kIn };
    matrix.stored = matrix.dtype = WEIR_BF16;
    matrix.is_transposed = true;
    matrix.row_width = 2 * kOut;
    gather(state, matrix, static_cast<size_t>(kIn * 2 * kOut) * 2);
}

void scaled(benchmark::State &state)
{
    static const std::vector<float> scales(kOut / 128 * kIn / 128, 0.5f);
    static const weir_tensor tensor = [] {
        weir_tensor t = {};
        t.dtype = WEIR_F32;
        return t;
    }();
    bound_matrix matrix = {};
    matrix.runs = { kOut, kOut };
    matrix.stored = WEIR_F8_E4M3;
    matrix.dtype = WEIR_BF16;
    matrix.scales = &tensor;
    matrix.scale_data = reinterpret_cast<const unsigned char *>(scales.data());
    gather(state, matrix, static_cast<size_t>(kOut * kIn));
}

BENCHMARK(transposed)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(scaled)->Arg(1)->Arg(2)->UseRealTime();

} // namespace

BENCHMARK_MAIN();
