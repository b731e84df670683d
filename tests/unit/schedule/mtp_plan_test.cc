// speculation.mtp = "auto" and "on" where memory is short.
#include "tests/unit/schedule/support.h"

namespace {

class MtpPlan : public support::Service {
  protected:
    void SetUp() override
    {
        open(
            "../mtp/chain", 4, nullptr, 512, 0,
            { "memory.snapshots=1MiB", "speculation.method=ngram" }
        );
        stop();
    }
    weir_status plan(const char *mtp, size_t memory)
    {
        const weir_engine_options options = { &config_, true, false, nullptr, nullptr, nullptr };
        const std::string text = std::to_string(memory) + "B";
        EXPECT_EQ(weir_config_set(&config_, "speculation.mtp", mtp, &error_), WEIR_OK);
        EXPECT_EQ(weir_config_set(&config_, "memory.host", text.c_str(), &error_), WEIR_OK);
        return weir_engine_plan(&plan_, &options, &error_);
    }
    weir_plan plan_ = {};
};

/* auto: a head that does not fit is not loaded; on: it is an error. */
TEST_F(MtpPlan, IsLeftOutWhereItDoesNotFit)
{
    size_t least = 1 << 20;
    while (plan("off", least) != WEIR_OK) least += 16 << 10;
    EXPECT_EQ(plan("on", least), WEIR_EFULL);
    ASSERT_EQ(plan("auto", least), WEIR_OK) << error_.text;
    EXPECT_EQ(plan_.facts.mtp_bytes, 0);
    ASSERT_EQ(plan("auto", least + (4 << 20)), WEIR_OK) << error_.text;
    EXPECT_GT(plan_.facts.mtp_bytes, 0);
}

/* auto: it is not loaded at the price of most of the context. */
TEST_F(MtpPlan, LeavesTheContextItsMemory)
{
    ASSERT_EQ(weir_config_set(&config_, "model.context", "0", &error_), WEIR_OK);
    bool has_head = false;
    for (size_t memory = 2 << 20; !has_head; memory += 64 << 10) {
        if (plan("auto", memory) != WEIR_OK) continue;
        const int32_t window = plan_.facts.window;
        has_head = plan_.facts.mtp_bytes > 0;
        ASSERT_EQ(plan("off", memory), WEIR_OK) << error_.text;
        EXPECT_GE(window, plan_.facts.window - plan_.facts.window / 8 - 64) << memory;
    }
}

} // namespace
