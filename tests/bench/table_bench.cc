// One benchmark per row of the kernel table and bench case, beside the bandwidth of this very process (it differs between processes).
//
// Weights and other large inputs are rotated among several copies, so that memory-bound rows read memory and not the last cache.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "offload/bandwidth.h"
#include "offload/dispatch.h"
#include "tests/kernel/matmul_cases.h"

namespace weir_test {
namespace {

constexpr double kRotated = 192e6, kSmall = 1e6;
double           bandwidth_gbps = 0;

struct Copies { // built when first asked, kept while one case is measured
    std::vector<std::unique_ptr<Builder>> builders;
    std::vector<const void *>             args;
    explicit Copies(const Case &test_case)
    {
        const double bytes = test_case.work.bytes;
        const int    n = bytes < kSmall ? 1 : std::clamp((int)(kRotated / bytes), 1, 32);
        for (int i = 0; i < n; i++) {
            builders.push_back(std::make_unique<Builder>(test_case.name));
            args.push_back(test_case.build(*builders.back(), false));
        }
    }
};

void measure(benchmark::State &state, weir_stream *stream, const weir_kernel *row, const Case &test_case)
{
    const Copies copies(test_case);
    if (const char *why = weir_kernel_reject(stream, row, copies.args[0])) {
        state.SkipWithError(why);
        return;
    }
    size_t next = 0;
    for (auto _ : state) {
        if (weir_kernel_run(stream, row, copies.args[next]) != WEIR_OK) state.SkipWithError("the kernel failed");
        next = (next + 1) % copies.args.size();
    }
    const double calls = (double)state.iterations();
    state.counters["GB/s"] = benchmark::Counter(test_case.work.bytes * calls * 1e-9, benchmark::Counter::kIsRate);
    state.counters["GFLOP/s"] = benchmark::Counter(test_case.work.flops * calls * 1e-9, benchmark::Counter::kIsRate);
    state.counters["of_bandwidth"] = benchmark::Counter(test_case.work.bytes * calls * 1e-9 / bandwidth_gbps, benchmark::Counter::kIsRate);
}

}  // namespace
}  // namespace weir_test

int main(int argc, char **argv)
{
    using namespace weir_test;
    weir_stream_options options = {};
    weir_stream        *stream = nullptr;
    weir_error          error = {};
    weir_bandwidth      bandwidth = {};
    benchmark::Initialize(&argc, argv);
    if (weir_stream_open(&stream, &options, &error) != WEIR_OK || weir_bandwidth_measure(&bandwidth, 0, 0, 0, &error) != WEIR_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    bandwidth_gbps = bandwidth.best;
    benchmark::AddCustomContext("read bandwidth",
                                "best " + std::to_string(bandwidth.best) + ", median " + std::to_string(bandwidth.median) + " GB/s");
    for (size_t i = 0; i < weir_kernel_count(); i++) {
        const weir_kernel *row = weir_kernel_at(i);
        for (const Case &test_case : bench_cases(row->op, stream))
            if (row->backend != WEIR_BACKEND_REF)
                benchmark::RegisterBenchmark((std::string(row->name) + "/" + test_case.name).c_str(), [=](benchmark::State &state) {
                    measure(state, stream, row, test_case);
                })->UseRealTime();
    }
    benchmark::RunSpecifiedBenchmarks();
    weir_stream_close(stream);
    return 0;
}
