/* The selector, triggers, protected rows and budgets: what every policy shares, over streams of
 * tokens. */
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "engine/kv/policy/turn.h"
#include "tests/unit/kv/policy_text.h"

namespace {

using policy_test::Data;
using policy_test::Floats;
using policy_test::Ints;
using policy_test::random_data;
using policy_test::Text;

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

Ints sorted_out(const Floats &scores, size_t n_keep)
{
    Ints order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
        return x != y ? x > y : a < b;
    });
    order.resize(std::min(n_keep, order.size()));
    std::sort(order.begin(), order.end());
    return order;
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

/* Longest lengths within and after a step over a text that begins with a prompt. */
struct Peak {
    int64_t within = 0, after = 0, before_last = 0;
};

Peak stream(Text *text, int64_t prompt, int64_t budget)
{
    Peak peak;
    text->forward(prompt);
    if (text->is_due({ budget }, WEIR_POLICY_PROMPT_END)) text->plan({ budget });
    while (text->position() < text->data.tokens) {
        text->forward(1);
        peak.within = std::max(peak.within, static_cast<int64_t>(text->held(0, 0).size()));
        if (text->is_due({ budget }, WEIR_POLICY_DECODE)) text->plan({ budget });
        peak.after = std::max(peak.after, static_cast<int64_t>(text->held(0, 0).size()));
    }
    return peak;
}

TEST(PolicyPeak, HeavyHittersHoldSinksBudgetRecentAndTheStepsBetween)
{
    const Data data = random_data(1, 2, 1, 120, 8, 5);
    for (int64_t every : { 1, 2, 5, 8 }) {
        const int64_t sinks = 3, middle = 9, recent = 6, budget = sinks + middle + recent;
        Text text(data, "h2o", "sinks=3,recent=6,every=" + std::to_string(every));
        const Peak peak = stream(&text, 10, budget);
        EXPECT_EQ(peak.after, budget + every - 1) << every;
        EXPECT_EQ(peak.within, budget + every) << every;
        EXPECT_EQ(weir_policy_peak_rows(text.policy(), budget, 0, 1), peak.within) << every;
    }
}

TEST(PolicyPeak, SlackSwingsBetweenTheBudgetAndWhatItAllows)
{
    const Data data = random_data(1, 2, 1, 100, 8, 6);
    Text text(data, "knorm", "every=16");
    int64_t least = 100, most = 0;
    text.step(30, 20, WEIR_POLICY_PROMPT_END);
    EXPECT_EQ(text.held(0, 0).size(), 20u);
    while (text.position() < data.tokens) {
        text.step(1, 20, WEIR_POLICY_DECODE);
        least = std::min(least, static_cast<int64_t>(text.held(0, 0).size()));
        most = std::max(most, static_cast<int64_t>(text.held(0, 0).size()));
    }
    EXPECT_EQ(least, 20);
    EXPECT_EQ(most, 20 + 16 - 1);
}

TEST(PolicyPeak, StrictAndDelayedActAtPositionsAndNotAtLengths)
{
    const Data data = random_data(1, 1, 1, 90, 8, 7);
    for (const bool is_delayed : { false, true }) {
        Text text(
            data, "knorm", std::string("every=10,trigger=") + (is_delayed ? "delayed" : "strict")
        );
        text.forward(7);
        while (text.position() < data.tokens) {
            text.forward(1);
            const bool is_due = text.is_due({ 12 }, WEIR_POLICY_DECODE);
            EXPECT_EQ(
                is_due, text.position() % 10 == (is_delayed ? 1 : 0) && text.held(0, 0).size() > 12
            ) << text.position();
            if (is_due) text.plan({ 12 });
            EXPECT_LE(text.held(0, 0).size(), 12u + 9);
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
            Text text(
                data, name, "recent=5,sinks=2,every=7" + own + (in_prompt ? ",in_prompt=true" : "")
            );
            const int64_t chunk = in_prompt ? 13 : 1,
                          bound = weir_policy_peak_rows(text.policy(), 24, 0, chunk);
            ASSERT_LT(bound, data.tokens) << name;
            while (text.position() + chunk <= data.tokens) {
                text.forward(chunk);
                for (int64_t g = 0; g < 4; g++)
                    EXPECT_LE(static_cast<int64_t>(text.held(g / 2, g % 2).size()), bound) << name;
                if (text.is_due({ 24 }, in_prompt ? WEIR_POLICY_IN_PROMPT : WEIR_POLICY_DECODE))
                    text.plan({ 24 });
            }
            EXPECT_GE(text.held(0, 0).size(), 24u) << name;
        }
    }
}

TEST(PolicyPeak, FullIsNeverDueAndKeepsEverything)
{
    const Data data = random_data(1, 2, 1, 50, 8, 9);
    Text text(data, "full", "");
    EXPECT_EQ(weir_policy_needs(text.policy()), 0u);
    while (text.position() < data.tokens) {
        text.forward(1);
        for (const weir_policy_phase phase :
             { WEIR_POLICY_IN_PROMPT, WEIR_POLICY_PROMPT_END, WEIR_POLICY_DECODE })
            EXPECT_FALSE(text.is_due({ 1 }, phase));
    }
    text.plan({ 1 });
    EXPECT_EQ(text.held(0, 0).size(), 50u);
}

TEST(PolicyTrigger, WithoutStepsOnlyPromptsAreCut)
{
    const Data data = random_data(1, 1, 1, 60, 8, 10);
    Text text(data, "knorm", "every=0");
    text.forward(20);
    EXPECT_FALSE(text.is_due({ 10 }, WEIR_POLICY_IN_PROMPT));
    EXPECT_FALSE(text.is_due({ 10 }, WEIR_POLICY_DECODE));
    EXPECT_FALSE(text.is_due({ 20 }, WEIR_POLICY_PROMPT_END));
    EXPECT_TRUE(text.is_due({ 19 }, WEIR_POLICY_PROMPT_END));
    EXPECT_EQ(weir_policy_peak_rows(text.policy(), 10, 0, 1), data.tokens);
}

/* ---- protected rows -------------------------------------------------------------------------- */

TEST(PolicyPinned, APromptThatFillsTheBudgetDoesNotDropWhatFollows)
{
    const Data data = random_data(1, 2, 1, 80, 8, 11);
    Text text(data, "knorm", "pin_prompt=true,every=8");
    text.forward(30);
    text.n_prompt = 30;
    while (text.position() < data.tokens) {
        text.forward(1);
        if (!text.is_due({ 20 }, WEIR_POLICY_DECODE)) continue;
        text.plan({ 20 });
        EXPECT_EQ(text.last_plan().n_over, 1);
        EXPECT_EQ(text.held(0, 0).size(), 30u + 8); /* the prompt and some of the answer */
        for (int32_t i = 0; i < 30; i++) EXPECT_EQ(text.held(0, 0)[static_cast<size_t>(i)], i);
        EXPECT_EQ(text.position() % 8, 30 % 8) << "a plan each 8 rows, not in each step";
    }
    EXPECT_GT(text.held(0, 0).back(), 70);
}

TEST(PolicyPinned, PinnedSinksAndRecentRowsStayAndTheBudgetHolds)
{
    const Data data = random_data(2, 4, 2, 60, 8, 12);
    Text text(data, "random", "sinks=3,recent=4");
    text.n_pinned = 7;
    text.forward(60);
    text.plan({ 20 });
    EXPECT_EQ(text.last_plan().n_over, 0);
    for (int64_t layer = 0; layer < 2; layer++)
        for (int64_t g = 0; g < 2; g++) {
            const Ints &held = text.held(layer, g);
            ASSERT_EQ(held.size(), 20u);
            for (int32_t i = 0; i < 7; i++) EXPECT_EQ(held[static_cast<size_t>(i)], i);
            for (int32_t i = 0; i < 4; i++) EXPECT_EQ(held[static_cast<size_t>(16 + i)], 56 + i);
        }
    EXPECT_NE(text.held(0, 0), text.held(0, 1)) << "heads draw for themselves";
}

TEST(PolicyPositions, AreMonotoneThroughTenPlansAndNeverCountRows)
{
    const Data data = random_data(1, 2, 1, 200, 8, 13);
    Text text(data, "h2o", "every=1,recent=4,sinks=2");
    int64_t n_plans = 0;
    while (text.position() < data.tokens) {
        text.forward(1);
        if (text.is_due({ 12 }, WEIR_POLICY_DECODE)) {
            text.plan({ 12 });
            n_plans++;
        }
        EXPECT_EQ(text.state()->next_position, text.position());
        EXPECT_EQ(text.held(0, 0).back(), text.position() - 1);
    }
    EXPECT_GT(n_plans, 10);
    EXPECT_LT(static_cast<int64_t>(text.held(0, 0).size()), text.state()->next_position);
}

/* ---- budgets of heads ------------------------------------------------------------------------ */

TEST(PolicyBudget, HeadsOfALayerShareTheirSumByScore)
{
    Data data = random_data(1, 4, 4, 64, 8, 14);
    for (size_t i = 0; i < 64 * 8; i++)
        data.k[i] *= 100; /* the first head's scores are below all others */
    Text text(data, "knorm", "split=adaptive");
    text.forward(64);
    std::vector<Floats> scores;
    for (int64_t g = 0; g < 4; g++) scores.push_back(text.scores(0, g, 16));
    text.plan({ 16 }, true, 0.25);
    size_t sum = 0;
    float least_kept = INFINITY, most_dropped = -INFINITY;
    for (int64_t g = 0; g < 4; g++) {
        const Ints &held = text.held(0, g);
        sum += held.size();
        EXPECT_GE(held.size(), 4u);
        for (const int32_t j : sorted_out(scores[static_cast<size_t>(g)], 4))
            EXPECT_TRUE(std::binary_search(held.begin(), held.end(), j))
                << "the best of a head are safe";
        for (int32_t j = 0; j < 64; j++) {
            const float score = scores[static_cast<size_t>(g)][static_cast<size_t>(j)];
            if (!std::binary_search(held.begin(), held.end(), j))
                most_dropped = std::max(most_dropped, score);
            else if (held.size() > 4)
                least_kept = std::min(least_kept, score);
        }
    }
    EXPECT_EQ(sum, 64u);
    EXPECT_EQ(text.held(0, 0).size(), 4u);
    EXPECT_GT(least_kept, most_dropped);
}

TEST(PolicyBudget, HeadsThatShareAreDueTogether)
{
    Data data = random_data(2, 4, 2, 120, 8, 23);
    for (size_t i = 0; i < 120 * 8; i++) data.k[i] *= 2;
    Text text(data, "knorm", "split=adaptive,every=5");
    text.forward(10);
    while (text.position() < 120) {
        text.forward(1);
        for (int64_t layer = 0; layer < 2; layer++) {
            const size_t sum = text.held(layer, 0).size() + text.held(layer, 1).size();
            EXPECT_LE(sum, 2u * (12 + 5));
            for (int64_t g = 0; g < 2; g++)
                EXPECT_LE(
                    static_cast<int64_t>(text.held(layer, g).size()),
                    weir_policy_peak_rows(text.policy(), 12, 0, 1)
                );
        }
        const size_t first = text.held(0, 0).size() + text.held(0, 1).size();
        EXPECT_EQ(text.is_due({ 12 }, WEIR_POLICY_DECODE, true), first >= 2u * (12 + 5));
        if (text.is_due({ 12 }, WEIR_POLICY_DECODE, true)) text.plan({ 12 }, true, 0.2);
    }
    EXPECT_LT(text.held(0, 0).size() + 5, text.held(0, 1).size());
}

TEST(PolicyBudget, AHeadTooShortToBeJudgedStaysWholeAndLendsTheRest)
{
    const Data data = random_data(1, 2, 2, 90, 8, 24);
    Text text(data, "lagkv", "split=adaptive,sinks=0,lag=10");
    text.forward(60);
    text.plan({ 12, 60 });
    text.forward(2);
    text.plan({ 20 }, true, 0.2); /* 14 rows in one head, fewer than 20; 62 in the other */
    EXPECT_EQ(text.held(0, 0).size(), 14u);
    EXPECT_EQ(text.held(0, 1).size(), 26u);
}

TEST(PolicyBudget, SharedRowsThatFitAreLeftAlone)
{
    const Data data = random_data(1, 2, 2, 20, 8, 15);
    Text text(data, "knorm", "split=adaptive");
    text.forward(20);
    text.plan({ 25, 15 }, true, 0.2);
    EXPECT_EQ(text.held(0, 1).size(), 20u);
}

TEST(PolicyBudget, ListedHeadsKeepEveryRowTheOthersSinksAndAWindow)
{
    const Data data = random_data(2, 4, 2, 40, 8, 16);
    Text text(data, "duo", "sinks=3,recent=5,heads=0:1;1:0-0");
    bool whole[4];
    weir_error error = {};
    ASSERT_EQ(
        weir_budget_parse_heads(whole, 2, 2, weir_policy_options_of(text.policy())->heads, &error),
        WEIR_OK
    ) << error.text;
    std::vector<int64_t> rows(4);
    weir_budget_fill(rows.data(), text.policy(), 99, 40, whole);
    text.forward(40);
    EXPECT_TRUE(text.is_due(rows, WEIR_POLICY_PROMPT_END));
    text.plan(rows);
    EXPECT_EQ(text.held(0, 1).size(), 40u);
    EXPECT_EQ(text.held(1, 0).size(), 40u);
    EXPECT_EQ(text.held(0, 0), (Ints{ 0, 1, 2, 35, 36, 37, 38, 39 }));
    EXPECT_EQ(text.held(1, 1), text.held(0, 0));
}

TEST(PolicyBudget, ListsOfHeadsAreReadWholeOrRefused)
{
    bool flags[6];
    for (const char *good : { "", "0:0", "0:0;2:1", "1:*", "0:0-1;1:0;", "2:1-1" }) {
        weir_error error = {};
        EXPECT_EQ(weir_budget_parse_heads(flags, 3, 2, good, &error), WEIR_OK)
            << good << error.text;
    }
    EXPECT_EQ(std::count(flags, flags + 6, true), 1);
    EXPECT_TRUE(flags[5]);
    for (const char *bad : { "0", "0:", ":0", "3:0", "0:2", "0:1-0", "0:0-2", "0:**", "0:0,1:0",
                             "-1:0", "0:0 ", "99999999999999999999:0", "x" }) {
        weir_error error = {};
        EXPECT_EQ(weir_budget_parse_heads(flags, 3, 2, bad, &error), WEIR_ECONFIG) << bad;
        EXPECT_NE(std::string(error.text).find("3 layers with 2 KV heads"), std::string::npos)
            << error.text;
    }
}

TEST(PolicyBudget, APyramidKeepsItsMean)
{
    const Data data = random_data(4, 2, 2, 400, 8, 17);
    Text text(data, "snapkv", "split=pyramid,window=4,beta=10");
    std::vector<int64_t> rows(8);
    weir_budget_fill(rows.data(), text.policy(), 100, 400, nullptr);
    EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), int64_t{ 0 }), 800);
    EXPECT_EQ(rows, (std::vector<int64_t>{ 190, 190, 130, 130, 70, 70, 10, 10 }));
}

TEST(PolicyBudget, HeadsOfOtherLengthsAreJudgedByThemselves)
{
    const Data data = random_data(1, 2, 2, 50, 8, 18);
    Text text(data, "knorm", "every=1");
    text.forward(30);
    text.plan({ 10, 20 });
    text.forward(20);
    text.plan({ 15, 40 });
    EXPECT_EQ(text.held(0, 0).size(), 15u);
    EXPECT_EQ(text.held(0, 1).size(), 40u);
}

/* ---- failures -------------------------------------------------------------------------------- */

TEST(PolicyRead, AFailureToReadRowsIsToldAndChangesNothing)
{
    const Data data = random_data(1, 2, 1, 40, 8, 20);
    Text text(data, "keydiff", "");
    text.forward(40);
    text.read_status = WEIR_EIO;
    try {
        text.plan({ 10 });
        FAIL() << "no failure";
    } catch (const std::runtime_error &error) {
        EXPECT_NE(
            std::string(error.what()).find("layer 0, head 0 cannot be read"), std::string::npos
        ) << error.what();
    }
    EXPECT_EQ(text.held(0, 0).size(), 40u);
    text.read_status = WEIR_OK;
    text.plan({ 10 });
    EXPECT_EQ(text.held(0, 0).size(), 10u);
}

TEST(PolicyRead, KeysThatAreNoNumbersAreCountedAndGoFirst)
{
    Data data = random_data(1, 1, 1, 30, 8, 21);
    for (size_t j : { 3u, 17u }) data.k[j * 8] = NAN;
    Text text(data, "knorm", "");
    text.forward(30);
    text.plan({ 28 });
    EXPECT_EQ(text.last_plan().n_nan, 2);
    for (const int32_t p : { 3, 17 })
        EXPECT_FALSE(std::binary_search(text.held(0, 0).begin(), text.held(0, 0).end(), p));
}

/* ---- turning --------------------------------------------------------------------------------- */

TEST(PolicyTurn, ThereAndBackIsTheSameRow)
{
    for (const bool is_interleaved : { false, true }) {
        const Data data = random_data(1, 1, 1, 9, 16, 22, 12, is_interleaved);
        const auto frequencies = data.frequencies();
        const weir_policy_shape shape = policy_test::shape_of(data, frequencies, 0);
        Floats rows = data.k;
        std::vector<int64_t> there(9), back(9);
        for (size_t i = 0; i < 9; i++)
            there[i] = static_cast<int64_t>(i) * 1000 - 4000, back[i] = -there[i];
        weir_rows_rotate(rows.data(), 9, there.data(), &shape);
        EXPECT_GT(std::fabs(rows[0] - data.k[0]) + std::fabs(rows[16] - data.k[16]), 1e-2);
        for (size_t i = 0; i < 9; i++)
            for (size_t d = 12; d < 16; d++)
                EXPECT_EQ(rows[i * 16 + d], data.k[i * 16 + d]) << "dims that are not rotated";
        weir_rows_rotate(rows.data(), 9, back.data(), &shape);
        for (size_t i = 0; i < rows.size(); i++) EXPECT_NEAR(rows[i], data.k[i], 2e-6);
    }
}

/* ---- what observing costs -------------------------------------------------------------------- */
TEST(PolicyPrice, FollowsFromWhatHasToBeSeen)
{
    const Data data = random_data(2, 4, 2, 64, 16, 5);
    const auto price = [&](const char *name, int64_t rows) {
        return weir_policy_price_of(Text(data, name, "").policy(), rows);
    };
    const weir_policy_price sinks = price("sinks", 100), h2o = price("h2o", 100),
                            snapkv = price("snapkv", 100), tova = price("tova", 100);
    EXPECT_EQ(sinks.step_bytes + sinks.step_flops + sinks.prompt_flops, 0);
    EXPECT_FALSE(sinks.reads_keys || sinks.sees_mass || sinks.reads_prompt_keys_again);
    EXPECT_TRUE(h2o.sees_mass && h2o.reads_prompt_keys_again && !h2o.reads_keys);
    EXPECT_EQ(h2o.step_bytes, 24.0 * 2 * 4 * 100) << "layers, query heads, rows";
    EXPECT_EQ(price("h2o", 200).step_bytes, 2 * h2o.step_bytes);
    EXPECT_EQ(h2o.prompt_flops, (2.0 * 16 + 24) * 2 * 4 * 100);
    EXPECT_TRUE(tova.sees_mass && !tova.reads_prompt_keys_again) << "the last row has logits";
    EXPECT_EQ(snapkv.window, 64);
    EXPECT_EQ(snapkv.step_bytes, 2.0 * 2 * 4 * 16 * sizeof(float))
        << "a query of each head, read and written";
    EXPECT_EQ(price("snapkv", 200).step_bytes, snapkv.step_bytes);
    EXPECT_TRUE(snapkv.reads_keys && !snapkv.reads_values);
}

} // namespace
