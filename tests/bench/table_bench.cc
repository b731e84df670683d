// One benchmark per row of the kernel table and bench case, with the bandwidth of the memory that
// it reads. Inputs rotate among copies that no cache holds (tests/bench/README.md).
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>

#include "offload/bandwidth.h"
#include "offload/dispatch.h"
#include "offload/table.h"
#include "tests/kernel/matmul_cases.h"

namespace weir_test {
namespace {

constexpr double kRotated = 192e6, kSmall = 1e6;
constexpr size_t kHugePage = 2 << 20, kArena = (size_t)2 << 30, kLeastRead = 64 << 20;

// Address space from which arrays are cut one after the other; all of it is given back at once.
class Arena {
  public:
    Arena()
    {
        void *const all = mmap(
            nullptr, kArena + kHugePage, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0
        );
        if (all == MAP_FAILED) std::abort();
        all_ = static_cast<char *>(all);
        begin_ = all_ + (kHugePage - (size_t)(uintptr_t)all_ % kHugePage);
        (void)madvise(begin_, kArena, MADV_HUGEPAGE);
    }
    ~Arena() { (void)munmap(all_, kArena + kHugePage); }
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;

    Allocator allocator()
    {
        return { [this](size_t n) -> void * {
                    n = (n + 63) / 64 * 64;
                    if (n > kArena - used_) return nullptr;
                    used_ += n;
                    return begin_ + used_ - n;
                },
                 [](void *, size_t) {} };
    }
    double read_gbps() const { return weir_bandwidth_read(begin_, used_, 0); }
    size_t used() const { return used_; }

  private:
    char *all_, *begin_;
    size_t used_ = 0;
};

struct Copies { // built when first asked, kept while one case is measured
    Arena arena;
    std::vector<std::unique_ptr<Builder>> builders;
    std::vector<const void *> args;
    explicit Copies(const Case &test_case)
    {
        const double bytes = test_case.work.bytes;
        const int n = bytes < kSmall ? 1 : std::clamp((int)(kRotated / bytes), 1, 32);
        for (int i = 0; i < n; i++) {
            builders.push_back(std::make_unique<Builder>(test_case.name, arena.allocator()));
            args.push_back(test_case.build(*builders.back(), false));
        }
    }
};

double median(std::vector<double> values)
{
    std::nth_element(values.begin(), values.begin() + (ptrdiff_t)values.size() / 2, values.end());
    return values[values.size() / 2];
}

void measure(
    benchmark::State &state, weir_stream *stream, const weir_kernel *row, const Case &test_case
)
{
    const Copies copies(test_case);
    if (const char *why = weir_kernel_reject(stream, row, copies.args[0])) {
        state.SkipWithError(why);
        return;
    }
    std::vector<double> seconds, read; // of a call; GB/s
    for (auto _ : state) {
        const auto start = std::chrono::steady_clock::now();
        for (const void *args : copies.args)
            if (weir_kernel_run(stream, row, args) != WEIR_OK)
                state.SkipWithError("the kernel failed");
        seconds.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
            (double)copies.args.size()
        );
        state.SetIterationTime(seconds.back());
        if (copies.arena.used() >= kLeastRead) read.push_back(copies.arena.read_gbps());
    }
    if (seconds.empty()) return;
    const double of_call = median(seconds), rate = test_case.work.bytes / of_call * 1e-9;
    state.counters["median_us"] = of_call * 1e6;
    state.counters["GB/s"] = rate;
    state.counters["GFLOP/s"] = test_case.work.flops / of_call * 1e-9;
    if (!read.empty())
        state.counters["read_GB/s"] = median(read),
        state.counters["of_bandwidth"] = rate / median(read);
}

} // namespace
} // namespace weir_test

int main(int argc, char **argv)
{
    using namespace weir_test;
    weir_stream_options options = {};
    weir_stream *stream = nullptr;
    weir_error error = {};
    benchmark::Initialize(&argc, argv);
    if (weir_stream_open(&stream, &options, &error) != WEIR_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    size_t n_rows;
    const weir_table_row *const table = weir_table_rows(&n_rows);
    for (size_t i = 0; i < n_rows; i++) {
        const weir_kernel *const row = table[i].kernel;
        for (const Case &test_case : bench_cases(row->op, stream))
            if (row->backend != WEIR_BACKEND_REF)
                benchmark::RegisterBenchmark(
                    (std::string(row->name) + "/" + test_case.name).c_str(),
                    [=](benchmark::State &state) { measure(state, stream, row, test_case); }
                )->UseManualTime();
    }
    benchmark::RunSpecifiedBenchmarks();
    weir_stream_close(stream);
    return 0;
}
