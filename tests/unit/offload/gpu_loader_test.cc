// Without a plugin, with the wrong one, without a device: always a reason, never a crash.
#include "offload/gpu_loader.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

namespace {

const char kFolder[] = "tests/unit/offload/";

struct Loaded {
    const weir_gpu_plugin *plugin = nullptr;
    weir_error error = {};
    weir_status status;
    explicit Loaded(const char *path) { status = weir_gpu_plugin_load(&plugin, path, &error); }
    bool says(const char *text) const
    {
        return std::string(error.text).find(text) != std::string::npos;
    }
};

TEST(GpuLoader, NoPluginNextToTheProgramSaysHowToBuildOne)
{
    Loaded l(nullptr);
    EXPECT_EQ(l.status, WEIR_EUNSUPPORTED);
    EXPECT_TRUE(l.says("--config=gpu")) << l.error.text;
    EXPECT_EQ(l.plugin, nullptr);
}

TEST(GpuLoader, AConfiguredPathThatIsNotThereNamesIt)
{
    const std::string absent = testing::TempDir() + "/absent/libweir_gpu.so";
    Loaded l(absent.c_str());
    EXPECT_EQ(l.status, WEIR_EUNSUPPORTED);
    EXPECT_TRUE(l.says(absent.c_str())) << l.error.text;
}

TEST(GpuLoader, ALibraryThatIsNoPluginIsRefused)
{
    Loaded l("libm.so.6");
    EXPECT_EQ(l.status, WEIR_EMISMATCH);
    EXPECT_TRUE(l.says("not a plugin of Weir")) << l.error.text;
}

TEST(GpuLoader, APluginOfAnotherBuildIsRefused)
{
    Loaded l((std::string(kFolder) + "libfake_old.so").c_str());
    EXPECT_EQ(l.status, WEIR_EMISMATCH);
    EXPECT_TRUE(l.says("version 999")) << l.error.text;
}

TEST(GpuLoader, APluginThatLoadsIsAskedForItsDevices)
{
    Loaded l((std::string(kFolder) + "libfake_empty.so").c_str());
    ASSERT_EQ(l.status, WEIR_OK) << l.error.text;
    weir_gpu_probe probe;
    l.plugin->probe(&probe);
    EXPECT_EQ(probe.n_devices, 0);
}

TEST(GpuLoader, OpenGivesAReasonWhateverIsMissing)
{
    weir_gpu gpu;
    weir_error error = {};
    EXPECT_EQ(
        weir_gpu_open(&gpu, (std::string(kFolder) + "libfake_empty.so").c_str(), &error),
        WEIR_EUNSUPPORTED
    );
    const bool driver = dlopen("libcuda.so.1", RTLD_NOW) != nullptr;
    EXPECT_NE(
        std::string(error.text).find(driver ? "the fake has no device" : "no NVIDIA driver"),
        std::string::npos
    ) << error.text;
    EXPECT_EQ(gpu.plugin, nullptr);
    EXPECT_EQ(gpu.probe.n_devices, 0);
}

}  // namespace
