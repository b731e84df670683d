// Engines on the plugin's own table of kernels, opened but not run: weights are packed as its
// kernels read them, and every op of a step has a row that takes it, in every format of KV that is
// promised. What has none is computed by the CPU, or refused with the reason.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/engine.h"
#include "offload/device.h"
#include "offload/gpu_loader.h"

namespace {

class GpuPlan : public ::testing::Test {
  protected:
    void SetUp() override
    {
        const weir_gpu_plugin *plugin = nullptr;
        size_t n = 0;
        ASSERT_EQ(weir_gpu_plugin_load(&plugin, "offload/libweir_gpu.so", &error_), WEIR_OK)
            << error_.text;
        const weir_kernel *const *const rows = plugin->kernels(&n);
        weir_device_check_with(rows, n, 90);
    }
    void TearDown() override { weir_device_check_with(nullptr, 0, 0); }
    weir_status open(const std::string &model, const std::vector<std::string> &settings)
    {
        static weir_config config;
        weir_engine *engine = nullptr;
        error_ = {};
        device_.clear();
        weir_config_default(&config);
        std::vector<std::string> all = { "model.path=tests/golden/models/" + model,
                                         "kernels.device=checked", "model.context=512" };
        all.insert(all.end(), settings.begin(), settings.end());
        for (const std::string &one : all)
            EXPECT_EQ(weir_config_assign(&config, one.c_str(), &error_), WEIR_OK) << error_.text;
        const weir_engine_options options = { &config, true, true, nullptr, nullptr, nullptr };
        const weir_status status = weir_engine_open_with(&engine, &options, &error_);
        if (status == WEIR_OK) device_ = weir_engine_plan_of(engine)->device;
        weir_engine_close(engine); /* asserts that no memory of the device is left */
        return status;
    }
    weir_error error_ = {};
    std::string device_;
};

TEST_F(GpuPlan, EveryModelOpensInTheFormatsThatAreThere)
{
    for (const char *const model :
         { "tq", "tq/tq-f32.gguf", "tq/tq-q8_0.gguf", "tq/tq-q4_0.gguf", "tq-k/tq-k-q4_k.gguf",
           "tq-k/tq-k-q6_k.gguf", "tq-r1", "tq-tied", "qwen3", "qwen3-untied" })
        for (const char *const format : { "f16", "bf16", "q8_0", "turbo4" })
            for (const char *const activations : { "f32", "fast" }) {
                EXPECT_EQ(
                    open(
                        model, { std::string("kv.format=") + format,
                                 std::string("kernels.activations=") + activations }
                    ),
                    WEIR_OK
                ) << model
                  << " " << format << ": " << error_.text;
                EXPECT_EQ(device_, "checked") << model << " " << format << " " << activations;
            }
    for (const char *const model : { "mistral", "llama3", "qwen2" })
        for (const char *const format : { "f16", "bf16" }) { /* heads too narrow for codes */
            EXPECT_EQ(open(model, { std::string("kv.format=") + format }), WEIR_OK)
                << model << " " << format << ": " << error_.text;
            EXPECT_EQ(device_, "checked") << model << " " << format;
        }
    EXPECT_EQ(
        open(
            "tq",
            { "kv.format=q8_0", "memory.device=8MiB", "kv.tiers.host=4MiB", "memory.disk=8MiB" }
        ),
        WEIR_OK
    ) << error_.text;
    EXPECT_EQ(device_, "checked");
}

TEST_F(GpuPlan, FormatsWithoutAKernelAreTheCpus)
{
    for (const char *const format : { "int8", "kivi4", "q8_0/turbo4" }) {
        EXPECT_EQ(open("tq", { std::string("kv.format=") + format }), WEIR_OK)
            << format << ": " << error_.text;
        EXPECT_EQ(device_, "cpu") << format;
    }
}

TEST_F(GpuPlan, PoliciesThatSeeMassNeedAFormatThatShowsIt)
{
    EXPECT_EQ(
        open("qwen3", { "kv.format=f16", "kv.policy.name=h2o", "kv.policy.budget=200" }), WEIR_OK
    ) << error_.text;
    EXPECT_EQ(device_, "checked");
    EXPECT_EQ(
        open("qwen3", { "kv.format=q8_0", "kv.policy.name=snapkv", "kv.policy.budget=200" }),
        WEIR_OK
    ) << error_.text;
    EXPECT_EQ(device_, "checked");
    EXPECT_NE(
        open("qwen3", { "kv.format=q8_0", "kv.policy.name=h2o", "kv.policy.budget=200" }), WEIR_OK
    );
    EXPECT_NE(std::string(error_.text).find("kv.format"), std::string::npos) << error_.text;
}

} // namespace
