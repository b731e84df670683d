/* Models whose layers have memory of fixed size (coda): the same bits however prompts are cut into
 * whole blocks and with others in its steps, and never more memory than the plan says. */
#include <algorithm>
#include <random>

#include "engine/engine_parts.h"
#include "kernels/abi/coda.h"
#include "offload/ledger.h"
#include "tests/unit/model/coda.h"

namespace {

using support::Engine;
using support::Folder;
using support::Sequence;
using support::Settings;
using Floats = std::vector<float>;

constexpr int BLOCK = 16, N_PROMPT = 150, N_ANSWER = 12,
              N_TOKENS = 240; /* a prompt, its answer, and a second prompt */
const char OPTIONS[] = "window = 24\nlandmarks_exact = 6\nlandmarks_summary = 5\nblock_rows = 16\n";

struct Case {
    const char *name, *pattern, *format, *options;
};
std::ostream &operator<<(std::ostream &out, const Case &c) { return out << c.name; }

class Coda : public ::testing::TestWithParam<Case> {
  protected:
    void open(const Settings &more = {})
    {
        if (settings_.empty() && is_plain())
            support::write_plain_coda(
                folder_, std::string(OPTIONS) + GetParam().options, &settings_
            );
        else if (settings_.empty())
            support::write_coda(
                folder_, GetParam().pattern,
                support::coda_block(std::string(OPTIONS) + GetParam().options), &settings_
            );
        Settings settings = settings_;
        settings.insert(
            settings.end(),
            { "kernels.activations=f32", "batch.max_sequences=128", "batch.chunk=256",
              "model.context=1024", "kv.format=" + std::string(GetParam().format) }
        );
        settings.insert(settings.end(), more.begin(), more.end());
        ASSERT_EQ(engine_.open(folder_.path(), settings), WEIR_OK) << engine_.text();
    }
    static bool is_plain() { return std::string(GetParam().pattern) == "plain"; }
    std::vector<int32_t> tokens(int n, int seed)
    {
        return support::some_tokens(static_cast<size_t>(n), seed, engine_.n_vocab());
    }
    static weir_batch_item item_of(
        Sequence *sequence, int n, bool is_prompt, weir_logits_wanted wanted = WEIR_LOGITS_ALL
    )
    {
        weir_batch_item item = support::item_of(sequence, n, wanted);
        item.is_prompt = is_prompt;
        return item;
    }
    void step(std::vector<weir_batch_item> *items, size_t own, Floats *all)
    {
        const float *logits = nullptr;
        ASSERT_EQ(
            weir_runner_step(
                engine_.runner(), items->data(), static_cast<int32_t>(items->size()), &logits,
                engine_.error()
            ),
            WEIR_OK
        ) << engine_.text();
        if (all == nullptr) return;
        const float *const from =
            logits + static_cast<size_t>((*items)[own].first_logit) * engine_.n_vocab();
        all->insert(
            all->end(), from, from + static_cast<size_t>((*items)[own].n_rows) * engine_.n_vocab()
        );
    }
    /* Logits of a sequence, its prompts in pieces that end at multiples of `piece`; `with_others`:
     * other sequences are added to some steps. */
    Floats run(int piece, bool with_others = false, std::vector<char> *state = nullptr)
    {
        Sequence ours(engine_), decoding(engine_), reading(engine_), late(engine_);
        Floats all;
        ours.add(tokens(N_TOKENS, 3));
        decoding.add(tokens(N_PROMPT, 11));
        reading.add(tokens(250, 12));
        late.add(tokens(250, 13));
        for (int at = 0, i = 0; at < N_TOKENS; i++) {
            std::vector<weir_batch_item> items;
            const auto add = [&items](Sequence *sequence, int rows, bool is_prompt) {
                const int left = sequence->get()->n_tokens - sequence->get()->n_computed;
                if (left > 0)
                    items.push_back(
                        item_of(sequence, std::min(rows, left), is_prompt, WEIR_LOGITS_LAST)
                    );
            };
            if (with_others) add(&decoding, 1, false);
            if (with_others && i % 2 == 0) add(&reading, BLOCK * (1 + i % 2), true);
            const size_t own = items.size();
            const bool is_answer = at >= N_PROMPT && at < N_PROMPT + N_ANSWER;
            const int rows =
                is_answer
                    ? 1
                    : std::min((at / piece + 1) * piece, at < N_PROMPT ? N_PROMPT : N_TOKENS) - at;
            items.push_back(item_of(&ours, rows, !is_answer));
            if (with_others) add(&late, i % 3 == 0 ? 64 : BLOCK, true);
            step(&items, own, &all);
            at += rows;
        }
        if (state != nullptr) *state = bytes_of(&ours);
        return all;
    }
    static std::vector<char> bytes_of(Sequence *sequence)
    {
        const char *const from = reinterpret_cast<const char *>(sequence->get()->recurrent);
        return { from, from + sequence->get()->recurrent_bytes };
    }
    void expect_same(const Floats &got, const Floats &want, const std::string &how)
    {
        ASSERT_EQ(got.size(), want.size()) << how;
        EXPECT_EQ(memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << how;
    }
    Folder folder_;
    Settings settings_;
    Engine engine_;
};

TEST_P(Coda, AnyCutIntoWholeBlocksGivesTheSameBits)
{
    open();
    std::vector<char> state, other;
    const Floats whole = run(256, false, &state);
    for (const float x : whole) ASSERT_TRUE(std::isfinite(x));
    for (const int piece : { BLOCK, 3 * BLOCK, 128 }) {
        expect_same(run(piece, false, &other), whole, "pieces of " + std::to_string(piece));
        EXPECT_EQ(other, state);
    }
    EXPECT_NE(memcmp(run(BLOCK / 2).data(), whole.data(), whole.size() * sizeof(float)), 0)
        << "cuts inside blocks are other blocks";
}

TEST_P(Coda, AnyBatchGivesTheSameBits)
{
    open();
    const Floats whole = run(256);
    for (const int piece : { BLOCK, 64 })
        expect_same(run(piece, true), whole, "with others, pieces of " + std::to_string(piece));
    open({ "kernels.threads=3" });
    expect_same(run(256), whole, "three threads");
}

TEST_P(Coda, StatesTakenOnTheWayAndForksGoOnWithTheSameBits)
{
    open();
    const Floats whole = run(256);
    Sequence ours(engine_);
    Floats all;
    const auto ids = tokens(N_TOKENS, 3);
    ours.add(ids);
    const size_t bytes = ours.get()->recurrent_bytes;
    const int at[] = { BLOCK, 6 * BLOCK };
    std::vector<Floats> states(2, Floats(bytes / sizeof(float)));
    std::vector<weir_batch_item> items = { item_of(&ours, N_PROMPT, true) };
    for (int i = 0; i < 2; i++)
        items[0].snapshots[items[0].n_snapshots++] = { at[i],
                                                       states[static_cast<size_t>(i)].data() };
    step(&items, 0, &all);
    expect_same(
        all, Floats(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(all.size())),
        "with states taken on the way"
    );
    for (int i = 0; i < 2; i++) {
        Sequence stops(engine_);
        Floats rest;
        stops.add(ids);
        items = { item_of(&stops, at[i], true) };
        step(&items, 0, nullptr);
        EXPECT_EQ(memcmp(stops.get()->recurrent, states[static_cast<size_t>(i)].data(), bytes), 0)
            << "after " << at[i] << " tokens";
        Sequence fork(engine_);
        EXPECT_EQ(weir_kv_sequence_fork(fork.get(), stops.get()), WEIR_OK);
        items = { item_of(&fork, N_PROMPT - at[i], true) };
        step(&items, 0, &rest);
        expect_same(
            rest,
            Floats(
                whole.begin() +
                    static_cast<ptrdiff_t>(static_cast<size_t>(at[i]) * engine_.n_vocab()),
                whole.begin() + static_cast<ptrdiff_t>(N_PROMPT * engine_.n_vocab())
            ),
            "a fork goes on"
        );
        EXPECT_EQ(memcmp(stops.get()->recurrent, states[static_cast<size_t>(i)].data(), bytes), 0)
            << "its origin does not notice";
        /* A sequence that forgets begins as a new one does. */
        weir_kv_sequence_reset(stops.get());
        items = { item_of(&stops, N_PROMPT, true) };
        rest.clear();
        step(&items, 0, &rest);
        expect_same(
            rest, Floats(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(rest.size())),
            "again"
        );
    }
}

TEST_P(Coda, MemoryIsWhatThePlanSaysHoweverLongTheSequence)
{
    if (is_plain()) GTEST_SKIP() << "most of its layers have other memory";
    open({ "batch.max_sequences=3" });
    const weir_shape &shape = engine_.shape();
    const weir_plan *plan = weir_engine_plan_of(engine_.get());
    const weir_ledger *ledger = weir_engine_ledger(engine_.get());
    weir_coda_layer layer = {};
    layer.n_kv_heads = shape.n_kv_heads, layer.head_dim = shape.head_dim, layer.window = 24,
    layer.n_exact = 6, layer.n_summary = 5;
    layer.format = std::string(GetParam().format) == "f32" ? WEIR_KV_F32 : WEIR_KV_F16;
    const bool has_level = std::string(GetParam().options).find("value_norm") != std::string::npos;
    const size_t each = weir_coda_view(&layer, nullptr).bytes + (has_level ? 64 : 0),
                 n = std::string(GetParam().pattern).find("attn") == std::string::npos ? 2 : 1;
    EXPECT_EQ(plan->recurrent, 3 * n * each);
    /* 35 slots are one page of 64 rows, keys and values, for each KV head; what is outside the page
     * is small. */
    EXPECT_LT(
        each, static_cast<size_t>(64 * 2 * shape.n_kv_heads * shape.head_dim) *
                      (layer.format == WEIR_KV_F32 ? 4 : 2) +
                  1024
    );
    Sequence sequence(engine_);
    EXPECT_EQ(sequence.get()->recurrent_bytes, n * each);
    const auto used = [&] {
        return weir_ledger_used(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_RECURRENT) +
               weir_ledger_used(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_ACTIVATIONS) +
               weir_ledger_used(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_SNAPSHOTS);
    };
    const size_t before = used();
    sequence.add(tokens(1000, 5));
    while (sequence.get()->n_computed < 900) {
        std::vector<weir_batch_item> items = { item_of(
            &sequence, std::min(240, 900 - sequence.get()->n_computed), true, WEIR_LOGITS_LAST
        ) };
        step(&items, 0, nullptr);
    }
    while (sequence.get()->n_computed < 1000) {
        std::vector<weir_batch_item> items = { item_of(&sequence, 1, false, WEIR_LOGITS_LAST) };
        step(&items, 0, nullptr);
    }
    EXPECT_EQ(used(), before);
    if (n == 2) EXPECT_EQ(weir_ledger_used(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_KV), 0u);
}

const Case cases[] = {
    { "F32", "\"coda\"", "f32", "" },
    { "F16", "\"coda\"", "f16", "start = \"noise\"\n" },
    { "Compat", "\"coda\"", "f32",
      "candidates = \"compat\"\nhead_norm = \"identity\"\ntheta = 0.3\nlambda_bias = -1\n" },
    { "Growing", "\"coda\"", "f16",
      "least_exact = 1\nleast_summary = 0\ngrowth = 200\nrefresh = true\ngate = \"constant\"\n" },
    { "Hybrid", "\"coda\", \"attn\"", "f16", "" },
    { "Undivided", "\"coda\"", "f32",
      "differential = false\ngate = \"value_norm\"\nexact_gate = 0.4\nsummary_gate = 0.5\n" },
    { "Plain", "plain", "f32", "gate = \"constant\"\n" },
    { "PlainByValues", "plain", "bf16",
      "gate = \"value_norm\"\nexact_gate = 0.45\nstart = \"noise\"\n" },
};
INSTANTIATE_TEST_SUITE_P(Models, Coda, ::testing::ValuesIn(cases), [](const auto &info) {
    return std::string(info.param.name);
});

/* ---- what is refused ------------------------------------------------------------------------- */
class CodaRefused : public ::testing::Test {
  protected:
    /* "": it opens. */
    std::string why(
        const std::string &options, const Settings &more = {}, const std::string &mixer = "coda"
    )
    {
        Settings settings = more;
        Engine engine;
        support::write_coda(
            folder_, "\"coda\"",
            "[block.coda]\nmixer = \"" + mixer + "\"\nrope = \"half_split\"\n" + options, &settings
        );
        return engine.open(folder_.path(), settings) == WEIR_OK ? "" : engine.text();
    }
    void expect(
        const std::string &options, const std::string &text, const Settings &more = {},
        const std::string &mixer = "coda"
    )
    {
        const std::string got = why(options, more, mixer);
        EXPECT_NE(got.find(text), std::string::npos) << options << ": " << got;
    }
    Folder folder_;
};

TEST_F(CodaRefused, OptionsThatAreWrongSayWhy)
{
    const std::string sizes = "window = 8\nlandmarks_exact = 4\nlandmarks_summary = 4\n";
    EXPECT_EQ(why(sizes), "");
    EXPECT_EQ(why("theta = 0\nhead_norm = \"identity\"\n", {}, "differential_attention"), "");
    expect("landmarks_exact = 4\nlandmarks_summary = 4\n", "[block.coda]: window is missing");
    expect("window = 8\nlandmarks_exact = 4\n", "landmarks_summary is missing");
    expect(
        "window = 0\nlandmarks_exact = 4\nlandmarks_summary = 4\n",
        "window: must be an integer from 1 to 16777216"
    );
    expect(
        "window = true\nlandmarks_exact = 4\nlandmarks_summary = 4\n", "window: must be an integer"
    );
    expect(
        sizes + "landmark_exact = 4\n",
        "unknown key 'landmark_exact'; the nearest is 'landmarks_exact'"
    );
    expect(sizes + "tiled_heads = true\n", "unknown key 'tiled_heads'");
    expect(sizes + "least_exact = 5\n", "least_exact = 5: there are only landmarks_exact = 4");
    expect(sizes + "match = \"high\"\n", "match: must be a number from -2 to 2");
    expect(sizes + "candidates = \"best\"\n", "candidates: must be one of: fixed compat");
    expect(sizes + "found = { gguf = true, onnx = false }\n", "found: a value by container is");
    expect("window = 8\n", "unknown key 'window'", {}, "differential_attention");
    expect("differential = false\n", "unknown key 'differential'", {}, "differential_attention");
    expect(
        "q_gate = true\n", "differential attention has no output gate", {}, "differential_attention"
    );
    expect(sizes + "q_gate = true\n", "differential attention has no output gate");
    expect(sizes + "gate = \"norm\"\n", "gate: must be one of: learned constant value_norm");
    expect(sizes, "set kv.format to one of these", { "kv.format=q8_0" });
    expect(sizes, "set kv.format to one of these", { "kv.format=f16/f32" });
    expect(
        sizes + "block_rows = 512\n", "reads prompts in blocks of 512 rows", { "batch.chunk=256" }
    );
    EXPECT_EQ(why(sizes + "block_rows = 512\n", { "batch.chunk=512" }), "");
    EXPECT_EQ(why(sizes + "block_rows = 7\n"), "") << "pieces are cut to whole blocks";
}

/* Where neither half of a head turns slowly, prototypes have no band of their own. */
TEST_F(CodaRefused, ABandThatRopeDoesNotLeave)
{
    const std::string sizes = "window = 8\nlandmarks_exact = 4\nlandmarks_summary = 4\n",
                      none = "window = 8\nlandmarks_exact = 4\nlandmarks_summary = 0\n";
    Settings settings;
    Engine engine;
    const auto plan = [&](double share, const std::string &options) {
        support::write_plain_coda(folder_, options, &settings);
        support::write_file(
            folder_ / "config.json",
            support::with(
                support::read_file(folder_ / "config.json"), "\"partial_rotary_factor\": 0.25",
                "\"partial_rotary_factor\": " + std::to_string(share)
            )
        );
        return std::string(engine.plan(folder_.path(), settings) == WEIR_OK ? "" : engine.text());
    };
    for (const double share : { 0.25, 0.5, 1.0 }) EXPECT_EQ(plan(share, sizes), "") << share;
    EXPECT_NE(plan(0.75, sizes).find("name the band of the prototypes"), std::string::npos)
        << engine.text();
    EXPECT_EQ(plan(0.75, sizes + "band = \"upper_half\"\n"), "");
    EXPECT_EQ(plan(0.75, none), "");
}

/* Gates from values have a mean in the state, which files may have anything in. */
TEST_F(CodaRefused, MeansThatNoValuesHave)
{
    Settings settings = { "kv.format=f32", "batch.chunk=64" };
    support::write_coda(
        folder_, "\"coda\"", support::coda_block(std::string(OPTIONS) + "gate = \"value_norm\"\n"),
        &settings
    );
    Engine engine;
    ASSERT_EQ(engine.open(folder_.path(), settings), WEIR_OK) << engine.text();
    Sequence sequence(engine);
    sequence.add(support::some_tokens(64, 1, engine.n_vocab()));
    weir_batch_item item = support::item_of(&sequence, 64, WEIR_LOGITS_LAST);
    const float *logits;
    ASSERT_EQ(weir_runner_step(engine.runner(), &item, 1, &logits, engine.error()), WEIR_OK);
    const size_t n = sequence.get()->recurrent_bytes / sizeof(float);
    Floats state(n + 16);
    float *const memory =
        state.data() + (64 - reinterpret_cast<uintptr_t>(state.data()) % 64) % 64 / sizeof(float);
    memcpy(memory, sequence.get()->recurrent, n * sizeof(float));
    const weir_model *const model = weir_engine_model(engine.get());
    EXPECT_TRUE(weir_model_is_state(model, memory, 64));
    float *const mean = memory + n - 16; /* of the last layer */
    EXPECT_GT(*mean, 0);
    for (const float bad : { -1.0f, NAN, INFINITY }) {
        *mean = bad;
        EXPECT_FALSE(weir_model_is_state(model, memory, 64)) << bad;
    }
}

/* Sessions come from files: a state that would lead a step out of its memory is told from one that
 * a sequence leaves. */
TEST_F(CodaRefused, StatesThatNoSequenceLeaves)
{
    Settings settings = { "kv.format=f32", "batch.chunk=64" };
    support::write_coda(folder_, "\"coda\"", support::coda_block(OPTIONS), &settings);
    Engine engine;
    ASSERT_EQ(engine.open(folder_.path(), settings), WEIR_OK) << engine.text();
    const weir_model *const model = weir_engine_model(engine.get());
    Sequence sequence(engine);
    sequence.add(support::some_tokens(64, 1, engine.n_vocab()));
    weir_batch_item item = support::item_of(&sequence, 64, WEIR_LOGITS_LAST);
    const float *logits;
    ASSERT_EQ(weir_runner_step(engine.runner(), &item, 1, &logits, engine.error()), WEIR_OK);
    const size_t n = sequence.get()->recurrent_bytes;
    const auto copy = [&] {
        Floats out(n / sizeof(float) + 16);
        memcpy(out.data(), sequence.get()->recurrent, n);
        return out;
    };
    Floats good = copy();
    EXPECT_TRUE(weir_model_is_state(model, good.data(), 64));
    EXPECT_FALSE(weir_model_is_state(model, good.data(), 63)) << "of another length";
    EXPECT_FALSE(weir_model_is_state(model, Floats(good.size(), 0.0f).data(), 64));
    weir_coda_layer layer = {};
    layer.n_kv_heads = engine.shape().n_kv_heads, layer.head_dim = engine.shape().head_dim;
    layer.window = 24, layer.n_exact = 6, layer.n_summary = 5, layer.format = WEIR_KV_F32;
    for (const auto &spoil : std::vector<void (*)(weir_coda_state *)>{
             [](weir_coda_state *s) { s->head->n_recent = 25; },
             [](weir_coda_state *s) { s->head->first_recent = 24; },
             [](weir_coda_state *s) { s->head->first_recent = -1; },
             [](weir_coda_state *s) { s->head->n_rows = 36; },
             [](weir_coda_state *s) { s->head->n_rows = 3; },
             [](weir_coda_state *s) { s->head->n_open_exact = 7; },
             [](weir_coda_state *s) { s->head->n_open_summary = 4; },
             [](weir_coda_state *s) { s->rows[3] = s->rows[4]; },
             [](weir_coda_state *s) { s->rows[34] = 35; },
             [](weir_coda_state *s) { s->rows[0] = -1; },
             [](weir_coda_state *s) {
                 std::swap(s->rows[0], s->rows[34]);
                 s->head->n_rows = 34;
             } }) {
        alignas(64) static char memory[1 << 16];
        ASSERT_LE(n, sizeof memory);
        memcpy(memory, good.data(), n);
        weir_coda_state state = weir_coda_view(&layer, memory);
        spoil(&state);
        EXPECT_FALSE(weir_model_is_state(model, reinterpret_cast<const float *>(memory), 64));
    }
    std::mt19937 random(7); /* noise is no state, and asking is safe */
    for (int i = 0; i < 200; i++) {
        Floats spoilt = copy();
        for (int j = 0; j < 8; j++)
            reinterpret_cast<char *>(spoilt.data())[random() % 512] = static_cast<char>(random());
        (void)weir_model_is_state(model, spoilt.data(), 64);
    }
}

} // namespace
