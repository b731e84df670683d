// The plugin's images against libomptarget and a driver that is played: every architecture gets its
// image, kernels are found and launched. images_test [89]: all architectures that were built, each
// in a process of its own because libomptarget looks once, or one of them.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "offload/gpu_plugin.h"
#include "tests/gpu/fake_driver.h"
#include "tests/kernel/cases.h"

namespace {

struct Device {
    int capability, image;
};
// An image runs on its major version from its minor version on.
const Device kDevices[] = { { 80, 80 }, { 86, 86 },   { 87, 86 },  { 89, 89 },
                            { 90, 90 }, { 100, 100 }, { 103, 100 } };
const int kImages[] = { WEIR_GPU_ARCHS }; // that were built, in ascending order

int failures;

void expect(bool ok, const char *what)
{
    if (ok) return;
    std::printf("    not so: %s\n", what);
    failures++;
}

template <class T> T symbol(void *library, const char *name)
{
    void *found = library ? dlsym(library, name) : nullptr;
    if (!found) std::printf("%s\n", dlerror()), std::exit(1);
    T result;
    std::memcpy(&result, &found, sizeof result);
    return result;
}

const weir_kernel *row_named(const weir_gpu_plugin *plugin, const char *name)
{
    size_t count;
    const weir_kernel *const *rows = plugin->kernels(&count);
    for (size_t i = 0; i < count; i++)
        if (!std::strcmp(rows[i]->name, name)) return rows[i];
    return nullptr;
}

// The size of a team is computed by the host's half of each region.
void expect_whole_teams(const weir_gpu_plugin *plugin, const fake_driver_report *report)
{
    size_t count;
    const weir_kernel *const *rows = plugin->kernels(&count);
    weir_kernel_context context = {};
    for (size_t i = 0; i < count; i++) {
        if (std::strncmp(rows[i]->name, "omp.", 4) != 0) continue;
        const int before = report->n_launches;
        for (const weir_test::Case &test_case : weir_test::parity_cases(rows[i]->op)) {
            weir_test::Builder b(test_case.name);
            const void *args = test_case.build(b, false);
            const weir_caps caps = {};
            if (rows[i]->reject && rows[i]->reject(&caps, args)) continue;
            context.scratch_bytes = rows[i]->scratch ? rows[i]->scratch(args) : 0;
            context.scratch = context.scratch_bytes > 0 ? b.bytes(context.scratch_bytes) : nullptr;
            expect(rows[i]->run(&context, args) == WEIR_OK, test_case.name.c_str());
        }
        const bool is_whole = report->n_launches > before && report->least_threads == 128;
        expect(is_whole, (std::string(rows[i]->name) + " launches teams of 128").c_str());
        if (!is_whole) return;
    }
}

int check(const Device &device)
{
    setenv("FAKE_CAPABILITY", std::to_string(device.capability).c_str(), 1);
    setenv("OMP_TARGET_OFFLOAD", "MANDATORY", 1);
    void *driver = dlopen("tests/gpu/libfake_driver.so", RTLD_NOW | RTLD_LOCAL),
         *library = dlopen("offload/libweir_gpu.so", RTLD_NOW | RTLD_LOCAL);
    if (!driver || !library) std::printf("%s\n", dlerror()), std::exit(1);
    const fake_driver_report *report =
        symbol<const fake_driver_report *(*)()>(driver, "fake_driver")();

    const char *why = symbol<const char *(*)()>(library, "weir_gpu_images_register")();
    if (why) std::printf("    %s\n", why);
    expect(!why, "the images are registered");
    expect(
        symbol<int (*)(
            )>(dlopen("libomptarget.so.19.1", RTLD_NOW | RTLD_NOLOAD), "omp_get_num_devices")() ==
            1,
        "OpenMP sees the device"
    );

    float weight[64] = {}, src[192] = {}, dst[192] = {};
    weir_rmsnorm_args args = {};
    args.dst = dst, args.src = src, args.weight = weight;
    args.n_rows = 3, args.n_groups = 1, args.dim = 64, args.dst_stride = args.src_stride = 64;
    weir_kernel_context context = {};
    const auto *plugin = symbol<const weir_gpu_plugin *(*)()>(library, WEIR_GPU_PLUGIN_ENTRY)();
    const weir_kernel *row = row_named(plugin, "omp.rmsnorm.nvptx");
    expect(row != nullptr, "there is a row for rmsnorm");
    if (row) expect(row->run(&context, &args) == WEIR_OK, "it runs");

    expect(report->is_fat_binary, "the driver gets the fat binary");
    expect(report->n_images == sizeof kImages / sizeof kImages[0], "of all images");
    for (int i = 0; i < report->n_images; i++)
        expect(report->images[i] == kImages[i], "in ascending order");
    expect(report->chosen == device.image, "the best of them fits");
    expect(report->n_launches == 1, "one kernel is launched");
    expect(report->blocks == 3 && report->threads == 128, "3 teams of 128 threads");
    expect(
        report->function && std::strstr(report->function, "weir_k_omp_rmsnorm_nvptx"),
        "it is rmsnorm's"
    );
    expect((report->stream_flags & 1) == 0, "streams wait for the default stream");
    const int launches = report->n_launches;
    if (device.capability == 90) expect_whole_teams(plugin, report);
    std::printf(
        "sm_%-4d image %-4d launches %d  %s\n", device.capability, report->chosen, launches,
        failures ? "FAILED" : "ok"
    );
    return failures ? 1 : 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc > 1)
        for (const Device &device : kDevices)
            if (device.capability == std::atoi(argv[1])) return check(device);
    int failed = 0;
    for (const Device &device : kDevices) {
        if (std::find(std::begin(kImages), std::end(kImages), device.image) == std::end(kImages))
            continue;
        const std::string command =
            "exec " + std::string(argv[0]) + " " + std::to_string(device.capability);
        failed += std::system(command.c_str()) != 0;
    }
    return failed ? 1 : 0;
}
