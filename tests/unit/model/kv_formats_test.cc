/* Formats of the KV pages from the configuration to the forward pass: refusals, layers that differ,
 * what a coarse format changes. */
#include <cmath>

#include "engine/kv/pool/formats.h"
#include "tests/unit/model/support.h"

namespace {

using support::Engine;
using support::Settings;

constexpr int n_prompt = 200;

/* A store and a runner of their own formats on an engine's model. */
class Layers {
  public:
    Layers(Engine &engine, std::vector<weir_kv_pair> formats, weir_kv_sinks sinks = {})
        : engine_(engine), formats_(std::move(formats))
    {
        weir_ledger *const ledger = weir_engine_ledger(engine.get());
        const weir_runner_limits limits = { n_prompt, 3, n_prompt, 0, false };
        weir_kv_spec spec = *weir_kv_store_spec(weir_engine_store(engine.get()));
        spec.formats = formats_.data();
        spec.sinks = sinks;
        spec.pages.n = 3 * weir_kv_pages_for(&spec, n_prompt);
        spec.pages.n_sinks = 3 * weir_kv_pages_of(&spec, 0, (n_prompt + 63) / 64).sinks;
        EXPECT_EQ((int64_t)formats_.size(), spec.n_layers);
        EXPECT_EQ(weir_kv_store_open(&store_, &spec, ledger, engine.error()), WEIR_OK)
            << engine.text();
        EXPECT_EQ(
            weir_runner_open(
                &runner_, weir_engine_model(engine.get()), ledger, &spec, &limits, engine.error()
            ),
            WEIR_OK
        ) << engine.text();
        for (weir_kv_sequence &s : sequences_)
            EXPECT_EQ(
                weir_kv_sequence_open(
                    &s, store_, ledger, weir_model_recurrent_bytes(weir_engine_model(engine.get())),
                    engine.error()
                ),
                WEIR_OK
            );
    }
    ~Layers()
    {
        for (weir_kv_sequence &s : sequences_) weir_kv_sequence_close(&s);
        weir_runner_close(runner_);
        weir_kv_store_close(store_);
    }
    /* All logits of sequence number `which` in these pieces, repeated, with another sequence in
     * pieces of its own. */
    std::vector<float> compute(const std::vector<int> &pieces, int which = 3)
    {
        std::vector<float> all;
        for (int i = 0; i < 2; i++) {
            weir_kv_sequence_clear(&sequences_[i]);
            const auto tokens =
                support::some_tokens(n_prompt, i == 0 ? which : 8, engine_.n_vocab());
            std::copy(tokens.begin(), tokens.end(), sequences_[i].tokens);
            sequences_[i].n_tokens = n_prompt;
        }
        for (size_t i = 0; sequences_[0].n_computed < n_prompt; i++)
            go_on(pieces[i % pieces.size()], &all);
        return all;
    }
    /* The rest of the prompt, from a fork after `at` rows. */
    std::vector<float> compute_forked(int at)
    {
        std::vector<float> all = compute({ at, n_prompt }), again;
        weir_kv_sequence_clear(&sequences_[0]);
        const auto tokens = support::some_tokens(n_prompt, 3, engine_.n_vocab());
        std::copy(tokens.begin(), tokens.end(), sequences_[0].tokens);
        sequences_[0].n_tokens = at;
        go_on(at, &again);
        EXPECT_EQ(weir_kv_sequence_fork(&sequences_[2], &sequences_[0]), WEIR_OK);
        sequences_[0].n_tokens = n_prompt; /* goes another way, before the fork goes on */
        std::fill(sequences_[0].tokens + at, sequences_[0].tokens + n_prompt, 5);
        std::vector<float> other;
        go_on(n_prompt - at, &other);
        std::swap(sequences_[0], sequences_[2]);
        sequences_[0].n_tokens = n_prompt;
        std::copy(tokens.begin(), tokens.end(), sequences_[0].tokens);
        go_on(n_prompt - at, &again);
        weir_kv_sequence_clear(&sequences_[2]);
        return again;
    }

  private:
    void go_on(int n, std::vector<float> *all)
    {
        weir_kv_sequence &ours = sequences_[0], &other = sequences_[1];
        weir_batch_item items[2] = {};
        int n_items = 0;
        const int left = other.n_tokens - other.n_computed,
                  n_others = std::min({ left, n == n_prompt ? 0 : 29, n_prompt - n });
        if (n_others > 0)
            items[n_items++] = {
                &other, n_others, 0, WEIR_LOGITS_NONE, 0, 0, 0, 0, {}, false, false
            };
        items[n_items++] = { &ours, std::min(n, ours.n_tokens - ours.n_computed),
                             0,     WEIR_LOGITS_ALL,
                             0,     0,
                             0,     0,
                             {},    false,
                             false };
        const float *logits = nullptr;
        ASSERT_EQ(weir_runner_step(runner_, items, n_items, &logits, engine_.error()), WEIR_OK)
            << engine_.text();
        const weir_batch_item &item = items[n_items - 1];
        const float *const first = logits + (size_t)item.first_logit * engine_.n_vocab();
        all->insert(all->end(), first, first + (size_t)item.n_rows * engine_.n_vocab());
    }
    Engine &engine_;
    std::vector<weir_kv_pair> formats_;
    weir_kv_store *store_ = nullptr;
    weir_runner *runner_ = nullptr;
    weir_kv_sequence sequences_[3] = {};
};

/* Layers with unsealed pages and without, of three sizes: any cut and any fork gives the same
 * bits. */
TEST(KvLayers, MayDifferInEveryFormat)
{
    Engine engine;
    ASSERT_EQ(
        engine.open(
            support::golden("qwen3"),
            { "kernels.activations=f32", "memory.host=64MiB", "model.context=256" }
        ),
        WEIR_OK
    ) << engine.text();
    const std::vector<std::vector<weir_kv_pair>> cases = {
        { { WEIR_KV_INT8, WEIR_KV_TURBO4 }, { WEIR_KV_F16, WEIR_KV_F16 } },
        { { WEIR_KV_F32, WEIR_KV_F32 }, { WEIR_KV_KIVI4, WEIR_KV_KIVI2 } },
        { { WEIR_KV_Q8_0, WEIR_KV_KIVI4 }, { WEIR_KV_KIVI2, WEIR_KV_Q4_0 } },
    };
    for (const auto &formats : cases) {
        Layers layers(engine, formats);
        const auto whole = layers.compute({ n_prompt });
        for (const auto &pieces :
             std::vector<std::vector<int>>{ { 64 }, { 1 }, { 63, 1, 66, 2 }, { 100, 1 }, { 40 } })
            EXPECT_EQ(layers.compute(pieces), whole) << pieces[0];
        for (const int at : { 40, 64, 100, 128, 190 })
            EXPECT_EQ(layers.compute_forked(at), whole) << at;
    }
}

/* The first pages in a format of their own: any cut and any fork gives the same bits, and the
 * logits are nearer to those over wide rows. */
TEST(KvLayers, SinksMayDifferFromAll)
{
    Engine engine;
    ASSERT_EQ(
        engine.open(
            support::golden("qwen3"),
            { "kernels.activations=f32", "memory.host=64MiB", "model.context=256" }
        ),
        WEIR_OK
    ) << engine.text();
    const weir_kv_pair f16 = { WEIR_KV_F16, WEIR_KV_F16 },
                       turbo4 = { WEIR_KV_TURBO4, WEIR_KV_TURBO4 },
                       q8_0 = { WEIR_KV_Q8_0, WEIR_KV_Q8_0 },
                       kivi4 = { WEIR_KV_KIVI4, WEIR_KV_KIVI4 };
    const struct {
        std::vector<weir_kv_pair> formats;
        weir_kv_sinks sinks;
    } cases[] = { { { turbo4, turbo4 }, { f16, 1 } },
                  { { q8_0, q8_0 }, { f16, 2 } },
                  { { kivi4, kivi4 }, { f16, 1 } },
                  { { f16, kivi4 }, { f16, 3 } },
                  { { { WEIR_KV_TURBO3, WEIR_KV_KIVI2 }, { WEIR_KV_Q4_0, WEIR_KV_TURBO2 } },
                    { { WEIR_KV_INT8, WEIR_KV_Q8_0 }, 1 } },
                  { { { WEIR_KV_F32, WEIR_KV_F32 }, q8_0 },
                    { { WEIR_KV_TURBO4, WEIR_KV_KIVI8 }, 2 } } };
    for (const auto &test : cases) {
        Layers layers(engine, test.formats, test.sinks);
        const auto whole = layers.compute({ n_prompt });
        for (const auto &pieces :
             std::vector<std::vector<int>>{ { 64 }, { 1 }, { 63, 1, 66, 2 }, { 100, 1 }, { 40 } })
            EXPECT_EQ(layers.compute(pieces), whole) << pieces[0];
        for (const int at : { 40, 64, 100, 128, 190 })
            EXPECT_EQ(layers.compute_forked(at), whole) << at;
        if (test.sinks.pair.k != WEIR_KV_F16) continue;
        const auto error = [&](const std::vector<float> &got, size_t rows) {
            const auto wide = Layers(engine, { f16, f16 }).compute({ n_prompt });
            double sum = 0;
            for (size_t i = 0; i < rows * (wide.size() / n_prompt); i++)
                sum += std::pow((double)got[i] - wide[i], 2);
            return std::sqrt(sum);
        };
        EXPECT_LT(
            error(whole, n_prompt),
            error(Layers(engine, test.formats).compute({ n_prompt }), n_prompt)
        );
        /* Rotating rounds, nothing else happens to rows that see only sinks. */
        EXPECT_LT(
            error(whole, 64),
            1e-3 * error(Layers(engine, test.formats).compute({ n_prompt }), 200) + 1e-4
        );
    }
}

/* Coarse formats change the logits, more the coarser they are; f32 is what all are measured
 * against. */
TEST(KvLayers, FormatsAreWhatIsRead)
{
    Engine engine;
    ASSERT_EQ(
        engine.open(
            support::golden("qwen3"),
            { "kernels.activations=f32", "memory.host=64MiB", "model.context=256" }
        ),
        WEIR_OK
    ) << engine.text();
    const auto logits = [&](weir_kv_format k, weir_kv_format v) {
        return Layers(engine, { { k, v }, { k, v } }).compute({ n_prompt });
    };
    const auto exact = logits(WEIR_KV_F32, WEIR_KV_F32);
    const auto error = [&](weir_kv_format k, weir_kv_format v) {
        const auto got = logits(k, v);
        double sum = 0;
        for (size_t i = 0; i < got.size(); i++) sum += std::pow((double)got[i] - exact[i], 2);
        return std::sqrt(sum / (double)got.size());
    };
    const double f16 = error(WEIR_KV_F16, WEIR_KV_F16), q8_0 = error(WEIR_KV_Q8_0, WEIR_KV_Q8_0),
                 int8 = error(WEIR_KV_INT8, WEIR_KV_INT8),
                 turbo4 = error(WEIR_KV_TURBO4, WEIR_KV_TURBO4),
                 turbo2 = error(WEIR_KV_TURBO2, WEIR_KV_TURBO2),
                 kivi4 = error(WEIR_KV_KIVI4, WEIR_KV_KIVI4),
                 kivi2 = error(WEIR_KV_KIVI2, WEIR_KV_KIVI2);
    EXPECT_GT(f16, 0);
    EXPECT_GT(q8_0, 2 * f16);
    EXPECT_GT(int8, 2 * f16);
    EXPECT_GT(turbo4, 2 * q8_0);
    EXPECT_GT(turbo2, 2 * turbo4);
    EXPECT_GT(kivi4, 2 * int8);
    EXPECT_GT(kivi2, 2 * kivi4);
}

TEST(KvPlan, AFormatThatTheHeadsDoNotAllowIsRefused)
{
    Engine engine;
    EXPECT_EQ(engine.plan(support::golden("qwen2"), { "kv.format=q8_0" }), WEIR_ECONFIG);
    EXPECT_NE(
        strstr(
            engine.text(),
            "kv.format: q8_0 for keys takes head widths that are multiples of 32, this "
            "model's heads are 8 wide; they fit "
            "f32, f16, bf16, int8, fp8_e4m3, fp8_e5m2, kivi2, kivi4, kivi8"
        ),
        nullptr
    ) << engine.text();
    EXPECT_EQ(engine.plan(support::golden("qwen2"), { "kv.format=f16/kivi4" }), WEIR_ECONFIG);
    EXPECT_EQ(
        engine.plan(support::golden("qwen2"), { "kv.wide_format=q8_0", "kv.wide_layers=1" }),
        WEIR_ECONFIG
    );
    EXPECT_NE(strstr(engine.text(), "kv.wide_format: q8_0 for keys"), nullptr) << engine.text();
    EXPECT_EQ(engine.plan(support::golden("qwen2"), { "kv.wide_format=q8_0" }), WEIR_OK)
        << "no layer has it: " << engine.text();
    EXPECT_EQ(
        engine.plan(support::golden("qwen2"), { "kv.format=q8_0", "kv.wide_layers=1" }), WEIR_OK
    ) << "both layers are wide";
    EXPECT_EQ(
        engine.plan(support::golden("qwen2"), { "kv.wide_format=q8_0", "kv.wide_sinks=1" }),
        WEIR_ECONFIG
    );
    EXPECT_NE(strstr(engine.text(), "kv.wide_format: q8_0 for keys"), nullptr) << engine.text();
}

} // namespace
