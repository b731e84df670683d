/* The central promise: a token's logits have the same bits however its prompt is cut into steps and
 * whichever sequences share them. */
#include <algorithm>

#include "tests/unit/model/support.h"

namespace {

using support::Engine;
using support::Sequence;
using support::Settings;

constexpr int n_prompt = 150; /* two pages and a part; past three chunks of 64 + 1 and of 7 */
constexpr int n_long = 2150; /* three splits of attention, and the last of them begun */

struct Case {
    const char *name, *model;
    Settings settings;
};

std::ostream &operator<<(std::ostream &out, const Case &c) { return out << c.name; }

class Invariance : public ::testing::TestWithParam<Case> {
  protected:
    void SetUp() override
    {
        for (const std::string &setting : GetParam().settings) {
            if (setting.rfind("kernels.isa=", 0) != 0) continue;
            Engine probe;
            const weir_status status = probe.open(support::golden(GetParam().model), { setting });
            if (status == WEIR_OK) continue;
            ASSERT_EQ(status, WEIR_ECONFIG) << probe.text();
            ASSERT_NE(strstr(probe.text(), "this machine stops at"), nullptr) << probe.text();
            GTEST_SKIP() << probe.text();
        }
    }
    /* Slots enough that all rows of the prompt may have logits in one step. */
    void open(const Settings &more = {}, size_t n_tokens = n_prompt)
    {
        Settings settings = GetParam().settings;
        settings.insert(settings.end(), more.begin(), more.end());
        settings.insert(settings.end(), { "batch.max_sequences=128", "batch.chunk=256" });
        settings.push_back("model.context=" + std::to_string(std::max<size_t>(n_tokens, 256)));
        ASSERT_EQ(engine_.open(support::golden(GetParam().model), settings), WEIR_OK)
            << engine_.text();
        prompt_ = support::some_tokens(n_tokens, 3, engine_.n_vocab());
    }
    /* The prompt without its last `n_last` rows, in pieces of `piece`. */
    void begin_prompt(Sequence *sequence, int n_last, int piece)
    {
        sequence->add(prompt_);
        const int end = static_cast<int>(prompt_.size()) - n_last;
        for (int at = 0; at < end;) {
            weir_batch_item item =
                support::item_of(sequence, std::min(piece, end - at), WEIR_LOGITS_LAST);
            const float *logits = nullptr;
            ASSERT_EQ(
                weir_runner_step(engine_.runner(), &item, 1, &logits, engine_.error()), WEIR_OK
            ) << engine_.text();
            at += item.n_rows;
        }
    }
    /* Logits of the rest, in pieces of `piece`, in a copy of what began. */
    std::vector<float> end_of_prompt(Sequence *beginning, int piece)
    {
        Sequence sequence(engine_);
        std::vector<float> all;
        EXPECT_EQ(weir_kv_sequence_fork(sequence.get(), beginning->get()), WEIR_OK);
        const int n = static_cast<int>(prompt_.size());
        for (int at = beginning->get()->n_computed; at < n;) {
            weir_batch_item item =
                support::item_of(&sequence, std::min(piece, n - at), WEIR_LOGITS_ALL);
            step(&item, 1, 0, &all);
            at += item.n_rows;
        }
        return all;
    }
    /* All logits of the prompt in pieces of `piece` rows; the first piece has `first` rows when
     * that is not 0. */
    std::vector<float> alone(int piece, int first = 0)
    {
        Sequence sequence(engine_);
        std::vector<float> all;
        sequence.add(prompt_);
        for (int at = 0; at < n_prompt;) {
            weir_batch_item item = support::item_of(
                &sequence, at == 0 && first > 0 ? first : std::min(piece, n_prompt - at),
                WEIR_LOGITS_ALL
            );
            step(&item, 1, 0, &all);
            at += item.n_rows;
        }
        return all;
    }
    /* The same, between a sequence that decodes and two that read long prompts in uneven pieces. */
    std::vector<float> with_others(int piece)
    {
        Sequence ours(engine_), decoding(engine_), reading(engine_), late(engine_);
        std::vector<float> all;
        ours.add(prompt_);
        decoding.add(support::some_tokens(n_prompt, 11, engine_.n_vocab()));
        reading.add(support::some_tokens(250, 12, engine_.n_vocab()));
        late.add(support::some_tokens(250, 13, engine_.n_vocab()));
        for (int at = 0, i = 0; at < n_prompt; at += piece, i++) {
            std::vector<weir_batch_item> items;
            const auto add = [&items](Sequence *sequence, int rows, weir_logits_wanted wanted) {
                const int left = sequence->get()->n_tokens - sequence->get()->n_computed;
                if (left > 0)
                    items.push_back(support::item_of(sequence, std::min(rows, left), wanted));
            };
            add(&decoding, 1, WEIR_LOGITS_LAST);
            if (i % 2 == 0) add(&reading, 13 + i, WEIR_LOGITS_NONE);
            const size_t own = items.size();
            add(&ours, piece, WEIR_LOGITS_ALL);
            add(&late, i % 3 == 0 ? 64 : 5, WEIR_LOGITS_LAST);
            step(items.data(), items.size(), own, &all);
        }
        return all;
    }
    void step(weir_batch_item *items, size_t n_items, size_t own, std::vector<float> *all)
    {
        const float *logits = nullptr;
        ASSERT_EQ(
            weir_runner_step(
                engine_.runner(), items, static_cast<int32_t>(n_items), &logits, engine_.error()
            ),
            WEIR_OK
        ) << engine_.text();
        const float *const from =
            logits + static_cast<size_t>(items[own].first_logit) * engine_.n_vocab();
        all->insert(
            all->end(), from, from + static_cast<size_t>(items[own].n_rows) * engine_.n_vocab()
        );
    }
    void expect_same(
        const std::vector<float> &got, const std::vector<float> &want, const std::string &how
    )
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
        ADD_FAILURE() << how << ": " << differ << " of " << got.size()
                      << " logits differ, first at row " << first / engine_.n_vocab() << ": "
                      << got[first] << " and " << want[first];
    }
    Engine engine_;
    std::vector<int32_t> prompt_;
};

TEST_P(Invariance, AnyCutGivesTheSameBits)
{
    open();
    const std::vector<float> whole = alone(n_prompt);
    for (const int piece : { 64, 65, 7, 1 })
        expect_same(alone(piece), whole, "pieces of " + std::to_string(piece));
    expect_same(alone(n_prompt, 31), whole, "a piece of 31, then the rest");
    expect_same(alone(1, 100), whole, "a prompt of 100, then one at a time");
}

TEST_P(Invariance, AnyBatchGivesTheSameBits)
{
    open();
    const std::vector<float> whole = alone(n_prompt);
    for (const int piece : { 64, 7, 1 })
        expect_same(with_others(piece), whole, "with others, pieces of " + std::to_string(piece));
}

TEST_P(Invariance, AnyNumberOfThreadsGivesTheSameBits)
{
    open({ "kernels.threads=1" });
    const std::vector<float> whole = alone(n_prompt);
    open({ "kernels.threads=3" });
    expect_same(alone(n_prompt), whole, "three threads");
    expect_same(alone(1), whole, "three threads, one at a time");
}

/* Recurrent states copied in the middle of a piece are those of a sequence that stops there; the
 * piece itself does not notice. */
TEST_P(Invariance, StatesTakenOnTheWayAreTheSameBits)
{
    open();
    const std::vector<float> whole = alone(n_prompt);
    Sequence ours(engine_), other(engine_);
    const size_t bytes = ours.get()->recurrent_bytes, floats = bytes / sizeof(float);
    if (bytes == 0) GTEST_SKIP() << "no recurrent layers";
    const int32_t ours_at[] = { 1, 64, 65, n_prompt }, other_at[] = { 17, 40 };
    std::vector<std::vector<float>> states(6, std::vector<float>(floats));
    ours.add(prompt_);
    other.add(support::some_tokens(50, 12, engine_.n_vocab()));
    weir_batch_item items[] = { support::item_of(&other, 50, WEIR_LOGITS_NONE),
                                support::item_of(&ours, n_prompt, WEIR_LOGITS_ALL) };
    for (int i = 0; i < 2; i++)
        items[0].snapshots[items[0].n_snapshots++] = { other_at[i], states[(size_t)i].data() };
    for (int i = 0; i < 4; i++)
        items[1].snapshots[items[1].n_snapshots++] = { ours_at[i], states[(size_t)i + 2].data() };
    std::vector<float> all;
    step(items, 2, 1, &all);
    expect_same(all, whole, "with states taken on the way");
    const auto expect_state = [&](const std::vector<int32_t> &tokens, int32_t at,
                                  const std::vector<float> &state) {
        Sequence stops(engine_);
        stops.add(std::vector<int32_t>(tokens.begin(), tokens.begin() + at));
        weir_batch_item item = support::item_of(&stops, at, WEIR_LOGITS_NONE);
        const float *logits = nullptr;
        ASSERT_EQ(weir_runner_step(engine_.runner(), &item, 1, &logits, engine_.error()), WEIR_OK)
            << engine_.text();
        EXPECT_EQ(memcmp(stops.get()->recurrent, state.data(), bytes), 0)
            << "after " << at << " tokens";
    };
    for (int i = 0; i < 2; i++)
        expect_state(
            support::some_tokens(50, 12, engine_.n_vocab()), other_at[i], states[(size_t)i]
        );
    for (int i = 0; i < 4; i++) expect_state(prompt_, ours_at[i], states[(size_t)i + 2]);
}

/* Past the first 1024 positions attention merges splits, by another way for many rows than for
 * few. */
TEST_P(Invariance, ALongPromptGivesTheSameBits)
{
    open({}, n_long);
    Sequence beginning(engine_), in_other_pieces(engine_);
    begin_prompt(&beginning, 100, 256);
    ASSERT_FALSE(HasFatalFailure());
    const std::vector<float> whole = end_of_prompt(&beginning, 100);
    for (const int piece : { 1, 7, 64 })
        expect_same(
            end_of_prompt(&beginning, piece), whole, "the end in pieces of " + std::to_string(piece)
        );
    begin_prompt(&in_other_pieces, 100, 65);
    ASSERT_FALSE(HasFatalFailure());
    expect_same(end_of_prompt(&in_other_pieces, 100), whole, "the beginning in pieces of 65");
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
    { "Bf16OnV2", "tq", { "kernels.activations=fast", "kernels.isa=v2" } },
    { "F32OnV3", "tq/tq-f32.gguf", { "kernels.activations=f32", "kernels.isa=v3" } },
    { "F32OnV2", "tq/tq-f32.gguf", { "kernels.activations=f32", "kernels.isa=v2" } },
    { "Qwen3Bf16Gguf", "qwen3/qwen3-bf16.gguf", { "kernels.activations=fast" } },
    { "Qwen2", "qwen2", { "kernels.activations=f32" } },
    { "Llama3", "llama3/llama3-f32.gguf", { "kernels.activations=f32" } },
    { "MistralWindow", "mistral", { "kernels.activations=f32" } },
    { "Experts", "../families/glm4-moe", { "kernels.activations=fast" } },
    { "ExpertsF32", "../families/minimax-m2", { "kernels.activations=f32" } },
    { "ExpertsOnV2", "../families/qwen3-moe", { "kernels.isa=v2" } },
    { "Scales", "../families/granite", { "kernels.activations=fast" } },
    { "LocalWindows", "../families/gemma3", { "kernels.activations=f32" } },
    { "LayerKinds", "../families/gemma4/gemma4-f16.gguf", { "kernels.activations=fast" } },
    { "ParallelExperts", "../families/gemma4-moe", { "kernels.activations=fast" } },
    { "SplitDelta", "../families/qwen3-next", { "kernels.activations=fast" } },
    { "ShortConv", "../families/lfm2", { "kernels.activations=fast" } },
    { "Mamba2", "../families/nemotron-h", { "kernels.activations=fast" } },
    { "Mamba2F32", "../families/nemotron-h/nemotron-h-f16.gguf", { "kernels.activations=f32" } },
    { "Mamba2OnV2", "../families/nemotron-h-moe", { "kernels.isa=v2" } },
    { "Mamba2Experts", "../families/granite-hybrid", { "kernels.activations=fast" } },
    { "Temperature", "../families/ministral3", { "kernels.activations=fast" } },
    { "AttentionMamba2", "../families/falcon-h1", { "kernels.activations=fast" } },
    { "AttentionMamba2F32",
      "../families/falcon-h1/falcon-h1-f16.gguf",
      { "kernels.activations=f32", "kv.format=f32" } },
    { "ExpertsWithBias", "../families/ernie4_5-moe", { "kernels.activations=fast" } },
    { "Kda", "../families/kimi-linear", { "kernels.activations=fast" } },
    { "KdaF32",
      "../families/kimi-linear/kimi-linear-f16.gguf",
      { "kernels.activations=f32", "kv.format=f32" } },
    { "KdaOnV2", "../families/kimi-linear", { "kernels.isa=v2" } },
    { "SinkLogits", "../families/gpt-oss", { "kernels.activations=fast" } },
    { "Latents", "../families/deepseek3", { "kernels.activations=f32", "kv.format=f32" } },
    { "LatentsBf16", "../families/deepseek2-lite", { "kernels.activations=fast" } },
    { "LatentsOnV2", "deepseek3", { "kernels.activations=fast", "kernels.isa=v2" } },
    { "LatentsKvFp8", "deepseek3", { "kernels.activations=f32", "kv.format=fp8_e4m3" } },
    { "LatentsKvInt8", "deepseek3", { "kernels.activations=f32", "kv.format=int8" } },
    { "ExpertsHybrid", "tq-moe/tq-moe-f16.gguf", { "kernels.activations=fast" } },
    { "KvBf16", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=bf16" } },
    { "KvQ8_0", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=q8_0" } },
    { "KvQ4_0", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=q4_0" } },
    { "KvInt8", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=int8" } },
    { "KvFp8_E4m3", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=fp8_e4m3" } },
    { "KvFp8_E5m2", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=fp8_e5m2" } },
    { "KvKivi2", "qwen3", { "kernels.activations=f32", "kv.format=kivi2" } },
    { "KvKivi4", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=kivi4" } },
    { "KvKivi8", "mistral", { "kernels.activations=f32", "kv.format=kivi8/int8" } },
    { "KvTurbo2", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=turbo2" } },
    { "KvTurbo3", "mistral", { "kernels.activations=f32", "kv.format=turbo3" } },
    { "KvTurbo4", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=turbo4" } },
    { "KvQ8_0Turbo3", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=q8_0/turbo3" } },
    { "KvInt8Q4_0", "tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=int8/q4_0" } },
    { "KvF16Kivi2OnV3",
      "tq/tq-f32.gguf",
      { "kernels.activations=f32", "kv.format=f16/kivi2", "kernels.isa=v3" } },
    { "MistralWindowBf16", "mistral", { "kernels.activations=fast", "kv.format=f32" } },
};
INSTANTIATE_TEST_SUITE_P(Models, Invariance, ::testing::ValuesIn(cases), [](const auto &info) {
    return std::string(info.param.name);
});

} // namespace
