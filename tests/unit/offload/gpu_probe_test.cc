// What the plugin says of a machine, case by case: the fact, and what to do about it.
#include "offload/gpu_probe.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace {

const int kArchs[] = { 80, 86, 89, 90, 100 };

// A machine where everything is well, with one device per capability; the tests break one thing.
weir_gpu_facts machine(std::initializer_list<int> capabilities)
{
    weir_gpu_facts facts = {};
    facts.driver_version = facts.runtime_version = 13000;
    for (int capability : capabilities) {
        weir_gpu_device &device = facts.devices[facts.n_cuda++];
        std::snprintf(device.name, sizeof device.name, "NVIDIA %d", capability);
        device.capability = capability;
        device.memory_bytes = 80;
    }
    facts.n_openmp = facts.n_cuda;
    return facts;
}

struct Probed : weir_gpu_probe {
    explicit Probed(const weir_gpu_facts &facts)
    {
        weir_gpu_probe_explain(this, &facts, kArchs, sizeof kArchs / sizeof kArchs[0]);
    }
    bool says(const char *text) const
    {
        return std::string(reason).find(text) != std::string::npos;
    }
};

TEST(GpuProbe, EveryArchitectureOfAnImageIsUsableAndKeepsItsPlace)
{
    Probed p(machine({ 80, 86, 87, 89, 90, 100, 103 }));
    ASSERT_EQ(p.n_devices, 7) << p.reason;
    EXPECT_EQ(p.devices[4].capability, 90);
    EXPECT_EQ(std::string(p.devices[5].name), "NVIDIA 100");
    EXPECT_EQ(std::string(p.reason), "");
}

TEST(GpuProbe, NoDriver)
{
    weir_gpu_facts facts = machine({});
    facts.cuda = WEIR_GPU_CUDA_DRIVER_OLD;
    facts.driver_version = 0;
    Probed p(facts);
    EXPECT_EQ(p.n_devices, 0);
    EXPECT_TRUE(p.says("no NVIDIA driver") && p.says("libcuda.so.1")) << p.reason;
}

TEST(GpuProbe, DriverTooOldNamesBothVersions)
{
    weir_gpu_facts facts = machine({});
    facts.cuda = WEIR_GPU_CUDA_DRIVER_OLD;
    facts.driver_version = 12040;
    Probed p(facts);
    EXPECT_EQ(p.n_devices, 0);
    EXPECT_TRUE(p.says("driver too old") && p.says("CUDA 12.4") && p.says("needs 13.0"))
        << p.reason;
}

TEST(GpuProbe, NoDeviceWhetherTheRuntimeFailsOrCountsNone)
{
    weir_gpu_facts facts = machine({});
    EXPECT_TRUE(Probed(facts).says("no device")) << Probed(facts).reason;
    facts.cuda = WEIR_GPU_CUDA_NO_DEVICE;
    EXPECT_TRUE(Probed(facts).says("no device")) << Probed(facts).reason;
    EXPECT_TRUE(Probed(facts).says("CUDA_VISIBLE_DEVICES")) << Probed(facts).reason;
}

TEST(GpuProbe, AnyOtherErrorIsQuoted)
{
    weir_gpu_facts facts = machine({});
    facts.cuda = WEIR_GPU_CUDA_FAILED;
    std::snprintf(facts.text, sizeof facts.text, "system not yet initialized");
    EXPECT_TRUE(Probed(facts).says("system not yet initialized")) << Probed(facts).reason;
}

TEST(GpuProbe, DeviceTooOldIsNamed)
{
    Probed p(machine({ 75 }));
    EXPECT_EQ(p.n_devices, 0);
    EXPECT_TRUE(
        p.says("device too old") && p.says("NVIDIA 75") && p.says("sm_75") && p.says("needs sm_80")
    ) << p.reason;
}

TEST(GpuProbe, NoImageForTheArchitectureListsThoseThereAre)
{
    Probed p(machine({ 120 }));
    EXPECT_EQ(p.n_devices, 0);
    EXPECT_TRUE(p.says("no image") && p.says("sm_120") && p.says("sm_80, 86, 89, 90, 100"))
        << p.reason;
}

TEST(GpuProbe, DevicesAfterAnUnusableOneAreLeftOut)
{
    Probed first(machine({ 90, 75, 90 }));
    EXPECT_EQ(first.n_devices, 1);
    Probed none(machine({ 75, 90 }));
    EXPECT_EQ(none.n_devices, 0);
    EXPECT_TRUE(none.says("GPU 0") && none.says("CUDA_VISIBLE_DEVICES")) << none.reason;
}

TEST(GpuProbe, OpenMpWithoutLibcudaSaysWhyAndWhatToDo)
{
    weir_gpu_facts facts = machine({ 90 });
    facts.images_failed = "memfd_create: Permission denied";
    facts.n_openmp = 0;
    Probed p(facts);
    EXPECT_EQ(p.n_devices, 0);
    EXPECT_TRUE(
        p.says("OpenMP sees no device: libcuda.so missing") && p.says("Permission denied") &&
        p.says("vm.memfd_noexec=0")
    ) << p.reason;
}

TEST(GpuProbe, OpenMpSwitchedOff)
{
    weir_gpu_facts facts = machine({ 90 });
    facts.n_openmp = 0;
    Probed p(facts);
    EXPECT_EQ(p.n_devices, 0);
    EXPECT_TRUE(p.says("OpenMP sees no device") && p.says("OMP_TARGET_OFFLOAD")) << p.reason;
}

TEST(GpuProbe, OpenMpThatSeesFewerDevicesDecides)
{
    weir_gpu_facts facts = machine({ 90, 90 });
    facts.n_openmp = 1;
    EXPECT_EQ(Probed(facts).n_devices, 1);
}

TEST(GpuProbe, LongNamesDoNotOverflow)
{
    weir_gpu_facts facts = machine({ 120 });
    std::snprintf(
        facts.devices[0].name, sizeof facts.devices[0].name, "%s", std::string(63, 'x').c_str()
    );
    EXPECT_LT(std::string(Probed(facts).reason).size(), sizeof Probed(facts).reason);
}

}  // namespace
