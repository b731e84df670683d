/* A service with memory for a few blocks of 64 tokens, and a folder for what does not fit. */
#pragma once
#include <unistd.h>

#include "tests/unit/schedule/support.h"

namespace support {

class SmallMemory : public Service {
  protected:
    explicit SmallMemory(const std::string &name)
        : folder_(::testing::TempDir() + "/" + name + "." + std::to_string(getpid()))
    {
    }
    void SetUp() override { std::filesystem::remove_all(folder_); }
    void TearDown() override
    {
        stop();
        std::filesystem::remove_all(folder_);
    }
    /* What both sorts of tests begin with: two sequences in windows of 2048. */
    std::vector<std::string> settings_of(const std::string &model) const
    {
        return { "model.path=tests/golden/models/" + model,
                 "kernels.activations=f32",
                 "batch.max_sequences=2",
                 "batch.chunk=64",
                 "model.context=2048",
                 "kv.tiers.hot=1",
                 "speculation.method=off",
                 "memory.disk_dir=" + folder_ };
    }
    /* Later settings go over earlier ones. */
    void configure(const std::vector<std::string> &settings)
    {
        weir_config_default(&config_);
        for (const std::string &one : settings)
            ASSERT_EQ(weir_config_assign(&config_, one.c_str(), &error_), WEIR_OK) << error_.text;
    }
    /* Bytes of a block with these settings, which hold it. */
    void measure_block(const std::vector<std::string> &settings)
    {
        weir_plan plan = {};
        configure(settings);
        ASSERT_EQ(weir_engine_plan(&plan, &options_, &error_), WEIR_OK) << error_.text;
        block_ = 64 * plan.facts.kv_bytes_per_token;
    }
    /* Configures the least `key` that the plan wants for `n_blocks` blocks. */
    void configure_least(
        std::vector<std::string> settings, const std::string &key, int64_t n_blocks
    )
    {
        size_t least = 0, most = 64 << 20;
        settings.push_back(key + "=64MiB");
        while (most - least > 4096) {
            const size_t half = (least + most) / 2;
            weir_plan plan = {};
            settings.back() = key + "=" + std::to_string(half) + "B";
            configure(settings);
            const bool fits = weir_engine_plan(&plan, &options_, &error_) == WEIR_OK;
            *(fits && plan.kv - plan.kv_unsealed >= (size_t)(n_blocks * block_) ? &most : &least) =
                half;
        }
        settings.back() = key + "=" + std::to_string(most) + "B";
        configure(settings);
    }
    void open_configured()
    {
        ASSERT_EQ(weir_engine_open_with(&engine_, &options_, &error_), WEIR_OK) << error_.text;
        opened();
    }
    void expect_within() const
    {
        weir_ledger_state state;
        weir_ledger_read(weir_engine_ledger(engine_), &state);
        for (int tier = 0; tier < WEIR_TIER_COUNT; tier++)
            if (state.cap[tier] > 0 || tier == WEIR_TIER_DISK)
                EXPECT_LE(state.peak[tier], state.cap[tier]) << weir_tier_name((weir_tier)tier);
        if (const weir_device *const device = weir_ledger_device(weir_engine_ledger(engine_)))
            EXPECT_EQ(weir_device_held(device), state.total[WEIR_TIER_DEVICE]);
    }
    std::string folder_;
    const weir_engine_options options_ = { &config_, true, false, nullptr, nullptr, nullptr };
    int64_t block_ = 0;
};

} // namespace support
