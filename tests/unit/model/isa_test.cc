/* The instruction set changes rounding, not answers: with v2, v3 or v4 forced a model gives the
 * same tokens, and nearly the same logits. */
#include <cmath>

#include "tests/unit/model/support.h"

namespace {

using support::Engine;
using support::Sequence;
using support::Settings;

struct Case {
    const char *name, *model;
    Settings settings;
    double tolerance; /* of logits of about 5 */
};

std::ostream &operator<<(std::ostream &out, const Case &c) { return out << c.name; }

struct Answer {
    std::vector<int32_t> tokens; /* greedy */
    std::vector<float> logits; /* of every step */
};

class Isa : public ::testing::TestWithParam<Case> {
  protected:
    /* False when this machine has no such instructions; `why_not_` says so. */
    bool answer(const std::string &isa, Answer *out)
    {
        Engine engine;
        Settings settings = GetParam().settings;
        settings.insert(settings.end(), { "kernels.isa=" + isa, "model.context=256" });
        const weir_status status = engine.open(support::golden(GetParam().model), settings);
        if (status == WEIR_ECONFIG) {
            why_not_ = engine.text();
            EXPECT_NE(why_not_.find("this machine stops at"), std::string::npos) << why_not_;
            return false;
        }
        EXPECT_EQ(status, WEIR_OK) << engine.text();
        if (status != WEIR_OK) return false;
        const size_t n_vocab = engine.n_vocab();
        Sequence sequence(engine);
        std::vector<int32_t> next = support::some_tokens(70, 3, n_vocab);
        for (int step = 0; step < 48; step++) {
            sequence.add(next);
            weir_batch_item item =
                support::item_of(&sequence, static_cast<int>(next.size()), WEIR_LOGITS_LAST);
            const float *logits = nullptr;
            EXPECT_EQ(weir_runner_step(engine.runner(), &item, 1, &logits, engine.error()), WEIR_OK)
                << engine.text();
            const float *const row = logits + static_cast<size_t>(item.first_logit) * n_vocab;
            out->logits.insert(out->logits.end(), row, row + n_vocab);
            next = { static_cast<int32_t>(support::best(row, n_vocab)) };
            out->tokens.push_back(next[0]);
        }
        return true;
    }
    void compare(const std::string &isa)
    {
        Answer want, got;
        ASSERT_TRUE(answer("v2", &want)) << why_not_;
        if (!answer(isa, &got)) GTEST_SKIP() << why_not_;
        EXPECT_EQ(got.tokens, want.tokens);
        ASSERT_EQ(got.logits.size(), want.logits.size());
        double worst = 0;
        for (size_t i = 0; i < got.logits.size(); i++)
            worst = std::fmax(
                worst,
                std::fabs(static_cast<double>(got.logits[i]) - static_cast<double>(want.logits[i]))
            );
        EXPECT_LE(worst, GetParam().tolerance);
        EXPECT_NE(got.logits, want.logits) << "the setting changed nothing";
    }

  private:
    std::string why_not_;
};

TEST_P(Isa, V3HasTheSameTokens) { compare("v3"); }

TEST_P(Isa, V4HasTheSameTokens) { compare("v4"); }

const Case cases[] = {
    { "F32", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=f32" }, 2e-4 },
    { "KvF16", "tq", { "kernels.activations=f32", "kv.format=f16" }, 5e-3 },
    { "Q8_0", "tq/tq-q8_0.gguf", { "kernels.activations=f32", "kv.format=f32" }, 2e-4 },
    { "Q4_K", "tq-k/tq-k-q4_k.gguf", { "kernels.activations=f32", "kv.format=f32" }, 2e-4 },
    { "Qwen3", "qwen3/qwen3-bf16.gguf", { "kernels.activations=f32", "kv.format=f32" }, 2e-4 },
    { "Qwen2", "qwen2", { "kernels.activations=f32", "kv.format=f32" }, 2e-4 },
    { "Llama3", "llama3/llama3-f32.gguf", { "kernels.activations=f32", "kv.format=f32" }, 2e-4 },
    { "MistralWindow", "mistral", { "kernels.activations=f32", "kv.format=f32" }, 2e-4 },
};
INSTANTIATE_TEST_SUITE_P(Models, Isa, ::testing::ValuesIn(cases), [](const auto &info) {
    return std::string(info.param.name);
});

} // namespace
