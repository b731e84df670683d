/* Budgets that heads share, rows for a slower tier, failures, and what observing costs. */
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "engine/kv/policy/rotate.h"
#include "tests/unit/kv/policy_sequence.h"

namespace {

using policy_test::Data;
using policy_test::Floats;
using policy_test::Ints;
using policy_test::random_data;
using policy_test::Sequence;
using policy_test::sorted_out;

/* ---- budgets of heads ------------------------------------------------------------------------ */

TEST(PolicyBudget, HeadsOfALayerShareTheirSumByScore)
{
    Data data = random_data(1, 4, 4, 64, 8, 14);
    for (size_t i = 0; i < 64 * 8; i++)
        data.k[i] *= 100; /* the first head's scores are below all others */
    Sequence seq(data, "knorm", "split=adaptive");
    seq.forward(64);
    std::vector<Floats> scores;
    for (int64_t g = 0; g < 4; g++) scores.push_back(seq.scores(0, g, 16));
    seq.plan({ 16 }, true, 0.25);
    size_t sum = 0;
    float least_kept = INFINITY, most_dropped = -INFINITY;
    for (int64_t g = 0; g < 4; g++) {
        const Ints &held = seq.held(0, g);
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
    EXPECT_EQ(seq.held(0, 0).size(), 4u);
    EXPECT_GT(least_kept, most_dropped);
}

TEST(PolicyBudget, HeadsThatShareAreDueTogether)
{
    Data data = random_data(2, 4, 2, 120, 8, 23);
    for (size_t i = 0; i < 120 * 8; i++) data.k[i] *= 2;
    Sequence seq(data, "knorm", "split=adaptive,every=5");
    seq.forward(10);
    while (seq.position() < 120) {
        seq.forward(1);
        for (int64_t layer = 0; layer < 2; layer++) {
            const size_t sum = seq.held(layer, 0).size() + seq.held(layer, 1).size();
            EXPECT_LE(sum, 2u * (12 + 5));
            for (int64_t g = 0; g < 2; g++)
                EXPECT_LE(
                    static_cast<int64_t>(seq.held(layer, g).size()),
                    weir_policy_peak_rows(seq.policy(), 12, 0, 1)
                );
        }
        const size_t first = seq.held(0, 0).size() + seq.held(0, 1).size();
        EXPECT_EQ(seq.is_due({ 12 }, WEIR_POLICY_DECODE, true), first >= 2u * (12 + 5));
        if (seq.is_due({ 12 }, WEIR_POLICY_DECODE, true)) seq.plan({ 12 }, true, 0.2);
    }
    EXPECT_LT(seq.held(0, 0).size() + 5, seq.held(0, 1).size());
}

TEST(PolicyBudget, AHeadTooShortToBeJudgedStaysWholeAndLendsTheRest)
{
    const Data data = random_data(1, 2, 2, 90, 8, 24);
    Sequence seq(data, "lagkv", "split=adaptive,sinks=0,lag=10");
    seq.forward(60);
    seq.plan({ 12, 60 });
    seq.forward(2);
    seq.plan({ 20 }, true, 0.2); /* 14 rows in one head, fewer than 20; 62 in the other */
    EXPECT_EQ(seq.held(0, 0).size(), 14u);
    EXPECT_EQ(seq.held(0, 1).size(), 26u);
}

TEST(PolicyBudget, SharedRowsThatFitAreLeftAlone)
{
    const Data data = random_data(1, 2, 2, 20, 8, 15);
    Sequence seq(data, "knorm", "split=adaptive");
    seq.forward(20);
    seq.plan({ 25, 15 }, true, 0.2);
    EXPECT_EQ(seq.held(0, 1).size(), 20u);
}

TEST(PolicyBudget, ListedHeadsKeepEveryRowTheOthersSinksAndAWindow)
{
    const Data data = random_data(2, 4, 2, 40, 8, 16);
    Sequence seq(data, "duo", "sinks=3,recent=5,heads=0:1;1:0-0");
    bool whole[4];
    weir_error error = {};
    ASSERT_EQ(
        weir_budget_parse_heads(whole, 2, 2, weir_policy_options_of(seq.policy())->heads, &error),
        WEIR_OK
    ) << error.text;
    std::vector<int64_t> rows(4);
    weir_budget_fill(rows.data(), seq.policy(), 99, 40, whole);
    seq.forward(40);
    EXPECT_TRUE(seq.is_due(rows, WEIR_POLICY_PROMPT_END));
    seq.plan(rows);
    EXPECT_EQ(seq.held(0, 1).size(), 40u);
    EXPECT_EQ(seq.held(1, 0).size(), 40u);
    EXPECT_EQ(seq.held(0, 0), (Ints{ 0, 1, 2, 35, 36, 37, 38, 39 }));
    EXPECT_EQ(seq.held(1, 1), seq.held(0, 0));
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
    Sequence seq(data, "snapkv", "split=pyramid,window=4,beta=10");
    std::vector<int64_t> rows(8);
    weir_budget_fill(rows.data(), seq.policy(), 100, 400, nullptr);
    EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), int64_t{ 0 }), 800);
    EXPECT_EQ(rows, (std::vector<int64_t>{ 190, 190, 130, 130, 70, 70, 10, 10 }));
}

TEST(PolicyBudget, HeadsOfOtherLengthsAreJudgedByThemselves)
{
    const Data data = random_data(1, 2, 2, 50, 8, 18);
    Sequence seq(data, "knorm", "every=1");
    seq.forward(30);
    seq.plan({ 10, 20 });
    seq.forward(20);
    seq.plan({ 15, 40 });
    EXPECT_EQ(seq.held(0, 0).size(), 15u);
    EXPECT_EQ(seq.held(0, 1).size(), 40u);
}

/* ---- failures -------------------------------------------------------------------------------- */

TEST(PolicyRead, AFailureToReadRowsIsToldAndChangesNothing)
{
    const Data data = random_data(1, 2, 1, 40, 8, 20);
    Sequence seq(data, "keydiff", "");
    seq.forward(40);
    seq.read_status = WEIR_EIO;
    try {
        seq.plan({ 10 });
        FAIL() << "no failure";
    } catch (const std::runtime_error &error) {
        EXPECT_NE(
            std::string(error.what()).find("layer 0, head 0 cannot be read"), std::string::npos
        ) << error.what();
    }
    EXPECT_EQ(seq.held(0, 0).size(), 40u);
    seq.read_status = WEIR_OK;
    seq.plan({ 10 });
    EXPECT_EQ(seq.held(0, 0).size(), 10u);
}

TEST(PolicyRead, KeysThatAreNoNumbersAreCountedAndGoFirst)
{
    Data data = random_data(1, 1, 1, 30, 8, 21);
    for (size_t j : { 3u, 17u }) data.k[j * 8] = NAN;
    Sequence seq(data, "knorm", "");
    seq.forward(30);
    seq.plan({ 28 });
    EXPECT_EQ(seq.last_plan().n_nan, 2);
    for (const int32_t p : { 3, 17 })
        EXPECT_FALSE(std::binary_search(seq.held(0, 0).begin(), seq.held(0, 0).end(), p));
}

/* ---- rotating -------------------------------------------------------------------------------- */

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
        return weir_policy_price_of(Sequence(data, name, "").policy(), rows);
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
