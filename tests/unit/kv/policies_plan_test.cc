/* The selector, triggers, peaks and protected rows: what every policy shares, over streams of
 * tokens. */
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "engine/kv/policy/rotate.h"
#include "tests/unit/kv/policy_sequence.h"

namespace {

using policy_test::Data;
using policy_test::Floats;
using policy_test::Ints;
using policy_test::random_data;
using policy_test::Sequence;
using policy_test::sorted_out;

/* ---- the selector ---------------------------------------------------------------------------- */

Ints selected(
    const Floats &scores, int64_t n_keep, int64_t n_first = 0, int64_t n_last = 0,
    int64_t *n_nan = nullptr
)
{
    std::vector<uint32_t> keys(scores.size());
    Ints out(scores.size());
    int64_t ignored = 0;
    policy_head at = {};
    at.n = static_cast<int64_t>(scores.size()), at.n_first = n_first, at.n_last = n_last;
    policy_sort_keys(keys.data(), scores.data(), &at, n_nan != nullptr ? n_nan : &ignored);
    policy_cut cut = policy_cut_keys(keys.data(), at.n, n_keep);
    out.resize(static_cast<size_t>(policy_take(out.data(), keys.data(), at.n, &cut)));
    return out;
}

TEST(PolicySelector, KeepsWhatASortKeeps)
{
    uint64_t seed = 1;
    for (size_t n : { 1u, 2u, 7u, 300u, 5000u })
        for (int levels : { 1, 3, 1000000 }) {
            Floats scores(n);
            for (float &x : scores) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                x = static_cast<float>(static_cast<int64_t>(seed >> 40) % levels) *
                    (seed >> 63 ? -0.37f : 1e-3f);
            }
            for (size_t n_keep : { size_t{ 0 }, size_t{ 1 }, n / 2, n - 1, n, n + 3 })
                EXPECT_EQ(
                    selected(scores, static_cast<int64_t>(n_keep)), sorted_out(scores, n_keep)
                ) << n
                  << " " << levels << " " << n_keep;
        }
}

TEST(PolicySelector, EqualScoresFallBySlotAndSignsOfZeroAreEqual)
{
    EXPECT_EQ(selected({ -0.0f, 0.0f, -0.0f, 0.0f }, 2), (Ints{ 0, 1 }));
    EXPECT_EQ(selected({ 1, 2, 2, 2, 1 }, 2), (Ints{ 1, 2 }));
}

TEST(PolicySelector, NoNumberIsTheLowestAndIsCounted)
{
    int64_t n_nan = 0;
    EXPECT_EQ(selected({ NAN, -INFINITY, 3, -NAN, INFINITY }, 3, 0, 0, &n_nan), (Ints{ 1, 2, 4 }));
    EXPECT_EQ(n_nan, 2);
}

TEST(PolicySelector, ProtectedRowsStayWhateverTheirScore)
{
    EXPECT_EQ(selected({ -9, NAN, 5, 6, 7, -INFINITY }, 4, 2, 1), (Ints{ 0, 1, 4, 5 }));
}

/* ---- peaks (spec 2.1, 7.4) ------------------------------------------------------------------- */

/* Longest lengths within and after a step over a sequence that begins with a prompt. */
struct Peak {
    int64_t within = 0, after = 0, before_last = 0;
};

Peak stream(Sequence *seq, int64_t prompt, int64_t budget)
{
    Peak peak;
    seq->forward(prompt);
    if (seq->is_due({ budget }, WEIR_POLICY_PROMPT_END)) seq->plan({ budget });
    while (seq->position() < seq->data.tokens) {
        seq->forward(1);
        peak.within = std::max(peak.within, static_cast<int64_t>(seq->held(0, 0).size()));
        if (seq->is_due({ budget }, WEIR_POLICY_DECODE)) seq->plan({ budget });
        peak.after = std::max(peak.after, static_cast<int64_t>(seq->held(0, 0).size()));
    }
    return peak;
}

TEST(PolicyPeak, HeavyHittersHoldSinksBudgetRecentAndTheStepsBetween)
{
    const Data data = random_data(1, 2, 1, 120, 8, 5);
    for (int64_t every : { 1, 2, 5, 8 }) {
        const int64_t sinks = 3, middle = 9, recent = 6, budget = sinks + middle + recent;
        Sequence seq(data, "h2o", "sinks=3,recent=6,every=" + std::to_string(every));
        const Peak peak = stream(&seq, 10, budget);
        EXPECT_EQ(peak.after, budget + every - 1) << every;
        EXPECT_EQ(peak.within, budget + every) << every;
        EXPECT_EQ(weir_policy_peak_rows(seq.policy(), budget, 0, 1), peak.within) << every;
    }
}

TEST(PolicyPeak, SlackSwingsBetweenTheBudgetAndWhatItAllows)
{
    const Data data = random_data(1, 2, 1, 100, 8, 6);
    Sequence seq(data, "knorm", "every=16");
    int64_t least = 100, most = 0;
    seq.step(30, 20, WEIR_POLICY_PROMPT_END);
    EXPECT_EQ(seq.held(0, 0).size(), 20u);
    while (seq.position() < data.tokens) {
        seq.step(1, 20, WEIR_POLICY_DECODE);
        least = std::min(least, static_cast<int64_t>(seq.held(0, 0).size()));
        most = std::max(most, static_cast<int64_t>(seq.held(0, 0).size()));
    }
    EXPECT_EQ(least, 20);
    EXPECT_EQ(most, 20 + 16 - 1);
}

TEST(PolicyPeak, StrictAndDelayedActAtPositionsAndNotAtLengths)
{
    const Data data = random_data(1, 1, 1, 90, 8, 7);
    for (const bool is_delayed : { false, true }) {
        Sequence seq(
            data, "knorm", std::string("every=10,trigger=") + (is_delayed ? "delayed" : "strict")
        );
        seq.forward(7);
        while (seq.position() < data.tokens) {
            seq.forward(1);
            const bool is_due = seq.is_due({ 12 }, WEIR_POLICY_DECODE);
            EXPECT_EQ(
                is_due, seq.position() % 10 == (is_delayed ? 1 : 0) && seq.held(0, 0).size() > 12
            ) << seq.position();
            if (is_due) seq.plan({ 12 });
            EXPECT_LE(seq.held(0, 0).size(), 12u + 9);
        }
    }
}

TEST(PolicyPeak, EveryPolicyKeepsItsWord)
{
    const Data data = random_data(2, 4, 2, 150, 8, 8);
    for (const char *const name :
         { "sinks", "h2o", "observed", "scissorhands", "snapkv", "snapkv_original", "snapkv_decode",
           "rkv", "tova", "keydiff", "knorm", "expected", "lagkv", "landmarks", "random" }) {
        weir_policy_options options;
        ASSERT_EQ(weir_policy_options_default(&options, name, nullptr), WEIR_OK);
        const bool has_window = weir_policy_options_set(&options, "window=4", nullptr) == WEIR_OK;
        const bool has_lag = weir_policy_options_set(&options, "lag=5", nullptr) == WEIR_OK;
        const std::string own =
            std::string(has_window ? ",window=4" : "") + (has_lag ? ",lag=5" : "");
        for (const bool in_prompt : { false, true }) {
            Sequence seq(
                data, name, "recent=5,sinks=2,every=7" + own + (in_prompt ? ",in_prompt=true" : "")
            );
            const int64_t chunk = in_prompt ? 13 : 1,
                          bound = weir_policy_peak_rows(seq.policy(), 24, 0, chunk);
            ASSERT_LT(bound, data.tokens) << name;
            while (seq.position() + chunk <= data.tokens) {
                seq.forward(chunk);
                for (int64_t g = 0; g < 4; g++)
                    EXPECT_LE(static_cast<int64_t>(seq.held(g / 2, g % 2).size()), bound) << name;
                if (seq.is_due({ 24 }, in_prompt ? WEIR_POLICY_IN_PROMPT : WEIR_POLICY_DECODE))
                    seq.plan({ 24 });
            }
            EXPECT_GE(seq.held(0, 0).size(), 24u) << name;
        }
    }
}

TEST(PolicyPeak, FullIsNeverDueAndKeepsEverything)
{
    const Data data = random_data(1, 2, 1, 50, 8, 9);
    Sequence seq(data, "full", "");
    EXPECT_EQ(weir_policy_needs(seq.policy()), 0u);
    while (seq.position() < data.tokens) {
        seq.forward(1);
        for (const weir_policy_phase phase :
             { WEIR_POLICY_IN_PROMPT, WEIR_POLICY_PROMPT_END, WEIR_POLICY_DECODE })
            EXPECT_FALSE(seq.is_due({ 1 }, phase));
    }
    seq.plan({ 1 });
    EXPECT_EQ(seq.held(0, 0).size(), 50u);
}

TEST(PolicyTrigger, WithoutStepsOnlyPromptsAreCut)
{
    const Data data = random_data(1, 1, 1, 60, 8, 10);
    Sequence seq(data, "knorm", "every=0");
    seq.forward(20);
    EXPECT_FALSE(seq.is_due({ 10 }, WEIR_POLICY_IN_PROMPT));
    EXPECT_FALSE(seq.is_due({ 10 }, WEIR_POLICY_DECODE));
    EXPECT_FALSE(seq.is_due({ 20 }, WEIR_POLICY_PROMPT_END));
    EXPECT_TRUE(seq.is_due({ 19 }, WEIR_POLICY_PROMPT_END));
    EXPECT_EQ(weir_policy_peak_rows(seq.policy(), 10, 0, 1), data.tokens);
}

/* ---- protected rows -------------------------------------------------------------------------- */

TEST(PolicyPinned, APromptThatFillsTheBudgetDoesNotDropWhatFollows)
{
    const Data data = random_data(1, 2, 1, 80, 8, 11);
    Sequence seq(data, "knorm", "pin_prompt=true,every=8");
    seq.forward(30);
    seq.n_prompt = 30;
    while (seq.position() < data.tokens) {
        seq.forward(1);
        if (!seq.is_due({ 20 }, WEIR_POLICY_DECODE)) continue;
        seq.plan({ 20 });
        EXPECT_EQ(seq.last_plan().n_over, 1);
        EXPECT_EQ(seq.held(0, 0).size(), 30u + 8); /* the prompt and some of the answer */
        for (int32_t i = 0; i < 30; i++) EXPECT_EQ(seq.held(0, 0)[static_cast<size_t>(i)], i);
        EXPECT_EQ(seq.position() % 8, 30 % 8) << "a plan each 8 rows, not in each step";
    }
    EXPECT_GT(seq.held(0, 0).back(), 70);
}

TEST(PolicyPinned, PinnedSinksAndRecentRowsStayAndTheBudgetHolds)
{
    const Data data = random_data(2, 4, 2, 60, 8, 12);
    Sequence seq(data, "random", "sinks=3,recent=4");
    seq.n_pinned = 7;
    seq.forward(60);
    seq.plan({ 20 });
    EXPECT_EQ(seq.last_plan().n_over, 0);
    for (int64_t layer = 0; layer < 2; layer++)
        for (int64_t g = 0; g < 2; g++) {
            const Ints &held = seq.held(layer, g);
            ASSERT_EQ(held.size(), 20u);
            for (int32_t i = 0; i < 7; i++) EXPECT_EQ(held[static_cast<size_t>(i)], i);
            for (int32_t i = 0; i < 4; i++) EXPECT_EQ(held[static_cast<size_t>(16 + i)], 56 + i);
        }
    EXPECT_NE(seq.held(0, 0), seq.held(0, 1)) << "heads draw for themselves";
}

TEST(PolicyPositions, AreMonotoneThroughTenPlansAndNeverCountRows)
{
    const Data data = random_data(1, 2, 1, 200, 8, 13);
    Sequence seq(data, "h2o", "every=1,recent=4,sinks=2");
    int64_t n_plans = 0;
    while (seq.position() < data.tokens) {
        seq.forward(1);
        if (seq.is_due({ 12 }, WEIR_POLICY_DECODE)) {
            seq.plan({ 12 });
            n_plans++;
        }
        EXPECT_EQ(seq.state()->next_position, seq.position());
        EXPECT_EQ(seq.held(0, 0).back(), seq.position() - 1);
    }
    EXPECT_GT(n_plans, 10);
    EXPECT_LT(static_cast<int64_t>(seq.held(0, 0).size()), seq.state()->next_position);
}

} // namespace
