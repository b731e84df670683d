/* Sizes and switches at their edges, as the published layer's own tests have them: every sequence
 * runs to its end with finite logits, twice with the same bits, and leaves states that are what
 * they should be. And: memory that does not grow, over tens of thousands of tokens. */
#include "engine/engine_parts.h"
#include "kernels/abi/coda_check.h"
#include "offload/ledger.h"
#include "tests/unit/model/coda.h"

namespace {

using support::Engine;
using support::Folder;
using support::Sequence;
using support::Settings;

struct Edge {
    const char *name;
    int prompt, steps, window, exact, summary, block;
    const char *options;
};
std::ostream &operator<<(std::ostream &out, const Edge &e) { return out << e.name; }

std::string sizes_of(const Edge &e)
{
    return "window = " + std::to_string(e.window) +
           "\nlandmarks_exact = " + std::to_string(e.exact) +
           "\nlandmarks_summary = " + std::to_string(e.summary) +
           "\nblock_rows = " + std::to_string(e.block) + "\n" + e.options;
}

weir_coda_layer layer_of(const Engine &engine, const Edge &e)
{
    weir_coda_layer layer = {};
    layer.n_kv_heads = engine.shape().n_kv_heads, layer.head_dim = engine.shape().head_dim;
    layer.window = e.window, layer.n_exact = layer.least_exact = e.exact,
    layer.n_summary = layer.least_summary = e.summary;
    layer.band = WEIR_CODA_SLOW_PAIRS, layer.format = WEIR_KV_F32;
    return layer;
}

class CodaEdges : public ::testing::TestWithParam<Edge> {
  protected:
    struct Run {
        std::vector<float> logits; /* of the last token of each step */
        std::vector<char> state;
    };
    void open(const Edge &edge, const std::string &context = "2048")
    {
        Settings settings = { "kernels.activations=f32", "kv.format=f32", "batch.max_sequences=2",
                              "batch.chunk=1024", "model.context=" + context };
        support::write_coda(folder_, "\"coda\"", support::coda_block(sizes_of(edge)), &settings);
        ASSERT_EQ(engine_.open(folder_.path(), settings), WEIR_OK) << engine_.text();
    }
    void step(Sequence *sequence, int n, bool is_prompt, Run *out)
    {
        weir_batch_item item = support::item_of(sequence, n, WEIR_LOGITS_LAST);
        const float *logits = nullptr;
        item.is_prompt = is_prompt;
        ASSERT_EQ(weir_runner_step(engine_.runner(), &item, 1, &logits, engine_.error()), WEIR_OK)
            << engine_.text();
        const float *const row = logits + static_cast<size_t>(item.first_logit) * engine_.n_vocab();
        out->logits.insert(out->logits.end(), row, row + engine_.n_vocab());
    }
    const char *state_of(Sequence *sequence, int64_t layer) const
    {
        return reinterpret_cast<const char *>(
            sequence->get()->recurrent +
            weir_model_layer_memory(weir_engine_model(engine_.get()), layer).state_offset
        );
    }
    void expect_sound(Sequence *sequence, const Edge &edge)
    {
        const weir_coda_layer layer = layer_of(engine_, edge);
        const int64_t at = sequence->get()->n_computed;
        const weir_bank_stats coda = weir_runner_bank_stats(engine_.runner(), sequence->get());
        for (int64_t l = 0; l < 2; l++) {
            const char *const memory = state_of(sequence, l);
            const char *const problem = weir_coda_problem(&layer, memory);
            const weir_coda_state state = weir_coda_view(&layer, const_cast<char *>(memory));
            ASSERT_EQ(problem, nullptr) << "layer " << l << " at " << at << ": " << problem;
            ASSERT_EQ(state.head->position, at);
            for (int64_t slot = edge.window + edge.exact; slot < state.n_slots; slot++) {
                std::vector<float> row(static_cast<size_t>(layer.n_kv_heads * layer.head_dim));
                weir_coda_read(&layer, &state, WEIR_KV_K, state.rows[slot], row.data());
                for (size_t i = 0; i < row.size(); i++)
                    if (!weir_coda_is_low(&layer, static_cast<int64_t>(i) % layer.head_dim))
                        ASSERT_EQ(row[i], 0.0f) << "slot " << slot;
            }
        }
        EXPECT_EQ(coda.n_layers, 2);
        EXPECT_EQ(coda.n_rows, 2 * at);
        EXPECT_EQ(coda.ring.used, 2 * std::min<int64_t>(at, edge.window));
        EXPECT_EQ(
            coda.counts[WEIR_BANK_STATS_EVICTIONS], 2 * std::max<int64_t>(at - edge.window, 0)
        );
        EXPECT_LE(coda.exact.used, 2 * edge.exact);
        EXPECT_LE(coda.summary.used, 2 * edge.summary);
        EXPECT_EQ(weir_bank_stats_live(&coda) + weir_bank_stats_evicted(&coda), at);
        EXPECT_LE(weir_bank_stats_live(&coda), edge.window + edge.exact);
    }
    Run run(const Edge &edge, int seed)
    {
        Sequence sequence(engine_);
        Run out;
        sequence.add(support::some_tokens(
            static_cast<size_t>(edge.prompt + edge.steps), seed, engine_.n_vocab()
        ));
        step(&sequence, edge.prompt, true, &out);
        expect_sound(&sequence, edge);
        for (int i = 0; i < edge.steps; i++) step(&sequence, 1, false, &out);
        expect_sound(&sequence, edge);
        const char *const bytes = reinterpret_cast<const char *>(sequence.get()->recurrent);
        out.state.assign(bytes, bytes + sequence.get()->recurrent_bytes);
        return out;
    }
    Folder folder_;
    Engine engine_;
};

TEST_P(CodaEdges, RunsToTheEndTwiceAlike)
{
    const Edge &edge = GetParam();
    open(edge);
    const Run first = run(edge, 3), again = run(edge, 3), other = run(edge, 4);
    for (const float x : first.logits) ASSERT_TRUE(std::isfinite(x));
    EXPECT_EQ(first.logits, again.logits);
    EXPECT_EQ(first.state, again.state);
    EXPECT_NE(first.logits, other.logits) << "another sequence";
}

const Edge edges[] = {
    { "NoExactBank", 256, 10, 64, 0, 16, 256, "" },
    { "NoPrototypes", 256, 10, 64, 16, 0, 256, "" },
    { "NoBanks", 256, 10, 64, 0, 0, 256, "" },
    { "SmallWindow", 64, 20, 4, 16, 16, 256, "" },
    { "WindowOfOne", 32, 10, 1, 16, 16, 256, "" },
    { "WindowOfOneByOnes", 32, 10, 1, 16, 16, 1, "" },
    { "Ungated", 256, 10, 64, 16, 16, 256, "gate = \"constant\"\n" },
    { "Refreshing", 256, 10, 64, 16, 16, 256, "refresh = true\n" },
    { "NotFounding", 256, 10, 64, 16, 16, 256, "found = false\n" },
    { "FromZeros", 256, 10, 64, 16, 16, 256, "start = \"zeros\"\n" },
    { "FromNoise", 512, 10, 64, 16, 16, 128, "start = \"noise\"\n" },
    { "NoCandidates", 256, 10, 64, 16, 16, 64, "exact_candidates = 0\nsummary_candidates = 0\n" },
    { "OneToken", 1, 0, 64, 16, 16, 256, "" },
    { "AsLongAsTheWindow", 32, 5, 32, 16, 16, 256, "" },
    { "OneMoreThanTheWindow", 33, 5, 32, 16, 16, 256, "" },
    { "BlockLongerThanTheSequence", 64, 5, 64, 16, 16, 1024, "" },
    { "BlocksOf64", 1024, 0, 64, 16, 16, 64, "" },
    { "BlocksOf128", 1024, 0, 64, 16, 16, 128, "" },
    { "BlocksOf512", 1024, 0, 64, 16, 16, 512, "" },
    { "BlocksOf1024", 1024, 0, 64, 16, 16, 1024, "" },
    { "ManySteps", 64, 200, 64, 16, 16, 256, "" },
    { "PromptAndSteps", 512, 20, 64, 16, 16, 256, "" },
};
INSTANTIATE_TEST_SUITE_P(Sizes, CodaEdges, ::testing::ValuesIn(edges), [](const auto &info) {
    return std::string(info.param.name);
});

/* After prompts the ring begins at its first slot, and each step goes one on. */
class CodaRing : public CodaEdges {};
TEST_P(CodaRing, GoesRound)
{
    const Edge &edge = GetParam();
    open(edge);
    const weir_coda_layer layer = layer_of(engine_, edge);
    Sequence sequence(engine_);
    Run out;
    sequence.add(
        support::some_tokens(static_cast<size_t>(edge.prompt + edge.steps), 5, engine_.n_vocab())
    );
    step(&sequence, edge.prompt, true, &out);
    for (int i = 0; i < edge.steps; i++) {
        const weir_coda_state state =
            weir_coda_view(&layer, const_cast<char *>(state_of(&sequence, 1)));
        ASSERT_EQ(state.head->first_recent, i % edge.window) << "before step " << i;
        ASSERT_EQ(state.head->n_recent, edge.window);
        step(&sequence, 1, false, &out);
    }
}
INSTANTIATE_TEST_SUITE_P(
    Sizes, CodaRing, ::testing::Values(Edge{ "Three", 96, 39, 32, 16, 16, 64, "" }),
    [](const auto &info) { return std::string(info.param.name); }
);

/* Nothing of what a sequence takes depends on its length: its bytes, the ledger's accounts, and a
 * copy of its state, which is what a session holds of it. */
class CodaMemory : public CodaEdges {};
TEST_P(CodaMemory, IsThatOfTheFormulaAfter32768Tokens)
{
    const Edge &edge = GetParam();
    open(edge, "32768");
    const weir_coda_layer layer = layer_of(engine_, edge);
    const weir_ledger *const ledger = weir_engine_ledger(engine_.get());
    Sequence sequence(engine_);
    Run out;
    sequence.add(support::some_tokens(32768, 6, engine_.n_vocab()));
    step(&sequence, 1024, true, &out);
    const size_t bytes = weir_kv_sequence_bytes(sequence.get()),
                 total = weir_ledger_total(ledger, WEIR_TIER_HOST);
    while (sequence.get()->n_computed < 32768) {
        out.logits.clear();
        for (int i = 0; i < 16; i++) step(&sequence, 1, false, &out);
        step(
            &sequence,
            std::min(1024 - sequence.get()->n_computed % 256, 32768 - sequence.get()->n_computed),
            true, &out
        );
        ASSERT_EQ(weir_kv_sequence_bytes(sequence.get()), bytes);
        ASSERT_EQ(weir_ledger_total(ledger, WEIR_TIER_HOST), total);
    }
    expect_sound(&sequence, edge);
    const int64_t slots = 384, heads = layer.n_kv_heads, dim = layer.head_dim;
    EXPECT_EQ(
        static_cast<int64_t>(sequence.get()->recurrent_bytes),
        2 * (slots * heads * dim * 2 * 4 + 4 * slots + 4 * 256 + 8 * 64 + 128)
    );
}
INSTANTIATE_TEST_SUITE_P(
    Sizes, CodaMemory, ::testing::Values(Edge{ "Default", 0, 0, 256, 64, 64, 256, "" }),
    [](const auto &info) { return std::string(info.param.name); }
);

} // namespace
