// The single source as a device would run it, against ref: the emulated device, the offload build
// with x86 images, or a GPU through its plugin. No test framework: this runs on bare machines.
// Arguments: tests/README.md.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "offload/device_table.h"
#include "offload/gpu_loader.h"
#include "tests/kernel/cases.h"
#include "tests/kernel/references.h"

namespace weir_test {
namespace {

struct Device {
    std::string name;
    std::vector<const weir_kernel *> rows;
    weir_caps caps = {};
    weir_kernel_context context = {};
    int n_teams = 2;
    Allocator allocator = host_allocator();
    std::function<weir_status()> synchronize = [] { return WEIR_OK; };
    std::function<void(void *dst, const void *src, size_t n_bytes)> copy =
        [](void *dst, const void *src, size_t n) { std::memcpy(dst, src, n); };
};

Device linked_device()
{
    Device device;
    size_t count;
    const weir_kernel *const *rows = weir_device_rows(&count);
    device.rows.assign(rows, rows + count);
    const bool images = omp_get_num_devices() > 0;
    device.name = images ? "offload images" : "emulated";
    device.context.omp_device = images ? 0 : omp_get_initial_device();
    return device;
}

// Shared memory, so that ref and the comparison read what the kernels read; benches get the
// device's own through migration.
Device plugin_device(const char *path)
{
    weir_gpu gpu;
    weir_error error;
    if (weir_gpu_open(&gpu, path, &error) != WEIR_OK) {
        std::printf("%s\n", error.text);
        std::exit(2);
    }
    const weir_gpu_plugin *plugin = gpu.plugin;
    Device device;
    size_t count;
    const weir_kernel *const *rows = plugin->kernels(&count);
    device.rows.assign(rows, rows + count);
    device.name = gpu.probe.devices[0].name;
    device.caps.cuda_capability = gpu.probe.devices[0].capability;
    char text[200] = "";
    size_t free_bytes;
    if (plugin->open(0, &device.context, &free_bytes, text, sizeof text) != WEIR_OK) {
        std::printf("%s\n", text);
        std::exit(2);
    }
    device.synchronize = [plugin] { return plugin->synchronize(0, nullptr, 0); };
    device.copy = [plugin](void *dst, const void *src, size_t n) {
        (void)plugin->copy(0, dst, src, n, nullptr, 0);
    };
    device.allocator = {
        [plugin](size_t n) {
            void *memory = nullptr;
            return plugin->alloc(&memory, 0, WEIR_GPU_MEMORY_MANAGED, n, nullptr, 0) == WEIR_OK
                       ? memory
                       : nullptr;
        },
        [plugin](void *memory, size_t) { plugin->free(0, WEIR_GPU_MEMORY_MANAGED, memory); }
    };
    return device;
}

struct Scratch { // freed with the builder's memory
    weir_kernel_context context = {};
    Scratch(const Device &device, const weir_kernel *row, const void *args, Builder &b)
    {
        context = device.context;
        context.n_threads = device.n_teams;
        context.scratch_bytes = row->scratch ? row->scratch(args) : 0;
        if (context.scratch_bytes > 0) context.scratch = b.bytes(context.scratch_bytes);
    }
};

weir_status run(
    const Device &device, const weir_kernel *row, const weir_kernel_context &context,
    const void *args
)
{
    const weir_status status = row->run(&context, args), ended = device.synchronize();
    return status != WEIR_OK ? status : ended;
}

bool holds(const std::string &text, const char *part)
{
    return !part || text.find(part) != std::string::npos;
}

const Builder &expected(const Case &test_case, weir_op op)
{
    static std::map<std::string, std::unique_ptr<Builder>> done;
    auto &slot = done[test_case.name];
    if (!slot) {
        slot = std::make_unique<Builder>(test_case.name);
        const void *args = test_case.build(*slot, true);
        weir_kernel_context context = {};
        context.n_threads = 1;
        const weir_kernel *reference = reference_kernel(op);
        context.scratch_bytes = reference->scratch ? reference->scratch(args) : 0;
        if (context.scratch_bytes > 0) context.scratch = slot->bytes(context.scratch_bytes);
        if (reference->run(&context, args) != WEIR_OK)
            std::printf("ref failed on %s\n", test_case.name.c_str());
    }
    return *slot;
}

// Bazel's shards of a test take turns at the cases of an op, so each reference is computed once.
struct Shard {
    size_t index = 0, total = 1;
    Shard()
    {
        const char *const at = std::getenv("TEST_SHARD_INDEX"),
                          *const of = std::getenv("TEST_TOTAL_SHARDS"),
                          *const status = std::getenv("TEST_SHARD_STATUS_FILE");
        if (!at || !of) return;
        index = std::strtoul(at, nullptr, 10), total = std::strtoul(of, nullptr, 10);
        if (std::FILE *file = status ? std::fopen(status, "w") : nullptr) std::fclose(file);
    }
    // In the order 0 1 1 0: every other case of some ops is a large one.
    bool has(size_t n) const { return (n + n / 2) % total == index; }
};

// Why a row takes nothing on this device: it is for another generation. All must take sm_80.
bool is_for_others(const char *why)
{
    return holds(why, "needs sm_") && !holds(why, "needs sm_80");
}

// most: the number of an op's cases to run, at equal distances; 0: all.
int check(const Device &device, const char *row_part, const char *case_part, size_t most)
{
    const Shard shard;
    int ran = 0, failed = 0;
    for (const weir_kernel *row : device.rows) {
        int row_ran = 0, row_failed = 0, row_accepted = 0;
        bool is_barred = false;
        size_t n_cases = 0;
        if (!holds(row->name, row_part)) continue;
        const std::vector<Case> cases = parity_cases(row->op);
        const size_t step = most > 0 ? (cases.size() + most - 1) / most : 1;
        for (size_t i = 0; i < cases.size(); i += step) {
            const Case &test_case = cases[i];
            if (!holds(test_case.name, case_part)) continue;
            const bool is_here = shard.has(n_cases++);
            if (!is_here && row_accepted > 0) continue;
            Builder b(test_case.name, device.allocator);
            const void *args = test_case.build(b, false);
            if (const char *why = row->reject ? row->reject(&device.caps, args) : nullptr) {
                is_barred = is_barred || is_for_others(why);
                continue;
            }
            row_accepted++;
            if (!is_here) continue;
            const Scratch scratch(device, row, args, b);
            const weir_status status = run(device, row, scratch.context, args);
            std::string why =
                status == WEIR_OK
                    ? difference(expected(test_case, row->op), b, row->atol, row->rtol)
                    : "returned an error";
            if (why.empty() && !b.guards_intact()) why = "wrote outside its arrays";
            if (!why.empty())
                std::printf("FAIL %s, %s: %s\n", row->name, test_case.name.c_str(), why.c_str()),
                    row_failed++;
            row_ran++;
        }
        if (row_accepted == 0 && is_barred) {
            std::printf("%-36s is for other devices\n", row->name);
            continue;
        }
        std::printf(
            "%-36s %3d cases%s\n", row->name, row_ran,
            row_failed     ? ", FAILED"
            : row_accepted ? ""
                           : ", NONE ACCEPTED"
        );
        ran += row_ran, failed += row_failed + (row_accepted == 0 && !case_part);
    }
    std::printf("%s: %d cases, %d failed\n", device.name.c_str(), ran, failed);
    return failed == 0 && ran > 0 ? 0 : 1;
}

double seconds(const std::function<void()> &work)
{
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int bench(const Device &device, const char *row_part, const char *case_part)
{
    std::printf("%-36s %-60s %10s %9s %10s\n", "row", "case", "best us", "GB/s", "GFLOP/s");
    for (const weir_kernel *row : device.rows)
        for (const Case &test_case : bench_cases(row->op)) {
            if (!holds(row->name, row_part) || !holds(test_case.name, case_part)) continue;
            Builder b(test_case.name, device.allocator);
            const void *args = test_case.build(b, false);
            if (row->reject && row->reject(&device.caps, args)) continue;
            const Scratch scratch(device, row, args, b);
            double best = 1e9, spent = 0;
            for (int i = 0; i < 3 || (i < 200 && spent < 0.5); i++) {
                const double t = seconds([&] { (void)run(device, row, scratch.context, args); });
                if (i > 0) best = std::min(best, t);
                spent += t;
            }
            std::printf(
                "%-36s %-60s %10.1f %9.1f %10.1f\n", row->name, test_case.name.c_str(), best * 1e6,
                test_case.work.bytes / best * 1e-9, test_case.work.flops / best * 1e-9
            );
            std::fflush(stdout);
        }
    return 0;
}

} // namespace
} // namespace weir_test

int main(int argc, char **argv)
{
    const char *plugin = nullptr, *row = nullptr, *part = nullptr;
    bool timed = false;
    int teams = 2, capability = 0, most = 0;
    for (int i = 1; i < argc; i++) {
        if (!std::strcmp(argv[i], "--bench"))
            timed = true;
        else if (!std::strcmp(argv[i], "--case") && i + 1 < argc)
            part = argv[++i];
        else if (!std::strcmp(argv[i], "--row") && i + 1 < argc)
            row = argv[++i];
        else if (!std::strcmp(argv[i], "--teams") && i + 1 < argc)
            teams = std::atoi(argv[++i]);
        else if (!std::strcmp(argv[i], "--most") && i + 1 < argc)
            most = std::max(std::atoi(argv[++i]), 0);
        else if (!std::strcmp(argv[i], "--capability") && i + 1 < argc)
            capability = std::atoi(argv[++i]);
        else
            plugin = argv[i];
    }
    weir_test::Device device =
        plugin ? weir_test::plugin_device(plugin) : weir_test::linked_device();
    device.n_teams = teams;
    if (capability > 0) device.caps.cuda_capability = capability;
    return timed ? weir_test::bench(device, row, part)
                 : weir_test::check(device, row, part, (size_t)most);
}
