/* The central promise: a token's logits have the same bits however its prompt is cut into steps and whoever shares them. */
#include "tests/unit/model/support.h"

namespace {

using support::Engine;
using support::Sequence;
using support::Settings;

constexpr int n_prompt = 150; /* two pages and a part; past three chunks of 64 + 1 and of 7 */

struct Case {
    const char *name, *model;
    Settings    settings;
};

std::ostream &operator<<(std::ostream &out, const Case &c) { return out << c.name; }

class Invariance : public ::testing::TestWithParam<Case> {
  protected:
    /* So many slots that all rows of the prompt may have logits in one step. */
    void open(const Settings &more = {})
    {
        Settings settings = GetParam().settings;
        settings.insert(settings.end(), more.begin(), more.end());
        settings.insert(settings.end(), { "batch.max_sequences=128", "batch.chunk=256", "model.context=256" });
        ASSERT_EQ(engine_.open(support::golden(GetParam().model), settings), WEIR_OK) << engine_.text();
        prompt_ = support::some_tokens(n_prompt, 3, engine_.n_vocab());
    }
    /* All logits of the prompt in pieces of `piece` rows; the first piece has `first` rows when that is not 0. */
    std::vector<float> alone(int piece, int first = 0)
    {
        Sequence           sequence(engine_);
        std::vector<float> all;
        sequence.add(prompt_);
        for (int at = 0; at < n_prompt;) {
            weir_work work = { sequence.get(), at == 0 && first > 0 ? first : std::min(piece, n_prompt - at), WEIR_LOGITS_ALL, 0 };
            step(&work, 1, 0, &all);
            at += work.n_rows;
        }
        return all;
    }
    /* The same, between a sequence that decodes and two that read long prompts in uneven pieces. */
    std::vector<float> beside_others(int piece)
    {
        Sequence           ours(engine_), decoding(engine_), reading(engine_), late(engine_);
        std::vector<float> all;
        ours.add(prompt_);
        decoding.add(support::some_tokens(n_prompt, 11, engine_.n_vocab()));
        reading.add(support::some_tokens(250, 12, engine_.n_vocab()));
        late.add(support::some_tokens(250, 13, engine_.n_vocab()));
        for (int at = 0, i = 0; at < n_prompt; at += piece, i++) {
            std::vector<weir_work> works;
            const auto             add = [&works](Sequence *sequence, int rows, weir_logits_wanted wanted) {
                const int left = sequence->get()->n_tokens - sequence->get()->n_computed;
                if (left > 0) works.push_back({ sequence->get(), std::min(rows, left), wanted, 0 });
            };
            add(&decoding, 1, WEIR_LOGITS_LAST);
            if (i % 2 == 0) add(&reading, 13 + i, WEIR_LOGITS_NONE);
            const size_t own = works.size();
            add(&ours, piece, WEIR_LOGITS_ALL);
            add(&late, i % 3 == 0 ? 64 : 5, WEIR_LOGITS_LAST);
            step(works.data(), works.size(), own, &all);
        }
        return all;
    }
    void step(weir_work *works, size_t n_works, size_t own, std::vector<float> *all)
    {
        const float *logits = nullptr;
        ASSERT_EQ(weir_runner_step(engine_.runner(), works, static_cast<int32_t>(n_works), &logits, engine_.error()), WEIR_OK)
            << engine_.text();
        const float *const from = logits + static_cast<size_t>(works[own].first_logit) * engine_.n_vocab();
        all->insert(all->end(), from, from + static_cast<size_t>(works[own].n_rows) * engine_.n_vocab());
    }
    void expect_same(const std::vector<float> &got, const std::vector<float> &want, const std::string &how)
    {
        ASSERT_EQ(got.size(), want.size()) << how;
        ASSERT_GT(got.size(), 0u);
        if (memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0) return;
        size_t differ = 0, first = got.size();
        for (size_t i = 0; i < got.size(); i++) {
            if (memcmp(&got[i], &want[i], sizeof(float)) == 0) continue;
            first = std::min(first, i);
            differ++;
        }
        ADD_FAILURE() << how << ": " << differ << " of " << got.size() << " logits differ, first at row " << first / engine_.n_vocab()
                      << ": " << got[first] << " and " << want[first];
    }
    Engine               engine_;
    std::vector<int32_t> prompt_;
};

TEST_P(Invariance, AnyCutGivesTheSameBits)
{
    open();
    const std::vector<float> whole = alone(n_prompt);
    for (const int piece : { 64, 65, 7, 1 }) expect_same(alone(piece), whole, "pieces of " + std::to_string(piece));
    expect_same(alone(n_prompt, 31), whole, "a piece of 31, then the rest");
    expect_same(alone(1, 100), whole, "a prompt of 100, then one at a time");
}

TEST_P(Invariance, AnyCompanyGivesTheSameBits)
{
    open();
    const std::vector<float> whole = alone(n_prompt);
    for (const int piece : { 64, 7, 1 }) expect_same(beside_others(piece), whole, "beside others, pieces of " + std::to_string(piece));
}

TEST_P(Invariance, AnyNumberOfThreadsGivesTheSameBits)
{
    open({ "kernels.threads=1" });
    const std::vector<float> whole = alone(n_prompt);
    open({ "kernels.threads=3" });
    expect_same(alone(n_prompt), whole, "three threads");
    expect_same(alone(1), whole, "three threads, one at a time");
}

const Case cases[] = {
    { "F32", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=f32" } },
    { "F32KvF16", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=f16" } },
    { "Q8_0", "tq/tq-q8_0.gguf", { "kernels.activations=fast", "kv.format=f16" } },
    { "Q8_0KvF32", "tq/tq-q8_0.gguf", { "kernels.activations=fast", "kv.format=f32" } },
    { "Q8_0Exact", "tq/tq-q8_0.gguf", { "kernels.activations=f32" } },
    { "Q8_0OnV2", "tq/tq-q8_0.gguf", { "kernels.activations=fast", "kernels.isa=v2" } },
    { "Q8_0OnV3", "tq/tq-q8_0.gguf", { "kernels.activations=fast", "kernels.isa=v3" } },
    { "Q4_0", "tq/tq-q4_0.gguf", { "kernels.activations=fast" } },
    { "Q4_K", "tq-k/tq-k-q4_k.gguf", { "kernels.activations=fast", "kv.format=f16" } },
    { "Q4_KKvF32", "tq-k/tq-k-q4_k.gguf", { "kernels.activations=fast", "kv.format=f32" } },
    { "Q4_KOnV3", "tq-k/tq-k-q4_k.gguf", { "kernels.activations=fast", "kernels.isa=v3" } },
    { "Q6_K", "tq-k/tq-k-q6_k.gguf", { "kernels.activations=fast" } },
    { "Bf16", "tq", { "kernels.activations=fast", "kv.format=f16" } },
    { "Bf16KvF32", "tq", { "kernels.activations=fast", "kv.format=f32" } },
    { "Bf16OnV3", "tq", { "kernels.activations=fast", "kernels.isa=v3" } },
    { "Qwen3Bf16Gguf", "qwen3/qwen3-bf16.gguf", { "kernels.activations=fast" } },
    { "Qwen2", "qwen2", { "kernels.activations=f32" } },
    { "Llama3", "llama3/llama3-f32.gguf", { "kernels.activations=f32" } },
    { "MistralWindow", "mistral", { "kernels.activations=f32" } },
    { "MistralWindowBf16", "mistral", { "kernels.activations=fast", "kv.format=f32" } },
};
INSTANTIATE_TEST_SUITE_P(Models, Invariance, ::testing::ValuesIn(cases), [](const auto &info) { return std::string(info.param.name); });

} // namespace
