// libweir_gpu.so itself: loadable anywhere, polite without a device, and with rows to offer.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "offload/gpu_loader.h"

namespace {

const char kPlugin[] = "offload/libweir_gpu.so";

const weir_gpu_plugin *load()
{
    const weir_gpu_plugin *plugin = nullptr;
    weir_error error = {};
    EXPECT_EQ(weir_gpu_plugin_load(&plugin, kPlugin, &error), WEIR_OK) << error.text;
    return plugin;
}

TEST(GpuPlugin, ProbeFindsDevicesOrGivesAReason)
{
    const weir_gpu_plugin *plugin = load();
    ASSERT_NE(plugin, nullptr);
    weir_gpu_probe probe;
    plugin->probe(&probe);
    if (probe.n_devices == 0)
        EXPECT_NE(std::string(probe.reason), "");
    else
        EXPECT_GE(probe.devices[0].capability, 80);
    std::printf(
        "%d devices: %s\n", probe.n_devices, probe.n_devices ? probe.devices[0].name : probe.reason
    );
}

TEST(GpuPlugin, OffersOverridesBeforeTheSingleSource)
{
    const weir_gpu_plugin *plugin = load();
    ASSERT_NE(plugin, nullptr);
    size_t count;
    const weir_kernel *const *rows = plugin->kernels(&count);
    ASSERT_GT(count, 1u);
    EXPECT_EQ(rows[0]->backend, WEIR_BACKEND_CUDA);
    EXPECT_EQ(rows[count - 1]->backend, WEIR_BACKEND_OMP);
}

TEST(GpuPlugin, MemoryCallsFailWithATextWhereThereIsNoDevice)
{
    const weir_gpu_plugin *plugin = load();
    ASSERT_NE(plugin, nullptr);
    weir_gpu_probe probe;
    plugin->probe(&probe);
    if (probe.n_devices > 0) GTEST_SKIP() << "this machine has a device";
    void *memory = nullptr;
    char text[200] = "";
    EXPECT_EQ(
        plugin->alloc(&memory, 0, WEIR_GPU_MEMORY_DEVICE, 100, text, sizeof text), WEIR_EDEVICE
    );
    EXPECT_EQ(memory, nullptr);
    EXPECT_NE(std::string(text), "");
    plugin->free(0, WEIR_GPU_MEMORY_DEVICE, nullptr);
}

TEST(GpuPlugin, OpenGoesBackToTheCpuPolitely)
{
    weir_gpu gpu;
    weir_error error = {};
    const weir_status status = weir_gpu_open(&gpu, kPlugin, &error);
    if (status == WEIR_OK) GTEST_SKIP() << "this machine has a device";
    EXPECT_EQ(status, WEIR_EUNSUPPORTED);
    EXPECT_NE(std::string(error.text), "");
}

}  // namespace
